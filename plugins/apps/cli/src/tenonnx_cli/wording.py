"""Messages in terms of the command line: options instead of Python arguments."""

from __future__ import annotations

import re

#: ``overwrite=True (--overwrite)``: an argument with its option.
_BESIDE = re.compile(r'\b[a-z][a-z_]*=(?:\w*|"[^"]*") \((--[a-z][^)]*)\)')

#: ``(feeds=, --inputs)``, ``(verify=False, --no-verify)``: the same within parentheses.
_INSIDE = re.compile(r"\((?:[a-z][a-z_]*=\w*,? ?)+(?=--[a-z])")


def for_command_line(text: str) -> str:
    """A message whose advice names only options."""
    return _INSIDE.sub("(", _BESIDE.sub(r"\1", text))
