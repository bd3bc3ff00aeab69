"""Escaping of text from files, so that it cannot control a terminal or forge lines."""

from __future__ import annotations

import re

#: Control characters, bidirectional and invisible marks, line separators, and unassigned code points.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\U000e0000-\U000e007f"
    + "".join(f"{chr(k << 16 | 0xFFFE)}{chr(k << 16 | 0xFFFF)}" for k in range(1, 17))
)
_IN_LINES = re.compile(f"[{_HIDDEN}\ud800-\udfff]")
_IN_A_LINE = re.compile(f"[{_HIDDEN}\ud800-\udfff\t\n]")


def printable(text: str) -> str:
    """``text`` escaped as one line."""
    return _IN_A_LINE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """``text`` escaped, keeping its lines."""
    return _IN_LINES.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
