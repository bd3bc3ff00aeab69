"""Exact rescaling: the input of layers is divided channel by channel, and their weights are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, Node, Value, static
from tenonnx_quantized.forms.quantized_nodes import is_meaning
from tenonnx_quantized.tuning.statistics import LayerInput, Moments

Array = np.ndarray[Any, Any]

#: Unary ops that commute with positive factors per channel.
_HOMOGENEOUS = (
    ops.relu,
    ops.leaky_relu,
    ops.identity,
    ops.dropout,
    ops.max_pool,
    ops.average_pool,
    ops.global_average_pool,
    ops.global_max_pool,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that read the same value, and the constants that divide it, each with its channel axis.

    ``layers`` are mapped to keys of statistics; ``before`` is the layer that computes the value, if any.
    """

    layers: Mapping[Node, LayerInput]
    channels: int
    folds: Sequence[tuple[Value, int]]
    before: Node | None


class Rescaling:
    """A graph during rescaling; changed contents of constants are kept separately until the end."""

    def __init__(self, graph: Graph, layers: Mapping[Node, LayerInput], moments: Moments | None = None) -> None:
        self.graph, self.layers, self.moments = graph, layers, moments
        self.uses = graph.uses()
        self.fixed = {*graph.outputs, *graph.all_inputs}
        self.changed: dict[Value, Array] = {}

    def groups(self) -> list[Group]:
        """Layers by the value that they read, where no other node reads it and constants before can be divided."""
        by_value: dict[Value, list[Node]] = {}
        for node in self.layers:
            if (value := node.inputs[0]) is not None:
                by_value.setdefault(value, []).append(node)
        result = []
        for value, nodes in by_value.items():
            channels = {self._channels(node) for node in nodes}
            axes = {1 if is_meaning(node.op, ops.conv) else -1 for node in nodes}
            if set(self.uses[value]) != set(nodes) or value in self.fixed or len(channels) != 1 or len(axes) != 1:
                continue
            if any(self.uses[w] != [node] for node in nodes if (w := node.inputs[1]) is not None):
                continue
            folds = self._folds(value, axes.pop(), channels.copy().pop())
            if folds:
                before = next((n for n in self.layers if n.inputs[1] in [fold for fold, _ in folds]), None)
                result.append(Group({node: self.layers[node] for node in nodes}, channels.pop(), folds, before))
        return result

    def apply(self, group: Group, scale: Array) -> None:
        """Divide the value of a group by a positive scale per channel, and multiply the weights that read it."""
        for value, axis in group.folds:
            contents = self.contents(value)
            self.changed[value] = contents / _along(scale, axis, contents.ndim)
        for node in group.layers:
            weights = node.inputs[1]
            assert weights is not None
            self.changed[weights] = self.scaled(node, scale)
        for key in set(group.layers.values()) if self.moments is not None else ():
            self.moments.divide(key, self.by_row(key, scale))

    def scaled(self, node: Node, scale: Array) -> Array:
        """The weights of a layer with each input channel multiplied."""
        weights = node.inputs[1]
        assert weights is not None
        contents, key = self.contents(weights), self.layers[node]
        if key.window is None:
            axis = 1 if is_meaning(node.op, ops.gemm) and node.attributes.get("transB") else 0
            return contents * _along(scale, axis, 2)
        shape = contents.shape
        reshaped = contents.reshape(key.groups, -1, *shape[1:])
        return (reshaped * scale.reshape(key.groups, 1, -1, *[1] * (len(shape) - 2))).reshape(shape)

    def by_row(self, key: LayerInput, scale: Array) -> Array:
        """Numbers per channel as numbers per row of a layer's input, ``[groups, rows]``."""
        reshaped = scale.reshape(key.groups, -1)
        return reshaped.repeat(key.rows // reshaped.shape[1], axis=1)

    def by_channel(self, key: LayerInput, rows: Array, reduce: Callable[..., Array]) -> Array:
        """Numbers per row, ``[groups, rows]``, reduced to one per channel."""
        per_channel = 1 if key.window is None else int(np.prod(key.window.kernel))
        return reduce(rows.reshape(-1, per_channel), axis=1)

    def greatest_weights(self, node: Node) -> Array:
        """The largest magnitude of a layer's weights for each input channel."""
        size, key = np.abs(self.matrices(node)), self.layers[node]
        return self.by_channel(key, size.max(2), np.max)

    def mean_weights(self, node: Node) -> Array:
        """The mean magnitude of a layer's weights for each input channel."""
        return self.by_channel(self.layers[node], np.abs(self.matrices(node)).mean(2), np.mean)

    def matrices(self, node: Node) -> Array:
        """The weights of a layer, ``[groups, rows, columns]``."""
        assert node.inputs[1] is not None
        return matrices(node, self.layers[node], self.contents(node.inputs[1]))

    def contents(self, value: Value) -> Array:
        changed = self.changed.get(value)
        if changed is None:
            contents = static(value)
            assert contents is not None
            return contents.astype(np.float64)
        return changed

    def finish(self) -> None:
        """Store the new contents of the graph's constants."""
        self.graph.assign({value.name: contents.astype(value.dtype.numpy) for value, contents in self.changed.items()})

    def _channels(self, node: Node) -> int:
        key = self.layers[node]
        return key.groups * key.rows // (1 if key.window is None else int(np.prod(key.window.kernel)))

    def _folds(self, value: Value, axis: int, channels: int) -> list[tuple[Value, int]] | None:
        """The constants whose division divides each channel of a value, or None."""
        node = value.producer
        if node is None or value in self.fixed or value is not node.outputs[0]:
            return None
        given = [*node.inputs, None, None, None]
        x = given[0]
        if is_meaning(node.op, *_HOMOGENEOUS) and x is not None and len(self.uses[x]) == 1:
            spatial = is_meaning(node.op, *_HOMOGENEOUS[4:])
            return self._folds(x, axis, channels) if axis == 1 or not spatial else None
        if is_meaning(node.op, ops.layer_normalization, ops.rms_normalization) and axis == -1:
            places = [(1, -1)] + ([(2, -1)] if given[2] is not None else [])
            return self._constants(node, places, channels) if self._last_axis(node, value) else None
        if is_meaning(node.op, ops.batch_normalization) and axis == 1:
            return self._constants(node, [(1, 0), (2, 0)], channels)
        if is_meaning(node.op, ops.conv) and axis == 1:
            return self._constants(node, [(1, 0)] + ([(2, 0)] if given[2] is not None else []), channels)
        if is_meaning(node.op, ops.gemm) and axis == -1:
            columns = 0 if node.attributes.get("transB") else 1
            return self._constants(node, [(1, columns)] + ([(2, -1)] if given[2] is not None else []), channels)
        if is_meaning(node.op, ops.matmul) and axis == -1:
            return self._constants(node, [(1, -1)], channels)
        if is_meaning(node.op, ops.mul, ops.add):
            return self._elementwise(node, axis, channels)
        values = self._values_of_heads(node, channels) if axis == -1 else None
        return None if values is None else self._folds(values, axis, channels)

    def _values_of_heads(self, node: Node, channels: int) -> Value | None:
        """The values, with heads concatenated, of the attention whose output a Reshape merges.

        Attention only mixes positions, so a factor per channel of its values is a factor of its output.
        """
        taken: Value | None = node.outputs[0]
        for op in (ops.reshape, ops.transpose, ops.matmul, ops.transpose, ops.reshape):
            step = None if taken is None else taken.producer
            if (
                step is None
                or not is_meaning(step.op, op)
                or (taken is not node.outputs[0] and len(self.uses[taken]) > 1)
            ):
                return None
            if op is ops.transpose and list(step.attributes.get("perm") or ()) != [0, 2, 1, 3]:
                return None
            taken = step.inputs[1] if op is ops.matmul else step.inputs[0]
            if op is ops.matmul and taken is not None:
                shape = getattr(taken.type, "shape", None) or ()
                heads = shape[1::2] if len(shape) == 4 else ()
                if not all(isinstance(d, int) for d in heads) or int(np.prod(heads)) != channels:
                    return None
        if taken is None or not self._full(taken, -1, channels) or len(self.uses[taken]) > 1:
            return None
        return taken

    def _elementwise(self, node: Node, axis: int, channels: int) -> list[tuple[Value, int]] | None:
        is_sum = is_meaning(node.op, ops.add)
        for place in (1, 0):
            vector = self._constants(node, [(place, axis)], channels)
            other = node.inputs[1 - place]
            if vector is None or other is None or other.is_constant:
                continue
            if not is_sum:
                return vector
            rest = self._folds(other, axis, channels) if len(self.uses[other]) == 1 else None
            return None if rest is None else [*rest, *vector]
        if is_sum:
            return None
        for place in (1, 0):
            value = node.inputs[place]
            if (
                value is None
                or value is node.inputs[1 - place]
                or len(self.uses[value]) != 1
                or not self._full(value, axis, channels)
            ):
                continue
            if (result := self._folds(value, axis, channels)) is not None:
                return result
        return None

    def _full(self, value: Value, axis: int, channels: int) -> bool:
        shape = getattr(value.type, "shape", None)
        return shape is not None and len(shape) > 1 and shape[axis] == channels

    def _last_axis(self, node: Node, value: Value) -> bool:
        axis = node.attributes.get("axis", -1)
        return axis == -1 or (getattr(value.type, "shape", None) is not None and axis == value.ndim - 1)

    def _constants(
        self, node: Node, places: Sequence[tuple[int, int]], channels: int
    ) -> list[tuple[Value, int]] | None:
        """The constant inputs at these places, if each is used only by this node and has one element per channel."""
        found = []
        for position, axis in places:
            value = node.inputs[position] if position < len(node.inputs) else None
            if value is None or value.producer is not None or not value.is_constant or value in self.fixed:
                return None
            shape, result = value.shape, node.outputs[0]
            if is_meaning(node.op, ops.mul, ops.add) and axis == 1:  # [C, 1, 1] broadcasts to [N, C, H, W]
                rank = getattr(getattr(result, "type", None), "shape", None)
                axis = None if rank is None else 1 - len(rank)
            if (
                axis is None
                or not -len(shape) <= axis < len(shape)
                or shape[axis] != channels
                or self.uses[value] != [node]
            ):
                return None
            vector = is_meaning(node.op, ops.mul, ops.add) or position > 1
            if vector and int(np.prod([d for d in shape if isinstance(d, int)])) != channels:
                return None
            found.append((value, axis))
        return found


def matrices(node: Node, key: LayerInput, contents: Array) -> Array:
    """The weights of a layer as ``[groups, rows, columns]``."""
    if key.window is not None:
        return contents.reshape(key.groups, -1, key.rows).swapaxes(1, 2)
    turned = is_meaning(node.op, ops.gemm) and node.attributes.get("transB")
    return (contents.T if turned else contents)[None]


def _along(scale: Array, axis: int, rank: int) -> Array:
    return scale.reshape([-1 if k == axis % rank else 1 for k in range(rank)])
