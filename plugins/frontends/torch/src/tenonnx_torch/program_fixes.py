"""Fixes of programs: replacing operations that the exporter translates incorrectly."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tenonnx_torch.complexes import pair_operands

aten = torch.ops.aten

#: A traced module, and a call in it.
Program = Any
Call = Any

#: Logical equivalents of arithmetic on booleans, which ONNX lacks.
_OF_BOOLEANS: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: aten.logical_or.default,
    aten.mul.Tensor: aten.logical_and.default,
    aten.maximum.default: aten.logical_or.default,
    aten.minimum.default: aten.logical_and.default,
}

#: Reductions; onnxruntime rejects negative axes of these for empty tensors.
_NAMES = """
    all amax amin aminmax any argmax argmin linalg_vector_norm logsumexp max mean min nansum norm prod std std_mean sum
    var var_mean
"""
_REDUCTIONS = {getattr(aten, name) for name in _NAMES.split()}

#: Operations that the exporter writes without promoting their operands to a common dtype.
_OF_ONE_TYPE = {
    aten.maximum.default,
    aten.minimum.default,
    aten.clamp.Tensor,
    aten.clamp_min.Tensor,
    aten.clamp_max.Tensor,
    aten.pow.Tensor_Tensor,
}

#: Normalizations that also return the statistics they use, by the position of the argument that selects the batch's.
_WITH_STATISTICS: dict[Any, int | None] = {
    aten.native_batch_norm.default: 5,
    aten._native_batch_norm_legit.default: 5,
    aten._native_batch_norm_legit.no_stats: 3,
    aten._batch_norm_with_update.default: None,
}


def calls(program: Program) -> Iterator[Call]:
    """All function calls, including those in branches and loop bodies."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in list(module.graph.nodes) if node.op == "call_function")


def fix_program(program: Program) -> None:
    """Replace operations that the exporter translates incorrectly."""
    for node in calls(program):
        if node.target in _OF_BOOLEANS:
            kinds = [a.meta.get("val") for a in node.args if isinstance(a, torch.fx.Node)]
            if len(kinds) == 2 and all(isinstance(k, torch.Tensor) and k.dtype is torch.bool for k in kinds):
                node.target = _OF_BOOLEANS[node.target]
                node.kwargs = {}
        elif node.target in _WITH_STATISTICS:
            _write_statistics(node)
        elif node.target is aten.squeeze.dim and not _has_size_one(*node.args[:2]):
            node.replace_all_uses_with(node.args[0])
            node.graph.erase_node(node)
        if node.target in _OF_ONE_TYPE:
            _cast_alike(node)


def _has_size_one(x: Call, dim: int) -> bool:
    """Whether an axis may have size 1: PyTorch keeps others, and ONNX fails on them."""
    shape = x.meta["val"].shape
    return not shape or not isinstance(shape[dim], int) or shape[dim] == 1


def _multiply_sizes(node: Call) -> None:
    x = node.args[0]
    with node.graph.inserting_before(node):
        found: Any = 1
        for axis, size in enumerate(x.meta["val"].shape):
            one: Any = size
            if not isinstance(size, int):
                one = node.graph.call_function(aten.sym_size.int, (x, axis))
                one.meta["val"] = size
            before, found = found, node.graph.call_function(operator.mul, (found, one))
            found.meta["val"] = (before if isinstance(before, int) else before.meta["val"]) * size
    node.replace_all_uses_with(found)
    node.graph.erase_node(node)


def _cast_alike(node: Call) -> None:
    dtype = node.meta["val"].dtype
    for argument in list(node.all_input_nodes):
        if argument.meta["val"].dtype is not dtype:
            with node.graph.inserting_before(node):
                cast = node.graph.call_function(aten._to_copy.default, (argument,), {"dtype": dtype})
            cast.meta["val"] = argument.meta["val"].to(dtype)
            node.replace_input_with(argument, cast)


def fix_decomposed_program(program: Program) -> None:
    """Make reduction axes non-negative, compute element counts from dims, and cast operands of complex calls."""
    for node in calls(program):
        pair_operands(node)
        if node.target is aten.sym_numel.default:
            _multiply_sizes(node)
        if isinstance(node.target, torch._ops.OpOverload) and node.target.overloadpacket in _REDUCTIONS:
            names = [argument.name for argument in node.target._schema.arguments]
            place, rank = names.index("dim") if "dim" in names else len(names), node.args[0].meta["val"].ndim
            if not rank:
                continue
            if place < len(node.args):
                node.update_arg(place, _from_the_first(node.args[place], rank))
            elif "dim" in node.kwargs:
                node.update_kwarg("dim", _from_the_first(node.kwargs["dim"], rank))


def _from_the_first(dim: Any, rank: int) -> Any:
    return [axis % rank for axis in dim] if isinstance(dim, list | tuple) else dim if dim is None else dim % rank


def _write_statistics(node: Call) -> None:
    """Compute the means and inverse deviations that a normalization returns, where they are used."""
    graph, x, place = node.graph, node.args[0], _WITH_STATISTICS[node.target]

    def call(function: Any, *arguments: Any, **keywords: Any) -> Call:
        new_node = graph.call_function(function, arguments, keywords)
        examples = torch.fx.map_arg(arguments, lambda each: each.meta["val"])
        new_node.meta["val"] = function(*examples, **keywords)
        return new_node

    for user in list(node.users):
        if user.target is not operator.getitem or user.args[1] not in (1, 2):
            continue
        with graph.inserting_before(user):
            axes = [axis for axis in range(x.meta["val"].ndim) if axis != 1]
            if place is not None and not node.args[place]:
                found = call(aten.new_zeros.default, x, [0])
            elif user.args[1] == 1:
                found = call(aten.mean.dim, x, axes)
            else:
                variance = call(aten.var.correction, x, axes, correction=0)
                found = call(aten.rsqrt.default, call(aten.add.Scalar, variance, node.args[-1]))
        user.replace_all_uses_with(found)
        graph.erase_node(user)


def with_views_of_copies(program: Program) -> Program:
    """Copy the inputs of views: decompositions may change the memory layout on which a view depends."""
    for node in calls(program):
        if node.target is aten.view.default:
            with node.graph.inserting_before(node):
                options = {"memory_format": torch.contiguous_format}
                copy = node.graph.call_function(aten.clone.default, (node.args[0],), options)
            copy.meta = dict(node.args[0].meta)
            node.replace_input_with(node.args[0], copy)
    return program
