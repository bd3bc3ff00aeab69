"""Tokenization of strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.extend import DType, NotRepresentable, TensorType, TypeMismatch, holds, limits, primitive
from tenonnx_standard.checking import numpy_rule
from tenonnx_standard.regular_expressions import RegularExpression, compiled

Array = np.ndarray[Any, Any]

_START, _END = "\x02", "\x03"


@primitive("Tokenizer", domain="com.microsoft")
def tokenizer(
    X, *, mark: int, mincharnum: int, pad_value: str, separators: list[str] | None = None, tokenexp: str | None = None
):
    """The tokens of each string along a new last axis, padded with ``pad_value``.

    Tokens are the matches of ``tokenexp``, or the pieces between ``separators``, which are applied one after the other.
    Tokens shorter than ``mincharnum`` are dropped. ``mark`` adds a start and an end token, unless no string has tokens.
    Alternatives match in their order.
    """


def check_tokenizer(*, mark: int, mincharnum: int, pad_value: str, separators: Any, tokenexp: str | None) -> str | None:
    """The first problem of the attributes, or None."""
    if bool(separators) == bool(tokenexp):
        return f"{'both' if tokenexp else 'none'} of separators and tokenexp given"
    if mincharnum < 1:
        return f"mincharnum is not positive: {mincharnum}"
    for pattern in separators or [tokenexp]:
        compiled(tokenizer.title, pattern)
    return None


tokenizer.requires(holds(check_tokenizer))


@tokenizer.type
def tokenizer_type(X, **attributes):
    problem = check_tokenizer(**attributes)
    if problem:
        raise TypeMismatch(f"{tokenizer.title}: {problem}")
    if X.dtype is not DType.string or X.rank not in (None, 1, 2):
        raise TypeMismatch(f"{tokenizer.title}: X is not a vector or matrix of strings", given=repr(X))
    return TensorType(DType.string, None if X.rank is None else X.shape if 0 in X.shape else (*X.shape, None))


@tokenizer.lower()
def tokenizer_lowering(X, **attributes):
    raise NotRepresentable("ai.onnx has no op that splits strings by a regular expression")


@numpy_rule(tokenizer)
def tokenizer_numpy(
    X: Array, *, mark: int, mincharnum: int, pad_value: str, separators: Sequence[str] | None, tokenexp: str | None
) -> Array:
    if not X.size:
        return X
    texts = X.reshape(-1).tolist()
    limits.check_memory(limits.TEXT * sum(len(text) + 1 for text in texts), f"the tokens of {tokenizer.title}")
    cut = _matches(tokenexp) if tokenexp else _pieces(separators or ())
    found = [[token for token in cut(text) if len(token) >= mincharnum] for text in texts]
    if mark and any(found):
        found = [[_START, *tokens, _END] for tokens in found]
    shape = limits.sized((len(found), max(map(len, found))), tokenizer.title)
    tokens = np.full(shape, pad_value, dtype=object)
    for row, each in zip(tokens, found, strict=True):
        row[: len(each)] = each
    return tokens.reshape(*X.shape, -1) if tokens.size else tokens.reshape(*X.shape, 0)


def _matches(pattern: str) -> Callable[[str], list[str]]:
    expression = compiled(tokenizer.title, pattern)
    return lambda text: [text[start:end] for start, end in expression.spans(text)]


def _pieces(separators: Sequence[str]) -> Callable[[str], list[str]]:
    """Split into pieces; an empty separator splits into characters."""
    expressions = [compiled(tokenizer.title, separator) for separator in separators]

    def cut(text: str) -> list[str]:
        pieces = [text]
        for expression in expressions:
            pieces = [part for piece in pieces for part in _split(expression, piece)]
        return pieces

    return cut


def _split(expression: RegularExpression, text: str) -> list[str]:
    """The parts between matches."""
    ends = list(expression.spans(text))
    starts = [0, *(end for _, end in ends)]
    return [text[start:stop] for start, stop in zip(starts, [*(start for start, _ in ends), len(text)], strict=True)]
