"""SVG charts for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

#: Every picture paints its own background, since a page may be dark on a light system.
STYLE = (
    "<style>.ground{fill:#ffffff;stroke:#d5dae2}.words{fill:#1c2330}.note{fill:#566072}.rule{stroke:#d5dae2}"
    ".first{fill:#3a6fc4;stroke:#3a6fc4}.second{fill:#bf7a2c;stroke:#bf7a2c}.curve{fill:none;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){.ground{fill:#14181f;stroke:#3a4250}.words{fill:#e8ebf0}.note{fill:#aab3c2}"
    ".rule{stroke:#3a4250}.first{fill:#6d9ef0;stroke:#6d9ef0}.second{fill:#dd9d55;stroke:#dd9d55}}"
    ".curve.first,.curve.second{fill:none}</style>"
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


def curves(title: str, across: str, series: Mapping[str, Sequence[float]]) -> str:
    """A chart of up to two series of positive numbers, with a number per step from 1 on."""
    left, top, wide, high = 52.0, 48.0, 430.0, 220.0
    count = max(map(len, series.values()))
    most = float(math.ceil(max(map(max, series.values()))))
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


def bars(title: str, rows: Sequence[tuple[str, float, str]], left: float = 190.0) -> str:
    """A chart of horizontal bars: label, number, and text to the right of the bar. Labels end at x = ``left``."""
    wide, step = 230.0, 30.0
    most = max(number for _, number, _ in rows) or 1
    parts = [words(16, 28, title, weight="bold")]
    for k, (label, number, beside) in enumerate(rows):
        y = 48 + step * k
        length = wide * number / most
        parts.append(words(left - 10, y + 15, label, anchor="end"))
        parts.append(f'<rect class="first" x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="20" rx="2"/>')
        parts.append(words(left + length + 8, y + 15, beside, kind="note"))
    return picture(left + wide + 190, 48 + step * len(rows) + 14, parts)
