"""Compilation for onnxruntime: unchanged if the runtime supports the graph, else rewritten for its ops."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime
from onnxruntime import GraphOptimizationLevel

from tenonnx.extend import (
    DType,
    InvalidCall,
    NotRepresentable,
    Op,
    TensorType,
    UnsupportedOp,
    did_you_mean,
    find_trait,
    listing,
)
from tenonnx.extend.backends import (
    OPTIONAL_INPUTS_IR,
    DefaultsProgram,
    FallbackProgram,
    Program,
    Target,
    fall_back,
    target_for,
)
from tenonnx.extend.formats import LARGEST_MESSAGE, message_of, write_stream
from tenonnx_onnxruntime.blocked import in_blocks
from tenonnx_onnxruntime.element_types import FLOAT8, OPTIONED
from tenonnx_onnxruntime.extensions import is_of_library, library_for
from tenonnx_onnxruntime.failures import shortened
from tenonnx_onnxruntime.kernels import (
    CPU,
    has_kernel,
    has_schema,
    has_version,
    is_faulty,
    left_behind,
    loaded_ir,
    newest,
)
from tenonnx_onnxruntime.places import Place
from tenonnx_onnxruntime.providers import Provider, check_first, chosen
from tenonnx_onnxruntime.session import RUNTIME_ERRORS, RuntimeProgram, stateful_program
from tenonnx_onnxruntime.split import split
from tenonnx_onnxruntime.values import to_runtime

if TYPE_CHECKING:
    import onnx

    from tenonnx.extend import Graph, Node

#: Above this number of nodes, the runtime's optimizer takes seconds: its time is quadratic.
LARGEST_OPTIMIZED = 10_000

#: Tensors of at least this size are passed separately from the ModelProto, since each copy inside it would take memory.
_BESIDE = 1 << 16

_LEVELS = {
    "none": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}

#: From this nesting depth on, disable constant folding: when the runtime inlines the branches of two nested Ifs that
#: contain two more, it crashes by a use after free.
_DEEP = 4

#: By default, onnxruntime rounds activations to 8 bits when it fuses blocked weights with their product.
_EXACT_BLOCKS = ("session.qdq_matmulnbits_accuracy_level", "1")

#: By default, onnxruntime saturates sums of two products of uint8 and int8 at 16 bits, on CPUs without VNNI.
_EXACT_PRODUCTS = ("session.x64quantprecision", "1")

#: By default, onnxruntime fuses float8 QDQ nodes to QLinear ops, which reject float8. Above level basic it also removes
#: Relu before them, as if they had no negative numbers. In gradients, it moves QuantizeLinear to where its types do not
#: fit.
_NO_QLINEAR = ("session.disable_quant_qdq", "1")
#: Number of nodes outside of loops that may each double the length of a string.
_GROWING = 8


def compile_graph(
    graph: Graph,
    *,
    state: Mapping[str, str] | None = None,
    provider: Provider | None = None,
    providers: Sequence[Provider] | None = None,
    session_options: onnxruntime.SessionOptions | Mapping[str, Any] | None = None,
    optimization: str | None = None,
    threads: int | None = None,
    strict: bool = False,
) -> Program:
    """Compile a graph; ``backend.compile`` documents the options."""
    wanted, place = chosen(provider, providers)
    if optimization is not None and optimization not in _LEVELS:
        raise InvalidCall("unknown level of optimization", given=repr(optimization), available=", ".join(_LEVELS))
    _fields(session_options)
    session_options = _with_threads(session_options, threads)
    try:
        _refuse_growing_text(graph)
        make = functools.partial(
            open_session,
            providers=wanted,
            session_options=session_options,
            optimization=optimization,
            trains=bool(state),
        )
        program: Program
        if state:
            program = stateful_program(graph, state, lambda each: make(each)[0], place or Place())
        else:
            program = DefaultsProgram(graph, lambda each: RuntimeProgram(each, *make(each), place))
    except UnsupportedOp as error:
        if strict:
            raise
        if not state and any(is_of_library(node.op) for node in graph.nodes):
            return split(
                graph,
                error,
                functools.partial(
                    compile_graph,
                    provider=provider,
                    providers=providers,
                    session_options=session_options,
                    optimization=optimization,
                ),
            )
        return fall_back(graph, error, state)
    return program if strict else FallbackProgram(program, graph, state)


def _refuse_growing_text(graph: Graph) -> None:
    """Raise ``UnsupportedOp`` if strings may double in length at many nodes, or in a loop: the runtime has no limit."""
    growing = [node for node in graph.walk() if isinstance(node.op, Op) and find_trait(node.op, "grows_text")]
    if len(growing) > _GROWING or any(node not in graph.nodes for node in growing):
        raise UnsupportedOp(
            "text in the graph may grow without a limit in onnxruntime",
            given=f"{len(growing)} nodes such as {growing[0].title}",
            do='run it with backend="numpy", which keeps to the limit "memory"',
        )


def _is_spoiled_by_exact_products(node: Node) -> bool:
    """Whether the option for exact products makes onnxruntime create a node without a kernel.

    It converts weights to uint8, for which QGemm has no kernel, and adds a scalar zero point to weights without one.
    """
    if node.op_type == "DequantizeLinear":
        scale = node.inputs[1].type if node.inputs[1] is not None else None
        return (len(node.inputs) < 3 or node.inputs[2] is None) and not (
            isinstance(scale, TensorType) and scale.shape == ()
        )
    return node.op_type == "QGemm"


def open_session(
    graph: Graph, providers: list[Any], session_options: Any, optimization: str | None, trains: bool = False
) -> tuple[onnxruntime.InferenceSession, bool]:
    """A session of the first candidate that the runtime accepts, and whether a default session computes the same."""
    problems: list[str] = []
    inline = isinstance(session_options, onnxruntime.SessionOptions)
    for candidate in _candidates(graph, providers, problems):
        settings = _settings(session_options, optimization, candidate, trains)
        try:
            session, is_plain = _open(candidate, settings, providers, inline)
            by_default = session_options is None and optimization is None
            return session, is_plain and by_default and candidate is graph
        except RUNTIME_ERRORS as error:
            problems.append(shortened(error))
        except NotRepresentable as error:  # a graph may have ops newer than its opset
            problems.append(error.given or error.what)
    opaque = any(not isinstance(node.op, Op) for node in graph.walk())
    library = "give session_options with the library that has these ops, or install a package that provides them"
    raise UnsupportedOp(
        f"onnxruntime {onnxruntime.__version__} cannot run the graph",
        given="\n".join(dict.fromkeys(problems)),
        do=library if opaque else "install a newer onnxruntime, or use another backend",
    )


def _candidates(graph: Graph, providers: list[Any], problems: list[str]) -> Iterator[Graph]:
    """The unchanged graph, followed by versions rewritten for the ops of the runtime.

    These are at the graph's own opset, at the newest one, and at those after which ops lost their kernels. Reasons why
    one cannot be created are appended to ``problems``.
    """
    own = target_for(graph).opsets
    opaque = {node.domain for node in graph.walk() if not isinstance(node.op, Op)}
    named = (node for node in graph.walk() if isinstance(node.op, Op))
    if all(domain in opaque or has_version(domain, version) for domain, version in own.items()) and not any(
        is_faulty(node.op, [v.type if v is not None else None for v in node.inputs]) for node in named
    ):
        yield graph
    from tenonnx.extend.backends import retarget_to  # imported lazily: most graphs are not rewritten

    possible = {
        domain: version if domain in opaque else min(version, newest(domain))
        for domain, version in own.items()
        if domain in opaque or newest(domain)
    }
    cpu_alone = all((p if isinstance(p, str) else p[0]) == CPU for p in providers)
    has = has_kernel if cpu_alone else has_schema
    accepts = functools.partial(_accepts, has) if opaque else has
    for version in dict.fromkeys([possible["ai.onnx"], newest("ai.onnx"), *left_behind()]):
        try:
            moved = retarget_to(graph, Target(possible | {"ai.onnx": version}, accepts), spare_defaults=False).graph
        except NotRepresentable as error:
            problems.append(error.given or error.what)
        else:
            yield moved


def _accepts(has: Callable[..., bool], op: Any, *arguments: Any) -> bool:
    """Whether the runtime has an op, or the op is unknown here."""
    return not isinstance(op, Op) or has(op, *arguments)


def _open(
    graph: Graph, settings: onnxruntime.SessionOptions, providers: list[Any], inline: bool
) -> tuple[onnxruntime.InferenceSession, bool]:
    """A session of a graph, and whether it has default options; large initializers share the graph's memory.

    ``inline`` puts them into the ModelProto, if it is small enough. Inputs with a default value become initializers, so
    that the runtime can optimize nodes that depend on them.
    """
    given = graph
    if providers == [CPU]:
        graph = in_blocks(graph)
    model, initializers = message_of(graph)
    is_plain = (
        providers == [CPU]
        and graph is given
        and model.ir_version == loaded_ir(model.ir_version)
        and len(graph.inputs) == len(graph.all_inputs)
        and not graph.functions
        and sum(contents.nbytes for _, contents in initializers) < LARGEST_MESSAGE
        and not any(node.op_type in OPTIONED for node in graph.walk())
    )
    model.ir_version = loaded_ir(model.ir_version)
    if model.ir_version >= OPTIONAL_INPUTS_IR and len(graph.inputs) < len(graph.all_inputs):
        inputs = [info for value, info in zip(graph.all_inputs, model.graph.input, strict=True) if value.data is None]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
    total = sum(contents.nbytes for _, contents in initializers)
    least = LARGEST_MESSAGE if inline and total < LARGEST_MESSAGE else _BESIDE
    beside = [
        (name, contents)
        for name, contents in initializers
        if contents.nbytes >= least and _can_share_memory(contents.type.dtype)
    ]
    for name, contents in beside:
        tensor = model.graph.initializer.add(name=name, data_type=int(contents.type.dtype), dims=contents.type.shape)
        tensor.data_location = tensor.EXTERNAL
        tensor.external_data.add(key="location", value="memory")
    if beside:
        values = [to_runtime(contents.array(), contents.type.dtype) for _, contents in beside]
        settings.add_external_initializers([name for name, _ in beside], values)
    apart = {name for name, _ in beside}
    message = io.BytesIO()
    write_stream(message, model, [entry for entry in initializers if entry[0] not in apart])
    depth = _depth(model.graph.node) + sum(_depth(function.node) for function in model.functions)
    disabled = ["ConstantFolding"] if depth >= _DEEP else []
    session = onnxruntime.InferenceSession(
        message.getvalue(), settings, providers=providers, disabled_optimizers=disabled
    )
    session.disable_fallback()
    check_first(session, providers)
    level = settings.graph_optimization_level == onnxruntime.SessionOptions().graph_optimization_level
    return session, is_plain and level and not disabled


def _can_share_memory(dtype: DType) -> bool:
    """Whether the runtime reads such a tensor from the caller's memory; it copies packed types."""
    return dtype is not DType.string and dtype.bits >= 8


def _depth(nodes: Iterable[onnx.NodeProto]) -> int:
    """Nesting depth of subgraphs."""
    inside = [a.g for node in nodes for a in node.attribute if a.HasField("g")]
    return max((1 + _depth(graph.node) for graph in inside), default=0)


# ----- options --------------------------------------------------------------------------------------------------------


def _fields(session_options: Any) -> None:
    """Raise ``InvalidCall`` unless these are session options."""
    if isinstance(session_options, Mapping):
        known = [name for name in dir(onnxruntime.SessionOptions) if _is_field(name)]
        unknown = [name for name in session_options if name not in known]
        if unknown:
            raise InvalidCall(
                "unknown fields of onnxruntime.SessionOptions in session_options",
                given=", ".join(unknown),
                available=listing(known),
                do=did_you_mean(next(iter(unknown)), known),
            )
    elif session_options is not None and not isinstance(session_options, onnxruntime.SessionOptions):
        raise InvalidCall(
            "session_options is neither an onnxruntime.SessionOptions nor a mapping of its fields",
            given=type(session_options).__name__,
        )


def _with_threads(session_options: Any, threads: int | None) -> Any:
    """Session options with a number of threads. Raises ``InvalidCall`` if they already have one."""
    if threads is None:
        return session_options
    if not (isinstance(threads, int) and threads > 0):
        raise InvalidCall("threads is not a positive integer", given=repr(threads))
    if isinstance(session_options, onnxruntime.SessionOptions):
        raise InvalidCall(
            "threads was given together with a SessionOptions object", do="set intra_op_num_threads of the object"
        )
    return {"intra_op_num_threads": threads, "inter_op_num_threads": 1, **(session_options or {})}


def _is_field(name: str) -> bool:
    return isinstance(getattr(onnxruntime.SessionOptions, name), property)


def _settings(session_options: Any, optimization: str | None, graph: Graph, trains: bool) -> onnxruntime.SessionOptions:
    if isinstance(session_options, onnxruntime.SessionOptions):
        settings = session_options
    else:
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4  # errors are raised, not logged
        if path := library_for(graph):
            settings.register_custom_ops_library(path)
        settings.add_session_config_entry(*_EXACT_BLOCKS)
        if not any(_is_spoiled_by_exact_products(node) for node in graph.walk()):
            settings.add_session_config_entry(*_EXACT_PRODUCTS)
        if trains:
            settings.add_session_config_entry(*_NO_QLINEAR)
        types = [v.type for node in graph.walk() for v in node.inputs if v is not None]
        if any(isinstance(kind, TensorType) and kind.dtype in FLOAT8 for kind in types):
            settings.add_session_config_entry(*_NO_QLINEAR)
            settings.graph_optimization_level = _LEVELS["basic"]
        if sum(1 for _ in graph.walk()) > LARGEST_OPTIMIZED:
            settings.graph_optimization_level = _LEVELS["none"]
        for name, value in (session_options or {}).items():
            try:
                setattr(settings, name, value)
            except TypeError as error:
                raise InvalidCall(
                    f"the session option {name} has a value of the wrong type", given=repr(value)
                ) from error
    if optimization is not None:
        settings.graph_optimization_level = _LEVELS[optimization]
    return settings
