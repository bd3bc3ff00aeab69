"""Linear attention with the gated delta rule over packed sequences."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import (
    DType,
    Value,
    at_least,
    constant,
    dims,
    dtypes,
    floats,
    holds,
    one_of,
    op,
    same_dtype,
    shapes,
    subgraph,
    together,
)
from tenonnx_contrib_ms.packed_sequences import PackedSequences, holds_bounds, holds_captures


@op("GatedDeltaNet", domain="com.microsoft")
def gated_delta_net(
    query,
    key=None,
    value=None,
    cu_seqlens=None,
    decay=None,
    beta=None,
    initial_state=None,
    a_log=None,
    dt_bias=None,
    capture_count=None,
    state_update_active=None,
    *,
    beta_activation="none",
    chunk_size=64,
    gate_activation="none",
    gate_lower_bound=-5.0,
    qk_l2_norm=0,
    scale=0.0,
    state_update_capacity=0,
    update_rule="gated_delta",
):
    """LinearAttention of packed sequences, including its gates and the normalization of queries and keys, in float32.

    A single packed input is split by the shape of the state, whose third axis is that of the values. The third output
    captures the decays, keys and written values of the first elements of each sequence.
    """
    q, k, v = (query, key, value) if key is not None else _split_packed(query, initial_state)
    heads, width = dims(v)[-2:]
    size, dtype, leading = dims(q)[-1], v.dtype, dims(v)[:-2]
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    q, k, v = (ops.cast(ops.reshape(x, [-1, *dims(x)[-2:]]), to=wide) for x in (q, k, v))
    decay, beta, initial_state, a_log, dt_bias = (
        x if x is None else ops.cast(x, to=wide) for x in (decay, beta, initial_state, a_log, dt_bias)
    )
    if qk_l2_norm:
        q, k = (x / ops.sqrt(ops.reduce_sum(x * x, [-1]) + _TINY) for x in (q, k))
    if cu_seqlens is None:
        batch = dims(initial_state)[0]
        cu_seqlens = ops.range_(0, batch + 1, 1) * (dims(v)[0] // batch)
    sequences = PackedSequences(cu_seqlens, dims(v)[0])
    count = dims(sequences.starts)[0]
    kept = rate = ops.ones_like(v[:, :, :1])
    if update_rule in ("gated", "gated_delta") and decay is not None:
        decay = ops.reshape(decay, [-1, heads, dims(decay)[-1] if decay.ndim > len(leading) + 1 else 1])
        if gate_activation != "none":
            a_log, dt_bias = ops.reshape(a_log, [heads, 1]), ops.reshape(dt_bias, [heads, -1])
            if gate_activation in _SOFTPLUS:
                decay = -ops.exp(a_log) * ops.softplus(decay + dt_bias)
            else:
                decay = gate_lower_bound * ops.sigmoid(ops.exp(a_log) * (decay + dt_bias))
        kept = ops.exp(decay)
    corrects = update_rule in ("delta", "gated_delta")
    if corrects and beta is not None:
        rate = ops.reshape(ops.sigmoid(beta) if beta_activation == "sigmoid" else beta, [-1, heads, 1])
    keys, queries = (ops.reshape(_repeated(x, heads // dims(k)[1]), [-1, heads, size]) for x in (k, q))
    if initial_state is None:
        state = ops.expand(constant(0.0, wide), [count, heads, size, width])
    else:
        state = ops.transpose(initial_state, perm=[0, 1, 3, 2])
    state, found, updates = _recurrence(sequences.sequence, state, queries, keys, v, kept, rate if corrects else None)
    factor = scale or (size**-0.5 if isinstance(size, int) else ops.reciprocal(ops.sqrt(ops.cast(size, to=v.dtype))))
    y = ops.reshape(ops.cast(found * factor, to=dtype), [*leading, heads, width])
    final = ops.transpose(state, perm=[0, 1, 3, 2])
    if not state_update_capacity:
        return y, final, None
    if state_update_active is not None:
        capture_count = capture_count * ops.cast(ops.not_(ops.equal(state_update_active, 0)), to=capture_count.dtype)
    rows = [
        ops.where(
            ops.unsqueeze(stored, [1]),
            ops.reshape(ops.gather(x, ops.minimum(end, sequences.total) - 1), [count, -1]),
            0.0,
        )
        for x in (kept, k, updates)
        for end, stored in sequences.captured(capture_count, state_update_capacity)
    ]
    return y, final, ops.concat(*rows, axis=1)


gated_delta_net.traits(on_request=True)


def _recurrence(
    sequence: Value, state: Value, queries: Value, keys: Value, values: Value, kept: Value, rate: Value | None
) -> tuple[Value, Value, Value]:
    """Return the final states (sequences, heads, size, width), and for each token its output and written value.

    A token scales the state of its ``sequence`` by ``kept`` and adds the outer product of key and value. With a
    ``rate``, the state's prediction for the key is subtracted from the value first (the delta rule).
    """
    places = ops.reshape(ops.range_(0, dims(state)[0], 1), [-1, 1, 1, 1])

    def step(state: Value, at: Value, q: Value, k: Value, v: Value, kept: Value, rate: Value) -> tuple[Value, ...]:
        own = ops.gather(state, at) * ops.unsqueeze(kept, [-1])
        if corrects:
            v = (v - ops.squeeze(ops.unsqueeze(k, [1]) @ own, [1])) * rate
        own = own + ops.unsqueeze(k, [2]) @ ops.unsqueeze(v, [1])
        result = ops.squeeze(ops.unsqueeze(q, [1]) @ own, [1])
        return ops.where(ops.equal(places, at), own, state), result, v

    corrects = rate is not None
    tokens = [sequence, queries, keys, values, kept, kept if rate is None else rate]
    formals = [("state", state.type), *((f"x{n}", x.tensor.with_shape(x.shape[1:])) for n, x in enumerate(tokens))]
    return ops.scan(state, *tokens, body=subgraph(step, formals), num_scan_inputs=len(tokens))  # type: ignore[no-any-return]


#: Added to the sum of squares before the root, as in onnxruntime 1.32, the first with a CPU kernel.
_TINY = 1e-12

#: Names of the gate -exp(a_log) * Softplus(decay + dt_bias); onnxruntime up to 1.31 has only the second.
_SOFTPLUS = ("softplus", "qwen")

#: Names of a gate between 0 and ``gate_lower_bound`` (Kimi Delta Attention, arXiv:2510.26692).
_BOUNDED = ("sigmoid", "kda")


def _split_packed(packed: Value, state: Value) -> tuple[Value, Value, Value]:
    """Split packed rows into query, key and value with separate heads."""
    _, heads, width, size = dims(state)
    *leading, whole = dims(packed)
    pairs = (whole - heads * width) // (2 * size)
    sizes = [pairs * size, pairs * size, heads * width]
    q, k, v = ops.split(packed, sizes, axis=-1)
    q, k = (ops.reshape(x, [*leading, pairs, size]) for x in (q, k))
    return q, k, ops.reshape(v, [*leading, heads, width])


def _repeated(x: Value, times: Any) -> Value:
    """Repeat each head ``times`` times, adjacent to each other."""
    length, heads, size = dims(x)
    return ops.expand(ops.unsqueeze(x, [2]), [length, heads, times, size])


gated_delta_net.requires(
    shapes(
        query="... _",
        key="... heads _",
        value="... value_heads _",
        cu_seqlens="_",
        initial_state="_ state_heads _ size",
    ),
    at_least(heads=1, value_heads=1, state_heads=1, size=1),
    floats("query"),
    same_dtype("query", "key", "value"),
    dtypes(cu_seqlens="int32", capture_count="int32", state_update_active="int32"),
    together("key", "value"),
    one_of(
        update_rule=("linear", "gated", "delta", "gated_delta"),
        gate_activation=("none", *_SOFTPLUS, *_BOUNDED),
        beta_activation=("none", "sigmoid"),
    ),
    at_least(state_update_capacity=0),
    holds(lambda state_update_capacity, capture_count: holds_captures(state_update_capacity, capture_count)),
    holds(lambda cu_seqlens: holds_bounds("cu_seqlens", cu_seqlens)),
    holds(
        lambda key, cu_seqlens, initial_state: (
            "initial_state is missing, with one input or without cu_seqlens"
            if initial_state is None and (key is None or cu_seqlens is None)
            else None
        )
    ),
    holds(
        lambda gate_activation, a_log, dt_bias: (
            f"a_log or dt_bias is missing, with gate_activation {gate_activation}"
            if gate_activation != "none" and (a_log is None or dt_bias is None)
            else None
        )
    ),
)
