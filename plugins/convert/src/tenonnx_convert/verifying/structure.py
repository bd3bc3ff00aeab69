"""Structural checks by ``onnx.checker``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError

from tenonnx import limits
from tenonnx.formats.onnx.messages import as_message
from tenonnx.formats.onnx.tensors import TensorContents, packed_bytes, to_proto
from tenonnx.formats.onnx.types import write_type
from tenonnx.graph.constants import Constant
from tenonnx.graph.graph import Graph, Node
from tenonnx.op.op import Op
from tenonnx.op.signature import kind_of
from tenonnx.transforms.retarget import retarget_where_needed
from tenonnx.transforms.target import target_for

#: Larger initializers are passed as types only, since shape inference reads only small contents.
_LARGEST = 1 << 20


def structure_problems(
    source: Graph | str | os.PathLike[str], *, inferred: bool = True, graph: Graph | None = None
) -> list[str]:
    """Errors of ``onnx.checker`` for a graph, as written at its own versions, or an ONNX file; empty if it passes.

    Ops that only an installed package defines are checked only structurally, and shape inference is then skipped, as it
    lacks their types; for a file they are taken from ``graph``, which was loaded from it.

    All shapes are inferred unless ``inferred`` is False. The checker runs in a subprocess with a timeout, since it
    crashes or hangs on some models; both are reported as errors.
    """
    if not isinstance(source, Graph):
        return _objections(str(Path(source)), b"", inferred, _declared(graph))
    try:
        return _objections("", _without_weights(source).SerializeToString(), inferred, _declared(source))
    except (EncodeError, ValueError) as error:
        return [f"skipped, as the model does not fit in one protobuf message: {error}"]


def beyond_the_specification(graph: Graph) -> list[Node]:
    """Nodes whose op an installed package defines, but the specification of its domain only later or never."""
    own = set(graph.functions.values())
    return [
        node
        for node in graph.walk()
        if isinstance(node.op, Op) and node.op not in own and not node.op.is_specified_at(node.version)
    ]


def _declared(graph: Graph | None) -> str:
    """The ops to register with the checker, in the domains that it checks: domain, name and attribute types."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    judged = onnx.onnx_cpp2py_export.defs.schema_version_map()
    for node in [] if graph is None else beyond_the_specification(graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain in judged:
            kinds = {name: kind_of(value) for name, value in node.attributes.items()}
            found.setdefault((domain, node.op_type), {}).update(kinds)
    return json.dumps([[*op, kinds] for op, kinds in found.items()])


def _objections(path: str, model: bytes, inferred: bool, declared: str) -> list[str]:
    program = str(Path(__file__).with_name("onnx_checker.py"))
    extension = onnx.onnx_cpp2py_export.__file__
    inferred_word = "inferred" if inferred and declared == "[]" else ""
    command = [sys.executable, "-I", "-S", program, extension, path, inferred_word, declared]
    seconds = limits.current().seconds
    try:
        done = subprocess.run(command, input=model, capture_output=True, timeout=seconds)  # noqa: S603
    except subprocess.TimeoutExpired:
        return [f'no answer within {seconds} s, the limit "seconds"']
    if done.returncode in (0, 3):
        return [" ".join(done.stdout.decode().split())] if done.returncode else []
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    cause = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
    return [f"its process crashed on this model, by {cause}: {last[-300:]}"]


def _without_weights(graph: Graph) -> onnx.ModelProto:
    """The model with large tensors as inputs, so that the checker neither copies them nor opens their files."""
    written = retarget_where_needed(graph, target_for(graph), refuse=False)
    model, initializers = as_message(written.graph)
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
