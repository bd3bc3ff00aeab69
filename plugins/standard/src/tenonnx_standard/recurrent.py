"""Recurrent layers: RNN, GRU and LSTM, over padded batches of sequences, in one or both directions.

The step of each layer is defined once, for values and for arrays; loops over time are separate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tenonnx_standard.rnn_kernels as recurring
from tenonnx.extend import Dim, DType, Op, TensorType, TypeMismatch, Value, constant, dims, op, subgraph
from tenonnx_standard import costs
from tenonnx_standard.casting import cast
from tenonnx_standard.checking import numpy_rule, same_dtypes
from tenonnx_standard.constants import range_
from tenonnx_standard.control_flow import scan
from tenonnx_standard.joining import concat
from tenonnx_standard.logic import less, where
from tenonnx_standard.recurrent_activations import ACTIVATIONS, ON_ARRAYS, ON_VALUES, Kit
from tenonnx_standard.reduction import widened
from tenonnx_standard.shapes import expand, transpose, unsqueeze

Array = np.ndarray[Any, Any]

#: Up to this many steps are unrolled if their number is known; otherwise a Scan is used.
WRITTEN_OUT = 4

#: A step maps the input's contribution to the gates, and the states, to the new states.
Step = Callable[..., tuple[Any, ...]]


# ----- activations ----------------------------------------------------------------------------------------------------


def _functions(
    layer: Layer, kit: Kit, *, activations: Any, activation_alpha: Any, activation_beta: Any, clip: Any, direction: str
) -> list[list[Callable[[Any], Any]]]:
    """The activation functions of each direction, including clipping of their arguments.

    Functions with parameters consume ``activation_alpha`` and ``activation_beta`` in order.
    """
    wanted = len(layer.activations)
    count = wanted * len(_backwards(layer.op, direction))
    names = list(activations or layer.activations * 2)
    if len(names) < count:
        raise TypeMismatch(f"{layer.op.title}: fewer than {count} activations are given", given=repr(names))
    alphas, betas = iter(activation_alpha or ()), iter(activation_beta or ())
    clips = (clip, clip, None)  # the last of LSTM's three functions is not for a gate
    found = [_function(layer.op, kit, n, alphas, betas, clips[k % wanted]) for k, n in enumerate(names[:count])]
    return [found[start : start + wanted] for start in range(0, count, wanted)]


def _function(
    op: Op, kit: Kit, name: str, alphas: Iterator[float], betas: Iterator[float], limit: float | None
) -> Callable[[Any], Any]:
    if name.lower() not in ACTIVATIONS:
        raise TypeMismatch(f"{op.title}: unknown activation", given=repr(name), available=", ".join(ACTIVATIONS))
    defaults, compute = ACTIVATIONS[name.lower()]
    parameters = [next(given, default) for given, default in zip((alphas, betas), defaults, strict=False)]
    return lambda x: compute(kit, x if limit is None else kit.clip(x, limit), *parameters)


# ----- layers ---------------------------------------------------------------------------------------------------------


class Layer(NamedTuple):
    """Differences of the layers: numbers of gates and states, default activations, and the step function.

    ``step(kit, functions, recurrence, bias, peepholes, **attributes)`` returns the step of one direction. ``bias`` is
    added to the hidden state's contribution, for attributes for which ``separate_bias`` is true. ``run`` are the
    kernels of the layer with default activations, the second with separate bias; its first ``sigmoids`` gates are
    sigmoids. ``rectified`` is the kernel with Relu activations.
    """

    op: Op
    gates: int
    states: int
    activations: tuple[str, ...]
    step: Callable[..., Step]
    separate_bias: Callable[..., bool] = lambda **_: False
    run: tuple[recurring.Steps, ...] = ()
    sigmoids: int = 0
    rectified: recurring.Steps | None = None


def _backwards(op: Op, direction: str) -> list[bool]:
    """For each direction, whether it is reversed."""
    known = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in known:
        raise TypeMismatch(f"{op.title}: unknown direction", given=repr(direction), available=", ".join(known))
    return known[direction]


def decided(
    layer: Layer,
    kit: Kit,
    *,
    activation_alpha: Any,
    activation_beta: Any,
    activations: Any,
    clip: Any,
    direction: str,
    hidden_size: Any,
    layout: int,
    **own: Any,
) -> tuple[list[bool], list[Any], dict[str, Any]]:
    """Split the attributes: whether each direction is reversed, its activations, and the layer's own attributes."""
    functions = _functions(
        layer,
        kit,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
    )
    return _backwards(layer.op, direction), functions, own


def _biases(kit: Kit, bias: Any, separate: bool) -> tuple[Any, Any]:
    """The bias of the input's contribution, and a separate one of the hidden state's, or None."""
    if bias is None:
        return None, None
    of_input, of_state = kit.split(bias, 2)
    return (of_input, of_state) if separate else (of_input + of_state, None)


def _body(
    layer: Layer, X: Value, W: Value, R: Value, B: Any, lengths: Any, initial: Sequence[Any], P: Any, **given: Any
) -> tuple[Value, ...]:
    """The layer as a graph: unrolled if there are few steps, else a Scan."""
    backwards, functions, own = decided(layer, ON_VALUES, **given)
    narrow = X.dtype
    dtype = narrow if narrow.bits >= 32 else DType.float32
    x, w, r, b, p, *initial = (
        v if v is None or v.dtype is dtype else cast(v, to=dtype) for v in (X, W, R, B, P, *initial)
    )
    if given["layout"]:
        x, *initial = (v if v is None else transpose(v, perm=[1, 0, 2]) for v in (x, *initial))
    batch, hidden = dims(x)[1], dims(r)[2]
    columns = []
    for place, backward in enumerate(backwards):
        of_input, of_state = _biases(ON_VALUES, None if b is None else b[place], layer.separate_bias(**own))
        shares = x @ transpose(w[place], perm=[1, 0])
        shares = shares if of_input is None else shares + of_input
        recurrence = transpose(r[place], perm=[1, 0])
        step = layer.step(ON_VALUES, functions[place], recurrence, of_state, None if p is None else p[place], **own)
        zero = expand(constant(np.zeros((1, 1)), dtype), [batch, hidden])
        states = [zero if v is None else v[place] for v in initial]
        columns.append(over_time(step, shares, states, lengths, backward))
    axes = (1, *(0 for _ in initial))
    y, *finals = (stacked(values, axis) for axis, values in zip(axes, zip(*columns, strict=True), strict=True))
    if given["layout"]:
        y, finals = transpose(y, perm=[2, 0, 1, 3]), [transpose(v, perm=[1, 0, 2]) for v in finals]
    return tuple(v if v.dtype is narrow else cast(v, to=narrow) for v in (y, *finals))


def stacked(values: Sequence[Value], axis: int) -> Value:
    return concat(*(unsqueeze(v, [axis]) for v in values), axis=axis)  # type: ignore[no-any-return]


def over_time(
    step: Step, shares: Value, states: Sequence[Value], lengths: Value | None, backward: bool
) -> tuple[Value, ...]:
    """The hidden states of all steps, and the last states.

    Past the end of a sequence, states stay and outputs are 0.
    """
    length = shares.shape[0]

    def one(time: Any, share: Value, *old: Value) -> list[Value]:
        new = step(share, *old)
        if lengths is None:
            return [*new, new[0]]
        alive = unsqueeze(less(time, lengths), [1])
        return [*(where(alive, a, b) for a, b in zip(new, old, strict=True)), where(alive, new[0], 0.0)]

    if isinstance(length, int) and 0 < length <= WRITTEN_OUT:
        found = []
        for time in range(length)[:: -1 if backward else 1]:
            *states, y = one(constant(np.asarray(time, np.int32)), shares[time], *states)
            found.append(y)
        return stacked(found[:: -1 if backward else 1], 0), *states

    times = range_(constant(np.asarray(0, np.int32)), cast(dims(shares)[0], to=DType.int32), 1)
    kinds = [
        *(state.tensor for state in states),
        TensorType(DType.int32, ()),
        TensorType(shares.dtype, shares.shape[1:]),
    ]
    formals = [(f"step_{place}", kind) for place, kind in enumerate(kinds)]
    body = subgraph(lambda *values: one(values[-2], values[-1], *values[:-2]), formals)
    *finals, y = scan(
        *states,
        times,
        shares,
        body=body,
        num_scan_inputs=2,
        scan_input_directions=[int(backward)] * 2,
        scan_output_directions=[int(backward)],
    )
    return y, *finals


def _computed(
    layer: Layer, X: Array, W: Array, R: Array, B: Any, lengths: Any, initial: Sequence[Any], P: Any, **given: Any
) -> tuple[Array, ...]:
    """The layer on arrays; the input's contribution to all steps is one product."""
    backwards, functions, own = decided(layer, ON_ARRAYS, **given)
    narrow = X.dtype
    wide: list[Any] = [None if v is None else widened(v) for v in (X, W, R, B, P, *initial)]
    x, w, r, b, p, *initial = wide
    if given["layout"]:
        x, *initial = (None if v is None else v.swapaxes(0, 1) for v in (x, *initial))
    length, batch, _ = x.shape
    hidden, directions = r.shape[2], len(backwards)
    if lengths is not None and (lengths >= length).all():
        lengths = None
    y = np.empty((length, directions, batch, hidden), x.dtype)
    finals = [np.empty((directions, batch, hidden), x.dtype) for _ in initial]
    rows = x.reshape(length * batch, x.shape[2])
    for place, backward in enumerate(backwards):
        of_input, of_state = _biases(ON_ARRAYS, None if b is None else b[place], layer.separate_bias(**own))
        shares = rows @ w[place].T
        if of_input is not None:
            shares += of_input
        shares = shares.reshape(length, batch, shares.shape[1])
        recurrence = np.ascontiguousarray(r[place].T)
        step = layer.step(ON_ARRAYS, functions[place], recurrence, of_state, None if p is None else p[place], **own)
        states = [np.zeros((batch, hidden), x.dtype) if v is None else v[place] for v in initial]
        for time in range(length)[:: -1 if backward else 1]:
            new = step(shares[time], *states)
            if lengths is None:
                y[time, place] = new[0]
                states = list(new)
            else:
                alive = (lengths > time)[:, None]
                y[time, place] = np.where(alive, new[0], x.dtype.type(0))
                states = [np.where(alive, a, b) for a, b in zip(new, states, strict=True)]
        for final, state in zip(finals, states, strict=True):
            final[place] = state
    if given["layout"]:
        y, finals = y.transpose(2, 0, 1, 3), [v.swapaxes(0, 1) for v in finals]
    return tuple(v.astype(narrow, copy=False) for v in (y, *finals))


def _types(
    layer: Layer, X: Value, W: Value, R: Value, B: Any, lengths: Any, initial: Sequence[Any], P: Any, **given: Any
) -> tuple[TensorType, ...]:
    """The types of the outputs. Raises ``TypeMismatch`` if the inputs do not fit together."""
    decided(layer, ON_VALUES, **given)
    op, gates, size = layer.op, layer.gates, given["hidden_size"]
    dtype = same_dtypes(op, X, W, R, B, *initial, P)
    if not dtype.is_float:
        raise TypeMismatch(f"{op.title}: X holds no floats", given=repr(X), do="cast it")
    if lengths is not None and not lengths.dtype.is_integer:
        raise TypeMismatch(f"{op.title}: sequence_lens does not hold int32", given=repr(lengths), do="cast it")
    if size is None:
        size = _dim(R, 3, 2)
        if size is None and isinstance(_dim(W, 3, 1), int):
            size = W.shape[1] // gates
    length, batch = (_dim(X, 3, axis) for axis in ((1, 0) if given["layout"] else (0, 1)))
    count = len(_backwards(op, given["direction"]))

    def times(number: int) -> Dim:
        return number * size if isinstance(size, int) else None

    state_shape = [batch, count, size] if given["layout"] else [count, batch, size]
    fitting = [
        ("W", W, [count, times(gates), _dim(X, 3, 2)]),
        ("R", R, [count, times(gates), size]),
        ("B", B, [count, times(2 * gates)]),
        ("sequence_lens", lengths, [batch]),
        ("P", P, [count, times(3)]),
        *((f"initial_{name}", value, state_shape) for name, value in zip("hc", initial, strict=False)),
        ("X", X, [None] * 3),
    ]
    for name, value, wanted in fitting:
        known = None if value is None else value.tensor.shape
        if known is None:
            continue
        pairs = zip(known, wanted, strict=False)
        if len(known) != len(wanted) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            shape = ", ".join("?" if each is None else str(each) for each in wanted)
            raise TypeMismatch(f"{op.title}: {name} does not have the shape [{shape}]", given=repr(value))
    sides = (batch, length, count, size) if given["layout"] else (length, count, batch, size)
    return (TensorType(dtype, sides), *(TensorType(dtype, tuple(state_shape)) for _ in initial))


def _dim(value: Value, rank: int, axis: int) -> Dim:
    return value.shape[axis] if value.rank == rank else None


# ----- RNN ------------------------------------------------------------------------------------------------------------


def _simple_step(kit, functions, recurrence, bias, peepholes):
    (f,) = functions

    def step(share, hidden):
        return (f(share + hidden @ recurrence),)

    return step


@op("RNN")
def rnn(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations=("Tanh", "Tanh"),
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    layout=0,
):
    """A simple recurrent layer (Elman 1990): the activation of the weighted input plus the weighted previous state."""
    given = {name: value for name, value in locals().items() if name in rnn.signature.attributes}
    return _body(RNN, X, W, R, B, sequence_lens, [initial_h], None, **given)


RNN = Layer(rnn, 1, 1, ("Tanh",), _simple_step, run=(recurring.plain,), rectified=recurring.rectified)


# ----- GRU ------------------------------------------------------------------------------------------------------------


def _gated_step(kit, functions, recurrence, bias, peepholes, *, linear_before_reset):
    f, g = functions
    if linear_before_reset:

        def step(share, hidden):
            gates, candidate = kit.but_last(share, 3)
            turned = hidden @ recurrence
            gates_turned, turned = kit.but_last(turned if bias is None else turned + bias, 3)
            update, reset = kit.split(f(gates + gates_turned), 2)
            candidate = g(candidate + reset * turned)
            return ((1.0 - update) * candidate + update * hidden,)

        return step

    of_gates, of_candidate = kit.but_last(recurrence, 3)

    def step(share, hidden):  # type: ignore[no-redef]
        gates, candidate = kit.but_last(share, 3)
        update, reset = kit.split(f(gates + hidden @ of_gates), 2)
        candidate = g(candidate + (reset * hidden) @ of_candidate)
        return ((1.0 - update) * candidate + update * hidden,)

    return step


@op("GRU")
def gru(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    layout=0,
    linear_before_reset=0,
):
    """The gated recurrent unit (Cho et al. 2014), with gates in the order update, reset, hidden."""
    given = {name: value for name, value in locals().items() if name in gru.signature.attributes}
    return _body(GRU, X, W, R, B, sequence_lens, [initial_h], None, **given)


GRU = Layer(
    gru,
    3,
    1,
    ("Sigmoid", "Tanh"),
    _gated_step,
    lambda *, linear_before_reset: bool(linear_before_reset),
    (recurring.gated, recurring.gated_after),
    2,
)


# ----- LSTM -----------------------------------------------------------------------------------------------------------


def _memory_step(kit, functions, recurrence, bias, peepholes, *, input_forget):
    return memory_step(kit, functions, lambda hidden: hidden @ recurrence, peepholes, input_forget=input_forget)


def memory_step(
    kit: Kit,
    functions: Sequence[Callable[[Any], Any]],
    of_state: Callable[[Any], Any],
    peepholes: Any,
    *,
    input_forget: int,
) -> Step:
    """The step of LSTM in one direction; ``of_state`` computes the hidden state's contribution to the gates."""
    f, g, h = functions
    peeps = None if peepholes is None else kit.split(peepholes, 3)

    def step(share, hidden, cell):
        gates, candidate = kit.but_last(share + of_state(hidden), 4)
        if peeps is None and not input_forget:
            i, o, forget = kit.split(f(gates), 3)
            cell = forget * cell + i * g(candidate)
            return o * h(cell), cell
        i, o, forget = kit.split(gates, 3)
        if peeps is not None:
            i, forget = i + peeps[0] * cell, forget + peeps[2] * cell
        i = f(i)
        forget = 1.0 - i if input_forget else f(forget)
        cell = forget * cell + i * g(candidate)
        o = f(o if peeps is None else o + peeps[1] * cell)
        return o * h(cell), cell

    return step


@op("LSTM")
def lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    input_forget=0,
    layout=0,
):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with peepholes ``P`` (Gers and Schmidhuber 2000).

    Gates are in the order input, output, forget, cell.
    """
    given = {name: value for name, value in locals().items() if name in lstm.signature.attributes}
    return _body(LSTM, X, W, R, B, sequence_lens, [initial_h, initial_c], P, **given)


LSTM = Layer(lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"), _memory_step, run=(recurring.remembering,), sigmoids=3)


# ----- rules ----------------------------------------------------------------------------------------------------------


def _arranged(layer: Layer, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs in the order common to all layers: the initial states as a list, then the peepholes."""
    states = 5 + layer.states
    return (*inputs[:5], inputs[5:states], inputs[states] if len(inputs) > states else None)


def _rules(layer: Layer) -> None:
    op = layer.op
    op.until(14, lacks=["layout"])
    op.until(7, ignored=["output_sequence"])
    op.type(lambda *inputs, **given: _types(layer, *_arranged(layer, inputs), **given))

    @numpy_rule(op)
    @np.errstate(all="ignore")
    def made_numpy(*inputs: Any, **given: Any) -> tuple[Array, ...]:
        return _computed(layer, *_arranged(layer, inputs), **given)

    @op.specialize
    def made_specialize(*inputs: Any, **given: Any) -> Any:
        backwards = _backwards(op, given["direction"])
        usual = layer.activations * len(backwards)
        names = _lower(given["activations"] or usual)[: len(usual)]
        separate = bool(given.get("linear_before_reset"))
        run = layer.run[separate] if names == _lower(usual) else layer.rectified if set(names) == {"relu"} else None
        peepholes = _arranged(layer, inputs)[-1]
        if run is None or given["clip"] is not None or given["layout"] or given.get("input_forget") or peepholes:
            return None
        return recurring.kernel_of(run, layer.gates, layer.sigmoids, separate, inputs[: 5 + layer.states], backwards)


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


for _layer in (RNN, GRU, LSTM):
    _rules(_layer)

gru.until(3, lacks=["linear_before_reset"])


for _op, _gates in ((lstm, 4), (gru, 3), (rnn, 1)):
    costs.count(_op, costs.recurrent(_gates))
