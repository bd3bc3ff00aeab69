"""Conversion steps: fusion for the target, and half precision within a budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tenonnx import InvalidCall, UnsupportedOp
from tenonnx.extend.options import option
from tenonnx.extend.transforms import step_after

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx.extend.formats import Change, ConversionState, StepResult

#: Maximum change of an output by half precision, relative to its largest number.
BUDGET = 0.01


@step_after("retarget")
@dataclass(frozen=True)
class Fuse:
    """Fuse subgraphs into ops that the target supports, including those of ``domains``.

    ``fuse`` None fuses if a newer opset or more domains are requested than the model has. Names of ops in ``fuse`` or
    ``fuse_also`` add ops that few runtimes implement, such as ``ai.onnx::GroupNormalization``.
    """

    fuse: bool | Collection[str] | None = option(
        None,
        "Fuse subgraphs into ops available in the target, such as LayerNormalization or Attention. On by default if "
        "--opset is newer than the model's, or --domains names a domain that the model does not use.",
        "--fuse/--no-fuse",
    )
    fuse_also: Collection[str] = option(
        (),
        "Also fuse into an op that few runtimes implement, such as GroupNormalization, SimplifiedLayerNormalization "
        "or com.microsoft::QLinearAdd. Repeatable.",
        "--fuse-also",
        kind="texts",
        metavar="OP",
    )

    def __post_init__(self) -> None:
        if self.fuse_also and self.fuse is False:
            raise InvalidCall("--fuse-also and --no-fuse were both given", do="remove one of them")

    def is_wanted(self, state: ConversionState) -> bool:
        """Whether fusion is requested, or a newer opset or another domain is."""
        if self.fuse or self.fuse_also:
            return True
        options = state.options
        return (
            self.fuse is None and state.request.automatic and _more(state.graph, options.opset_version, options.domains)
        )

    def __call__(self, graph: Graph, state: ConversionState) -> tuple[Graph, Sequence[Change]]:
        if state.is_refused:
            return graph, ()
        from tenonnx.extend import copy_graph
        from tenonnx.extend.transforms import canonical_domain, retarget_to
        from tenonnx_optimize.fusion import fuse

        options, target = state.options, state.target
        wanted = self.fuse if isinstance(self.fuse, Collection) else ()
        also = [*([wanted] if isinstance(wanted, str) else wanted), *self.fuse_also]
        named = [canonical_domain(name.rpartition("::")[0]) for name in also]
        open_to = copy_graph(graph)
        opened = {domain: target.opsets.get(domain, 1) for domain in (*(options.domains or ()), *named)}
        open_to.opsets = {**opened, **graph.opsets}
        result = fuse(open_to, also=also)
        used = {node.domain for node in result.walk()}
        result.opsets = {d: v for d, v in result.opsets.items() if d in used or d in graph.opsets}
        before = {node.label: node.op_type for node in graph.nodes}
        # the new ops may be unsupported for these types
        if any(before.get(node.label) != node.op_type for node in result.nodes):
            wide = replace(target, opsets={**result.opsets, **target.opsets}, also=frozenset(also))
            result = retarget_to(result, wide, refuse=target.runtime is not None).graph
        return result, _fused(result, before)


def _more(graph: Graph, opset_version: int | Mapping[str, int] | None, domains: Collection[str] | None) -> bool:
    """Whether newer versions or other domains are requested than the graph has."""
    wanted = {"ai.onnx": opset_version} if isinstance(opset_version, int) else opset_version or {}
    newer = any(version > graph.opsets.get(domain, 0) for domain, version in wanted.items())
    return newer or any(domain not in graph.opsets for domain in domains or ())


def _fused(graph: Graph, before: Mapping[str, str]) -> list[Change]:
    from tenonnx.extend import Op
    from tenonnx.extend.formats import Change

    changes = []
    for node in graph.nodes:
        if before.get(node.label) != node.op_type:
            made_for_it = isinstance(node.op, Op) and node.op.primitive
            reason = "leads to what was fused" if made_for_it else "stands for a subgraph of simpler ops"
            title = f"{node.domain}::{node.op_type}@{graph.opsets[node.domain]}"
            changes.append(Change(node.label, title, "fused", reason))
    return changes


@step_after("retarget")
@dataclass(frozen=True)
class SimplifyLowered:
    """With ``simplify``, simplify again after lowering to another opset."""

    def is_wanted(self, state: ConversionState) -> bool:
        return "simplify" in state.options.transforms

    def __call__(self, graph: Graph, state: ConversionState) -> tuple[Graph, Sequence[Change]]:
        if state.is_refused or not any(change.action != "kept" for change in state.changes):
            return graph, ()
        from tenonnx.extend.transforms import retarget_to
        from tenonnx_optimize.simplification import simplify

        moved = retarget_to(simplify(graph), state.target, refuse=False)
        smaller = sum(1 for _ in moved.graph.walk()) < sum(1 for _ in graph.walk())
        return moved.graph if smaller and not moved.refused else graph, ()


@step_after("dims")
@dataclass(frozen=True)
class HalfPrecision:
    """Convert float32 to half precision within ``budget``; ``half_interface`` includes inputs and outputs."""

    float16: bool = option(
        False, "Convert float32 to float16. Inputs and outputs stay float32, and so do nodes that need it.", "--float16"
    )
    bfloat16: bool = option(False, "Convert float32 to bfloat16, as --float16 does.", "--bfloat16")
    half_interface: bool = option(
        False, "With --float16 or --bfloat16: also convert inputs and outputs.", "--half-interface"
    )
    budget: float = option(
        BUDGET,
        "With --float16 or --bfloat16: the allowed error of each output, relative to its largest absolute value. "
        "Nodes are kept in float32 until it is met.",
        "--budget",
        kind="positive",
    )

    def __post_init__(self) -> None:
        if self.float16 and self.bfloat16:
            raise InvalidCall("two half precisions were chosen", given="--float16 --bfloat16")
        if self.half_interface and not (self.float16 or self.bfloat16):
            raise InvalidCall("--half-interface was given without --float16 or --bfloat16", do="add one of them")

    def is_wanted(self, state: ConversionState) -> bool:
        return self.float16 or self.bfloat16

    def __call__(self, graph: Graph, state: ConversionState) -> StepResult:
        from tenonnx.extend import copy_graph
        from tenonnx.extend.formats import Change, StepResult
        from tenonnx.extend.transforms import LARGEST_MEASURED, weight_bytes
        from tenonnx_optimize.half_budget import lower_within, with_float_interface
        from tenonnx_optimize.precision import lower_precision

        options, dtype = state.options, "bfloat16" if self.bfloat16 else "float16"
        changes: list[Change] = []
        if options.initializers_as_constants is not False:
            reason = "initializers are constants, for half precision"
            defaults = [value.name for value in graph.all_inputs if value.data is not None]
            changes = [Change(name, "graph input", "closed", reason) for name in defaults]
            if defaults:
                graph = copy_graph(graph)
                graph.all_inputs = graph.inputs
        unchecked = ""
        if options.verify is False and options.feeds is None and weight_bytes(graph) > LARGEST_MEASURED:
            unchecked = "a model of this size is not run for it"
        else:
            try:
                lowered = lower_within(
                    graph,
                    dtype,
                    self.budget,
                    feeds=options.feeds,
                    input_shapes=state.input_shapes,
                    seed=options.seed,
                    convert_interface=self.half_interface,
                )
            except UnsupportedOp as error:
                unchecked = f"{error.what}: {error.given}" if error.given else error.what
        if unchecked:
            lowered = lower_precision(graph, dtype, convert_interface=self.half_interface)
            lowered.notes.append(f"the budget of {self.budget:g} was not checked: {unchecked}")
        findings: dict[str, Any] = {"half_precision": lowered}
        allowed = self.budget * max(1.0, lowered.largest)
        as_before = with_float_interface if self.half_interface else None
        return StepResult(lowered.graph, changes, findings, allowed, self.budget, as_before)
