"""A file as users run it: in a plain session, with the options that the runtime has by default."""

from __future__ import annotations

import io
from collections.abc import Iterator

import onnxruntime

from tenonnx.extend import Graph, UnsupportedOp
from tenonnx.extend.backends import Program
from tenonnx.extend.formats import LARGEST_MESSAGE, message_of, write_stream
from tenonnx_onnxruntime.kernels import CPU
from tenonnx_onnxruntime.session import RUNTIME_ERRORS, RuntimeProgram, shortened

#: Session options that help where the default ones spoil a model, those that cost least first.
_ENTRIES = ("session.qdq_matmulnbits_accuracy_level=1", "session.disable_quant_qdq=1")
_LEVELS = ("ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC", "ORT_DISABLE_ALL")


def plain(graph: Graph) -> Program:
    """The graph as it is written, in a session of default options. Raises ``UnsupportedOp`` where it does not load."""
    return _session(graph, onnxruntime.SessionOptions())


def remedies(graph: Graph) -> Iterator[tuple[str, Program]]:
    """The graph in sessions of one option that is not the default, each with the option as a user would set it."""
    for entry in _ENTRIES:
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry(*entry.split("="))
        yield from _loaded(f"the config entry {entry}", graph, options)
    for level in _LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        yield from _loaded(f"graph_optimization_level = {level}", graph, options)


def _loaded(option: str, graph: Graph, options: onnxruntime.SessionOptions) -> Iterator[tuple[str, Program]]:
    try:
        yield option, _session(graph, options)
    except UnsupportedOp:
        return


def _session(graph: Graph, options: onnxruntime.SessionOptions) -> Program:
    options.log_severity_level = 4  # what fails is raised
    model, initializers = message_of(graph)
    if sum(contents.nbytes for _, contents in initializers) > LARGEST_MESSAGE:
        raise UnsupportedOp("a plain session is opened of models below 2 GB")
    message = io.BytesIO()
    write_stream(message, model, initializers)
    try:
        session = onnxruntime.InferenceSession(message.getvalue(), options, providers=[CPU])
    except RUNTIME_ERRORS as error:
        raise UnsupportedOp(
            f"onnxruntime {onnxruntime.__version__} does not load the model", given=shortened(error)
        ) from error
    session.disable_fallback()
    return RuntimeProgram(graph, session)
