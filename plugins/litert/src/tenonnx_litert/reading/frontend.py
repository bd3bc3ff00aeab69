"""The front end of ``.tflite`` files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tenonnx_tensorflow.frontend  # noqa: F401 - registers the TensorFlow rules that this package calls
from tenonnx.extend import Graph, InvalidCall, Registry
from tenonnx.extend.checks import Allowed, Verification
from tenonnx_frontends import Dims, read_dims, warn_unverified
from tenonnx_litert.reading.building import graph_of
from tenonnx_litert.reading.reader import read_file
from tenonnx_tensorflow.forms import Form, Forms


def read(
    source: str | os.PathLike[str],
    *examples: Any,
    registry: Registry | None = None,
    signature: str | None = None,
    dims: Dims | str | os.PathLike[str] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
    forms: Mapping[str, Form] | None = None,
) -> Graph:
    """Read a signature of a TFLite model; quantized tensors become QuantizeLinear and DequantizeLinear pairs.

    The graph is compared with the interpreter of LiteRT or TensorFlow if one is installed: quantized values may differ by
    one step where rounding is a tie. ``forms`` maps operator names to custom rules, which take a ``Call``.

    Raises ``NotRepresentable`` naming every operator without a rule, ``InvalidModel`` for a broken file, ``InvalidCall``
    for ``examples``, and ``VerificationFailed`` if outputs differ.
    """
    if examples:
        raise InvalidCall("a model of TFLite is read without examples", given=f"{len(examples)} examples")
    path = Path(source)
    allowed = Allowed.of(verify, atol, rtol)
    file, rules = read_file(path), Forms(forms)
    compare = verifier(source, signature=signature) if allowed is not None else None
    graph = graph_of(file, path.stem, signature, registry, input_names, output_names, read_dims(dims), rules)
    if allowed is not None and compare is not None:
        warn_unverified(compare(graph, allowed.absolute, allowed.relative).raise_if_failed())
    return graph


def verifier(
    source: str | os.PathLike[str], *_: Any, signature: str | None = None, **__: Any
) -> Callable[..., Verification] | None:
    """Verifier of a graph against a signature in the interpreter; None if no interpreter is installed."""
    if find_spec("ai_edge_litert") is None and find_spec("tensorflow") is None:
        return None
    from tenonnx_litert.reading.verification import Interpreter, verify_file

    interpreter = Interpreter(Path(source), signature)
    interpreter.start()
    return lambda graph, atol=None, rtol=None: verify_file(Path(source), interpreter, graph, Allowed(atol, rtol))
