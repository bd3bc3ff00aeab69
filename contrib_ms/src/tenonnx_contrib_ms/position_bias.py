"""Position biases of attention scores."""

from __future__ import annotations

from typing import Any

import tenonnx_standard as ops
from tenonnx.extend import DType, Value, at_least, constant, floats, integers, op, shapes
from tenonnx_standard.checking import dim_of


@op("RelativePositionBias", domain="com.microsoft")
def relative_position_bias(bias_table, query_length, key_length, *, is_bidirectional=0, max_distance: int):
    """A bias per head by distance between key and query (T5, arXiv:1910.10683): (1, heads, queries, keys).

    ``bias_table`` has shape (buckets, heads), but its elements are stored head by head. Small distances have a bucket
    each; larger ones up to ``max_distance`` share buckets on a logarithmic scale. If bidirectional, half of the buckets
    are for later keys.
    """
    buckets, heads = dim_of(bias_table, 0), dim_of(bias_table, 1)
    rows, columns = (ops.range_(0, ops.cast(ops.reshape(n, []), to=DType.int64), 1) for n in (query_length, key_length))
    ahead = columns - ops.unsqueeze(rows, [1])
    later: Any = 0
    if is_bidirectional:
        buckets = buckets // 2
        later = ops.where(ops.greater(ahead, 0), buckets, 0)
        distance = ops.absolute(ahead)
    else:
        distance = ops.neg(ops.minimum(ahead, 0))
    near = buckets // 2
    ratio = _float(ops.maximum(distance, 1)) / _float(near)
    rest = (
        ops.log(ratio) / ops.log(constant(float(max_distance), DType.float32) / _float(near)) * _float(buckets - near)
    )
    far = ops.minimum(ops.cast(rest, to=DType.int64) + near, buckets - 1)
    places = ops.where(ops.less(distance, near), distance, far) + later
    return ops.unsqueeze(ops.gather(ops.reshape(bias_table, [heads, -1]), places, axis=1), [0])


relative_position_bias.traits(on_request=True)


def _float(x: Any) -> Value:
    return ops.cast(x, to=DType.float32) if isinstance(x, Value) else constant(float(x), DType.float32)


relative_position_bias.requires(
    shapes(bias_table="buckets heads", query_length="|1", key_length="|1"),
    floats("bias_table"),
    integers("query_length", "key_length"),
    at_least(max_distance=1, buckets=2),
)
