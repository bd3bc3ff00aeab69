"""State-space models: the Mamba 2 layer, with a state per step for verifying drafted tokens."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, constant, dims, divides, dtypes, holds, op, shapes, subgraph


def _wide(x: Value) -> Value:
    return ops.cast(x, to=DType.float32)


@op("Mamba2Verify", domain="com.microsoft")
def mamba2_verify(
    projection,
    conv_state,
    ssm_state,
    conv_weight,
    conv_bias,
    dt_bias,
    A_negative,
    D,
    norm_weight,
    state_row,
    *,
    d_state=128,
    epsilon=1e-5,
    head_dim=64,
    heads: int,
    n_groups: int,
    time_step_min=0.001,
):
    """A short convolution, a selective state space and a gated normalization (Dao and Gu 2024, arXiv:2405.21060).

    States have a row for each of the last steps; ``state_row`` is the initial one. The rows of ``projection`` contain a
    gate, the input of the convolution, and a time step per head. An invalid row results in NaN.
    """
    inner, shared = heads * head_dim, n_groups * d_state
    rows, slots, width = dims(projection)[0], dims(conv_state)[0], inner + 2 * shared
    valid = ops.reshape((state_row >= 0) & ops.less(ops.cast(state_row, to=DType.int64), slots), [])
    row = ops.where(valid, ops.reshape(state_row, []), 0)
    gate, convolved, steps = ops.split(projection, [inner, width, heads], axis=1)

    line = ops.concat(ops.transpose(ops.gather(conv_state, row), perm=[1, 0]), convolved, axis=0)  # (3 + rows, width)
    weight = ops.reshape(_wide(conv_weight), [width, 4])
    taps = [_wide(ops.slice_(line, [t], ops.reshape(rows, [1]) + t, [0])) * weight[:, t] for t in range(4)]
    xbc = ops.cast(ops.swish(taps[0] + taps[1] + taps[2] + taps[3] + _wide(conv_bias)), to=projection.dtype)
    x, b, c = ops.split(_wide(xbc), [inner, shared, shared], axis=1)
    x = ops.reshape(x, [-1, heads, head_dim])
    b, c = (_repeat_groups(ops.reshape(v, [-1, n_groups, d_state]), heads // n_groups) for v in (b, c))
    raw = _wide(steps) + dt_bias
    dt = ops.maximum(ops.where(raw > 20.0, raw, ops.softplus(raw)), time_step_min)

    def step(state: Value, x: Value, b: Value, c: Value, dt: Value) -> tuple[Value, ...]:
        kept = ops.reshape(ops.exp(A_negative * dt), [-1, 1, 1])
        state = kept * state + ops.unsqueeze(b, [2]) * ops.unsqueeze(x * ops.unsqueeze(dt, [1]), [1])
        read = ops.reshape(D, [-1, 1]) * x + ops.squeeze(ops.unsqueeze(c, [1]) @ state, [1])
        return state, ops.identity(state), read

    first = ops.gather(ssm_state, row)
    formals = [("state", first.type)]
    formals += [(f"x{n}", v.tensor.with_shape(v.shape[1:])) for n, v in enumerate((x, b, c, dt))]
    _, states, readout = ops.scan(first, x, b, c, dt, body=subgraph(step, formals), num_scan_inputs=4)
    readout = ops.reshape(readout, [-1, inner])
    gated = ops.reshape(readout * ops.swish(_wide(gate)), [-1, n_groups, inner // n_groups])
    normal = gated / ops.sqrt(ops.reduce_mean(gated * gated, [-1]) + epsilon)
    y = ops.cast(ops.reshape(normal, [-1, inner]) * norm_weight, to=projection.dtype)
    windows = ops.reshape(ops.range_(0, rows, 1), [-1, 1]) + constant([1, 2, 3])
    histories = ops.transpose(ops.gather(line, windows), perm=[0, 2, 1])

    def or_nan(v: Value) -> Value:
        return ops.where(valid, v, constant(float("nan"), v.dtype))

    y, xbc, readout, histories, states = map(or_nan, (y, xbc, readout, histories, states))
    return y, _snapshots(conv_state, histories), _snapshots(ssm_state, states), xbc, readout


mamba2_verify.traits(on_request=True)


def _repeat_groups(x: Value, times: int) -> Value:
    """Repeat each group of (rows, groups, size) for its heads."""
    rows, groups, size = dims(x)
    return ops.reshape(ops.expand(ops.unsqueeze(x, [2]), [rows, groups, times, size]), [-1, groups * times, size])


def _snapshots(before: Value, new: Value) -> Value:
    """The last rows of ``new``; if there are too few, all of them followed by rows of ``before``."""
    slots, rows = dims(before)[0], dims(new)[0]
    start: Any = max(rows - slots, 0) if isinstance(slots, int) and isinstance(rows, int) else None
    start = ops.maximum(rows - slots, 0) if start is None else start
    return ops.concat(new, before[rows:], axis=0)[start:]


mamba2_verify.requires(
    shapes(
        projection="rows _",
        conv_state="slots width 3",
        ssm_state="slots heads d_state head_dim",
        conv_weight="width 4 | width 1 4",
        conv_bias="width",
        dt_bias="heads",
        A_negative="heads",
        D="heads",
        norm_weight="inner",
        state_row="1",
    ),
    dtypes(
        projection="bfloat16",
        conv_state="bfloat16",
        conv_weight="bfloat16",
        conv_bias="bfloat16",
        ssm_state="float32",
        dt_bias="float32",
        A_negative="float32",
        D="float32",
        norm_weight="float32",
        state_row="int32",
    ),
    divides("n_groups", "heads"),
    holds(
        lambda projection, heads, head_dim, n_groups, d_state, width: (
            "projection does not hold the gate, the convolved part and a step for each head"
            if projection.rank
            and isinstance(projection.shape[1], int)
            and projection.shape[1] != 2 * heads * head_dim + 2 * n_groups * d_state + heads
            else None
        )
    ),
)
