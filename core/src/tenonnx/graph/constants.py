"""Static contents of tensors, in memory or in files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tenonnx.errors import InvalidCall
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import TensorType

if TYPE_CHECKING:
    import numpy as np


@runtime_checkable
class Constant(Protocol):
    """Static contents of a tensor, in memory, in a protobuf message or in a mapped file."""

    @property
    def type(self) -> TensorType: ...

    @property
    def nbytes(self) -> int:
        """Size of ``array()`` in bytes, known without reading the contents."""
        ...

    def array(self) -> np.ndarray[Any, Any]:
        """The contents, read-only."""
        ...


@runtime_checkable
class RowConstant(Constant, Protocol):
    """Static contents that can be read by rows, so that they need not fit in memory."""

    def rows(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """Rows ``start`` to ``stop`` along the first axis (the tensor has one); they are not cached."""
        ...


#: Contents of at most this many bytes take part in constant propagation.
PROPAGATED_BYTES = 8192

#: Contents of at least this many bytes are read in chunks.
_LARGE = 1 << 18


def rows_of(data: Constant, start: int, stop: int) -> Any:
    """Rows of contents along the first axis; only these are read if the constant supports it."""
    return data.rows(start, stop) if isinstance(data, RowConstant) else data.array()[start:stop]


def chunks_of(data: Constant | None) -> Iterator[Any]:
    """Contents in chunks: all at once, or by rows for a large constant, so that each chunk can be freed."""
    if not isinstance(data, RowConstant) or data.nbytes < _LARGE:
        yield from () if data is None else (data.array(),)
        return
    (length, *_) = data.type.shape or ()
    assert isinstance(length, int)  # a constant has a known shape
    count = max(1, length * _LARGE // data.nbytes)
    for start in range(0, length, count):
        yield data.rows(start, min(start + count, length))


class Contents:
    """Protocol of static contents that numpy can read: ``numpy.asarray(contents)``."""

    __slots__ = ()

    def array(self) -> np.ndarray[Any, Any]:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        array = np.asarray(self.array(), dtype)
        return array.copy() if copy else array


class ArrayConstant(Contents):
    """Static contents held as a read-only numpy array."""

    __slots__ = ("_array", "type")

    def __init__(self, array: np.ndarray[Any, Any], dtype: DType | None = None) -> None:
        view = array.view()
        view.flags.writeable = False
        self._array = view
        self.type = TensorType(DType.of(array.dtype) if dtype is None else dtype, array.shape)

    @property
    def nbytes(self) -> int:
        if self._array.dtype != object:
            return self._array.nbytes
        return self._array.nbytes + sum(map(len, self._array.reshape(-1).tolist()))

    def array(self) -> np.ndarray[Any, Any]:
        return self._array


def contents_given(name: str, data: Any) -> Constant:
    """Convert a caller's contents. Raises ``InvalidCall`` for anything but an array."""
    import numpy as np

    if not isinstance(data, np.ndarray | np.generic | Constant):
        what = f'contents of variable "{name}" are not an array'
        raise InvalidCall(what, given=type(data).__name__, do="wrap it: numpy.array(data)")
    if not isinstance(data, np.ndarray | np.generic):
        return data
    # copied, as inferred types may depend on it even if the caller modifies the array
    small = data.nbytes <= PROPAGATED_BYTES
    return ArrayConstant(np.array(data) if small else np.asarray(data))
