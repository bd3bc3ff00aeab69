"""Cases of ops in the NCHWc layout (blocked channels), with onnxruntime's block size for this CPU."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_contrib_ms import nchwc
from tenonnx_contrib_ms.nchwc import block_of_this_machine
from tenonnx_standard.cases.pooling import dilations, same
from tenonnx_testing import Gap, call, cases, tensors


def channels(draw):
    """Draw a number of channels that is a multiple of the block size."""
    return block_of_this_machine() * draw(st.integers(1, 2))


def images(draw, depth, least=1):
    shape = (draw(st.integers(1, 2)), depth, draw(st.integers(least, 4)), draw(st.integers(least, 4)))
    return draw(tensors(shape=shape, min_value=-2, max_value=2))


def window(draw):
    """Draw attributes of a small two-dimensional window."""
    attributes = {"kernel_shape": [draw(st.integers(1, 3)) for _ in range(2)]}
    attributes["strides"] = [draw(st.integers(1, 2)) for _ in range(2)]
    pads = [draw(st.integers(0, min(1, size - 1))) for size in attributes["kernel_shape"] * 2]
    padding = draw(st.sampled_from([{}, {"pads": pads}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}]))
    if draw(st.booleans()):
        attributes["dilations"] = [2 if size == 2 else 1 for size in attributes["kernel_shape"]]
    return attributes | padding


@cases(nchwc.reorder_input)
def reorder_input_cases(draw):
    last, depth = draw(st.integers(0, 1)), draw(st.sampled_from([4, 8, 12, 16, 20, 32]))
    x = images(draw, depth)
    return call(x.transpose(0, 2, 3, 1).copy() if last else x, channels_last=last)


@cases(nchwc.reorder_output)
def reorder_output_cases(draw):
    depth = channels(draw)
    kept = depth - draw(st.sampled_from([0, 1, 4]))
    return call(images(draw, depth), channels=kept, channels_last=draw(st.integers(0, 1)))


def convolution(draw, activations):
    results, depth = channels(draw), draw(st.sampled_from([1, 3, block_of_this_machine()]))
    group = 1
    if draw(st.booleans()):
        depth = results
        group = draw(st.sampled_from([results, results // block_of_this_machine()]))
    attributes = window(draw)
    x = images(draw, depth, least=3)
    w = draw(tensors(shape=(results, depth // group, *attributes["kernel_shape"]), min_value=-1, max_value=1))
    b = draw(st.none() | tensors(shape=(results,)))
    total = None
    if draw(st.booleans()):
        shape = nchwc.conv(x, w, group=group, **attributes).shape
        total = draw(tensors(shape=shape))
    activation = draw(st.sampled_from(activations))
    if activation:
        attributes |= {"activation": activation[0]} | ({"activation_params": activation[1]} if activation[1] else {})
    return call(x, w, b, total, group=group, **attributes)


@cases(nchwc.conv)
def conv_cases(draw):
    return convolution(draw, [None, ("Tanh", None)])


@cases(nchwc.conv, gradient=False)
def conv_cases_2(draw):
    """Activations that are not differentiable everywhere."""
    return convolution(draw, [("Relu", None), ("Clip", [-1.0, 1.5])])


def same_and_dilated(call):
    return same(call) and max(dilations(call)) > 1


FORGOTTEN = [
    Gap(check, "onnxruntime ignores dilations with auto_pad SAME", same_and_dilated)
    for check in ("onnxruntime", "export")
]


@cases(nchwc.max_pool, gaps=FORGOTTEN)
def max_pool_cases(draw):
    shape = (1, channels(draw), 4, 3)
    return call(
        draw(tensors(shape=shape, distinct=True)),
        **window(draw),
        ceil_mode=draw(st.integers(0, 1)),
        storage_order=draw(st.integers(0, 1)),
    )


@cases(nchwc.average_pool, gaps=FORGOTTEN)
def average_pool_cases(draw):
    """Without ``count_include_pad`` and ``ceil_mode`` at once: onnxruntime counts positions beyond the padding then."""
    counted = draw(st.sampled_from([{}, {"count_include_pad": 1}, {"ceil_mode": 1}]))
    return call(images(draw, channels(draw), least=3), **window(draw), **counted)


@cases(nchwc.global_max_pool)
def global_max_pool_cases(draw):
    return call(draw(tensors(shape=(2, channels(draw), 3, 2), distinct=True)))


@cases(nchwc.global_average_pool)
def global_average_pool_cases(draw):
    return call(images(draw, channels(draw)))


@cases(nchwc.upsample)
def upsample_cases(draw):
    modes = {"mode": draw(st.sampled_from(["nearest", "linear"]))}
    if modes["mode"] == "linear":
        known = ["asymmetric", "align_corners", "half_pixel"]
        modes["coordinate_transformation_mode"] = draw(st.sampled_from(known))
    return call(images(draw, channels(draw), 2), scales=[1, 1, *(draw(st.integers(1, 3)) for _ in range(2))], **modes)
