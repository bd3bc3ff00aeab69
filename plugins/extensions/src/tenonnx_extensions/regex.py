"""Replacing and splitting by regular expressions, in RE2 and ECMAScript syntax."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    NotRepresentable,
    TensorType,
    TypeMismatch,
    constant,
    dtypes,
    primitive,
    static,
    subgraph,
)
from tenonnx_extensions.checks import DOMAIN, mapped, module, single, strings
from tenonnx_standard.checking import numpy_rule


@primitive("StringRegexReplace", domain=DOMAIN, grows_text=True)
def string_regex_replace(text, pattern, rewrite, *, global_replace=1):
    r"""Replace the matches of an RE2 pattern in each string, or only the first one; ``\1`` is the first group.

    Patterns may match single bytes with ``\C``. Raises ``TypeMismatch`` if the result is not UTF-8.
    """


@primitive("StringECMARegexReplace", domain=DOMAIN, grows_text=True)
def string_ecma_regex_replace(input, pattern, rewrite, *, global_replace=1, ignore_case=0):
    """Replace the matches of an ECMAScript pattern in each string, or only the first one; ``$1`` is a group."""


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
    """Compile an RE2 pattern. Raises ``TypeMismatch`` for invalid syntax."""
    re2 = module("re2", "text")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise TypeMismatch(f"{title}: cannot parse the pattern: {error}", given=pattern) from error


@numpy_rule(string_regex_replace)
def string_regex_replace_numpy(text, pattern, rewrite, *, global_replace):
    op, title = string_regex_replace, string_regex_replace.title
    written = single(op, "pattern", pattern)
    if not written:
        raise TypeMismatch(f"{title}: the pattern is empty")
    is_of_bytes = r"\C" in written
    compiled, template = _of_re2(title, written.encode() if is_of_bytes else written), single(op, "rewrite", rewrite)
    parts = _parts(title, template, compiled.groups)
    count = 0 if global_replace else 1
    if not is_of_bytes:
        return mapped(lambda each: compiled.sub(lambda match: "".join(_filled(parts, match)), each, count), text)

    def replaced(each):
        contents = each.encode("utf-8", "surrogatepass")
        found = compiled.sub(lambda match: b"".join(map(_utf8, _filled(parts, match))), contents, count)
        try:
            return found.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise TypeMismatch(f"{title}: the result is not UTF-8", given=f"{written!r} in {each!r}") from error

    return mapped(replaced, text)


def _utf8(part):
    return part.encode() if isinstance(part, str) else part


@string_regex_replace.lower()
def string_regex_replace_lowering(text, pattern, rewrite, *, global_replace):
    """Lower by splitting, for literals or one class of ASCII characters replaced globally by a literal."""
    known, template = static(pattern), static(rewrite)
    literals, by = None, "\\"
    if known is not None and template is not None:
        literals, by = _literals(str(known.reshape(-1)[0])), str(template.reshape(-1)[0])
    chains = literals is not None and len(literals) > 1 and any(each in by for each in literals)
    if literals is None or "\\" in by or chains or not global_replace:
        raise NotRepresentable(
            "ai.onnx can replace only a literal or a class of ASCII characters, everywhere and by a literal"
        )
    found = ops.reshape(text, [-1])
    for literal in literals:
        found = _split_and_joined(found, literal, by)
    return ops.reshape(found, ops.shape(text))


def _literals(pattern):
    """The strings that a pattern matches: a literal, or the characters of an ASCII class. None for other patterns."""
    if pattern and not re.search(r"[\\^$.|?*+()\[\]{}]", pattern):
        return [pattern]
    escaped = re.fullmatch(r"\\([^\w\s])", pattern, re.ASCII)
    if escaped:
        return [escaped[1]]
    if not re.fullmatch(r"\[[^^\]](?:[^\\\]]|\\.)*\]", pattern, re.DOTALL):
        return None
    try:
        compiled = re.compile(pattern)
    except re.error:
        return None
    if compiled.search("\u00e9\u4e2d\u20ac"):
        return None
    return [c for c in map(chr, range(128)) if compiled.fullmatch(c)] or None


def _split_and_joined(x, literal, by):
    """A vector of strings, split at a literal and joined by another."""
    pieces, counts = ops.string_split(x, delimiter=literal)
    count = ops.gather(ops.shape(pieces), constant(np.int64(1)))
    nothing = constant(strings([""], ()))

    def joined(step, going, text):
        piece = ops.gather(pieces, step, axis=1)
        if by:
            is_behind = ops.and_(ops.less(step, counts), ops.greater(step, constant(np.int64(0))))
            piece = ops.string_concat(ops.where(is_behind, constant(strings([by], ())), nothing), piece)
        return [ops.identity(going), ops.string_concat(text, piece)]

    formals = [("step", TensorType(DType.int64, ())), ("going", TensorType(DType.bool, ())), ("text", x.type)]
    return ops.loop(count, None, ops.expand(nothing, ops.shape(x)), body=subgraph(joined, formals))


def _parts(title, template, groups):
    """The pieces of a replacement: strings, and group numbers."""
    parts, end = [], 0
    for found in re.finditer(r"\\(\d|\\)", template):
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
    return [(found.group(part) or "") if isinstance(part, int) else part for part in parts]


@lru_cache(maxsize=64)
def _of_ecma(title, pattern, ignore_case=0):
    """Compile an ECMAScript pattern that Python interprets the same way. Raises ``TypeMismatch`` for others."""
    named = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern)
    try:
        return re.compile(named, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except re.error as error:
        raise TypeMismatch(f"{title}: cannot parse the pattern: {error}", given=pattern) from error


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
    """Split strings at the matches of an RE2 pattern.

    Returns the pieces of all strings, the byte offsets of the start and end of each, and for each string the index of
    its first piece.

    The delimiter is the first group of the pattern: a pattern without groups does not split. Delimiters that fully
    match the other pattern are pieces too; an empty one keeps none.
    """


@primitive("StringECMARegexSplitWithOffsets", domain=DOMAIN)
def string_ecma_regex_split_with_offsets(input, pattern, keep_pattern, *, ignore_case=0):
    """StringRegexSplitWithOffsets with ECMAScript patterns."""


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
    keep = _of_ecma(op.title, written, ignore_case) if written else None
    return _pieces(input, delimiter, keep, at_empty_matches=True)


def _pieces(input, pattern, keep, *, at_empty_matches=False):
    found, starts = [], [0]
    for text in input.reshape(-1).tolist():
        end = 0
        for match in pattern.finditer(text) if pattern is not None else ():
            start, stop = match.span(1 if match.re.groups else 0) if hasattr(match, "re") else match.span(1)
            if start < 0 or (stop == start and not at_empty_matches):
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
