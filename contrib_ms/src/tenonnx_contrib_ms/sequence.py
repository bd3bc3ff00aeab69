"""Sequences: LSTM with attention, dynamic time warping, and character-based word embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    TensorType,
    Value,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    op,
    same_dtype,
    shapes,
    subgraph,
)
from tenonnx_standard import recurrent

# ----- LSTM with attention --------------------------------------------------------------------------------------------


@op("AttnLSTM", domain="com.microsoft")
def attn_lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    QW=None,
    MW=None,
    V=None,
    M=None,
    memory_seq_lens=None,
    AW=None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction="forward",
    hidden_size: int | None = None,
    input_forget=0,
):
    """LSTM with an additional input: the attention of the previous hidden state over the memory ``M``.

    Attention is additive (Bahdanau et al., arXiv:1409.0473), over the first ``memory_seq_lens`` positions. With ``AW``
    a layer combines hidden state and context.
    """
    backwards, functions, own = recurrent.decided(
        recurrent.LSTM,
        recurrent.ON_VALUES,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        layout=0,
        input_forget=input_forget,
    )
    batch, width = dims(X)[1], dims(X)[2]
    mask = None
    if memory_seq_lens is not None:
        places = ops.cast(ops.range_(0, dims(M)[1], 1), to=memory_seq_lens.dtype)
        mask = ops.less(places, ops.unsqueeze(memory_seq_lens, [1]))
    columns = []
    for place, backward in enumerate(backwards):
        weights = ops.transpose(W[place], perm=[1, 0])
        shares = X @ weights[:width]
        if B is not None:
            of_input, of_state = ops.split(B[place], axis=0, num_outputs=2)
            shares = shares + (of_input + of_state)
        peepholes = None if P is None else P[place]
        recurrence = ops.transpose(R[place], perm=[1, 0])
        inner = recurrent.LSTM.step(recurrent.ON_VALUES, functions[place], recurrence, None, peepholes, **own)
        attend = _attention(M, QW[place], MW[place], V[place], None if AW is None else AW[place], mask)
        of_attention = weights[width:]

        def step(share: Value, h: Value, c: Value, seen: Value, inner=inner, attend=attend, of=of_attention) -> Any:
            h, c = inner(share + seen @ of, h, c)
            return h, c, attend(h)

        states = [_first(initial, X, [batch, dims(R)[2]], place) for initial in (initial_h, initial_c)]
        nothing = ops.expand(constant(0.0, X.dtype), [batch, dims(of_attention)[0]])
        columns.append(recurrent.over_time(step, shares, [*states, nothing], sequence_lens, backward)[:3])
    y, h, c = zip(*columns, strict=True)
    return recurrent.stacked(y, 1), recurrent.stacked(h, 0), recurrent.stacked(c, 0)


def _first(initial: Value | None, x: Value, sizes: Sequence[Any], place: int) -> Value:
    return ops.expand(constant(0.0, x.dtype), sizes) if initial is None else initial[place]


def _attention(M: Value, QW: Value, MW: Value, V: Value, AW: Value | None, mask: Value | None) -> Any:
    """Attention of a hidden state over ``M``, combined with the state if ``AW`` is given."""
    keys = M @ MW

    def attend(h: Value) -> Value:
        scores = ops.reduce_sum(ops.tanh(keys + ops.unsqueeze(h @ QW, [1])) * V, [2], keepdims=0)
        if mask is not None:
            scores = ops.where(mask, scores, float("-inf"))
        context = ops.squeeze(ops.unsqueeze(ops.softmax(scores, axis=-1), [1]) @ M, [1])
        return context if AW is None else ops.concat(h, context, axis=1) @ AW

    return attend


attn_lstm.requires(
    floats("X"),
    same_dtype("X", "W", "R", "B", "initial_h", "initial_c", "P", "QW", "MW", "V", "M", "AW"),
    shapes(
        X="t b i",
        W="d g k",
        R="d g h",
        B="d u",
        sequence_lens="b",
        initial_h="d b h",
        initial_c="d b h",
        P="d p",
        QW="d h a",
        MW="d m a",
        V="d a",
        M="b s m",
        memory_seq_lens="b",
        AW="d j n",
    ),
    holds(lambda QW, MW, V, M: None if all(v is not None for v in (QW, MW, V, M)) else "QW, MW, V or M is missing"),
)


# ----- dynamic time warping -------------------------------------------------------------------------------------------


@op("DynamicTimeWarping", domain="com.microsoft")
def dynamic_time_warping(input):
    """The cheapest path through a cost matrix from its first to its last element, as row and column indices.

    Steps go to the next row, column or both. Ties prefer a step along the row, then one down.
    """
    rows, columns = dims(input)[-2:]
    costs = ops.cast(ops.reshape(input, [rows, columns]), to=DType.float32)
    _, ways = ops.scan(
        ops.concat(constant(np.zeros(1, np.float32)), ops.expand(constant(np.float32(np.inf)), [columns]), axis=0),
        costs,
        body=_row(costs),
        num_scan_inputs=1,
    )

    def back(number: Value, goes_on: Value, row: Value, column: Value) -> tuple[Value, ...]:
        way = ops.gather_nd(ways, ops.concat(row, column, axis=0))
        on = ops.not_(ops.and_(ops.equal(row, 0), ops.equal(column, 0)))
        up, left = (ops.cast(ops.not_(ops.equal(way, other)), to=DType.int64) for other in (2, 1))
        return ops.reshape(on, []), row - up, column - left, ops.concat(row, column, axis=0)

    scalar = TensorType(DType.int64, ())
    place = TensorType(DType.int64, (1,))
    formals = [("number", scalar), ("goes_on", scalar.with_dtype(DType.bool)), ("row", place), ("column", place)]
    ends = [ops.reshape(ops.shape(costs)[axis] - 1, [1]) for axis in (0, 1)]
    limit = ops.shape(costs)[0] + ops.shape(costs)[1]
    path = ops.loop(limit, constant(True), *ends, body=subgraph(back, formals))[2]
    return ops.cast(ops.transpose(path[::-1], perm=[1, 0]), to=DType.int32)


def _row(costs: Value) -> Any:
    """Return a scan body for one row: the minimum costs up to its elements, and the steps that lead to them."""
    number, row = TensorType(DType.float32, ()), TensorType(DType.float32, costs.shape[1:])

    def one(left: Value, cost: Value, corner: Value, above: Value) -> tuple[Value, Value, Value]:
        least = cost + ops.minimum(corner, above, left)
        both = ops.and_(ops.less(corner, above), ops.less(corner, left))
        down = ops.and_(ops.less(above, corner), ops.less(above, left))
        return least, ops.identity(least), ops.where(both, constant(0, DType.int64), ops.where(down, 1, 2))

    def next_row(before: Value, cost: Value) -> tuple[Value, Value]:
        inner = subgraph(one, [("left", number), ("cost", number), ("corner", number), ("above", number)])
        first = constant(np.float32(np.inf))
        _, least, ways = ops.scan(first, cost, before[:-1], before[1:], body=inner, num_scan_inputs=3)
        return ops.concat(ops.reshape(first, [1]), least, axis=0), ways

    length = None if not isinstance(costs.shape[1], int) else costs.shape[1] + 1
    return subgraph(next_row, [("before", row.with_shape((length,))), ("cost", row)])


@dynamic_time_warping.numpy
def dynamic_time_warping_numpy(input):
    costs = input.reshape(input.shape[-2:]).astype(np.float32).tolist()
    before = [0.0] + [float("inf")] * len(costs[0])
    ways = []
    for row in costs:
        least, trace = [float("inf")], []
        for cost, corner, above in zip(row, before, before[1:], strict=False):
            left = least[-1]
            trace.append(0 if corner < above and corner < left else 1 if above < corner and above < left else 2)
            least.append(float(np.float32(cost + min(corner, above, left))))
        before = least
        ways.append(trace)
    place = (len(costs) - 1, len(costs[0]) - 1)
    path = [place]
    while place != (0, 0):
        way = ways[place[0]][place[1]]
        place = (place[0] - (way != 2), place[1] - (way != 1))
        path.append(place)
    return np.array(path[::-1], np.int32).T.copy()


dynamic_time_warping.requires(
    dtypes(input="float32"),
    holds(lambda input: _no_matrix(input)),
)


def _no_matrix(input: Value) -> str | None:
    shape = input.tensor.shape
    if shape is not None and (
        len(shape) not in (2, 3) or (len(shape) == 3 and isinstance(shape[0], int) and shape[0] != 1)
    ):
        return "input is neither a matrix nor a batch of one matrix"
    return "input is empty" if shape is not None and 0 in shape else None


# ----- word embeddings ------------------------------------------------------------------------------------------------


@op("WordConvEmbedding", domain="com.microsoft")
def word_conv_embedding(
    Sequence,
    W,
    B,
    C,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
):
    """For each word, the maximum over its characters of a convolution followed by tanh.

    Characters are rows of ``C``; words are padded with zeros, and result in zeros if they start with one.
    """
    results, _, size, width = dims(W)
    starts = ops.range_(0, dims(Sequence)[1] - (size - 1), 1)
    windows = ops.gather(Sequence, ops.reshape(starts, [-1, 1]) + ops.range_(0, size, 1), axis=1)
    characters = ops.reshape(ops.gather(C, windows), [0, 0, size * width])
    found = ops.tanh(characters @ ops.transpose(ops.reshape(W, [results, -1])) + B)
    lengths = ops.reduce_sum(ops.cast(Sequence > 0, to=DType.int64), [1])
    read = ops.less(starts, ops.maximum(lengths - (size - 1), 1))
    greatest = ops.reduce_max(ops.where(ops.unsqueeze(read, [2]), found, -1.0), [1], keepdims=0)
    return ops.where(Sequence[:, :1] > 0, greatest, 0.0)


word_conv_embedding.requires(
    shapes(Sequence="s l", W="m 1 k e", B="m", C="v e"),
    floats("W"),
    same_dtype("W", "B", "C"),
    dtypes(Sequence="int32"),
    holds(lambda embedding_size, m: _differs("embedding_size", embedding_size, m)),
    holds(lambda conv_window_size, k: _differs("conv_window_size", conv_window_size, k)),
    holds(lambda char_embedding_size, e: _differs("char_embedding_size", char_embedding_size, e)),
)


def _differs(name: str, wanted: int | None, real: Any) -> str | None:
    return f"{name} differs from that of the weights" if wanted and isinstance(real, int) and wanted != real else None
