"""Widths and truncation of text in drawings."""

from __future__ import annotations

from html import escape as _escape

from tenonnx_cli.printable import printable, printable_lines

#: Maximum length of a label.
LONGEST = 36

#: Characters of a sans-serif font by width class; widths are for size 12.
_NARROW, _WIDE = "fijlrtI.,:;|'()[]!/ -", "mwMW@%&"
_WIDTHS = dict.fromkeys(_NARROW, 4.4) | dict.fromkeys(_WIDE, 11.0)


def escape(text: str) -> str:
    """Text escaped for a drawing or page."""
    return _escape(printable_lines(text))


def markup(text: str) -> str:
    """One line of text, escaped for a drawing or page."""
    return escape(printable(text))


def short(text: str, longest: int = LONGEST) -> str:
    """Text truncated to ``longest`` characters."""
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def width(text: str) -> float:
    """Upper estimate of a text's width, in units of a drawing."""
    return sum(_WIDTHS.get(c) or (8.6 if c.isupper() else 7.0 if c < "\u0300" else 12.5) for c in text)
