"""Settings of a quantization."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, InvalidCall, Node, did_you_mean
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.budget import Budget
from tenonnx_quantized.tuning.modes import (
    CACHE_TYPES,
    FORMS,
    GRANULARITIES,
    METHODS,
    MODES,
    RANGES,
    ROUNDINGS,
    SCALE_TYPES,
    SEARCHES,
)

_FLOAT8 = ("float8e4m3fn", "float8e5m2")
_FLOAT4 = "float4e2m1"
_ACTIVATION_TYPES = ("uint8", "int8", "uint16", "int16", *_FLOAT8)
_WEIGHT_TYPES: dict[str, tuple[str, ...]] = {
    "static": (*_ACTIVATION_TYPES, "int4", "uint4", "int2", "uint2"),
    "dynamic": ("int8", "uint8"),
    "weights": (*_FLOAT8, _FLOAT4),
}
_BITS = {"static": (2, 4, 8), "dynamic": (8,), "weights": (2, 4, 8)}

#: Ranges of activations by name.
Ranges = Mapping[str, tuple[float, float]]

#: Integer types by number of bits: unsigned and signed.
_OF_BITS = {
    2: (DType.uint2, DType.int2),
    4: (DType.uint4, DType.int4),
    8: (DType.uint8, DType.int8),
    16: (DType.uint16, DType.int16),
}


class NothingToQuantize(InvalidCall):
    """No op of a graph can be quantized with the settings."""


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """Settings of the layers whose node or weights have a name that matches ``pattern``.

    None is the setting of the model. ``bits`` is 2, 4 or 8; ``granularity`` is tensor, channel or block; ``method``
    rounds the weights. With ``keep_float``, the layers are not quantized.
    """

    pattern: str
    bits: int | None = None
    granularity: str | None = None
    block_size: int | None = None
    method: str | None = None
    keep_float: bool = False

    def __post_init__(self) -> None:
        _check_choices(
            f'layers "{self.pattern}"',
            self,
            {"bits": (None, 2, 4, 8), "granularity": (None, *GRANULARITIES), "method": (None, *ROUNDINGS)},
        )
        if self.block_size is not None:
            _check_block_size(self.block_size)

    def matches(self, node: Node) -> bool:
        names = (node.name or "", *(value.name for value in node.inputs[1:2] if value is not None))
        return any(fnmatch.fnmatchcase(name, self.pattern) for name in names)


@dataclass(frozen=True, slots=True)
class WeightSettings:
    """Settings of the weights of one node: the quantized dtype, and which weights share a scale."""

    dtype: DType
    granularity: str
    block_size: int
    symmetric: bool
    rounding: str
    search: str
    scale_type: DType = DType.float32

    def with_bits(self, bits: int) -> WeightSettings:
        """The same settings for an integer type of the same signedness with other bits; floats keep theirs."""
        if self.dtype.is_float:
            return self
        return replace(self, dtype=_OF_BITS[bits][self.dtype.is_signed])


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """Settings of a quantization.

    Weights and activations:

    - ``mode``: ``dynamic`` quantizes weights, and activations by ranges computed at run time; ``static`` quantizes
      both by ranges found on data; ``weights`` quantizes weights only.
    - ``bits``: the bits of weights, by default 8. In mode ``weights``, MatMul weights have 4 bits by default, in blocks
      of ``block_size`` rows, and weights of other ops 8 bits per channel; if ``bits`` is given, Gemm weights are in
      blocks, too.
    - ``granularity``: one scale per tensor, channel or block.
    - ``activation_type`` (mode ``static``) and ``weight_type``: dtypes, by default uint8 (int8 with ``symmetric``) and
      int8. float8 activations need float8 weights. In mode ``weights``, weights may be float8 or float4e2m1.
    - ``scale_type``: the dtype of the scales of blocked float weights: ``float8e8m0``, a power of two as in the MX
      formats (OCP Microscaling Formats 1.0), or ``float8e4m3fn`` times one float32 per weight tensor, as in NVFP4.
    - ``kv_cache``: the dtype of key-value caches, ``int8``, ``float8e4m3fn`` or ``float8e5m2``. Graph inputs and
      outputs of caches get this dtype, each with a scale that is calibrated on data.
    - ``symmetric``: quantize symmetrically. ``symmetric_weights`` applies to weights only; by default (None), weights
      of signed dtypes and those in form ``qoperator`` are symmetric, too.
    - ``reduce_range``: weights that are not in blocks use one bit less than their dtype, so that kernels without VNNI,
      which add products in 16 bits, do not saturate.
    - ``form``: the format of the result, ``qdq`` or ``qoperator``. The latter supports 8-bit dtypes only.
    - ``dedicated_pairs`` (form ``qdq``): each consumer of an activation has its own QuantizeLinear and
      DequantizeLinear.
    - ``float_outputs``: op types whose results stay floats if no quantized node reads them.

    Methods:

    - ``method``: one or several of: a rounding method (``rtn``, ``hqq``, ``gptq``, ``quantease``, ``ada-round`` or
      ``auto-round``), preparations of the model (``rotate``, ``awq``, ``smooth-quant``, ``equalize``), and
      ``bias-correction``.
    - ``smoothing``: the strength of ``smooth-quant``: 0 keeps the activations, 1 gives all their channels equal
      ranges.
    - ``calibration``: the method for ranges of activations, one of ``calibrate.METHODS``. ``percentile`` is the share
      of values inside a range for the method of that name, in percent.
    - ``ranges``: ranges of activations by name, which replace calibrated ones; or a function that takes the calibrated
      ranges and returns such a mapping. If all activations have a range, no data is needed.
    - ``search``: the method for the scales of blocks.

    Nodes:

    - ``ops``: the op types to quantize; None: those with weights, and in mode ``static`` the ops between them.
    - ``leave_out``: patterns of names of nodes that stay in floating point.
    - ``layers``: settings by pattern; the first match applies.
    - ``budget``: one of:

      - the maximum relative error of the outputs; the most sensitive nodes stay in floating point;
      - a size, such as ``"4.5 bits"`` per weight or ``"20 MiB"`` in total; each layer gets 2, 4 or 8 bits according to
        its sensitivity;
      - the total latency of all layers, such as ``"3 ms"``; layers may also stay in floating point.
    - ``op_times``: the path of a JSON file with latencies of layers for such a budget; missing ones are measured with
      the backend and added.
    - ``initializers_as_constants``: remove initializers from the graph inputs, so that callers cannot override them.
      Initializers that stay graph inputs are not quantized.
    """

    mode: str = MODES[0]
    bits: int | None = None
    block_size: int = 32
    activation_type: str | None = None
    weight_type: str | None = None
    scale_type: str | None = None
    kv_cache: str | None = None
    per_channel: bool = True
    granularity: str | None = None
    symmetric: bool = False
    symmetric_weights: bool | None = None
    reduce_range: bool = False
    calibration: str = "minmax"
    percentile: float = 99.99
    ranges: Ranges | Callable[[Ranges], Ranges] | None = None
    method: str | Sequence[str] = ()
    smoothing: float = 0.5
    search: str | None = None
    ops: Sequence[str] | None = None
    leave_out: Sequence[str] = ()
    layers: Sequence[LayerSettings] = ()
    budget: float | str | None = None
    op_times: str | os.PathLike[str] | None = None
    form: str = "qdq"
    dedicated_pairs: bool = False
    float_outputs: Sequence[str] = ()
    initializers_as_constants: bool = True

    def __post_init__(self) -> None:
        bits = _BITS.get(self.mode, ())
        _check_choices(
            f"in mode {self.mode}",
            self,
            {
                "mode": MODES,
                "form": FORMS,
                "calibration": RANGES,
                "search": (None, *SEARCHES),
                "granularity": (None, *GRANULARITIES),
                "bits": (None, *bits) if self.weight_type is None else (None,),
                "activation_type": (None, *_ACTIVATION_TYPES) if self.mode == "static" else (None,),
                "weight_type": (None, *_WEIGHT_TYPES.get(self.mode, ())),
                "kv_cache": (None, *CACHE_TYPES),
                "scale_type": (None, *SCALE_TYPES) if self._has_float_blocks else (None,),
            },
        )
        both = f"{self.activations} and {self.weights}"
        if self.mode == "static" and self.activations.is_float is not self.weights.is_float:
            raise InvalidCall("quantize: only one of activations and weights is of float8", given=both)
        if self.mode == "static" and self.form == "qoperator" and self.version > 13:
            raise InvalidCall(
                "quantize: activations or weights are not of 8 bits, with form qoperator", given=both, do="use form qdq"
            )
        _check_block_size(self.block_size)
        self._check_methods()
        self._check_shares()
        if self.budget is not None:
            Budget.of(self.budget)

    def _check_shares(self) -> None:
        """Raise ``InvalidCall`` for numbers outside their bounds, and for a reduced range of weights in blocks."""
        bounds = {"percentile": (50.0, 100.0), "smoothing": (0.0, 1.0)}
        for name, (least, greatest) in bounds.items():
            if not least <= getattr(self, name) <= greatest:
                raise InvalidCall(
                    f"quantize: {name} is out of bounds",
                    given=f"{name}={getattr(self, name)!r}",
                    available=f"{least:g} to {greatest:g}",
                )
        if self.form == "qoperator" and self.dedicated_pairs:
            raise InvalidCall(
                "quantize: form qoperator has no pairs of QuantizeLinear and DequantizeLinear",
                given="dedicated_pairs",
                do="use form qdq",
            )
        if self.reduce_range and (self.rounding != "rtn" or self.mode == "weights"):
            raise InvalidCall(
                "quantize: reduce_range does not work with this mode or method",
                given=f"mode {self.mode}, method {self.rounding}",
                available="modes dynamic and static, method rtn",
            )

    def _check_methods(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise InvalidCall(
                    f'quantize: unknown method "{name}"',
                    given=", ".join(self.methods),
                    available=", ".join(METHODS),
                    do=did_you_mean(name, METHODS),
                )
        if len(rounding := [name for name in self.methods if name in ROUNDINGS]) > 1:
            raise InvalidCall("quantize: several methods round the weights", given=", ".join(rounding), do="choose one")
        if self.weights.is_float and self.rounding in ("hqq", "ada-round", "auto-round"):
            raise InvalidCall(
                f"quantize: method {self.rounding} does not round to floats",
                given=f"weights of {self.weights}",
                available="rtn, gptq, quantease",
            )

    @property
    def methods(self) -> tuple[str, ...]:
        """The names in ``method``."""
        given = self.method.replace("+", ",").split(",") if isinstance(self.method, str) else self.method
        return tuple(name.strip() for name in given if name.strip())

    @property
    def _has_float_blocks(self) -> bool:
        """Whether weights are blocked floats."""
        return self.mode == "weights" and self.weight_type is not None and self.granularity in (None, "block")

    @property
    def rounding(self) -> str:
        return next((name for name in self.methods if name in ROUNDINGS), ROUNDINGS[0])

    @property
    def needs_data(self) -> bool:
        """Whether a method needs the inputs of layers."""
        every = {*self.methods, *(rule.method for rule in self.layers if rule.method)}
        return bool(every - {"rtn", "hqq", "equalize", "rotate"})

    @property
    def calibrates(self) -> bool:
        """Whether calibration data is needed."""
        known = isinstance(self.ranges, Mapping)
        return (self.mode == "static" and not known) or self.needs_data or self.kv_cache is not None

    @property
    def is_layerwise(self) -> bool:
        """Whether layers can be quantized one by one, from their inputs in the float model."""
        others = {"smooth-quant", "bias-correction", "equalize"} & set(self.methods)
        if others or self.budget is not None or self.kv_cache is not None:
            return False
        return self.mode == "weights" and self.needs_data

    @property
    def activations(self) -> DType:
        return DType.of(self.activation_type or ("int8" if self.symmetric else "uint8"))

    @property
    def weights(self) -> DType:
        """The type of quantized weights that are not blocked."""
        if self.weight_type is not None:
            return DType.of(self.weight_type)
        return _OF_BITS[self.bits or 8][1] if self.activations.is_integer else self.activations

    @property
    def version(self) -> int:
        """The version of ai.onnx that supports all requested types, apart from blocks."""
        return max(map(first_version, (self.activations, self.weights)))

    def rule(self, node: Node) -> LayerSettings | None:
        """The settings by pattern that match a node."""
        return next((rule for rule in self.layers if rule.matches(node)), None)

    def of(self, node: Node) -> WeightSettings:
        """The settings of the weights of a node."""
        rule = self.rule(node) or LayerSettings("*")
        rounding = rule.method or self.rounding
        search = self.search or ("hqq" if rounding == "hqq" else "mse" if self.needs_data else "rtn")
        weights, size = node.inputs[1], rule.block_size or self.block_size
        flat = weights is not None and weights.ndim == 2
        chosen = rule.granularity or self.granularity
        if self.mode != "weights":
            dtype = self.weights if rule.bits is None else _OF_BITS[rule.bits][self.weights.is_signed]
            granularity = chosen or ("channel" if self.per_channel else "tensor")
            # onnxruntime converts these to QLinearMatMul, which takes no scales per column for batches of matrices
            if not flat and is_meaning(node.op, ops.matmul):
                granularity = "tensor"
            granularity = "channel" if granularity == "block" and not (flat and dtype.is_integer) else granularity
            symmetric = dtype.is_signed or self.symmetric or self.form == "qoperator"
            symmetric = symmetric if self.symmetric_weights is None else self.symmetric_weights
            return WeightSettings(dtype, granularity, size, symmetric, rounding, search)
        # kernels are too small for blocks, and a last layer with few outputs needs more bits
        in_blocks = is_meaning(node.op, ops.matmul) or (is_meaning(node.op, ops.gemm) and self.bits is not None)
        granularity = chosen or ("block" if in_blocks else "channel")
        granularity = "channel" if not flat and granularity == "block" else granularity
        if self.weight_type is not None:
            in_blocks = chosen == "block" or self.scale_type is not None or self.weight_type == _FLOAT4
            kept = "channel" if granularity == "block" and not in_blocks else granularity
            scale_type = DType.of((self.scale_type if kept == "block" else None) or "float32")
            return WeightSettings(DType.of(self.weight_type), kept, size, True, rounding, search, scale_type)
        if granularity == "block":
            return WeightSettings(
                _OF_BITS[rule.bits or self.bits or 4][0], "block", size, self.symmetric, rounding, search
            )
        bits = rule.bits or ((self.bits or 8) if self.granularity is not None else 8)
        return WeightSettings(_OF_BITS[bits][1], granularity, size, True, rounding, search)


def first_version(dtype: DType) -> int:
    """The first version of ai.onnx whose QuantizeLinear supports a type."""
    if dtype is DType.float32:
        return 13
    if dtype.bits == 8:
        return 24 if dtype is DType.float8e8m0 else 19 if dtype.is_float else 13
    if dtype.is_float:
        return 23
    return 25 if dtype.bits == 2 else 21


def _check_block_size(size: int) -> None:
    if size < 16 or size & (size - 1):
        raise InvalidCall("quantize: block_size is not a power of two of at least 16", given=str(size))


def _check_choices(where: str, settings: Any, choices: dict[str, Iterable[Any]]) -> None:
    """Raise ``InvalidCall`` for a setting with an invalid value."""
    for name, known in choices.items():
        value = getattr(settings, name)
        if value in known:
            continue
        available = ", ".join(str(each) for each in known if each is not None)
        more = (
            f"; bits={' or bits='.join(map(str, _BITS['weights']))}"
            if getattr(settings, "mode", "") == "weights"
            else ""
        )
        raise InvalidCall(
            f"quantize: unsupported {name} {where}",
            given=f"{name}={value!r}",
            available=available or None,
            do="" if available else f"leave {name} out{more}",
        )
