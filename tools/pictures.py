"""Write the pictures of the documentation into ``docs/pictures``: graphs, charts and terminals.

    uv run python tools/pictures.py

Each picture shows the example of a page, which runs again; a terminal shows the command above it in
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
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from charts import bars, curves, picture, words
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

#: Colors of terminals, in addition to the style of every picture.
TERMINAL_STYLE = (
    "<style>.red{fill:#b3261e}.green{fill:#1a7338}.yellow{fill:#8a5a00}.bold{font-weight:bold}.line{stroke:#566072}"
    "@media(prefers-color-scheme:dark){.red{fill:#ff8d85}.green{fill:#63d68d}.yellow{fill:#e6b84a}"
    ".line{stroke:#aab3c2}}</style>"
)


def side_by_side(graphs: Mapping[str, tx.Graph]) -> str:
    """Drawings of graphs side by side, each below its title."""
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


def before_and_after() -> str:
    """Two ops of ``ai.onnx.ml``, and their expansion into ops of ``ai.onnx``."""
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

    def row(label: str, graph: tx.Graph) -> tuple[str, float, str]:
        size = len(graph.to_proto().SerializeToString())
        error = np.linalg.norm(graph.run(feeds, backend="numpy")[name] - exact) / np.linalg.norm(exact)
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


#: A command on the page and the picture below it.
SHOWN = re.compile(
    r"^```console(?: fails)?\n\$ (tenonnx .*)\n```\n\n!\[[^]]*\]\(\.\./pictures/(\w+\.svg)\)$", re.MULTILINE
)

#: Characters per line of a terminal, width of a character, and distance of lines.
COLUMNS, ADVANCE, LINE = 100, 7.8, 18.0

#: Names of the ANSI colors that commands print.
COLORS = {1: "red", 2: "green", 3: "yellow"}


def printed(command: str) -> str:
    """Output of a command on a terminal, escape sequences included, in a folder with the examples."""
    os.environ.pop("NO_COLOR", None)
    os.environ.update({"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"})
    output.PATIENCE = 3600.0  # no progress lines, even on a slow machine
    shown = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("examples").symlink_to(EXAMPLES)
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            run_command(shlex.split(command)[1:])
    return shown.getvalue()


def parts_of_line(line: Text, y: float) -> Iterator[str]:
    """SVG texts of the words of a line, each at its column in any font."""
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
    """A picture of a terminal with a command and its output."""
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
    for name, picture in {**PICTURES, **terminals}.items():
        (FOLDER / name).write_text(picture(), "utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
