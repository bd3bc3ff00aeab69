"""Recognition of Keras LSTM, GRU and RNN layers in loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import Graph, Node, Value, constant, static


@dataclass(frozen=True)
class Loop:
    """A loop node: its body, its inputs, and its number of iterations."""

    body: Graph
    node: Node
    count: Value

    @property
    def states(self) -> list[int]:
        """The positions of floats among the carried values."""
        carried = self.body.all_inputs[2:]
        return [k for k, value in enumerate(carried) if value.dtype.numpy.kind == "f"]

    def formal(self, position: int) -> Value:
        return self.body.all_inputs[2 + position]

    def result(self, position: int) -> Value:
        return _source(self.body.outputs[1 + position])

    def outer(self, value: Value) -> Value | None:
        """The value outside the loop of a captured value of the body; constants are equal on both sides."""
        value = _source(value)
        for inner, outside in zip(self.body.captures, self.node.captures, strict=True):
            if inner is value:
                return outside
        if value.is_constant:
            return value
        return self._computed(value)

    def _computed(self, value: Value) -> Value | None:
        """Copy a selection from a captured value out of the body."""
        node = value.producer
        if node is None or node.op_type not in ("Gather", "Slice", "Split", "Squeeze") or node.inputs[0] is None:
            return None
        content, which = self.outer(node.inputs[0]), _known(node.inputs[1])
        if content is None or which is None:
            return None
        if node.op_type == "Slice":
            bounds = [which, *(_known(value) for value in node.inputs[2:])]
            return None if any(each is None for each in bounds) else ops.slice_(content, *map(constant, bounds))
        if node.op_type == "Squeeze":
            return ops.squeeze(content, which.tolist())
        axis = node.attributes.get("axis", 0)
        if node.op_type == "Gather":
            return ops.gather(content, constant(which), axis=axis)
        place = next(k for k, v in enumerate(node.outputs) if v is value)
        start = int(which[:place].sum())
        return ops.slice_(content, [start], [start + int(which[place])], [axis])

    def elements(self, value: Value) -> Value | None:
        """The tensor from which iteration ``k`` takes row ``k``."""
        node = _source(value).producer
        if node is None or node.op_type != "Gather" or node.attributes.get("axis", 0):
            return None
        rows, index = self.outer(_source(node.inputs[0])), _counter(node.inputs[1])
        counts = index is self.body.all_inputs[0] or any(
            index is formal and self._counts(k) for k, formal in enumerate(self.body.all_inputs[2:])
        )
        return rows if rows is not None and counts and self._is_whole(rows) else None

    def _counts(self, position: int) -> bool:
        node, start = self.result(position).producer, static(self.node.inputs[2 + position])
        if node is None or node.op_type != "Add" or start is None or int(np.asarray(start)):
            return False
        others = [static(v) for v in node.inputs if _source(v) is not self.formal(position)]
        return len(others) == 1 and others[0] is not None and int(np.asarray(others[0])) == 1

    def _is_whole(self, rows: Value) -> bool:
        length = rows.shape[0] if rows.shape else None
        known = static(self.count)
        contents = known if known is not None else self.count.symbolic_contents
        return contents is not None and length is not None and np.asarray(contents).reshape(-1)[0] == length


def _source(value: Any) -> Value:
    """The value behind Identity nodes."""
    while value.producer is not None and value.producer.op_type == "Identity":
        value = value.producer.inputs[0]
    result: Value = value
    return result


def _known(value: Value | None) -> Any:
    found = None if value is None else static(value)
    return None if found is None else np.asarray(found)


def _counter(value: Any) -> Value:
    """The number behind casts and reshapes."""
    while value.producer is not None and value.producer.op_type in ("Identity", "Cast", "Reshape"):
        value = value.producer.inputs[0]
    result: Value = value
    return result


def _inputs_of(value: Any, op: str) -> list[Value]:
    """Inputs of the node that produces a value, if it has this op type; else empty."""
    node = _source(value).producer
    return [_source(v) for v in node.inputs if v is not None] if node is not None and node.op_type == op else []


def _terms(value: Value) -> Iterator[Value]:
    added = _inputs_of(value, "Add")
    for each in added:
        yield from _terms(each)
    if not added:
        yield _source(value)


@dataclass(frozen=True)
class _Gates:
    """A sum of gates: rows times weights, a state times weights, and a bias."""

    whole: Value
    rows: Value | None = None
    kernel: Value | None = None
    state: Value | None = None
    recurrent: Value | None = None
    bias: Value | None = None


def _gates(loop: Loop, whole: Value, state: Value) -> _Gates | None:
    held: dict[str, Any] = {}
    for term in _terms(whole):
        factors = _inputs_of(term, "MatMul")
        outer = loop.outer(factors[1] if factors else term)
        if outer is None:
            return None
        if factors and factors[0] is state and "state" not in held:
            held |= {"state": state, "recurrent": outer}
        elif factors and (rows := loop.elements(factors[0])) is not None and "rows" not in held:
            held |= {"rows": rows, "kernel": outer}
        elif not factors and outer.rank == 1 and "bias" not in held:
            held["bias"] = outer
        else:
            return None
    return _Gates(whole, **held)


def _part(value: Value) -> tuple[Value, int] | None:
    """Source and index of a gate, extracted by Split, or by a Slice of the gate's width."""
    node = _source(value).producer
    if node is None or node.op_type not in ("Slice", "Split"):
        return None
    whole = _source(node.inputs[0])
    if node.op_type == "Split":
        return whole, next(k for k, v in enumerate(node.outputs) if v is _source(value))
    starts, axes, width = _known(node.inputs[1]), _known(node.inputs[3]), (_source(value).shape or (None,))[-1]
    if starts is None or axes is None or axes.tolist() not in ([1], [-1]) or not isinstance(width, int):
        return None
    return None if int(starts[0]) % width else (whole, int(starts[0]) // width)


def recognized(loop: Loop) -> tuple[dict[int, Value], Value] | None:
    """Final states of an equivalent ONNX layer by position, and its outputs by step; None for another body."""
    floats = loop.states
    if any(not (loop.formal(k).rank == 2 and isinstance((loop.formal(k).shape or (None,))[-1], int)) for k in floats):
        return None
    if len(floats) == 2:
        for hidden, cell in (tuple(floats), tuple(reversed(floats))):
            if (result := _lstm(loop, hidden, cell)) is not None:
                return result
    elif len(floats) == 1:
        return _gru(loop, floats[0]) or _gru_before(loop, floats[0]) or _rnn(loop, floats[0])
    return None


def _lstm(loop: Loop, hidden: int, cell: int) -> tuple[dict[int, Value], Value] | None:
    last, state = loop.result(cell), loop.formal(cell)
    out = _inputs_of(loop.result(hidden), "Mul")
    output = next((v for v in out if _inputs_of(v, "Sigmoid")), None)
    squashed = next((v for v in out if _inputs_of(v, "Tanh")), None)
    if output is None or squashed is None or _inputs_of(squashed, "Tanh") != [last]:
        return None
    kept = next((t for t in _terms(last) if state in _inputs_of(t, "Mul")), None)
    new = next((t for t in _terms(last) if t is not kept), None)
    if kept is None or new is None or len(list(_terms(last))) != 2:
        return None
    forget = next((v for v in _inputs_of(kept, "Mul") if v is not state), None)
    entry = next((v for v in _inputs_of(new, "Mul") if _inputs_of(v, "Sigmoid")), None)
    content = next((v for v in _inputs_of(new, "Mul") if _inputs_of(v, "Tanh")), None)
    pairs = ((entry, "Sigmoid"), (output, "Sigmoid"), (forget, "Sigmoid"), (content, "Tanh"))
    parts = [_part(_inputs_of(v, op)[0]) if v is not None and _inputs_of(v, op) else None for v, op in pairs]
    if None in parts or len({id(p[0]) for p in parts if p}) != 1 or {p[1] for p in parts if p} != {0, 1, 2, 3}:
        return None
    gates = _gates(loop, parts[0][0], loop.formal(hidden))  # type: ignore[index]
    if gates is None or gates.rows is None or gates.recurrent is None:
        return None
    order = [p[1] for p in parts if p]
    size = _size(loop.formal(hidden))
    weights = [_in_order(w, order, size) for w in (gates.kernel, gates.recurrent)]
    biases = _biases([gates.bias, None], order, size, gates.recurrent)
    starts = [ops.unsqueeze(_start(loop, k), [0]) for k in (hidden, cell)]
    y, y_h, y_c = ops.lstm(gates.rows, weights[0], weights[1], biases, None, starts[0], starts[1], hidden_size=size)
    return {hidden: ops.squeeze(y_h, [0]), cell: ops.squeeze(y_c, [0])}, ops.squeeze(y, [1])


def _mixed(loop: Loop, hidden: int) -> tuple[Value, Value] | None:
    """The parts of a state ``u * state + (1 - u) * c``: the sigmoid u, and the tanh c."""
    state = loop.formal(hidden)
    terms = list(_terms(loop.result(hidden)))
    kept = next((t for t in terms if state in _inputs_of(t, "Mul")), None)
    new = next((t for t in terms if t is not kept), None)
    if kept is None or new is None or len(terms) != 2:
        return None
    update = next((v for v in _inputs_of(kept, "Mul") if v is not state), None)
    content = next((v for v in _inputs_of(new, "Mul") if _inputs_of(v, "Tanh")), None)
    rest = next((v for v in _inputs_of(new, "Mul") if v is not content), None)
    if update is None or content is None or rest is None or _inputs_of(rest, "Sub")[1:] != [update]:
        return None
    one = static(_inputs_of(rest, "Sub")[0])
    is_mixed = one is not None and (np.asarray(one) == 1).all() and _inputs_of(update, "Sigmoid")
    return (update, content) if is_mixed else None


def _gru_before(loop: Loop, hidden: int) -> tuple[dict[int, Value], Value] | None:
    """GRU of Keras without ``reset_after``: the state is reset before its matrix product."""
    state, mixed = loop.formal(hidden), _mixed(loop, hidden)
    if mixed is None:
        return None
    update, content = mixed
    inner = list(_terms(_inputs_of(content, "Tanh")[0]))
    product = next((_inputs_of(t, "MatMul") for t in inner if _inputs_of(t, "MatMul")), None)
    entry = next((_part(t) for t in inner if _part(t)), None)
    factors = _inputs_of(product[0], "Mul") if product else []
    reset = next((v for v in factors if _inputs_of(v, "Sigmoid")), None)
    if product is None or entry is None or reset is None or len(inner) != 2 or state not in factors:
        return None
    sides: list[list[tuple[Value, int]]] = [[], []]
    for gate in (update, reset):
        for term in _terms(_inputs_of(gate, "Sigmoid")[0]):
            part = _part(term)
            found = _gates(loop, part[0], state) if part is not None else None
            if part is None or found is None:
                return None
            sides[0 if found.rows is not None else 1].append(part)
    sides[0].append(entry)
    if [len(side) for side in sides] != [3, 2] or any(len({id(whole) for whole, _ in side}) != 1 for side in sides):
        return None
    given, back = (_gates(loop, side[0][0], state) for side in sides)
    own = loop.outer(product[1])
    orders = [[place for _, place in side] for side in sides]
    if given is None or given.state is not None or back is None or back.state is None or back.bias is not None:
        return None
    if own is None or set(orders[0]) != {0, 1, 2} or set(orders[1]) != {0, 1}:
        return None
    size = _size(state)
    recurrent = ops.concat(_in_order(back.recurrent, orders[1], size), _in_order(own, [0], size), axis=1)
    biases = _biases([given.bias, None], orders[0], size, given.kernel)
    start = ops.unsqueeze(_start(loop, hidden), [0])
    rows, kernel = given.rows, _in_order(given.kernel, orders[0], size)
    y, y_h = ops.gru(rows, kernel, recurrent, biases, None, start, hidden_size=size)
    return {hidden: ops.squeeze(y_h, [0])}, ops.squeeze(y, [1])


def _gru(loop: Loop, hidden: int) -> tuple[dict[int, Value], Value] | None:
    """GRU of Keras with ``reset_after``: the state's product has a separate bias."""
    state, mixed = loop.formal(hidden), _mixed(loop, hidden)
    if mixed is None:
        return None
    update, content = mixed
    inner = list(_terms(_inputs_of(content, "Tanh")[0]))
    product = next((t for t in inner if _inputs_of(t, "Mul")), None)
    if product is None or len(inner) != 2:
        return None
    reset = next((v for v in _inputs_of(product, "Mul") if _inputs_of(v, "Sigmoid")), None)
    own = next((v for v in _inputs_of(product, "Mul") if v is not reset), None)
    if reset is None or own is None:
        return None
    sides: list[list[tuple[Value, int]]] = [[], []]
    pairs = [list(_terms(_inputs_of(v, "Sigmoid")[0])) for v in (update, reset)]
    pairs.append([next(t for t in inner if t is not product), own])
    for pair in pairs:
        parts = [_part(v) for v in pair]
        if len(parts) != 2 or None in parts:
            return None
        for part in parts:
            assert part is not None
            gates = _gates(loop, part[0], state)
            if gates is None:
                return None
            sides[0 if gates.rows is not None else 1].append(part)
    if any(len(side) != 3 or len({id(p[0]) for p in side}) != 1 for side in sides):
        return None
    orders = [[p[1] for p in side] for side in sides]
    given, back = (_gates(loop, side[0][0], state) for side in sides)
    if orders[0] != orders[1] or set(orders[0]) != {0, 1, 2} or given is None or back is None:
        return None
    if given.rows is None or given.state is not None or back.state is None or back.rows is not None:
        return None
    size = _size(state)
    weights = [_in_order(w, orders[0], size) for w in (given.kernel, back.recurrent)]
    biases = _biases([given.bias, back.bias], orders[0], size, given.kernel)
    start = ops.unsqueeze(_start(loop, hidden), [0])
    y, y_h = ops.gru(given.rows, weights[0], weights[1], biases, None, start, hidden_size=size, linear_before_reset=1)
    return {hidden: ops.squeeze(y_h, [0])}, ops.squeeze(y, [1])


def _rnn(loop: Loop, hidden: int) -> tuple[dict[int, Value], Value] | None:
    state, whole = loop.formal(hidden), _inputs_of(loop.result(hidden), "Tanh")
    gates = _gates(loop, whole[0], state) if whole else None
    if gates is None or gates.rows is None or gates.state is None:
        return None
    size = _size(state)
    weights = [_in_order(w, [0], size) for w in (gates.kernel, gates.recurrent)]
    biases = _biases([gates.bias, None], [0], size, gates.kernel)
    start = ops.unsqueeze(_start(loop, hidden), [0])
    y, y_h = ops.rnn(gates.rows, weights[0], weights[1], biases, None, start, hidden_size=size)
    return {hidden: ops.squeeze(y_h, [0])}, ops.squeeze(y, [1])


def _size(state: Value) -> int:
    size = (state.shape or (None,))[-1]
    assert isinstance(size, int)
    return size


def _start(loop: Loop, position: int) -> Value:
    result = loop.node.inputs[2 + position]
    assert result is not None
    return result


def _in_order(weights: Any, order: Sequence[int], size: int) -> Value:
    """Weights for ONNX: columns of gates as rows, reordered, with a leading axis of directions."""
    rows = ops.transpose(weights, perm=[1, 0])
    return ops.unsqueeze(_ordered(rows, order, size), [0])


def _ordered(rows: Value, order: Sequence[int], size: int) -> Value:
    if list(order) == list(range(len(order))):
        return rows
    parts = [ops.slice_(rows, [k * size], [(k + 1) * size], [0]) for k in order]
    return ops.concat(*parts, axis=0)


def _biases(given: Sequence[Value | None], order: Sequence[int], size: int, like: Any) -> Value | None:
    if not any(each is not None for each in given):
        return None
    none = constant(np.zeros(len(order) * size, like.dtype.numpy))
    parts = [none if each is None else _ordered(each, order, size) for each in given]
    return ops.unsqueeze(ops.concat(*parts, axis=0), [0])
