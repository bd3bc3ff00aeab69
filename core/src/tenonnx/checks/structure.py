"""Structure: what ``onnx.checker`` objects to in a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError

from tenonnx import limits
from tenonnx.formats.onnx.tensors import TensorContents, packed_bytes, to_proto
from tenonnx.formats.onnx.types import write_type
from tenonnx.formats.onnx.writer import model_and_initializers
from tenonnx.graph.graph import Graph
from tenonnx.graph.values import Constant

#: Initializers of more bytes are judged by their types alone: shape inference reads only small contents.
_LARGEST = 1 << 20


def structure_problems(source: Graph | str | os.PathLike[str], *, inferred: bool = True) -> list[str]:
    """The objections of ``onnx.checker`` to a graph or an ONNX file; none if it passes.

    It infers all shapes, unless ``inferred`` is False. As some models end its process, and some it never leaves,
    it is asked in a process of its own, for the seconds of a limit; that it came to no end is an objection, too.
    """
    if not isinstance(source, Graph):
        return _objections(str(Path(source)), b"", inferred)
    try:
        return _objections("", _without_weights(source).SerializeToString(), inferred)
    except (EncodeError, ValueError) as error:
        return [f"not asked, as the model has no form in one message: {error}"]


def _objections(path: str, model: bytes, inferred: bool) -> list[str]:
    program = str(Path(__file__).with_name("judge.py"))
    extension = onnx.onnx_cpp2py_export.__file__
    command = [sys.executable, "-I", "-S", program, extension, path, "inferred" if inferred else ""]
    seconds = limits.current().seconds
    try:
        done = subprocess.run(command, input=model, capture_output=True, timeout=seconds)  # noqa: S603
    except subprocess.TimeoutExpired:
        return [f'no answer within {seconds} s, the limit "seconds"']
    if done.returncode in (0, 3):
        return [" ".join(done.stdout.decode().split())] if done.returncode else []
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return [f"its process ended on this model, by {_cause(done.returncode)}: {last[-300:]}"]


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _without_weights(graph: Graph) -> onnx.ModelProto:
    """The model with its large tensors as inputs: the checker neither copies them nor looks for their files."""
    model, initializers = model_and_initializers(graph)
    listed = {info.name for info in model.graph.input}
    for name, contents in initializers:
        if _is_small(contents):
            model.graph.initializer.append(to_proto(contents, name))
        elif name not in listed:
            write_type(contents.type, model.graph.input.add(name=name).type)
    return model


def _is_small(contents: Constant) -> bool:
    external = isinstance(contents, TensorContents) and contents.region is not None
    return not external and packed_bytes(contents.type) <= _LARGEST
