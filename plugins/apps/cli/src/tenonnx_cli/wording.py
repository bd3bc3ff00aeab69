"""Messages in the words of the command line: options in place of the arguments of Python that they are."""

from __future__ import annotations

import re

#: ``overwrite=True (--overwrite)``: an argument, and the option that gives it.
_BESIDE = re.compile(r'\b[a-z][a-z_]*=(?:\w*|"[^"]*") \((--[a-z][^)]*)\)')

#: ``(feeds=, --inputs)``, ``(verify=False, --no-verify)``: the same where both are in brackets.
_INSIDE = re.compile(r"\((?:[a-z][a-z_]*=\w*,? ?)+(?=--[a-z])")


def for_command_line(text: str) -> str:
    """A message whose advice names options alone."""
    return _INSIDE.sub("(", _BESIDE.sub(r"\1", text))
