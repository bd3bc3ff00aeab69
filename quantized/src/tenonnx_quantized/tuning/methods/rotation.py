"""Rotation of the residual stream of a transformer by a random Hadamard matrix, to remove outliers.

A rotation keeps the root mean square of a vector, so it commutes with an RMS normalization without scale. The scale is
multiplied into the layers that read the normalized values, and the rotation into the weights of all layers that write
or read the stream. The model computes the same function (Ashkboos et al. 2024, arXiv:2404.00456, section 4, stage 1a).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, Node, Value, static
from tenonnx_quantized.forms.quantized_nodes import is_meaning

Array = np.ndarray[Any, Any]

#: Ops that return the vectors of their first input unchanged.
_PASSING = (ops.identity, ops.dropout)

#: Reductions that, applied to squares, are invariant under rotation.
_INVARIANT = (ops.reduce_mean, ops.reduce_sum)


def rotate(graph: Graph) -> None:
    """Rotate each residual stream of a graph with inferred types, in place.

    Raises ``InvalidCall``, with the node that prevents it, if no stream can be rotated exactly.
    """
    uses, done, blocked = graph.uses(), set[Value](), None
    for node in list(graph.nodes):
        stream = _squared(node)
        if stream is None or stream in done:
            continue
        try:
            found = _Stream(graph, uses)
            found.follow(stream)
        except _Blocked as error:
            blocked = blocked or error
            continue
        done |= found.scales.keys()
        found.apply(hadamard(stream.type.shape[-1]))  # type: ignore[union-attr]
    if not done:
        what = "no value is normalized by its root mean square" if blocked is None else str(blocked)
        raise InvalidCall(
            "method rotate: no residual stream can be rotated exactly",
            given=what,
            do="use method awq or smooth-quant, which rescale channels",
        )


def hadamard(size: int) -> Array:
    """An orthogonal matrix ``[size, size]`` with random signs: Hadamard's of the largest power of 2 that divides the
    size, times a random orthogonal matrix of the rest."""
    random = np.random.default_rng(size)
    rest = size
    matrix = np.ones((1, 1))
    while rest % 2 == 0:
        rest //= 2
        matrix = np.kron(matrix, np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2))
    if rest > 1:
        matrix = np.kron(np.linalg.qr(random.standard_normal((rest, rest)))[0], matrix)
    return random.choice([-1.0, 1.0], size)[:, None] * matrix


class _Blocked(Exception):
    """A node that a rotation cannot pass through."""

    def __init__(self, node: Node | None, value: Value) -> None:
        super().__init__(f'"{value.name}" is an input or output' if node is None else f"{node.title} in the way")


@dataclass(slots=True)
class _Stream:
    """Rotated values, and the constants that change with them.

    ``scales`` has, for each value, the scale of a preceding normalization, which moves into its consumers. ``changes``
    are constants by node and position: those with the stream in their rows or columns, and scales.
    """

    graph: Graph
    uses: dict[Value, list[Node]]
    scales: dict[Value, Array | None] = field(default_factory=dict)
    changes: dict[tuple[Node, int], tuple[str, Array | None]] = field(default_factory=dict)
    _todo: list[Value] = field(default_factory=list)

    def follow(self, value: Value) -> None:
        """Collect everything that is rotated together with a value. Raises ``_Blocked``."""
        self._reach(value, None)
        while self._todo:
            value = self._todo.pop()
            node = value.producer
            if node is None or value in self.graph.outputs:
                raise _Blocked(None, value)
            if node.outputs[0] is not value:
                raise _Blocked(node, value)
            self._write(node, value)
            for reader in self.uses.get(value, ()):
                self._read(reader, value)

    def apply(self, rotation: Array) -> None:
        """Replace the constants by rotated ones."""
        for (node, position), (kind, scale) in self.changes.items():
            value = node.inputs[position]
            contents = None if value is None else static(value)
            assert value is not None
            assert contents is not None
            rotated = self._rotated(contents.astype(np.float64), kind, scale, rotation).astype(contents.dtype)
            if self.uses[value] == [node]:
                value.data = rotated
                continue
            own = self.graph.variable(self._free(value.name), rotated)
            node.inputs = [own if k == position else v for k, v in enumerate(node.inputs)]

    @staticmethod
    def _rotated(contents: Array, kind: str, scale: Array | None, rotation: Array) -> Array:
        if kind == "scale":
            return np.ones_like(contents)
        if kind == "columns":
            return contents @ rotation
        if kind == "turned columns":
            return rotation.T @ contents
        turned = contents.T if kind == "turned rows" else contents
        turned = rotation.T @ (turned if scale is None else scale[:, None] * turned)
        return turned.T if kind == "turned rows" else turned

    def _free(self, name: str) -> str:
        taken = {value.name for value in self.graph.values()}
        return next(n for k in range(len(taken) + 1) if (n := f"{name}.rotated{k or ''}") not in taken)

    def _reach(self, value: Value, scale: Array | None) -> None:
        if value not in self.scales:
            self.scales[value] = scale
            self._todo.append(value)
        elif not _same(self.scales[value], scale):
            raise _Blocked(value.producer, value)

    def _change(self, node: Node, position: int, kind: str, scale: Array | None = None) -> None:
        value = node.inputs[position]
        if value is None or value in self.graph.all_inputs:  # callers may override the default of an input
            raise _Blocked(node, _first(node))
        self.changes[node, position] = kind, scale

    def _write(self, node: Node, value: Value) -> None:
        """Follow the producers of a rotated value."""
        if self._pass(node):
            return
        weights = node.inputs[1] if len(node.inputs) > 1 else None
        if self.scales[value] is not None:
            raise _Blocked(node, value)
        if is_meaning(node.op, ops.gather) and _is_matrix(node.inputs[0]) and not node.attributes.get("axis"):
            self._change(node, 0, "columns")
        elif is_meaning(node.op, ops.matmul, ops.gemm) and _is_matrix(weights):
            self._change(node, 1, "turned columns" if node.attributes.get("transB") else "columns")
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                self._bias(node, 2, value)
        elif is_meaning(node.op, ops.add):
            for position, term in enumerate(node.inputs):
                assert term is not None
                if term.is_constant:
                    self._bias(node, position, value)
                else:
                    self._reach(term, None)
        else:
            raise _Blocked(node, value)

    def _read(self, node: Node, value: Value) -> None:
        """Follow the consumers of a rotated value."""
        scale = self.scales[value]
        if is_meaning(node.op, ops.shape):
            return
        if scale is None and _squared(node) is value and not is_meaning(node.op, *_RMS):
            squares = _first(node)
            if squares in self.graph.outputs or not all(map(_reduces_last, self.uses.get(squares, ()))):
                raise _Blocked(node, value)
            return
        is_product = is_meaning(node.op, ops.matmul, ops.gemm) and not node.attributes.get("transA")
        if is_product and node.inputs[0] is value and _is_matrix(node.inputs[1]):
            self._change(node, 1, "turned rows" if node.attributes.get("transB") else "rows", scale)
        elif is_meaning(node.op, ops.add):
            self._reach(_first(node), scale)
        elif self._passes(node) and node.inputs[self._data(node)] is value:
            own = self._scale(node)
            self._reach(_first(node), scale if own is None else own)
        else:
            raise _Blocked(node, value)

    def _pass(self, node: Node) -> bool:
        """Follow the vectors through a node that passes them on, possibly scaled; returns whether the node does so."""
        if not self._passes(node):
            return False
        position = self._data(node)
        x = node.inputs[position]
        assert x is not None
        scale = self._scale(node)
        if scale is None:
            self._reach(x, self.scales[_first(node)])
        else:
            self._reach(x, None)
            self._change(node, 1 - position, "scale")
        return True

    def _passes(self, node: Node) -> bool:
        x = node.inputs[0] if node.inputs else None
        if is_meaning(node.op, *_PASSING):
            return True
        if is_meaning(node.op, *_RMS):
            return self._scale(node) is not None
        if is_meaning(node.op, ops.mul, ops.div):
            return self._scale(node) is not None or _is_number(node.inputs[1 - self._data(node)])
        if x is None or x.is_constant or not _shape(x):
            return False
        last = len(_shape(x)) - 1
        if is_meaning(node.op, ops.gather):
            return node.attributes.get("axis", 0) % len(_shape(x)) != last
        return is_meaning(node.op, ops.reshape) and _shape(x)[-1:] == _shape(_first(node))[-1:]

    @staticmethod
    def _data(node: Node) -> int:
        """The position of the vectors in a product; the other factor is a scalar per vector, or a constant."""
        first = node.inputs[0]
        second = node.inputs[1] if len(node.inputs) > 1 else None
        alone = first is not None and (first.is_constant or _is_number(first))
        return 1 if is_meaning(node.op, ops.mul) and alone and second is not None else 0

    def _scale(self, node: Node) -> Array | None:
        """The constant scale that ends a normalization."""
        if not is_meaning(node.op, ops.mul) and not is_meaning(node.op, *_RMS):
            return None
        position = 1 - self._data(node)
        scale = node.inputs[position]
        contents = static(scale) if scale is not None and scale.is_constant else None
        return (
            contents.astype(np.float64) if contents is not None and contents.ndim == 1 and contents.size > 1 else None
        )

    def _bias(self, node: Node, position: int, value: Value) -> None:
        bias = node.inputs[position]
        contents = None if bias is None or not bias.is_constant else static(bias)
        if contents is None or contents.ndim == 0 or contents.shape[-1] != _shape(value)[-1]:
            raise _Blocked(node, value)
        self._change(node, position, "columns")


_RMS = (ops.rms_normalization,)


def _squared(node: Node) -> Value | None:
    """The value whose mean square a node computes or normalizes by."""
    x = node.inputs[0] if node.inputs else None
    if x is None or not _shape(x) or not isinstance(_shape(x)[-1], int):
        return None
    if is_meaning(node.op, *_RMS):
        return x if node.attributes.get("axis", -1) in (-1, len(_shape(x)) - 1) else None
    if is_meaning(node.op, ops.mul):
        return x if node.inputs[1] is x and not x.is_constant else None
    if is_meaning(node.op, ops.pow_) and (power := node.inputs[1]) is not None and power.is_constant:
        contents = static(power)
        return x if contents is not None and contents.size == 1 and contents.item() == 2 else None
    return None


def _reduces_last(node: Node) -> bool:
    if not is_meaning(node.op, *_INVARIANT):
        return False
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = node.attributes.get("axes") if given is None else static(given) if given.is_constant else None
    x = node.inputs[0]
    return x is not None and axes is not None and [int(a) % len(_shape(x)) for a in axes] == [len(_shape(x)) - 1]


def _first(node: Node) -> Value:
    value = node.outputs[0]
    assert value is not None
    return value


def _shape(value: Value) -> tuple[Any, ...]:
    return getattr(value.type, "shape", None) or ()


def _is_matrix(value: Value | None) -> bool:
    return value is not None and value.is_constant and len(_shape(value)) == 2


def _is_number(value: Value | None) -> bool:
    """Whether a value has one number per vector, or a single one."""
    if value is None or getattr(value.type, "shape", None) is None:
        return False
    return not _shape(value) or _shape(value)[-1] == 1


def _same(a: Array | None, b: Array | None) -> bool:
    return (a is None) == (b is None) and (a is None or b is None or np.array_equal(a, b))
