"""The library of onnxruntime-extensions: its domains, its file, and its ops."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime

from tenonnx.extend import Op
from tenonnx.extend.formats import ModelProto

if TYPE_CHECKING:
    from tenonnx.extend import Graph

DOMAINS = frozenset({"ai.onnx.contrib", "com.microsoft.extensions"})

#: The newest version of each domain.
VERSION = 1

#: Ops of library version 0.15 that deviate from their definition: FarmHash differs from TensorFlow's, and so does
#: MurmurHash for lengths that are multiples of 8 bytes; some Greek letters are lowered incorrectly; BpeDecoder reads
#: out of bounds for several rows.
_WRONG = frozenset({"BpeDecoder", "StringLower", "StringToHashBucket", "StringToHashBucketFast"})


@functools.cache
def library() -> str | None:
    """The path of the library, or None if the package is not installed.

    The package is not imported, since that changes the environment of the process.
    """
    found = importlib.util.find_spec("onnxruntime_extensions")
    folders = found.submodule_search_locations if found is not None else None
    files = [path for folder in folders or () for path in sorted(Path(folder).glob("_extensions_pydll*"))]
    return next((str(path) for path in files if path.suffix in (".so", ".pyd", ".dylib")), None)


def library_for(graph: Graph) -> str | None:
    """The path of the library if a node of the graph may need it, else None."""
    return library() if any(node.domain in DOMAINS for node in graph.walk()) else None


def is_of_library(op: object) -> bool:
    """Whether an op is in a domain of the library."""
    return isinstance(op, Op) and op.domain in DOMAINS


#: Ops of the library that use RE2. A copy of RE2 loaded earlier by another package, such as TensorFlow, may replace the
#: library's own copy, which then finds no matches.
_BY_RE2 = frozenset({"StringRegexReplace", "StringRegexSplitWithOffsets"})


@functools.cache
def _finds_patterns(path: str) -> bool:
    """Whether replacing a pattern works in this process."""
    model = ModelProto(ir_version=8)
    for domain, version in (("", 17), ("ai.onnx.contrib", VERSION)):
        model.opset_import.add(domain=domain, version=version)
    graph = model.graph
    graph.name = "probe"
    for name, text in (("x", b"ab"), ("pattern", b"[b]+"), ("rewrite", b"c")):
        graph.initializer.add(name=name, data_type=8, dims=[1], string_data=[text])
    graph.node.add(
        op_type="StringRegexReplace", domain="ai.onnx.contrib", input=["x", "pattern", "rewrite"], output=["y"]
    )
    graph.output.add(name="y").type.tensor_type.elem_type = 8
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), _options(path), providers=["CPUExecutionProvider"]
    )
    return bool(session.run(None, {})[0].tolist() == ["ac"])


def _options(path: str) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(path)
    return options


@functools.cache
def has_op(domain: str, name: str) -> bool:
    """Whether the installed library has an op and computes it by definition."""
    path = library()
    if path is None or name in _WRONG:
        return False
    model = ModelProto(ir_version=8)
    for each, version in (("", 17), (domain, VERSION)):
        model.opset_import.add(domain=each, version=version)
    model.graph.name = "probe"
    model.graph.node.add(op_type=name, domain=domain, output=["y"])
    model.graph.output.add(name="y").type.tensor_type.elem_type = 1
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), _options(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions have no common base class
        if "not a registered function/op" in str(error):
            return False
    return name not in _BY_RE2 or _finds_patterns(path)
