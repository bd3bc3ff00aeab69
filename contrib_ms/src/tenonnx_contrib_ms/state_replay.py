"""State replay: states rebuilt from captured steps, in buffers whose offsets are in ``metadata``."""

from __future__ import annotations

import tenonnx_standard as ops
from tenonnx.extend import TensorType, Value, dtypes, floats, op, same_dtype, shapes, subgraph


def _part(buffer: Value, start: Value, sizes: list[Value]) -> Value:
    """A part of a vector, reshaped."""
    shape = ops.concat(*sizes, axis=0)
    return ops.reshape(ops.slice_(buffer, start, start + ops.reduce_prod(shape, [0])), shape, allowzero=1)


def _with_part(buffer: Value, start: Value, part: Value) -> Value:
    """A vector with a part replaced."""
    flat = ops.reshape(part, [-1])
    end = start + ops.shape(flat)
    joined = ops.concat(buffer[: ops.squeeze(start)], flat, buffer[ops.squeeze(end) :], axis=0)
    return ops.slice_(joined, [0], ops.shape(buffer))  # crop to the length of the buffer


@op("ConvStateReplay", domain="com.microsoft")
def conv_state_replay(source_backing, capture_backing, destination_backing, metadata):
    """The histories of a convolution (batch, channels, history) after the captured inputs (batch, capacity, channels).

    ``metadata`` has the byte offsets of source, destination and capture, then batch, channels, history, capacity and
    the number of accepted inputs.
    """
    metadata = ops.reshape(metadata, [8])
    width = source_backing.dtype.bits // 8
    source, destination, capture = (metadata[n : n + 1] / width for n in range(3))
    batch, channels, history, capacity = (metadata[n : n + 1] for n in range(3, 7))
    before = _part(source_backing, source, [batch, channels, history])
    inputs = _part(capture_backing, capture, [batch, capacity, channels])
    line = ops.concat(before, ops.transpose(inputs, perm=[0, 2, 1]), axis=2)
    state = ops.slice_(line, metadata[7:8], metadata[7:8] + history, [2])
    return _with_part(destination_backing, destination, state)


conv_state_replay.traits(on_request=True)


@op("GatedDeltaNetStateReplay", domain="com.microsoft")
def gated_delta_net_state_replay(source_backing, capsule_backing, destination_backing, metadata):
    """A state (heads, value size, key size) of GatedDeltaNet after captured steps: decays, keys and written values.

    ``metadata`` has the element offsets of source, destination, decays, keys and values, then the heads and size of
    values, the size and heads of keys, the capacity of the capture and the number of accepted steps.
    """
    metadata = ops.reshape(metadata, [11])
    source, destination, *parts = (metadata[n : n + 1] for n in range(5))
    heads, values, keys, groups, capacity, kept = (metadata[n : n + 1] for n in range(5, 11))
    wide = (parts[1] - parts[0]) / (capacity * heads)  # decays are per head, or per element of each head's keys
    sizes = [[heads, wide], [groups, keys], [heads, values]]
    decay, key, value = (_part(capsule_backing, start, [kept, *each]) for start, each in zip(parts, sizes, strict=True))
    group = ops.range_(0, ops.squeeze(heads, [0]), 1) * groups / heads
    key = ops.gather(key, group, axis=1)
    state = _part(source_backing, source, [heads, values, keys])

    def step(state: Value, decay: Value, key: Value, value: Value) -> Value:
        return state * ops.unsqueeze(decay, [1]) + ops.unsqueeze(key, [1]) * ops.unsqueeze(value, [2])

    formals = [("state", state.type), *((n, TensorType(state.dtype, (None, None))) for n in ("decay", "key", "value"))]
    final = ops.scan(state, decay, key, value, body=subgraph(step, formals), num_scan_inputs=3)
    return _with_part(destination_backing, destination, final)


gated_delta_net_state_replay.traits(on_request=True)


def _like_destination(source_backing, captured, destination_backing, metadata) -> TensorType:
    return destination_backing.tensor  # type: ignore[no-any-return]


for replayed, captured, count in (
    (conv_state_replay, "capture_backing", "8"),
    (gated_delta_net_state_replay, "capsule_backing", "11"),
):
    replayed.type(_like_destination)
    replayed.requires(
        shapes(**dict.fromkeys(("source_backing", captured, "destination_backing"), "_"), metadata=count),
        floats("source_backing"),
        dtypes(metadata="int64"),
        same_dtype("source_backing", captured, "destination_backing"),
    )
