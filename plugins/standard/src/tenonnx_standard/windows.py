"""Sliding windows: the input positions read for every output of a convolution or pooling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.extend import DType, Op, TensorType, TypeMismatch, Value, constant, dims, limits, symbolic
from tenonnx_standard.casting import cast
from tenonnx_standard.math import maximum, minimum
from tenonnx_standard.padding import pad
from tenonnx_standard.shapes import expand, reshape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array = np.ndarray[Any, Any]
#: A length: an int, expression or None in types, an int in numpy rules, an int or int64 scalar value in bodies.
Length = Any

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
#: Columns are unfolded in blocks of about this many elements, which fit into a cache.
BLOCK = 1 << 19


class Windows(NamedTuple):
    """The windows of a call: kernel sizes, strides and dilations per spatial axis.

    ``pads`` are those before each axis, then those after it; ``auto_pad`` and ``ceil_mode`` as in the specification.
    """

    title: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...]:
        """Number of input positions that a window spans on each axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Kernel offsets in row-major order. Raises ``LimitExceeded`` if there are too many for a list."""
        self.check_places(math.prod(self.kernel))
        return iter(np.ndindex(*self.kernel))

    def check_places(self, count: int) -> None:
        """Raise ``LimitExceeded`` if a kernel has more offsets than can be unrolled."""
        limits.check("entries", count, f"{self.title} with each place of its kernel written out")

    def outputs(self, sizes: Sequence[Length]) -> list[Length]:
        """Number of windows on each axis of an input with these ``sizes``."""
        if len(sizes) != self.rank:
            raise TypeMismatch(
                f"{self.title}: kernel does not have one size for each spatial axis",
                given=f"kernel {list(self.kernel)} for {len(sizes)} spatial axes",
            )
        result = []
        for axis, size in enumerate(sizes):
            try:
                result.append(self._output(axis, size))
            except OverflowError:  # from a symbolic expression
                result.append(None)
        return result

    def _output(self, axis: int, size: Length) -> Length:
        stride = self.strides[axis]
        if size is None:
            return None
        if self.auto_pad.startswith("SAME"):
            return (size + (stride - 1)) // stride
        begin, end = (0, 0) if self.auto_pad == "VALID" else (self.pads[axis], self.pads[axis + self.rank])
        room = size + (begin + end - self.extents[axis])
        if isinstance(room, int) and room < 0:
            raise TypeMismatch(
                f"{self.title}: kernel is larger than the padded input",
                given=f"an extent of {self.extents[axis]} on spatial axis {axis} of {size} + {begin + end} positions",
            )
        if not self.ceil_mode or stride == 1:
            return room // stride + 1
        # rounds up, but every window starts in the input or in the padding before it
        return _smaller((room + (stride - 1)) // stride + 1, (size + (begin + stride - 1)) // stride)

    def padding(self, sizes: Sequence[Length]) -> tuple[list[Length], list[Length]]:
        """The padding before and after each axis of an input with these ``sizes``."""
        if not self.auto_pad.startswith("SAME"):
            pads = [0] * (2 * self.rank) if self.auto_pad == "VALID" else list(self.pads)
            return pads[: self.rank], pads[self.rank :]
        begins, ends = [], []
        for axis, size in enumerate(sizes):
            stride, extent = self.strides[axis], self.extents[axis]
            total: Length = max(extent - 1, 0) if stride == 1 else None
            if stride != 1 and size is not None:
                total = not_negative((self._output(axis, size) - 1) * stride + (extent - size))
            less = None if total is None else total // 2
            more = None if total is None else total - less
            begins.append(more if self.auto_pad == "SAME_LOWER" else less)
            ends.append(less if self.auto_pad == "SAME_LOWER" else more)
        return begins, ends

    def explicit(self, sizes: Sequence[Length]) -> Windows | None:
        """The windows with ``auto_pad`` replaced by explicit pads; None if they depend on run time."""
        begins, ends = self.padding([size if isinstance(size, int) else None for size in sizes])
        if any(width is None for width in (*begins, *ends)):
            return None
        return self._replace(pads=(*begins, *ends), auto_pad="NOTSET")

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes shared by convolutions and poolings; None for defaults."""
        return {
            "auto_pad": self.auto_pad,
            "dilations": list(self.dilations) if set(self.dilations) != {1} else None,
            "kernel_shape": list(self.kernel),
            "pads": list(self.pads) if self.auto_pad == "NOTSET" and any(self.pads) else None,
            "strides": list(self.strides) if set(self.strides) != {1} else None,
        }


def windows(
    title: str,
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """The windows that the attributes of ``title`` describe. Raises ``TypeMismatch`` for invalid ones."""
    rank = len(kernel)

    def per_axis(name: str, values: Sequence[int] | None, default: int, least: int, count: int) -> tuple[int, ...]:
        if values is None:
            return (default,) * count
        if len(values) != count or any(v < least for v in values):
            raise TypeMismatch(
                f"{title}: {name} does not have {count} numbers of at least {least}, for {rank} spatial axes",
                given=f"{name}={list(values)}",
            )
        return tuple(int(v) for v in values)

    auto_pad = auto_pad or "NOTSET"  # runtimes accept an empty string
    if auto_pad not in AUTO_PADS:
        raise TypeMismatch(f"{title}: unknown auto_pad", given=repr(auto_pad), available=", ".join(AUTO_PADS))
    return Windows(
        title,
        per_axis("kernel_shape", kernel, 1, 1, rank),
        per_axis("strides", strides, 1, 1, rank),
        per_axis("dilations", dilations, 1, 1, rank),
        per_axis("pads", pads, 0, 0, 2 * rank),
        auto_pad,
        bool(ceil_mode),
    )


def not_negative(length: Length) -> Length:
    """``length``, or 0 if it is negative."""
    if isinstance(length, Value):
        return maximum(length, 0)
    return symbolic.maximum(length, 0)


def _smaller(a: Length, b: Length) -> Length:
    if isinstance(a, Value) or isinstance(b, Value):
        return minimum(a, b)
    return symbolic.minimum(a, b)


def plainly(window: Windows, sizes: Sequence[Length]) -> Windows | None:
    """The windows with explicit padding and rounding down; None if the padding depends on run time."""
    explicit = window.explicit(sizes)
    if explicit is None or not (window.ceil_mode and any(s > 1 for s in window.strides)):
        return explicit if explicit is None else floored(explicit, explicit.pads)
    if not all(isinstance(size, int) for size in sizes):
        return None
    begins, ends = explicit.padding(sizes)
    return floored(explicit, [*begins, *reaching(explicit, sizes, begins, ends)])


def end_in_padding(op: Op) -> None:
    """Refuse, below version 22, ``ceil_mode`` with windows that would start in the padding at the end.

    Runtimes drop such windows, but shape inference by the specification counts them.
    """

    def reason(X: Value, *, kernel_shape: Sequence[int], **attributes: Any) -> str:
        if not attributes.get("ceil_mode") or X.rank is None:
            return ""
        known = {k: attributes[k] for k in ("strides", "dilations", "pads", "auto_pad", "ceil_mode") if k in attributes}
        window, sizes = windows(op.title, kernel_shape, **known), X.shape[2:]
        explicit = window.explicit(sizes)
        if explicit is None or not all(isinstance(size, int) for size in sizes):
            return ""
        for axis, (count, size) in enumerate(zip(window.outputs(sizes), sizes, strict=True)):
            room = size + explicit.pads[axis] + explicit.pads[axis + window.rank] - window.extents[axis]
            if count != -(-room // window.strides[axis]) + 1:
                return f"{op.title}: below version 22 windows that start in the padding at the end count"
        return ""

    op.until(22, unless=reason)


def floored(window: Windows, pads: Sequence[int]) -> Windows:
    """The windows with these pads and without ``ceil_mode``."""
    return window._replace(pads=tuple(pads), auto_pad="NOTSET", ceil_mode=False)


def one_axis(window: Windows, k: int) -> Windows:
    """Windows along one spatial axis, without padding."""
    return Windows(window.title, (window.kernel[k],), (window.strides[k],), (window.dilations[k],), (0, 0))


def reaching(
    window: Windows, sizes: Sequence[Length], begins: Sequence[Length], ends: Sequence[Length]
) -> list[Length]:
    """The padding after each axis, extended to contain the last window."""
    wider = []
    for k, n in enumerate(window.outputs(sizes)):
        missing = (n - 1) * window.strides[k] + window.extents[k] - (sizes[k] + begins[k] + ends[k])
        wider.append(ends[k] + not_negative(missing))
    return wider


def covering(window: Windows, sizes: Sequence[Length]) -> tuple[list[Length], list[Length]]:
    """The padding before and after each axis that covers every window."""
    begins, ends = window.padding(sizes)
    return begins, reaching(window, sizes, begins, ends) if window.ceil_mode else ends


def padded_with(x: Value, begins: Sequence[Length], ends: Sequence[Length], fill: Any = None) -> Value:
    if not any(not isinstance(p, int) or p for p in (*begins, *ends)):
        return x
    pads = [0, 0, *begins, 0, 0, *ends]
    return pad(x, pads) if fill is None else pad(x, pads, constant(np.asarray(fill), x.dtype))


def of_nothing(X: Value, window: Windows, fill: Any = 0) -> Value:
    """``fill`` for every window of an empty ``X``; Reshape would copy axes instead of setting them to 0."""
    batch, channels, *sizes = dims(X)
    return expand(constant(np.asarray(fill), X.dtype), [batch, channels, *window.outputs(sizes)])


def of_no_products(X: Value, B: Value | None, sizes: Sequence[Length]) -> Value:
    """The biases, or zeros, as result for empty tensors; Reshape would copy axes instead of setting them to 0."""
    y = expand(constant(np.zeros(()), X.dtype), sizes)
    return y if B is None else y + reshape(B, [-1, *(1,) * (len(sizes) - 2)])


def along_axes(x: Value, window: Windows, outputs: Sequence[Length], combine: Any) -> Value:
    """Combine the elements of each window of the padded ``x``, one spatial axis after the other."""
    for k in range(window.rank):
        window.check_places(window.kernel[k])
        taps = []
        for place in range(window.kernel[k]):
            start = place * window.dilations[k]
            stop = start + (outputs[k] - 1) * window.strides[k] + 1
            taps.append(x[(slice(None),) * (2 + k) + (slice(start, stop, window.strides[k]),)])
        x = combine(taps)
    return x


def sum_taps(taps: Sequence[Value]) -> Value:
    total = taps[0]
    for t in taps[1:]:
        total = total + t
    return total


def spatial(title: str, x: Value, at_least: int = 1) -> Sequence[Any] | None:
    """The spatial dims of a batch of images (batch, channels, spatial axes ...); None if its rank is unknown."""
    shape = x.tensor.shape
    if shape is not None and len(shape) < 2 + at_least:
        raise TypeMismatch(
            f"{title}: X has too few axes for a batch, a channel and {at_least} spatial axes", given=repr(x)
        )
    return None if shape is None else shape[2:]


def one_float_dtype(title: str, *values: Value | None) -> DType:
    """The dtype of all ``values``. Raises ``TypeMismatch`` if they differ or are not floats."""
    present = [v for v in values if v is not None]
    dtype = present[0].dtype
    if not dtype.is_float or any(v.dtype is not dtype for v in present):
        raise TypeMismatch(f"{title}: inputs do not have one float dtype", given=", ".join(map(repr, present)))
    return dtype


def through_float32(op: Op, *also: DType) -> None:
    """Wrap an op in casts for targets that support it in float32, but not in float16 (or ``also``)."""

    @op.lower()
    def op_lowering(x: Value, *others: Value | None, _outputs: int | None = None, **attributes: Any) -> Any:
        if x.dtype not in (DType.float16, DType.bfloat16, *also):
            return None
        wide = [v if v is None or v.dtype is not x.dtype else cast(v, to=DType.float32) for v in (x, *others)]
        found = op(*wide, **attributes, _outputs=_outputs)
        outputs = found if isinstance(found, tuple) else (found,)
        narrow = tuple(cast(v, to=x.dtype) if v.dtype is DType.float32 else v for v in outputs)
        return narrow if len(narrow) > 1 else narrow[0]


# ----- on arrays ------------------------------------------------------------------------------------------------------


def widened(*arrays: Array | None) -> list[Array | None]:
    """Arrays in a dtype that BLAS supports: floats narrower than float32 as float32."""
    return [a.astype(np.float32) if a is not None and a.dtype.itemsize < 4 else a for a in arrays]


def tap(x: Array, window: Windows, offset: Sequence[int], outputs: Sequence[int]) -> Array:
    """View of the elements that all windows of the padded ``x`` read at one kernel offset."""
    return x[(..., *tap_slices(window, offset, outputs))]


def tap_slices(window: Windows, offset: Sequence[int], outputs: Sequence[int]) -> list[slice]:
    """The positions that ``outputs`` windows read at one kernel offset, along each axis of the padded input."""
    starts = [o * d for o, d in zip(offset, window.dilations, strict=True)]
    return [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, outputs, window.strides, strict=True)]


def lowest(dtype: np.dtype[Any]) -> Any:
    import ml_dtypes

    return ml_dtypes.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def places_inside(size: int, window: Windows, k: int, begin: int, count: int) -> range:
    """The kernel offsets along one axis at which some window reads inside the input."""
    step = window.dilations[k]
    return range(
        max(0, -(((count - 1) * window.strides[k] - begin) // step)),
        min(window.kernel[k], (size - 1 + begin) // step + 1),
    )


def taps_inside(
    size: int, window: Windows, k: int, begin: int, count: int, places: range | None = None
) -> list[tuple[int, int, slice]]:
    """For each kernel offset along one axis: the windows that read inside the input there, and the positions read.

    The windows are a range, 0 to 0 if there are none.
    """
    result = []
    stride = window.strides[k]
    for place in range(window.kernel[k]) if places is None else places:
        at = place * window.dilations[k] - begin
        low, high = max(0, -(at // stride)), min(count, (size - 1 - at) // stride + 1)
        if low < high:
            result.append((low, high, slice(at + low * stride, at + (high - 1) * stride + 1, stride)))
        else:
            result.append((0, 0, slice(0, 0)))
    return result


def pool(shape: Sequence[int], window: Windows, combine: np.ufunc, neutral: Any) -> Callable[[Array], Array]:
    """A function that combines the elements of each window inside images of ``shape``, axis by axis."""
    sizes = shape[2:]
    begins, _ = window.padding(sizes)
    steps = []
    for k, count in enumerate(window.outputs(sizes)):
        if window.kernel[k] == 1 and window.strides[k] == 1 and not begins[k] and count == sizes[k]:
            continue
        ahead = (slice(None),) * (2 + k)
        along = (sizes[k], window, k, begins[k], count)
        taps = [t for t in taps_inside(*along, places_inside(*along)) if t[0] < t[1]]
        taps.sort(key=lambda t: t[0] - t[1])  # offsets that every window has come first
        everywhere = [(*ahead, t[2]) for t in taps if t[1] - t[0] == count]
        partly = [((*ahead, slice(low, high)), (*ahead, read)) for low, high, read in taps[min(len(everywhere), 2) :]]
        steps.append((k, count, everywhere[:2], partly))

    def pooled(x: Array) -> Array:
        for k, count, everywhere, partly in steps:
            if len(everywhere) > 1:
                y = combine(x[everywhere[0]], x[everywhere[1]])
            elif everywhere:
                y = x[everywhere[0]].copy()
            else:
                y = np.full(limits.sized((*x.shape[: 2 + k], count, *x.shape[3 + k :]), "a pool"), neutral, x.dtype)
            for target, source in partly:
                part = y[target]
                combine(part, x[source], out=part)
            x = y
        return x

    return pooled


def infer_float_pool(op: Op, other: str) -> None:
    """Register the type rule of a float pooling, which ignores the attribute ``other``."""

    @op.type
    def op_type(X: Value, *, kernel_shape: Sequence[int], **attributes: Any) -> TensorType:
        one_float_dtype(op.title, X)
        del attributes[other]
        return pooled_type(op.title, X, kernel_shape, attributes)


def pooled_type(title: str, X: Value, kernel_shape: Sequence[int], attributes: dict[str, Any]) -> TensorType:
    """The type of pooling ``X`` over windows."""
    window = windows(title, kernel_shape, **attributes)
    if not X.dtype.is_float and not X.dtype.is_integer:
        raise TypeMismatch(f"{title}: X is not numeric", given=repr(X))
    sizes = spatial(title, X)
    if sizes is None:
        return TensorType(X.dtype, (None,) * (2 + window.rank))
    if len(sizes) != window.rank:
        raise TypeMismatch(
            f"{title}: kernel_shape does not have one size for each spatial axis",
            given=f"{list(kernel_shape)} for {X!r}",
        )
    return TensorType(X.dtype, (*X.shape[:2], *window.outputs(sizes)))
