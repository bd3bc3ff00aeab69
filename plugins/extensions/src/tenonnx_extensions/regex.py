"""Replacing and splitting by regular expressions, of RE2 and of ECMAScript."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from tenonnx.extend import DType, TensorType, TypeMismatch, dtypes, primitive
from tenonnx_extensions.checks import DOMAIN, mapped, module, single, strings
from tenonnx_standard.checking import numpy_rule


@primitive("StringRegexReplace", domain=DOMAIN, grows_text=True)
def string_regex_replace(text, pattern, rewrite, *, global_replace=1):
    r"""Each string with the matches of a pattern of RE2 replaced, or with the first one; ``\1`` is the first group."""


@primitive("StringECMARegexReplace", domain=DOMAIN, grows_text=True)
def string_ecma_regex_replace(input, pattern, rewrite, *, global_replace=1, ignore_case=0):
    """Each string with the matches of a pattern of ECMAScript replaced, or with the first one; ``$1`` is a group."""


string_regex_replace.requires(dtypes(text="string", pattern="string", rewrite="string"))
string_ecma_regex_replace.requires(dtypes(input="string", pattern="string", rewrite="string"))


@string_regex_replace.type
def string_regex_replace_type(text, pattern, rewrite, *, global_replace):
    return text.tensor


@string_ecma_regex_replace.type
def string_ecma_regex_replace_type(input, pattern, rewrite, *, global_replace, ignore_case):
    return input.tensor


@lru_cache(maxsize=64)
def _of_re2(title, pattern):
    """A compiled pattern of RE2. Raises ``TypeMismatch`` where it is none."""
    re2 = module("re2", "text")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise TypeMismatch(f"{title}: the pattern cannot be understood: {error}", given=pattern) from error


@numpy_rule(string_regex_replace)
def string_regex_replace_numpy(text, pattern, rewrite, *, global_replace):
    title = string_regex_replace.title
    written = single(string_regex_replace, "pattern", pattern)
    if not written:
        raise TypeMismatch(f"{title}: the pattern is empty")
    compiled, template = _of_re2(title, written), single(string_regex_replace, "rewrite", rewrite)
    parts = _parts(title, template, r"\\(\d|\\)", compiled.groups)
    return mapped(
        lambda each: compiled.sub(lambda found: _filled(parts, found), each, 0 if global_replace else 1), text
    )


def _parts(title, template, reference, groups):
    """The pieces of a replacement: text, and numbers of groups."""
    parts, end = [], 0
    for found in re.finditer(reference, template):
        parts.append(template[end : found.start()])
        parts.append("\\" if found[1] == "\\" else int(found[1]))
        end = found.end()
    parts.append(template[end:])
    missing = [part for part in parts if isinstance(part, int) and part > groups]
    if missing:
        raise TypeMismatch(
            f"{title}: the replacement names a group that the pattern lacks", given=f"group {missing[0]}"
        )
    return parts


def _filled(parts, found):
    return "".join((found.group(part) or "") if isinstance(part, int) else part for part in parts)


@lru_cache(maxsize=64)
def _of_ecma(title, pattern, ignore_case=0):
    """A compiled pattern of ECMAScript, as far as Python says the same. Raises ``TypeMismatch`` where it is none."""
    named = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern)
    try:
        return re.compile(named, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except re.error as error:
        raise TypeMismatch(f"{title}: the pattern cannot be understood: {error}", given=pattern) from error


@numpy_rule(string_ecma_regex_replace)
def string_ecma_regex_replace_numpy(input, pattern, rewrite, *, global_replace, ignore_case):
    title = string_ecma_regex_replace.title
    written = single(string_ecma_regex_replace, "pattern", pattern)
    if not written:
        raise TypeMismatch(f"{title}: the pattern is empty")
    compiled = _of_ecma(title, written, ignore_case)
    template = single(string_ecma_regex_replace, "rewrite", rewrite)

    def filled(found):
        def part(reference):
            token = reference[1]
            if token == "&":
                return found.group()
            if token == "$":
                return "$"
            return (found.group(int(token)) or "") if int(token) <= compiled.groups else ""

        return re.sub(r"\$(\d{1,2}|&|\$)", part, template)

    return mapped(lambda each: compiled.sub(filled, each, 0 if global_replace else 1), input)


# ----- splitting ------------------------------------------------------------------------------------------------------


@primitive("StringRegexSplitWithOffsets", domain=DOMAIN)
def string_regex_split_with_offsets(input, delim_regex_pattern, keep_delim_regex_pattern):
    """Split strings at the matches of an RE2 pattern: the pieces of all strings, the bytes of its string where each
    begins and ends, and the positions where the pieces of each string begin.

    The delimiter is the first group of the pattern: a pattern without a group does not split. Delimiters that match
    the other pattern as a whole are pieces, too; an empty one keeps none.
    """


@primitive("StringECMARegexSplitWithOffsets", domain=DOMAIN)
def string_ecma_regex_split_with_offsets(input, pattern, keep_pattern, *, ignore_case=0):
    """The pieces as of StringRegexSplitWithOffsets, with patterns of ECMAScript."""


string_regex_split_with_offsets.requires(
    dtypes(input="string", delim_regex_pattern="string", keep_delim_regex_pattern="string")
)
string_ecma_regex_split_with_offsets.requires(dtypes(input="string", pattern="string", keep_pattern="string"))


@string_regex_split_with_offsets.type
def string_regex_split_with_offsets_type(input, delim_regex_pattern, keep_delim_regex_pattern):
    return _split_types()


@string_ecma_regex_split_with_offsets.type
def string_ecma_regex_split_with_offsets_type(input, pattern, keep_pattern, *, ignore_case):
    return _split_types()


def _split_types():
    return (TensorType(DType.string, (None,)), *[TensorType(DType.int64, (None,))] * 3)


@numpy_rule(string_regex_split_with_offsets)
def string_regex_split_with_offsets_numpy(input, delim_regex_pattern, keep_delim_regex_pattern):
    op = string_regex_split_with_offsets
    pattern = _of_re2(op.title, single(op, "delim_regex_pattern", delim_regex_pattern))
    written = single(op, "keep_delim_regex_pattern", keep_delim_regex_pattern)
    keep = _of_re2(op.title, written) if written else None
    return _pieces(input, pattern if pattern.groups else None, keep)


@numpy_rule(string_ecma_regex_split_with_offsets)
def string_ecma_regex_split_with_offsets_numpy(input, pattern, keep_pattern, *, ignore_case):
    op = string_ecma_regex_split_with_offsets
    delimiter = _of_ecma(op.title, single(op, "pattern", pattern), ignore_case)
    written = single(op, "keep_pattern", keep_pattern)
    return _pieces(input, delimiter, _of_ecma(op.title, written, ignore_case) if written else None)


def _pieces(input, pattern, keep):
    found, starts = [], [0]
    for text in input.reshape(-1).tolist():
        end = 0
        for match in pattern.finditer(text) if pattern is not None else ():
            start, stop = match.span(1 if match.re.groups else 0) if hasattr(match, "re") else match.span(1)
            if stop <= start:
                continue
            if start > end:
                found.append((text, end, start))
            if keep is not None and keep.fullmatch(text[start:stop]):
                found.append((text, start, stop))
            end = stop
        if end < len(text):
            found.append((text, end, len(text)))
        starts.append(len(found))
    sizes = [[len(text[:place].encode("utf-8", "surrogatepass")) for place in places] for text, *places in found]
    begins, ends = np.asarray(sizes, np.int64).reshape(-1, 2).T
    return strings([text[a:b] for text, a, b in found]), begins.copy(), ends.copy(), np.asarray(starts, np.int64)
