"""Precisions of exported graphs: half precision, and weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx import VerificationFailed
from tenonnx.extend import Graph, InvalidCall
from tenonnx_transformers.parts import Part

#: By name: the half type of all tensors, or the bits of weights. Graphs in fp32 stay as they are.
PRECISIONS: Mapping[str, str | int | None] = {
    "fp32": None,
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": 8,
    "int4": 4,
}

#: The least ratio of signal to quantization noise of an output, in dB, with which a graph is written.
LEAST = 6.0

#: Weights of one block, as onnxruntime-genai quantizes by default.
_BLOCK = 32


@dataclass(frozen=True)
class Loss:
    """The ratio of the signal of an output to the noise of a precision, in dB."""

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
    """``graph`` in a precision; inputs and outputs stay float32.

    Weights of 4 and 8 bits are com.microsoft::MatMulNBits for onnxruntime, and DequantizeLinear of ai.onnx for another
    ``target``; scales and zero points are searched as by HQQ. Embeddings and norms stay float32. Raises ``InvalidCall``
    if no weights can be quantized.
    """
    kind = PRECISIONS[precision]
    if isinstance(kind, str):
        return tx.lower_precision(graph, kind).graph
    form = "qoperator" if target is None or str(target).startswith("onnxruntime") else "qdq"
    found, _ = tx.quantize(graph, mode="weights", bits=kind, block_size=_BLOCK, form=form, method="hqq")
    return found


def loss_of(part: Part, precision: str, before: Sequence[Any], after: Sequence[Any]) -> Loss:
    """The noise of a precision in the first output. Raises ``VerificationFailed`` where it is too large."""
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


def file_name(path: Path, precision: str, layout: str) -> Path:
    """The file of a graph in a precision: transformers.js finds it by a suffix."""
    suffixes = {"fp16": "_fp16", "bf16": "_bf16", "int8": "_quantized", "int4": "_q4"}
    suffix = suffixes.get(precision, "") if layout == "transformers.js" else ""
    return path.with_name(f"{path.stem}{suffix}{path.suffix}")
