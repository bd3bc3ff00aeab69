"""The steps of a conversion, in order: functions from one state to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from tenonnx.errors import TenonnxError, UnsupportedOp, VerificationFailed
from tenonnx.formats.files import AtomicWriter
from tenonnx.formats.native import is_native
from tenonnx.formats.onnx.messages import name_packages, read_back
from tenonnx.formats.onnx.messages import write as write_model
from tenonnx.formats.onnx.streaming import write_files
from tenonnx.graph.graph import Graph
from tenonnx.graph.order import check_whole
from tenonnx.loading import load_and_verifier
from tenonnx.op.graph_inference import infer
from tenonnx.registry.extensions import extension
from tenonnx.registry.packages import packages_in_use
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.default_inputs import without_defaults
from tenonnx.transforms.report import Change, Retargeted
from tenonnx.transforms.retarget import retarget_where_needed
from tenonnx.transforms.rewrite import copy_graph
from tenonnx.transforms.target import target_for
from tenonnx_convert.conversion import ConversionState, Step, abandon
from tenonnx_convert.file_limits import check_file, data_threshold
from tenonnx_convert.input_dims import batch_of, changes_sizes, set_dims
from tenonnx_convert.local_functions import calls_vendor_ops, carry_vendor_ops
from tenonnx_convert.output_formats import FormatWriter
from tenonnx_convert.verify_step import SourceComparison
from tenonnx_convert.verifying.compare_outputs import Limit
from tenonnx_convert.verifying.default_session import default_program, has_default_session
from tenonnx_convert.verifying.free_dims import check_batch
from tenonnx_run.worker import NoAnswer, OutOfMemory, ProcessCrashed
from tenonnx_run.written_file import written_to

#: Maximum length of a reason in a note, in characters.
_LONGEST_REASON = 160


def read(state: ConversionState) -> ConversionState:
    """Read the source with its front end, and close the inputs to be made constant."""
    request, graph, verifier = state.request, state.graph, state.verifier
    if not isinstance(request.source, Graph):
        graph, verifier = load_and_verifier(request.source, *request.examples, **request.reading)
    check_whole(graph)
    changes: list[Change] = []
    if state.options.initializers_as_constants:
        reason = "initializers are constants, as asked"
        defaults = [value.name for value in graph.all_inputs if value.data is not None]
        changes = [Change(name, "graph input", "closed", reason) for name in defaults]
        graph = without_defaults(graph) if defaults else graph
    return replace(state, graph=graph, source_graph=graph, expected=graph, verifier=verifier, changes=changes)


def dims(state: ConversionState) -> ConversionState:
    """Set fixed and dynamic dims of inputs, including the batch."""
    state = _with_batch(state)
    graph = set_dims(state.graph, state.options)
    if changes_sizes(state.graph, state.options):
        state = replace(state, expected=graph)  # the original does not run at other sizes
    return replace(state, graph=graph)


def _with_batch(state: ConversionState) -> ConversionState:
    """The state with the dynamic batch added to ``free_dims``, or with a note if it was only tried."""
    wish, graph, options = state.options.dynamic_batch, state.graph, state.options
    if wish is None:
        return state
    try:
        batch = batch_of(graph)
        names = {**batch, **options.free_dims}
        free = {name: {**batch.get(name, {}), **options.free_dims.get(name, {})} for name in names}
        wanted = replace(options, free_dims=free)
        if wish == "try" and batch:
            check_batch(graph, wanted)
    except TenonnxError as error:
        if wish != "try":
            raise
        given = error.given.splitlines()[0][:_LONGEST_REASON] if error.given else ""
        note = f"the batch stays static: {error.what}" + (f" ({given})" if given else "")
        return replace(state, notes=[*state.notes, note])
    return replace(state, request=replace(state.request, options=wanted))


def functions(state: ConversionState) -> ConversionState:
    """Keep or inline model-local functions."""
    graph, wanted = state.graph, state.options.functions
    if graph.functions and (wanted == "inline" or (wanted == "vendor" and calls_vendor_ops(graph))):
        graph = inline_functions(graph)
    return replace(state, graph=graph)


def retarget(state: ConversionState) -> ConversionState:
    """Retarget the graph."""
    options = state.options
    target = target_for(state.graph, options.opset_version, options.domains, _runtime(state))
    moved = retarget_where_needed(state.graph, target, options.domains, refuse=state.request.refuse)
    return replace(state, graph=moved.graph, target=target, changes=[*state.changes, *moved.changes])


def _runtime(state: ConversionState) -> Any:
    """The requested target, restricted to the allowed ops and accuracy."""
    options = state.options
    if options.target is None and options.ops is None and not options.without:
        return None
    accuracy = "approximate" if options.approximate else "finite" if options.assume_finite else "rounding"
    narrowed = extension("tools.narrowed_target")
    return narrowed(options.target, state.graph.opsets, options.ops, options.without or (), accuracy)


def as_functions(state: ConversionState) -> ConversionState:
    """Convert third-party ops to model-local functions, on request."""
    state = replace(state, packages=packages_in_use(state.graph))
    if state.options.functions != "vendor" or state.is_refused:
        return state
    so_far = Retargeted(state.graph, list(state.changes))
    carried = carry_vendor_ops(so_far, state.target, refuse=state.request.refuse)
    return replace(state, graph=carried.graph, changes=carried.changes)


def tidy(state: ConversionState) -> ConversionState:
    """Set the requested IR version, and infer all types on request."""
    from tenonnx.formats.onnx.ir import check_ir_version

    graph, ir_version = state.graph, state.options.ir_version
    moves = ir_version is not None and ir_version != graph.ir_version
    if ir_version is not None and moves:
        check_ir_version(graph, ir_version)
    if (moves or state.options.tidy) and (moves or graph is state.start_graph):
        graph = copy_graph(graph)
    if moves:
        graph.ir_version = ir_version
    if state.options.tidy:
        infer(graph, strict=False)
    state = replace(state, graph=graph)
    check_file(state)
    return state


def message(state: ConversionState) -> ConversionState:
    """Build the ModelProto of the graph and its separate initializers."""
    from tenonnx.formats.onnx.ir import ir_version, leave_out_notes
    from tenonnx.formats.onnx.training import add_training_state
    from tenonnx.formats.onnx.writer import model_and_initializers
    from tenonnx_convert.value_info import declare_types, declare_what_runtimes_miss

    graph, options, runtime = state.graph, state.options, state.target.runtime
    model, initializers = model_and_initializers(graph, tidy=options.tidy)
    if options.shapes is not None:
        declare_types(model, graph, options.shapes)
    if options.shapes != "interface":
        declare_what_runtimes_miss(model, graph)
    if runtime is not None:
        model.ir_version = ir_version(graph, runtime)
    left_out = state.left_out
    if graph is not state.start_graph or options.ir_version is not None:
        notes = leave_out_notes(model)
        left_out = notes if state.verifier is None else {}  # metadata from a front end was never in a file
    if options.include_training_state:
        initializers = add_training_state(graph, model, initializers)
    name_packages(state.packages, model)
    if options.strip or (options.strip is None and state.verifier is not None):
        from tenonnx_convert.strip import strip

        initializers = strip(model, initializers)
    check_file(state, message=model.ByteSize())
    return replace(state, model=model, initializers=initializers, left_out=left_out)


def hooks(state: ConversionState) -> ConversionState:
    """Run the hooks on the message."""
    wanted: Any = state.options.post_export_hooks
    if not wanted:
        return state
    from tenonnx_convert.hooks import run_hooks

    model, initializers = run_hooks(wanted, state.model, state.initializers, state.start_graph, state.graph.registry)
    return replace(state, model=model, initializers=initializers)


def verify(state: ConversionState) -> ConversionState:
    """Compare the graph read back from the result with the original model."""
    options, wanted = state.options, state.options.verify
    if wanted is False:
        return state
    judge: Callable[[Graph], object]
    if callable(wanted):
        judge = wanted
    else:
        allowed = None if isinstance(wanted, bool | None) else float(wanted)
        judge = comparison = SourceComparison(
            source=state.request.name,
            source_graph=state.source_graph,
            expected=state.expected,
            changed_by=list(state.changed_by),
            as_before=state.as_before,
            verifier=state.verifier,
            options=options,
            input_shapes=state.input_shapes,
            atol=_first(allowed, options.atol, state.absolute),
            rtol=_first(options.rtol, None if allowed is None else 0.0, state.relative),
        )
        state = replace(state, comparison=comparison)
    state = replace(state, writer=_temporary(state))
    try:
        with ExitStack() as stack:
            written = stack.enter_context(read_back(state.model, state.initializers, state.graph.registry))
            if isinstance(state.writer, FormatWriter):
                state.writer.write(written)
                if state.comparison is not None:
                    state.comparison.file = state.writer.opened(written)
            elif state.writer is not None:
                with suppress(OSError):  # a file system without hard links: write a second file
                    path = stack.enter_context(state.writer.unfinished())
                    stack.enter_context(written_to(written, path))
            judge(written)
            if isinstance(state.writer, FormatWriter) and state.comparison is not None:
                found = state.comparison.verification
                state.writer.annotate("not verified" if found is None else found.verdict)
            _check_target(state, written)
    except BaseException as error:
        if state.writer is not None:
            abandon(state.writer, error)
        raise
    return state


def _check_target(state: ConversionState, written: Graph) -> None:
    """Raise ``VerificationFailed`` if the target's runtime is installed but cannot load the file."""
    runtime = state.target.runtime
    backend = "" if runtime is None else runtime.name.partition("-")[0]
    if runtime is None or state.format is not None or not has_default_session(backend):
        return
    try:
        default_program(written, backend)
    except (NoAnswer, OutOfMemory):
        return  # the comparison has added a note
    except (UnsupportedOp, ProcessCrashed) as error:
        given = f"{error.what}: {error.given}"
        raise VerificationFailed(f"the file for {runtime.name} does not load", given=given) from error


def _temporary(state: ConversionState) -> AtomicWriter | FormatWriter | None:
    """A temporary file; None for streams, native files, and if the final path is not known yet."""
    path, options = state.path, state.options
    if state.format is not None:
        return state.format_writer().__enter__()
    if not isinstance(path, str | os.PathLike) or is_native(path) or not state.path_is_final:
        return None
    writer = AtomicWriter(path, overwrite=options.overwrite)
    writer.__enter__()
    try:
        write_files(writer, state.model, state.initializers, data_threshold(state))
    except BaseException as error:
        abandon(writer, error)
        raise
    return writer


def _first(*limits: Limit) -> Limit:
    return next((limit for limit in limits if limit is not None), None)


def verify_with(state: ConversionState) -> ConversionState:
    """Compare the file in the requested runner."""
    name = state.options.verify_with
    if name is None:
        return state
    from tenonnx_convert.verify_with import compared_in_runner

    note = f"note: in {name} {compared_in_runner(state, name).verdict}"
    return replace(state, notes=[*state.notes, note])


def write(state: ConversionState) -> ConversionState:
    """Write the file or stream."""
    if state.writer is not None:
        state.writer.__exit__(None, None, None)
        return replace(state, writer=None)
    options = state.options
    if state.format is not None:
        with (
            state.format_writer() as writer,
            read_back(state.model, state.initializers, state.graph.registry) as written,
        ):
            writer.write(written)
    elif state.path is not None:
        write_model(state.path, state.model, state.initializers, data_threshold(state), overwrite=options.overwrite)
    return state


#: All steps except those of packages, which name the step that they follow.
STEPS: Mapping[str, Step] = {
    each.__name__: each
    for each in (read, dims, functions, retarget, as_functions, tidy, message, hooks, verify, verify_with, write)
}
