"""Write the pictures of the documentation into ``docs/pictures``, for light and dark pages: graphs, charts, terminals.

    uv run python tools/pictures.py

Each picture shows the example of a page, computed anew; a terminal shows the command above it in
``docs/start/command-line.md``. ``plugins/apps/serve/tests/browser/pictures.py`` takes the pictures of the page in the
browser.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

import tenonnx as tx
import tenonnx_training as tt
from tenonnx_cli import main as run_command
from tenonnx_cli import output
from tenonnx_cli.drawing import escape, to_svg
from tenonnx_quantized.tuning.quantize import quantize

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "docs" / "pictures"

#: Every picture has a background of its own, since a page may be dark where the system is light.
STYLE = (
    "<style>.ground{fill:#ffffff;stroke:#d5dae2}.words{fill:#1c2330}.note{fill:#566072}.rule{stroke:#d5dae2}"
    ".first{fill:#3a6fc4;stroke:#3a6fc4}.second{fill:#bf7a2c;stroke:#bf7a2c}.curve{fill:none;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){.ground{fill:#14181f;stroke:#3a4250}.words{fill:#e8ebf0}.note{fill:#aab3c2}"
    ".rule{stroke:#3a4250}.first{fill:#6d9ef0;stroke:#6d9ef0}.second{fill:#dd9d55;stroke:#dd9d55}}"
    ".curve.first,.curve.second{fill:none}</style>"
)

#: Colors of terminals, beside the style of every picture.
TERMINAL_STYLE = (
    "<style>.red{fill:#b3261e}.green{fill:#1a7338}.yellow{fill:#8a5a00}.bold{font-weight:bold}.line{stroke:#566072}"
    "@media(prefers-color-scheme:dark){.red{fill:#ff8d85}.green{fill:#63d68d}.yellow{fill:#e6b84a}"
    ".line{stroke:#aab3c2}}</style>"
)


def picture(width: float, height: float, parts: Sequence[str]) -> str:
    """An SVG document of ``parts`` on a background."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="13">',
            STYLE,
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )


def words(x: float, y: float, text: str, *, kind: str = "words", anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def side_by_side(graphs: Mapping[str, tx.Graph]) -> str:
    """Drawings of graphs beside each other, each below its title."""
    parts, x, height = [], 16.0, 0.0
    for title, graph in graphs.items():
        drawing = to_svg(graph)
        wide = float(drawing.split('width="', 1)[1].split('"', 1)[0])
        high = float(drawing.split('height="', 1)[1].split('"', 1)[0])
        wide = max(wide, 7.5 * len(title))
        parts.append(words(x + 8, 28, title, weight="bold"))
        parts.append(drawing.replace("<svg ", f'<svg x="{x:.0f}" y="40" ', 1).rstrip())
        x += wide + 24
        height = max(height, high)
    return picture(x - 8, height + 52, parts)


def curves(title: str, across: str, series: Mapping[str, Sequence[float]]) -> str:
    """A chart of up to two series of positive numbers, one for each step from 1 on."""
    left, top, wide, high = 52.0, 48.0, 430.0, 220.0
    count = max(map(len, series.values()))
    most = float(np.ceil(max(map(max, series.values()))))
    parts = [words(16, 28, title, weight="bold")]
    for k in range(5):
        y = top + high * k / 4
        parts.append(f'<path class="rule" d="M{left:.1f} {y:.1f}h{wide:.1f}"/>')
        parts.append(words(left - 8, y + 4, f"{most * (4 - k) / 4:.3g}", kind="note", anchor="end"))
    for step in range(1, count + 1):
        x = left + wide * (step - 1) / (count - 1)
        parts.append(words(x, top + high + 20, str(step), kind="note", anchor="middle"))
    parts.append(words(left + wide / 2, top + high + 42, across, kind="note", anchor="middle"))
    for kind, (name, numbers) in zip(("first", "second"), series.items(), strict=False):
        points = [(left + wide * k / (count - 1), top + high * (1 - number / most)) for k, number in enumerate(numbers)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="curve {kind}" d="M{path}"/>')
        parts += [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
        y = top + 24 + 22 * (kind == "second")
        parts.append(f'<rect class="{kind}" x="{left + wide - 150:.1f}" y="{y - 11:.1f}" width="12" height="12"/>')
        parts.append(words(left + wide - 132, y, name))
    return picture(left + wide + 24, top + high + 60, parts)


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """A chart of horizontal bars: a label, a number, and what to write beside the bar."""
    left, wide, step = 190.0, 230.0, 30.0
    most = max(number for _, number, _ in rows)
    parts = [words(16, 28, title, weight="bold")]
    for k, (label, number, beside) in enumerate(rows):
        y = 48 + step * k
        length = wide * number / most
        parts.append(words(left - 10, y + 15, label, anchor="end"))
        parts.append(f'<rect class="first" x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="20" rx="2"/>')
        parts.append(words(left + length + 8, y + 15, beside, kind="note"))
    return picture(left + wide + 190, 48 + step * len(rows) + 14, parts)


def before_and_after() -> str:
    """Two ops of ``ai.onnx.ml``, and the ops of ``ai.onnx`` that they expand into."""
    iris = tx.load(EXAMPLES / "iris" / "iris.onnx")
    part = tx.extract(iris, inputs=["measurements"], outputs=["label", "probability_tensor"])
    plain = tx.simplify(tx.retarget(part, opset_version=17, domains=["ai.onnx"]))
    return side_by_side({"before: ai.onnx.ml": part, "after: ai.onnx 17": plain})


def loss_curve() -> str:
    """The losses of the example in ``docs/how-to/fine-tune.md``."""
    digits = np.load(EXAMPLES / "digits_cnn" / "digits.npz")
    images, labels = 1 - digits["images"], digits["labels"]
    history = tt.fit(
        tx.load(EXAMPLES / "digits_cnn" / "digits-cnn.onnx"),
        (images[:600], labels[:600]),
        loss="softmax_cross_entropy",
        optimizer=tt.Adam(2e-3),
        epochs=10,
        validation=(images[600:], labels[600:]),
    )
    series = {
        "training loss": [epoch["loss"] for epoch in history.epochs],
        "validation loss": [epoch["validation_loss"] for epoch in history.epochs],
    }
    return curves("Fine-tuning digits-cnn.onnx on inverted images", "epoch", series)


def sizes_and_errors() -> str:
    """The file size and the error of each kind of quantization, for a small Llama."""
    folder = EXAMPLES / "quantized"
    with np.load(folder / "llama.npz") as archive:
        feeds = dict(archive)
    graph = tx.load(folder / "llama.onnx")
    (name,) = (value.name for value in graph.outputs[:1])
    exact = graph.run(feeds, backend="numpy")[name]

    def row(label: str, made: tx.Graph) -> tuple[str, float, str]:
        size = len(made.to_proto().SerializeToString())
        error = np.linalg.norm(made.run(feeds, backend="numpy")[name] - exact) / np.linalg.norm(exact)
        said = f"{size / 1024:.1f} KiB, error {error:.2%}" if error else f"{size / 1024:.1f} KiB"
        return label, size, said

    rows = [row("float32", graph), row("float16", tx.lower_precision(graph, "float16").graph)]
    for label, options in {
        "8-bit weights": {"mode": "weights", "bits": 8},
        "8 bits, static": {"mode": "static"},
        "4-bit weights": {"mode": "weights", "bits": 4},
    }.items():
        rows.append(row(label, quantize(graph, [feeds], **options)[0]))
    return bars("Size and error of llama.onnx", rows)


#: A command on the page, and the picture below it.
SHOWN = re.compile(
    r"^```console(?: fails)?\n\$ (tenonnx .*)\n```\n\n!\[[^]]*\]\(\.\./pictures/(\w+\.svg)\)$", re.MULTILINE
)

#: Characters in a line of a terminal, the width of one, and the distance of lines.
COLUMNS, ADVANCE, LINE = 100, 7.8, 18.0

#: Names of the colors that commands print, by their numbers.
COLORS = {1: "red", 2: "green", 3: "yellow"}


def printed(command: str) -> str:
    """Output of a command on a terminal, escape sequences included, in a folder with the examples."""
    os.environ.pop("NO_COLOR", None)
    os.environ.update({"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    output.PATIENCE = 3600.0  # no line about progress, however slow the machine is
    shown = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(EXAMPLES)
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            run_command(shlex.split(command)[1:])
    return shown.getvalue()


def parts_of_line(line: Text, y: float) -> Iterator[str]:
    """Drawings of the words of a line, each at its column, whatever the font of the reader is."""
    column = 0
    for text, style, _ in line.render(Console()):
        number = style.color.number if style and style.color else None
        kind = (COLORS[number] if number else "words") + (" bold" if style and style.bold else "")
        for match in re.finditer(r"─+|[^\s─]+(?: [^\s─]+)*", text):
            x, wide = 16 + ADVANCE * (column + match.start()), ADVANCE * len(match[0])
            if match[0][0] == "─":
                yield f'<path class="line" d="M{x:.1f} {y - 4:.1f}h{wide:.1f}"/>'
            else:
                yield f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" textLength="{wide:.1f}">{escape(match[0])}</text>'
        column += len(text)


def terminal(command: str) -> str:
    """A picture of a terminal: a command, and what it prints."""
    lines = [
        Text.assemble((f"$ {command}", "bold")),
        *Text.from_ansi(printed(command).rstrip()).split("\n", allow_blank=True),
    ]
    rows = [row for line in lines for row in line.divide(range(COLUMNS, len(line), COLUMNS))]
    parts = [part for k, row in enumerate(rows) for part in parts_of_line(row, 28 + LINE * k)]
    font = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    group = [TERMINAL_STYLE, f'<g font-family="{font}">', *parts, "</g>"]
    return picture(32 + ADVANCE * COLUMNS, 40 + LINE * (len(rows) - 1), group)


PICTURES = {
    "before-and-after.svg": before_and_after,
    "loss.svg": loss_curve,
    "sizes-and-errors.svg": sizes_and_errors,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    page = (ROOT / "docs" / "start" / "command-line.md").read_text("utf-8")
    terminals = {name: partial(terminal, command) for command, name in SHOWN.findall(page)}
    for name, made in {**PICTURES, **terminals}.items():
        (FOLDER / name).write_text(made(), "utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
