"""Symbolic string arrays: counts of characters, words and substrings in a traced function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Value
from tenonnx_onnx_ml.encoders import label_encoder
from tenonnx_sklearn.tokenize import SPACES, letters, one_more, pieces
from tenonnx_sklearn.traced_arrays import FUNCTIONS, TracedArray

#: Supported operations, for error messages.
SUPPORTED = (
    "of texts a function may count characters, words and substrings: X.str.len(), X.str.split().str.len(), "
    "np.char.str_len(X), np.char.count(X, 'text')"
)


class TracedTexts(TracedArray):
    """Strings with the interface of numpy arrays and of pandas's ``str``."""

    @property
    def str(self) -> TracedTexts:
        return self

    def __getitem__(self, key: Any) -> TracedTexts:
        found = super().__getitem__(key)
        return TracedTexts(found.value, found.names)

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **options: Any) -> Any:
        if ufunc.__name__ == "str_len":
            return self.len()
        if ufunc.__name__ == "count" and inputs[0] is self:
            return _substrings(*inputs)
        raise TypeError(f"numpy.{ufunc.__name__} of texts is not supported; {SUPPORTED}")

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        try:
            return super().__array_function__(function, types, arguments, options)
        except TypeError as error:
            raise TypeError(f"{error}; {SUPPORTED}") from error

    def __iter__(self) -> Any:
        raise TypeError(f"texts are not visited one by one; {SUPPORTED}")

    def __getattr__(self, name: Any) -> Any:
        raise AttributeError(f"{name} of texts is not supported; {SUPPORTED}")

    def astype(self, dtype: Any) -> TracedTexts:
        if np.dtype(dtype).kind not in "OUT":
            raise TypeError(f"texts are not converted to {np.dtype(dtype)}; {SUPPORTED}")
        return self

    def fillna(self, value: Any) -> TracedTexts:
        if value != "":
            raise TypeError(f"missing texts are empty, and not {value!r}")
        return self

    def len(self) -> TracedArray:
        return _counted(self, letters)

    def split(self, sep: Any = None, pat: Any = None) -> _Words:
        if sep is not None or pat is not None:
            raise TypeError(f"texts are split at white space alone; {SUPPORTED}")
        return _Words(self)


class _Words:
    """The words of each string, of which only the number can be computed."""

    def __init__(self, texts: TracedTexts) -> None:
        self._texts = texts

    @property
    def str(self) -> _Words:
        return self

    def len(self) -> TracedArray:
        return _counted(self._texts, lambda texts: pieces(texts, f"[^{SPACES}]+"))

    def __getattr__(self, name: Any) -> Any:
        raise AttributeError(f"{name} of the words of a text is not supported; {SUPPORTED}")


def _counted(texts: TracedTexts, cut: Callable[[Value], Value]) -> TracedArray:
    """The number of pieces of each string."""
    flat = one_more(ops.reshape(texts.value, np.array([-1], np.int64)))
    is_token = label_encoder(cut(flat), keys_strings=[""], values_int64s=[0], default_int64=1)
    counts = ops.reduce_sum(is_token, np.array([1], np.int64), keepdims=0)
    counts = ops.slice_(counts, *(np.array([n], np.int64) for n in (0, -1, 0)))
    return TracedArray(ops.reshape(counts, ops.shape(texts.value)))


def _substrings(texts: TracedTexts, sub: Any, start: int = 0, end: Any = None) -> TracedArray:
    if np.ndim(sub) or not str(sub) or start or end not in (None, np.iinfo(np.int64).max):
        raise TypeError(f"np.char.count takes one text that is not empty, and whole texts; {SUPPORTED}")
    return _counted(texts, lambda each: pieces(each, re.escape(str(sub))))


# functions before numpy 2, ufuncs since
FUNCTIONS |= {np.char.str_len: lambda x: x.len(), np.char.count: _substrings}
