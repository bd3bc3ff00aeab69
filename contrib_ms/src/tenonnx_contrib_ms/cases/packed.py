"""Cases of ops on packed sequences."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_contrib_ms.gated_delta_net import gated_delta_net
from tenonnx_contrib_ms.packed_ops import varlen_causal_conv_with_state, varlen_ngram_hash_mapping
from tenonnx_testing import call, cases, shapes, tensors


def packed(draw):
    """Draw the number of sequences, the total number of elements, and the cumulative lengths."""
    lengths = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(1, 3)))]
    return len(lengths), sum(lengths), np.cumsum([0, *lengths]).astype(np.int32)


def captured(draw, batch):
    """Draw the number of elements to capture in each sequence, and its upper bound."""
    if draw(st.booleans()):
        return None, {}
    counts = draw(tensors("int32", shape=(batch,), min_value=0, max_value=3))
    return counts, {"state_update_capacity": draw(st.integers(1, 3))}


@cases(varlen_ngram_hash_mapping, gradient=False)
def varlen_ngram_hash_mapping_cases(draw):
    batch, total, bounds = packed(draw)
    heads, size, dtype = draw(st.integers(1, 3)), draw(st.integers(2, 4)), draw(st.sampled_from(["int32", "int64"]))

    def drawn(*shape, kind=dtype, low=0, high=5):
        return draw(tensors(kind, shape=shape, min_value=low, max_value=high))

    ids, multipliers = drawn(total), drawn(size, low=1, high=1000)
    sizes = drawn((size - 1) * heads, low=2, high=100)
    past = draw(st.sampled_from([None, drawn(batch, size - 1)]))
    offsets = draw(st.sampled_from([None, drawn((size - 1) * heads)]))
    end = draw(st.sampled_from([None, np.array(3, dtype)]))
    segments = draw(st.sampled_from([None, drawn(total, kind="int32", high=2)]))
    earlier = None
    if segments is not None and past is not None:
        earlier = draw(st.sampled_from([None, drawn(batch, size - 1, kind="int32", high=2)]))
    counts, capacity = captured(draw, batch)
    attributes = {"max_ngram_size": size, "n_head_per_ngram": heads, "pad_id": draw(st.integers(0, 2)), **capacity}
    inputs = [ids, multipliers, sizes, bounds, past, offsets, end, segments, earlier, counts]
    return call(*inputs, reset_on_eos=draw(st.integers(0, 1)), **attributes)


@cases(varlen_causal_conv_with_state)
def varlen_causal_conv_with_state_cases(draw):
    batch, total, bounds = packed(draw)
    channels, size, dilation = draw(shapes(3, 3, 1, 3))
    dtype, reach = draw(st.sampled_from(["float32", "float16"])), size * dilation

    def drawn(*shape):
        return draw(tensors(dtype, shape=shape, min_value=-2, max_value=2))

    inputs = [drawn(total, channels), drawn(channels, 1, size + 1), bounds]
    inputs += [draw(st.sampled_from([None, drawn(channels)])), drawn(batch, channels, reach)]
    counts, capacity = captured(draw, batch)
    attributes = {"activation": draw(st.sampled_from(["none", "silu", "swish"])), "dilation": dilation}
    return call(*inputs, counts, **attributes, **capacity)


@cases(varlen_causal_conv_with_state)
def varlen_causal_conv_with_state_cases_2(draw):
    """Weights of two taps modified by each token, which only GPU kernels support."""
    batch, total, bounds = packed(draw)
    groups, times = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    channels, behind = groups * times, draw(st.integers(0, 1))
    sides = [(total, channels), (channels, 1, 2), (batch, channels, 1), (total, 2 + behind, groups), (total, 1)]
    dtype = draw(st.sampled_from(["float32", "float16"]))
    x, weight, state, delta, mask = (draw(tensors(dtype, shape=s, min_value=-2, max_value=2)) for s in sides)
    attributes = {"group_size": times, "delta_offset": behind}
    return call(x, weight, bounds, None, state, None, delta, mask, **attributes)


@cases(gated_delta_net, gradient=["query", "key", "value", "decay", "beta", "initial_state"])
def gated_delta_net_cases(draw):
    batch, total, bounds = packed(draw)
    pairs, times, size, width = draw(shapes(4, 4, 1, 2))
    heads = pairs * times
    rule = draw(st.sampled_from(["linear", "gated", "delta", "gated_delta"]))
    if even := draw(st.booleans()):
        total, bounds = 2 * batch, None
    leading = (batch, 2) if even and draw(st.booleans()) else (total,)

    def drawn(*shape, low=-1.0, high=1.0):
        return draw(tensors(shape=shape, min_value=low, max_value=high))

    inputs = [drawn(*leading, pairs, size), drawn(*leading, pairs, size), drawn(*leading, heads, width)]
    if len(leading) == 1 and draw(st.booleans()):
        inputs = [np.concatenate([x.reshape(total, -1) for x in inputs], axis=1), None, None]
    attributes = {
        "update_rule": rule,
        "qk_l2_norm": draw(st.integers(0, 1)),
        "scale": draw(st.sampled_from([0.0, 0.5])),
    }
    inputs += [bounds, drawn(*leading, heads, high=0.0) if "gated" in rule else None]
    inputs += [drawn(*leading, heads) if "delta" in rule else None, drawn(batch, heads, width, size), None, None]
    attributes["beta_activation"] = draw(st.sampled_from(["none", "sigmoid"]))
    if "gated" in rule and draw(st.booleans()):
        attributes["gate_activation"] = draw(st.sampled_from(["qwen", "softplus", "kda", "sigmoid"]))
        inputs[-2:] = [drawn(heads), drawn(heads)]
        if attributes["gate_activation"] in ("kda", "sigmoid"):
            attributes["gate_lower_bound"] = draw(st.sampled_from([-5.0, -1.0]))
    attributes |= draw(st.sampled_from([{}, {"chunk_size": 2}]))
    counts, capacity = captured(draw, batch)
    active = None if counts is None else draw(st.sampled_from([None, np.array([0], np.int32)]))
    return call(*inputs, counts, active, **attributes, **capacity)
