"""Cases of com.ms.internal.nhwc, derived from those of ai.onnx. No runtime has CPU kernels for these ops."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import Op
from tenonnx_contrib_ms import nhwc
from tenonnx_testing import Call, Case, Gap, call, cases, tensors
from tenonnx_testing.cases import collected

FAMILIES = ("batch_norm", "convolution", "image", "normalization", "pooling", "rearrangement")
for family in FAMILIES:
    importlib.import_module(f"tenonnx_standard.cases.{family}")


def with_channels_last(case: Case, images: set[str], known: Collection[str]) -> Callable[..., Call]:
    """Return a strategy for calls of ``case`` with ``images`` and per-axis parameters in channels-last order.

    Some calls also have an activation. Only ``known`` attributes are kept, and calls that fail in ai.onnx, too, are
    left out.
    """
    names = [parameter.name for parameter in case.op.signature.inputs]

    def drawn(draw):
        given = case.function(draw)
        rank, attributes = given.inputs[0].ndim, given.attributes
        order = [0, *range(2, rank), 1]
        whole = replace(given, attributes=case.op.signature.complete(case, given.attributes))
        assume(rank > 2 and not any(gap.covers(whole) for gap in case.gaps if gap.when))
        # onnx.checker infers other shapes for these, or rejects what the schema allows
        assume(not attributes.get("auto_pad", "").startswith("SAME") or "output_padding" not in known)
        assume(not (attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" and given.inputs[3] is None))
        assume(len(given.inputs) < 4 or given.inputs[2] is None or given.inputs[2].size)
        inputs, axes = [], attributes.get("axes")
        for name, value in zip(names, given.inputs, strict=False):
            if value is not None and name in images:
                value = value.transpose(order).copy()
            elif value is not None and value.size and name in nhwc.PER_AXIS and not axes:
                value = value.reshape(-1, rank)[:, order].reshape(-1)
            inputs.append(value)
        attributes = {name: value for name, value in attributes.items() if name in known}
        if "activation" in known and given.inputs[0].dtype.kind == "f":
            attributes |= draw(st.sampled_from([{}, {"activation": "Tanh"}, CLIP]))
        if axes:
            attributes["axes"] = [order.index(axis % rank) for axis in axes]
        return replace(given, inputs=tuple(inputs), attributes=attributes)

    return drawn


#: An activation with parameters, whose bounds no call reaches.
CLIP = {"activation": "Clip", "activation_params": [-1e4, 1e4]}

MIXED = Gap(
    "export",
    "BatchNormalization accepts statistics and parameters of another dtype than the data only from version 15",
    lambda call: len({value.dtype for value in call.inputs if value is not None and value.dtype.kind == "f"}) > 1,
)


SECOND = Gap("onnxruntime", "the kernel of onnxruntime 1.32 uses the second axis as the channels")


def declare(op: Op, standard: Op, *images: str) -> None:
    """Register cases for every version of ``op``, derived from those of ``standard`` at the same version."""
    meanings = {meaning.before: meaning for meaning in standard.meanings}
    for meaning in op.meanings:
        for case in collected(meanings[meaning.before]):
            if any(
                gap.when is None and gap.check not in ("reference", "special values", "empty axes", "other attributes")
                for gap in case.gaps
            ):
                continue
            gaps = [MIXED] if meaning.name == "BatchNormalization" else []
            if meaning.name == "SpaceToDepth":  # this version is the first with a kernel
                gaps = [SECOND]
            first = meaning.signature.inputs[0].name
            declared = cases(meaning, gradient=case.gradient, steps=case.steps, tolerance=case.tolerance, gaps=gaps)
            declared(with_channels_last(case, {first, *images}, meaning.signature.attributes))


for name in (
    "conv",
    "conv_transpose",
    "max_pool",
    "average_pool",
    "lp_pool",
    "global_average_pool",
    "global_max_pool",
    "global_lp_pool",
    "batch_normalization",
    "instance_normalization",
    "lrn",
    "grid_sample",
    "resize",
    "depth_to_space",
    "space_to_depth",
):
    declare(getattr(nhwc, name), getattr(ops, name))
declare(nhwc.max_unpool, ops.max_unpool, "I")


@cases(nhwc.max_unpool, gradient=("X",))
def max_unpool_cases(draw):
    """With padding, and optionally the output shape."""
    shape = (1, draw(st.integers(1, 2)), 4, 3)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    found = ops.max_pool(draw(tensors(shape=shape, distinct=True)), _outputs=2, **attributes)
    pooled, places = (x.transpose(0, 2, 3, 1).copy() for x in found)
    size = draw(st.sampled_from([None, np.array([shape[axis] for axis in (0, 2, 3, 1)])]))
    return call(pooled, places, size, **attributes)


@cases(nhwc.conv_transpose)
def conv_transpose_cases(draw):
    """With an explicit output shape."""
    x = draw(tensors(shape=(1, draw(st.integers(1, 3)), draw(st.integers(1, 3)), 2), min_value=-2, max_value=2))
    w = draw(tensors(shape=(2, 1, 2, 2), min_value=-1, max_value=1))
    return call(x, w, kernel_shape=[2, 2], strides=[2, 2], output_shape=[2 * size for size in x.shape[1:3]])


def _with_a_last_part(pool: Op) -> None:
    @cases(pool)
    def pool_cases(draw):
        """Windows that extend beyond the last element; some of LpPool's are dilated."""
        x = draw(tensors(shape=(1, 5, draw(st.integers(3, 6)), 2), distinct=True))
        more = draw(st.sampled_from([{}, {"dilations": [1, 2]}]))
        return call(x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, **more)


for _pool in (nhwc.max_pool, nhwc.average_pool, nhwc.lp_pool):
    _with_a_last_part(_pool)
