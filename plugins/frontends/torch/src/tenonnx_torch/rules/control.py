"""Ops with subgraphs, sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tenonnx_standard as ops
from tenonnx.extend import InvalidCall, Op, TensorType, find_rule
from tenonnx_standard.control_flow import counter_shape
from tenonnx_torch.rules import filled, ints, rule
from tenonnx_torch.shape_numbers import Numbers
from tenonnx_torch.traced_control import (
    depends_on_contents,
    goes_on_always,
    is_written_out,
    traced_if,
    traced_loop,
)
from tenonnx_torch.values import NATIVE, is_traced, tensors_in, to_arrays

#: The numpy rules of these ops accept elements of any type.
for _op in (
    ops.sequence_construct,
    ops.sequence_empty,
    ops.sequence_length,
    ops.sequence_map,
    ops.optional,
    ops.optional_get_element,
    ops.optional_has_element,
    ops.optional_has_element_of,
):
    _rule = find_rule(_op, "numpy")
    assert _rule is not None
    rule(_op)(_rule)


def _at_a_position(op: Op) -> None:
    """Register the numpy rule of an op whose last input is a position."""
    found = find_rule(op, "numpy")
    assert found is not None
    rule(op)(lambda *inputs: found(*inputs[:-1], to_arrays(inputs[-1])))


for _op in (ops.sequence_insert, ops.sequence_erase, ops.sequence_at):
    _at_a_position(_op)


@rule(ops.if_, numbers=[0])
def if_rule(condition: torch.Tensor | Numbers, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    if depends_on_contents(condition):
        return traced_if(condition, then_branch, else_branch)
    taken = bool(condition.array if isinstance(condition, Numbers) else condition)
    return then_branch() if taken else else_branch()


@rule(ops.loop, numbers=[0])
def loop_rule(limit: Any, condition: Any, *initial: Any, body: Any, _outputs: int | None) -> tuple[Any, ...]:
    if is_traced(limit, condition, *initial, *tensors_in(body.outside)) and not is_written_out(limit, condition, body):
        return traced_loop(limit, condition, initial, body)
    ends_by_limit = goes_on_always(condition, body)
    carried, kinds = list(initial), [value.type for value in body.graph.outputs[1 + len(initial) :]]
    rows: list[tuple[Any, ...]] = []
    going_on = condition is None or bool(condition)
    last = None if limit is None else ints(limit)[0]
    number, condition = (counter_shape(value) for value in body.graph.inputs[:2])
    while going_on and (last is None or len(rows) < last):
        found = body(torch.full(number, len(rows)), torch.full(condition, going_on), *carried)
        going_on = ends_by_limit or bool(found[0])
        carried = list(found[1 : 1 + len(carried)])
        rows.append(tuple(found[1 + len(carried) :]))
    return (*carried, *(_stacked([row[k] for row in rows], kind, 0) for k, kind in enumerate(kinds)))


@rule(ops.scan)
def scan_rule(*inputs: Any, body: Any, num_scan_inputs: int, **given: Any) -> tuple[Any, ...]:
    states = len(inputs) - num_scan_inputs
    where = filled(given["scan_input_axes"], 0, num_scan_inputs)
    backward = filled(given["scan_input_directions"], 0, num_scan_inputs)
    columns = [
        x.unbind(axis)[:: -1 if back else 1] for x, axis, back in zip(inputs[states:], where, backward, strict=True)
    ]
    carried, rows = list(inputs[:states]), []
    for slices in zip(*columns, strict=True):
        found = body(*carried, *slices)
        carried = list(found[:states])
        rows.append(tuple(found[states:]))
    kinds = [value.type for value in body.graph.outputs[states:]]
    axes, reverses = (filled(given[f"scan_output_{what}"], 0, len(kinds)) for what in ("axes", "directions"))
    stacked = [
        _stacked([row[k] for row in (rows[::-1] if reverses[k] else rows)], kind, axes[k])
        for k, kind in enumerate(kinds)
    ]
    return (*carried, *stacked)


def _stacked(tensors: Sequence[torch.Tensor], kind: Any, axis: int) -> torch.Tensor:
    if len({tensor.shape for tensor in tensors}) > 1:
        given = " and ".join(str(list(tensor.shape)) for tensor in tensors[:3])
        raise InvalidCall("a scan output changes its shape between iterations", given=given)
    if tensors:
        return torch.stack(list(tensors), dim=axis)
    shape = kind.shape or () if isinstance(kind, TensorType) else ()
    dims = [dim if isinstance(dim, int) else 0 for dim in shape]
    dims.insert(axis % (len(dims) + 1), 0)
    return torch.zeros(dims, dtype=NATIVE[kind.dtype] if isinstance(kind, TensorType) else torch.float32)


@rule(ops.split_to_sequence)
def split_to_sequence_rule(x: torch.Tensor, split: Any, *, axis: int, keepdims: int) -> Any:
    if split is None:
        return [x.narrow(axis, k, 1) if keepdims else x.select(axis, k) for k in range(x.shape[axis])]
    if min(ints(split), default=1) < 1:
        return NotImplemented
    return list(torch.split(x, ints(split) if split.ndim else ints(split)[0], dim=axis))


@rule(ops.concat_from_sequence)
def concat_from_sequence_rule(sequence: list[torch.Tensor], *, axis: int, new_axis: int) -> Any:
    if not all(isinstance(each, torch.Tensor) for each in sequence) or not sequence:
        return NotImplemented
    return torch.stack(sequence, dim=axis) if new_axis else torch.cat(sequence, dim=axis)
