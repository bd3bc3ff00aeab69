"""Lower precisions of exported graphs: half precision, and weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx import VerificationFailed
from tenonnx.extend import Graph, InvalidCall, NotRepresentable
from tenonnx_transformers.nf4_weights import with_nf4_weights
from tenonnx_transformers.parts import Part

#: Precisions by name: the dtype of all tensors, the bits of quantized weights, or None for float32 and NF4.
PRECISIONS: Mapping[str, str | int | None] = {
    "fp32": None,
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": 8,
    "int4": 4,
    "bnb4": None,
}

#: Name of the layout whose files have suffixes.
TRANSFORMERS_JS = "transformers.js"

#: Dtypes of transformers.js by precision, and the suffixes of its files by dtype.
DTYPES: Mapping[str, str] = {"fp32": "fp32", "fp16": "fp16", "int8": "q8", "int4": "q4", "bnb4": "bnb4"}
SUFFIXES: Mapping[str, str] = {"fp32": "", "fp16": "_fp16", "q8": "_quantized", "q4": "_q4", "bnb4": "_bnb4"}

#: Minimum signal-to-quantization-noise ratio of an output, in dB.
LEAST = 6.0

#: Weights per quantization block, the default of onnxruntime-genai.
_BLOCK = 32


@dataclass(frozen=True)
class Loss:
    """Signal-to-quantization-noise ratio (``sqnr``, in dB) of one output in a lower precision."""

    part: str
    output: str
    precision: str
    sqnr: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def __str__(self) -> str:
        return f"{self.part} {self.output}: {self.sqnr:.1f} dB SQNR in {self.precision}"


def check_precision(precision: str) -> None:
    """Raise ``InvalidCall`` for an unknown precision."""
    if precision not in PRECISIONS:
        raise InvalidCall("unknown precision", given=repr(precision), available=", ".join(PRECISIONS))


def in_precision(graph: Graph, precision: str, target: object) -> Graph:
    """Convert a graph to a precision; inputs and outputs stay float32.

    Weights of 4 and 8 bits become com.microsoft::MatMulNBits for onnxruntime, and ai.onnx DequantizeLinear for another
    ``target``. HQQ finds scales and zero points. Weights in NF4 become com.microsoft::MatMulBnb4. Embeddings and norms
    stay float32. Raises ``InvalidCall`` if no weights can be quantized, and ``NotRepresentable`` for NF4 and a
    target of another runtime.
    """
    kind = PRECISIONS[precision]
    if isinstance(kind, str):
        return tx.lower_precision(graph, kind).graph
    form = "qoperator" if target is None or str(target).startswith("onnxruntime") else "qdq"
    if precision == "bnb4":
        if form == "qdq":
            raise NotRepresentable("only onnxruntime has weights in NF4", given=str(target), do="use int4")
        return with_nf4_weights(graph)
    result, _ = tx.quantize(graph, mode="weights", bits=kind, block_size=_BLOCK, form=form, method="hqq")
    return result


def loss_of(part: Part, precision: str, before: Sequence[Any], after: Sequence[Any]) -> Loss:
    """Measure the noise of a precision in the first output. Raises ``VerificationFailed`` if it is too large."""
    wanted, actual = (np.asarray(each[0], np.float64) for each in (before, after))
    noise = float(np.square(wanted - actual).mean())
    signal = float(np.square(wanted).mean())
    sqnr = 200.0 if noise == 0 else 10 * np.log10(max(signal, 1e-300) / noise)
    if not sqnr >= LEAST:
        raise VerificationFailed(
            f'output "{part.outputs[0]}" of {part.name} in {precision} has too large an error',
            given=f"{sqnr:.1f} dB SQNR, of at least {LEAST:.0f}",
            do="choose a precision of more bits",
        )
    return Loss(part.name, part.outputs[0], precision, float(sqnr))


def check_dtype(precision: str, layout: str) -> None:
    """Raise ``NotRepresentable`` for a precision that a layout has no file name for."""
    if layout == TRANSFORMERS_JS and precision not in DTYPES:
        raise NotRepresentable(
            "transformers.js has no dtype for this precision", given=precision, available=", ".join(DTYPES)
        )


def file_name(path: Path, precision: str, layout: str) -> Path:
    """File name of a graph in a precision; transformers.js expects a suffix."""
    suffix = SUFFIXES[DTYPES[precision]] if layout == TRANSFORMERS_JS else ""
    return path.with_name(f"{path.stem}{suffix}{path.suffix}")
