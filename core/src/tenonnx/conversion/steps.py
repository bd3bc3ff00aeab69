"""The table of a conversion: its steps, in order. Each takes a graph to a graph and what became of nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from tenonnx.conversion.as_functions import calls_vendor_ops, carry_vendor_ops
from tenonnx.conversion.comparing import Comparison
from tenonnx.conversion.conversion import Conversion, Left, Step
from tenonnx.formats.native import is_native
from tenonnx.formats.native import write as write_native
from tenonnx.formats.onnx.messages import name_packages, read_back
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.loading import load_and_verifier
from tenonnx.op.graph_inference import infer
from tenonnx.registry.packages import packages_in_use
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.dims import fix_shapes, free_dims
from tenonnx.transforms.report import Retargeted
from tenonnx.transforms.retarget import retarget_where_needed
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.target import target_for


def read(graph: Graph, conversion: Conversion) -> Left:
    """The graph of the source, by the front end that reads it."""
    if not isinstance(conversion.source, Graph):
        graph, conversion.verifier = load_and_verifier(conversion.source, *conversion.examples, **conversion.reading)
    check_whole(graph)
    conversion.read = conversion.expected = graph
    return graph, ()


def dims(graph: Graph, conversion: Conversion) -> Left:
    """Dims of inputs as numbers, and as symbols."""
    options = conversion.options
    if options.fix_shapes:
        graph = fix_shapes(graph, options.fix_shapes)
    return free_dims(graph, options.free_dims) if options.free_dims else graph, ()


def functions(graph: Graph, conversion: Conversion) -> Left:
    """The functions that the model defines for itself, kept or inlined."""
    wanted = conversion.options.functions
    if wanted == "inline" or (wanted == "vendor" and calls_vendor_ops(graph)):
        graph = inline_functions(graph) if graph.functions else graph
    return graph, ()


def retarget(graph: Graph, conversion: Conversion) -> Left:
    """Ops as the target has them."""
    options = conversion.options
    conversion.target = target_for(graph, options.opset_version, options.domains, options.target)
    moved = retarget_where_needed(graph, conversion.target, options.domains, refuse=conversion.refuse)
    return moved.graph, moved.changes


def as_functions(graph: Graph, conversion: Conversion) -> Left:
    """The ops of other packages as functions of the model, where that is asked for."""
    conversion.packages = packages_in_use(graph)
    if conversion.options.functions != "vendor" or conversion.is_refused:
        return graph, ()
    so_far, conversion.changes = conversion.changes, []
    carried = carry_vendor_ops(Retargeted(graph, so_far), conversion.target, refuse=conversion.refuse)
    return carried.graph, carried.changes


def tidy(graph: Graph, conversion: Conversion) -> Left:
    """The graph at the IR version that is asked for, with every type inferred where that is."""
    from tenonnx.formats.onnx.ir import check_ir_version

    asked = conversion.options.ir_version
    moves = asked is not None and asked != graph.ir_version
    if asked is not None and moves:
        check_ir_version(graph, asked)
    if (moves or conversion.options.tidy) and (moves or graph is conversion.given):
        graph = copy_graph(graph)
    if moves:
        graph.ir_version = asked
    if conversion.options.tidy:
        infer(graph, strict=False)
    return graph, ()


def message(graph: Graph, conversion: Conversion) -> Left:
    """The message of the graph, its initializers apart."""
    from tenonnx.formats.onnx.declared import declare_types
    from tenonnx.formats.onnx.ir import ir_version, leave_out_notes
    from tenonnx.formats.onnx.training import add_training_state
    from tenonnx.formats.onnx.writer import model_and_initializers

    options, runtime = conversion.options, conversion.target.runtime
    model, initializers = model_and_initializers(graph, tidy=options.tidy)
    if options.shapes is not None:
        declare_types(model, graph, options.shapes)
    if runtime is not None:
        model.ir_version = ir_version(graph, runtime)
    if graph is not conversion.given or options.ir_version is not None:
        conversion.left_out = leave_out_notes(model)
    if options.include_training_state:
        initializers = add_training_state(graph, model, initializers)
    name_packages(conversion.packages, model)
    conversion.model, conversion.initializers = model, initializers
    return graph, ()


def hooks(graph: Graph, conversion: Conversion) -> Left:
    """The message as the hooks leave it."""
    if conversion.hooks:
        from tenonnx.formats.onnx.hooks import run_hooks

        conversion.model, conversion.initializers = run_hooks(
            conversion.hooks, conversion.model, conversion.initializers, conversion.given, graph.registry
        )
    return graph, ()


def verify(graph: Graph, conversion: Conversion) -> Left:
    """What will be read back against the model as it was read."""
    wanted, options = conversion.options.verify, conversion.options
    if wanted is False:
        return graph, ()
    judge: Callable[[Graph], object]
    if callable(wanted):
        judge = wanted
    else:
        allowed = None if isinstance(wanted, bool | None) else float(wanted)
        judge = conversion.comparison = Comparison(
            source=conversion.name, read=conversion.read, expected=conversion.expected,
            changed_by=conversion.changed_by, as_before=conversion.as_before, verifier=conversion.verifier,
            options=options, input_shapes=conversion.input_shapes,
            absolute=_first(allowed, options.absolute, conversion.absolute),
            relative=_first(options.relative, None if allowed is None else 0.0, conversion.relative),
        )  # fmt: skip
    with read_back(conversion.model, conversion.initializers, graph.registry) as written:
        judge(written)
    return graph, ()


def _first(*numbers: float | None) -> float | None:
    return next((number for number in numbers if number is not None), None)


def write(graph: Graph, conversion: Conversion) -> Left:
    """The file, or the stream."""
    from tenonnx.formats.onnx.streaming import write_file, write_stream

    path, options = conversion.path, conversion.options
    model, initializers = conversion.model, conversion.initializers
    if path is not None and not isinstance(path, str | os.PathLike):
        write_stream(path, model, initializers)
    elif path is not None and is_native(path):
        write_native(model, initializers, path, overwrite=options.overwrite)
    elif path is not None:
        write_file(path, model, initializers, options.external_data_threshold, overwrite=options.overwrite)
    return graph, ()


#: All steps but those of packages, which say behind which of these they come.
STEPS: Mapping[str, Step] = {
    each.__name__: each for each in (read, dims, functions, retarget, as_functions, tidy, message, hooks, verify, write)
}
