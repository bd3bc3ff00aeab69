"""What a conversion is asked for by options: fusion for the target, and half precision within a budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tenonnx.extend import Graph, Op, copy_graph
from tenonnx.extend.formats import Change
from tenonnx.extend.transforms import LARGEST_MEASURED, canonical_domain, retarget_to, step_behind, weight_bytes
from tenonnx_optimize.fuse import fuse as fused
from tenonnx_optimize.half_budget import lower_within, with_float_interface
from tenonnx_optimize.precision import lower_precision

if TYPE_CHECKING:
    from tenonnx.extend.formats import Conversion


@step_behind("retarget")
def fuse(graph: Graph, conversion: Conversion) -> tuple[Graph, Sequence[Change]]:
    """Fuse subgraphs into ops that the target has, or that are named."""
    if conversion.is_refused:
        return graph, ()
    options, target = conversion.options, conversion.target
    wanted = options.fuse if isinstance(options.fuse, Collection) else ()
    also = [*([wanted] if isinstance(wanted, str) else wanted), *options.fuse_also]
    named = [canonical_domain(name.rpartition("::")[0]) for name in also]
    open_to = copy_graph(graph)
    opened = {domain: target.opsets.get(domain, 1) for domain in (*(options.domains or ()), *named)}
    open_to.opsets = {**opened, **graph.opsets}
    result = fused(open_to, also=also)
    used = {node.domain for node in result.walk()}
    result.opsets = {d: v for d, v in result.opsets.items() if d in used or d in graph.opsets}
    before = {node.label: node.op_type for node in graph.nodes}
    if any(before.get(node.label) != node.op_type for node in result.nodes):  # the target may lack them for these types
        wide = replace(target, opsets={**result.opsets, **target.opsets}, also=frozenset(also))
        result = retarget_to(result, wide, refuse=target.runtime is not None).graph
    changes = []
    for node in result.nodes:
        if before.get(node.label) != node.op_type:
            made_for_it = isinstance(node.op, Op) and node.op.primitive
            reason = "leads to what was fused" if made_for_it else "stands for a subgraph of simpler ops"
            title = f"{node.domain}::{node.op_type}@{result.opsets[node.domain]}"
            changes.append(Change(node.label, title, "fused", reason))
    return result, changes


@step_behind("dims")
def precision(graph: Graph, conversion: Conversion) -> tuple[Graph, Sequence[Change]]:
    """Write float32 in half precision; what loses too many digits stays."""
    options = conversion.options
    assert options.half is not None
    if options.verify is False and options.feeds is None and weight_bytes(graph) > LARGEST_MEASURED:
        lowered = lower_precision(graph, options.half, convert_interface=options.half_interface)
        lowered.notes.append(
            f"the budget of {options.budget:g} was not checked: a model of this size is not run for it"
        )
    else:
        lowered = lower_within(
            graph, options.half, options.budget, feeds=options.feeds, input_shapes=conversion.input_shapes,
            seed=options.seed, convert_interface=options.half_interface,
        )  # fmt: skip
    conversion.findings["half_precision"] = lowered
    conversion.absolute, conversion.relative = options.budget * max(1.0, lowered.largest), options.budget
    if options.half_interface:
        conversion.as_before = with_float_interface
    return lowered.graph, ()
