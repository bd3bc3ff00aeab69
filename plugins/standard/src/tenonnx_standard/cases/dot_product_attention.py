"""Cases of scaled dot-product attention."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_standard.dot_product_attention import attention, attention_of_full_masks
from tenonnx_testing import Gap, call, cases, tensors


def drawn(draw, *, external=False, windows=False, shorter=False, broadcast=False, modes=(0, 1, 3)):
    """A call, with an external cache, windows, and masks that are too short or broadcast along keys."""
    dtype = draw(st.sampled_from(["float32", "float32", "float16"]))
    batch, groups, repeats = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    heads, queries, keys = groups * repeats, draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size, value_size, flat = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans())

    def packed(count, rows, width):
        shape = (batch, rows, count * width) if flat else (batch, count, rows, width)
        return draw(tensors(dtype, shape=shape, min_value=-2, max_value=2))

    q, k, v = packed(heads, queries, size), packed(groups, keys, size), packed(groups, keys, value_size)
    past_key = past_value = filled = None
    total = keys
    if external:
        filled = draw(tensors("int64", shape=(batch,), min_value=1, max_value=keys))
    elif not broadcast and draw(st.booleans()):
        past = draw(st.integers(1, 3))
        total += past
        past_key, past_value = (
            draw(tensors(dtype, shape=(batch, groups, past, width), min_value=-2, max_value=2))
            for width in (size, value_size)
        )
    attributes = {
        "is_causal": draw(st.integers(0, 1)),
        "scale": draw(st.sampled_from([None, 0.25])),
        "softcap": draw(st.sampled_from([0.0, 2.0])),
        "qk_matmul_output_mode": draw(st.sampled_from(modes)),
        "softmax_precision": draw(st.sampled_from([None, 11])),
    }
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    if windows:
        attributes |= {name: draw(st.integers(-1, 3)) for name in ("left_window_size", "right_window_size")}
    mask = None
    if draw(st.booleans()):
        length = draw(st.integers(1, total)) if shorter else 1 if broadcast else total
        leading = draw(st.sampled_from([(), (heads,), (1, heads), (batch, 1), (batch, heads)]))
        shape = (*leading, queries, length)
        mask = draw(tensors(draw(st.sampled_from(["bool", dtype])), shape=shape, min_value=-2, max_value=2))
    inputs = [q, k, v, mask, past_key, past_value]
    return call(*inputs, *([filled] if external else []), _outputs=1 if external else 4, **attributes)


RAW = Gap(
    "reference",
    "its output of raw products is after the softcap",
    when=lambda c: c.attributes["softcap"] and c.attributes["qk_matmul_output_mode"] == 0,
)
LOWEST = [Gap(check, "it outputs the lowest number where keys are masked") for check in ("onnxruntime", "export")]
ALIGNED = Gap(
    "onnxruntime",
    "its kernel of version 23 aligns the causal mask with the last key instead of the past",
    when=lambda c: c.attributes["is_causal"] and c.inputs[4] is not None,
)
PADDED = Gap("reference", "it extends the mask as version 24 does")


@cases(attention, gradient=("Q", "K", "V"), gaps=[RAW])
def attention_cases(draw):
    return drawn(draw, windows=draw(st.booleans()), shorter=draw(st.booleans()))


@cases(attention, gradient=False, gaps=LOWEST)
def attention_cases_2(draw):
    """Calls that also return the logits, which contain the bias and so may be minus infinity."""
    return drawn(draw, windows=draw(st.booleans()), modes=[2])


@cases(attention, gradient=("Q", "K", "V"))
def attention_cases_3(draw):
    """An external cache: some rows may have no keys at all."""
    return drawn(draw, external=True, windows=draw(st.booleans()))


@cases(attention_of_full_masks, gradient=("Q", "K", "V"), gaps=[RAW, ALIGNED])
def attention_of_full_masks_cases(draw):
    return drawn(draw)


@cases(attention_of_full_masks, gradient=("Q", "K", "V"), gaps=[PADDED])
def attention_of_full_masks_cases_2(draw):
    return drawn(draw, broadcast=True, modes=[1, 3])


@cases(attention, gradient=False)
def attention_cases_4(draw):
    """Long rows, whose softmax is taken in another dtype."""
    shape = (1, 2, draw(st.integers(1, 3)), 8)
    q, k = draw(tensors("float16", shape=shape)), draw(tensors("float16", shape=(1, 1, 12, 8)))
    v = draw(tensors("float16", shape=(1, 1, 12, 4)))
    mask = np.where(np.arange(12) < draw(st.integers(1, 12)), 0, -np.inf).astype("float16")[None]
    return call(q, k, v, mask, softmax_precision=1, _outputs=1)


@cases(attention)
def attention_cases_5(draw):
    """Float64, where implementations agree: with a scale whose root is exact, and without masks."""
    shape = (2, 2, draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    q, k, v = (draw(tensors("float64", shape=shape, min_value=-2, max_value=2)) for _ in range(3))
    return call(q, k, v, scale=0.25, softcap=draw(st.sampled_from([0.0, 2.0])), _outputs=1)
