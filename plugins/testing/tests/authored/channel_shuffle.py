"""Channel shuffle: interleave the channels of several groups."""

import numpy as np
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import at_least, dims, divides, op, shapes
from tenonnx_testing import call, cases, tensors


@op("ChannelShuffle", domain="com.authored", data_movement=True)
def channel_shuffle(X, *, groups=2):
    batch, channels, length = dims(X)
    parted = ops.reshape(X, [batch, groups, channels // groups, length])
    return ops.reshape(ops.transpose(parted, perm=[0, 2, 1, 3]), ops.shape(X))


channel_shuffle.requires(
    shapes(X="batch channels length"), at_least(groups=1, batch=1, channels=1, length=1), divides("groups", "channels")
)


@channel_shuffle.numpy
def channel_shuffle_numpy(X, *, groups):
    batch, channels, length = X.shape
    parted = X.reshape(batch, groups, channels // groups, length)
    return parted.swapaxes(1, 2).reshape(X.shape)


@channel_shuffle.type
def channel_shuffle_type(X, *, groups):
    return X.tensor


@channel_shuffle.vjp
def channel_shuffle_vjp(g, y, X, *, groups):
    batch, channels, length = dims(X)
    parted = ops.reshape(g, [batch, channels // groups, groups, length])
    return ops.reshape(ops.transpose(parted, perm=[0, 2, 1, 3]), ops.shape(X))


def reference(X, *, groups):
    order = np.arange(X.shape[1]).reshape(groups, -1).T.reshape(-1)
    return X[:, order]


@cases(channel_shuffle, reference=reference)
def channel_shuffle_cases(draw):
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = (draw(st.integers(1, 3)), groups * each, draw(st.integers(1, 4)))
    return call(draw(tensors(["float32", "int64"], shape=shape)), groups=groups)
