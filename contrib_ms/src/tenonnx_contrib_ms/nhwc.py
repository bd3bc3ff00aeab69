"""The domain com.ms.internal.nhwc: channels-last ops of ai.onnx, used by accelerators of onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import Op, Value
from tenonnx_contrib_ms.activations import listed
from tenonnx_contrib_ms.layouts import channels_first, channels_last_again

NHWC = "com.ms.internal.nhwc"

#: Newest version of ai.onnx of most ops in the domain, and of single ops with later versions.
NEWEST = 20
LATER = {"SpaceToDepth": 28}

#: Inputs with one number per axis, or two (all starts, then all ends).
PER_AXIS = ("scales", "sizes", "output_shape", "roi")


def _with_channels_last(standard: Op, *, since: int, images: Sequence[str] = (), activated: bool = False) -> Op:
    """Define channels-last variants of every version of ``standard`` from ``since`` on.

    ``images`` are the channels-last inputs, by default the first. ``activated`` ops also have a fused activation.
    """
    meanings = [m for m in standard.meanings if m.before is None or m.before > since]
    versions = [_define_version(meaning, max(since, meaning.since), images, activated) for meaning in meanings]
    for op, older in itertools.pairwise(versions):
        op.older = older
    return versions[0]


def _define_version(standard: Op, since: int, images: Sequence[str], activated: bool) -> Op:
    newest_signature = standard.signature
    names = [parameter.name for parameter in newest_signature.inputs]
    channels_last = images or names[:1]

    def function(*inputs: Value | None, **attributes: Any) -> Any:
        activation = [attributes.pop(name, None) for name in ("activation", "activation_params")]
        rank = next(value.ndim for value in inputs if value is not None)
        axes = attributes.get("axes")
        given = []
        for name, value in zip(names, inputs, strict=False):
            if value is not None and name in channels_last:
                value = channels_first(value)
            elif value is not None and name in PER_AXIS and not axes and (name != "roi" or _reads_roi(attributes)):
                value = _channels_second(value, rank, twice=name == "roi")
            given.append(value)
        if axes:
            attributes["axes"] = [_axis_with_channels_second(axis % rank, rank) for axis in axes]
        found = standard(*given, **attributes)
        outputs = list(found) if isinstance(found, tuple) else [found]
        outputs[0] = listed(op, outputs[0], *activation)
        placed = [y if y is None or y.ndim != rank else channels_last_again(y) for y in outputs]
        return tuple(placed) if len(placed) > 1 else placed[0]

    function.__name__, function.__doc__ = standard.__name__, f"{standard.name} with the channels last."
    function.__module__ = __name__
    attributes, attribute_types = dict(newest_signature.attributes), dict(newest_signature.attribute_types)
    newest = LATER.get(standard.name, NEWEST)
    for step in standard.signature_changes:
        if step.before > newest:
            attributes = {name: default for name, default in attributes.items() if name not in step.lacks}
    if activated:
        attributes |= {"activation": None, "activation_params": None}
        attribute_types |= {"activation": "str", "activation_params": "floats"}
    signature = newest_signature._replace(attributes=attributes, attribute_types=attribute_types)
    op = Op(function, standard.name, domain=NHWC, since=since, before=standard.before, signature=signature)
    op.signature_changes = tuple(step for step in standard.signature_changes if since < step.before <= newest)
    return op


def _reads_roi(attributes: Mapping[str, Any]) -> bool:
    return attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"


def _channels_second(numbers: Value, rank: int, *, twice: bool) -> Value:
    """Per-axis numbers reordered to channels-first."""
    if numbers.shape == (0,):  # an empty tensor is an absent input
        return numbers
    order = [0, rank - 1, *range(1, rank - 1)]
    return ops.gather(numbers, order + [rank + axis for axis in order] if twice else order)


def _axis_with_channels_second(axis: int, rank: int) -> int:
    return [0, *range(2, rank), 1][axis]


conv = _with_channels_last(ops.conv, since=1, activated=True)
conv_transpose = _with_channels_last(ops.conv_transpose, since=1, activated=True)
max_pool = _with_channels_last(ops.max_pool, since=1, activated=True)
average_pool = _with_channels_last(ops.average_pool, since=7, activated=True)
lp_pool = _with_channels_last(ops.lp_pool, since=11)
max_unpool = _with_channels_last(ops.max_unpool, since=9, images=["X", "I"], activated=True)
global_average_pool = _with_channels_last(ops.global_average_pool, since=1)
global_max_pool = _with_channels_last(ops.global_max_pool, since=1)
global_lp_pool = _with_channels_last(ops.global_lp_pool, since=2)
batch_normalization = _with_channels_last(ops.batch_normalization, since=7, activated=True)
instance_normalization = _with_channels_last(ops.instance_normalization, since=6, activated=True)
lrn = _with_channels_last(ops.lrn, since=1)
grid_sample = _with_channels_last(ops.grid_sample, since=16)
resize = _with_channels_last(ops.resize, since=11)
depth_to_space = _with_channels_last(ops.depth_to_space, since=1)
space_to_depth = _with_channels_last(ops.space_to_depth, since=1)
