"""Regular expressions with RE2's syntax."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value, constant, static
from tenonnx_extensions.regex import string_regex_replace
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import known


def texts(*contents: str) -> Value:
    """A constant vector of strings."""
    return constant(np.asarray(contents, object))


def replaced(x: Value, pattern: str | Value, by: str | Value, everywhere: bool = True) -> Value:
    """Replace all matches of an RE2 pattern, or only the first match of each string."""
    given = [texts(each) if isinstance(each, str) else each for each in (pattern, by)]
    result: Value = string_regex_replace(x, *given, global_replace=int(everywhere))
    return result


@rule("StaticRegexFullMatch")
def full_match(node: Any, x: Value) -> Value:
    return ops.regex_full_match(x, pattern=node["pattern"])


@rule("RegexFullMatch")
def full_match_of(node: Any, x: Value, pattern: Value) -> Value:
    return ops.regex_full_match(x, pattern=str(known(pattern, "a pattern").reshape(-1)[0]))


@rule("StaticRegexReplace")
def replace(node: Any, x: Value) -> Value:
    return replaced(x, node["pattern"] or "(?:)", node["rewrite"], node.get("replace_global", True))


@rule("RegexReplace")
def replace_by(node: Any, x: Value, pattern: Value, rewrite: Value) -> Value:
    """RegexReplace, where pattern and replacement are inputs."""
    contents = static(pattern)
    is_empty = contents is not None and str(np.reshape(contents, -1)[0]) == ""
    found = texts("(?:)") if is_empty else ops.reshape(pattern, [1])
    return replaced(x, found, ops.reshape(rewrite, [1]), node.get("replace_global", True))
