"""Widths and truncation of text in drawings."""

from __future__ import annotations

from html import escape as _escape

from tenonnx_cli.printable import printable, printable_lines

#: Characters of a label that are drawn.
LONGEST = 36

#: Widths of characters of a sans-serif font of 12 units, by kind.
_NARROW, _WIDE = "fijlrtI.,:;|'()[]!/ -", "mwMW@%&"
_WIDTHS = dict.fromkeys(_NARROW, 4.4) | dict.fromkeys(_WIDE, 11.0)


def escape(text: str) -> str:
    """Text as a part of a drawing or page."""
    return _escape(printable_lines(text))


def markup(text: str) -> str:
    """One line of text as a part of a drawing or page."""
    return escape(printable(text))


def short(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text, as far as it is long."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def width(text: str) -> float:
    """Width of a text in units of a drawing, a little more rather than less."""
    return sum(_WIDTHS.get(c) or (8.6 if c.isupper() else 7.0 if c < "\u0300" else 12.5) for c in text)
