"""String ops, in ``ai.onnx`` or in onnxruntime-extensions, compared with TensorFlow's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from judging import Case

L = keras.layers
S = tf.strings
ROWS = np.asarray(
    ["", "a", "Hello World", "  b\t c \n", "\u00e9\u4f60\U0001f600 x", "a,b,,c", "x" * 70, "abcdefgh"], object
)
TABLE = np.asarray([["a b", "c"], ["", "\u4f60 d e"], ["f,g", "  h  "]], object)


def _of(function: Callable[..., Any], *arrays: Any, **options: Any) -> Case:
    return Case(lambda: tf.function(function), arrays or (ROWS,), opsets=(21,), **options)


CASES = {
    "strip": _of(S.strip),
    "strip_table": _of(S.strip, TABLE),
    "length": _of(lambda x: S.length(x)),
    "length_characters": _of(lambda x: S.length(x, unit="UTF8_CHAR"), TABLE),
    "lower": _of(S.lower),
    "upper_table": _of(S.upper, TABLE),
    "join": _of(lambda x: S.join([x, "-", x], separator="_")),
    "reduce_join": _of(lambda x: S.reduce_join(x, separator="|")),
    "reduce_join_axis": _of(lambda x: S.reduce_join(x, axis=0), TABLE),
    "reduce_join_axes": _of(lambda x: S.reduce_join(x, axis=[0, 1], separator=",", keepdims=True), TABLE),
    "segment_join": _of(lambda x, s: S.unsorted_segment_join(x, s, 4, "+"), ROWS[:5], np.int64([2, 0, 2, -1, 0])),
    "substr": _of(lambda x: S.substr(x, 0, 3), np.asarray(["abcdef", "a", "", "xy"], object)),
    "substr_inner": _of(lambda x: S.substr(x, 2, 2), np.asarray(["abcdef", "abc", "ab", "xyz!\\"], object)),
    "substr_end": _of(lambda x: S.substr(x, -3, 2), np.asarray(["abcdef", "abc", "wxyz"], object)),
    "substr_characters": _of(lambda x: S.substr(x, 1, 2, unit="UTF8_CHAR"), ROWS[4:]),
    "substr_long": _of(lambda x: S.substr(x, 1, 2500), ROWS[5:]),
    "substr_each": _of(
        lambda x: S.substr(x, [0, 1, -2, 3], [1, 2, 3, 0]), np.asarray(["abcdef", "abc", "ab", "xyz!"], object)
    ),
    "substr_given": _of(
        lambda x, start, size: S.substr(x, start, size, unit="UTF8_CHAR"),
        np.asarray(["\u4f60bc", "a\u00e9c", "abcd"], object),
        np.asarray([0, 1, -2], np.int32),
        np.asarray([2, 1, 9], np.int32),
    ),
    "replace": _of(lambda x: S.regex_replace(x, "[a-c]+", "<\\0>")),
    "replace_first": _of(lambda x: S.regex_replace(x, r"(\w)(\w)", r"\2\1", replace_global=False)),
    "replace_literal": _of(lambda x: S.regex_replace(x, "bc", "B")),
    "replace_empty": _of(lambda x: S.regex_replace(x, "", "-")),
    "replace_given": _of(
        lambda x, p, r: S.regex_replace(x, p, r), ROWS, np.asarray("[a-e]", object), np.asarray("<\\0>", object)
    ),
    "full_match": _of(lambda x: S.regex_full_match(x, "[a-h]*")),
    "hash": _of(lambda x: S.to_hash_bucket_fast(x, 1000003)),
    "hash_table": _of(lambda x: S.to_hash_bucket_fast(x, 10), TABLE),
    "hash_strong": _of(lambda x: S.to_hash_bucket_strong(x, 1000003, [3, 2**40])),
    "hash_strong_table": _of(lambda x: S.to_hash_bucket_strong(x, 17, [1, 2]), TABLE),
    "hash_old": _of(lambda x: S.to_hash_bucket(x, 1000003)),
    "to_number": _of(lambda x: S.to_number(x), np.asarray(["1.5", "-2e3", "7"], object)),
    "to_integer": _of(lambda x: S.to_number(x, tf.int64), np.asarray(["15", "-2", "7"], object)),
    "as_string": _of(
        S.as_string,
        np.float32([0, -0.0, 1.5, -2.25, 1 / 3, 1e-7, 123456.789, 8388607.5, 1e15, np.inf, -np.inf, np.nan]),
    ),
    "as_string_large": _of(
        S.as_string,
        np.float32([2.0**63, -(2.0**63), 2.0**63 - 2.0**39, 1e20, -1e30, 2.0**100, 3.4028235e38, np.inf, np.nan, 7]),
    ),
    "as_string_large_whole": _of(lambda x: S.as_string(x, precision=0), np.float32([[1e19, -2.5e25], [3, 2.0**127]])),
    "as_string_digits": _of(lambda x: S.as_string(x, precision=2), np.float32([0.125, 0.375, 2.675, 9.999, -1e-4])),
    "as_string_whole": _of(lambda x: S.as_string(x, precision=0), np.float32([0.5, 1.5, 2.4, -3.6])),
    "as_string_bool": _of(S.as_string, np.asarray([True, False])),
    "as_string_wide": _of(lambda x: S.as_string(x, width=5), np.int64([0, -42, 123456, 99999])),
    "as_string_zeros": _of(lambda x: S.as_string(x, width=5, fill="0"), np.int64([0, -42, 123456, -123456])),
    "as_string_left": _of(lambda x: S.as_string(x, width=5, fill="-"), np.int64([0, -42, 123456, -12345])),
    "as_string_signed": _of(lambda x: S.as_string(x, width=5, fill="+"), np.int64([0, -42, 123456, 12345])),
    "as_string_double": _of(S.as_string, np.float64([0.1]), refused="float64"),
    "split": _of(lambda x: S.split(x).values),
    "split_spaces": _of(lambda x: S.split(x).values, np.asarray(["a\u00a0b c", "\u3000 d\x1ce", "\v\f\rf"], object)),
    "split_rows": _of(lambda x: S.split(x, ",").to_tensor("-")),
    "split_limited": _of(lambda x: S.split(x, ",", maxsplit=1).to_tensor("-")),
    "split_lengths": _of(lambda x: S.split(x, ",").row_lengths()),
    "split_joined": _of(lambda x: S.reduce_join(S.split(x), axis=-1, separator="_")),
    "split_table": _of(lambda x: S.split(x).to_tensor("-"), TABLE),
    "split_first": _of(lambda x: S.split(x, ",").to_tensor("")[:, 0]),
    "split_hashed": _of(lambda x: S.to_hash_bucket_fast(S.split(x), 100).to_tensor(-1)),
    "split_bytes": _of(lambda x: S.bytes_split(x).to_tensor("-"), np.asarray(["abc", "", "d"], object)),
    "split_old": _of(lambda x: tf.sparse.to_dense(tf.compat.v1.string_split(x, " ,", skip_empty=False), ""), ROWS[:6]),
    "split_old_skipping": _of(lambda x: tf.sparse.to_dense(tf.compat.v1.string_split(x, ", "), "-"), ROWS[:6]),
    "ngrams": _of(lambda x: S.ngrams(S.split(x), 2).to_tensor("")),
    "decode": _of(lambda x: S.unicode_decode(x, "UTF-8").to_tensor(-1)),
    "decode_offsets": _of(lambda x: S.unicode_decode_with_offsets(x, "UTF-8")[1].to_tensor(-1)),
    "decode_controls": _of(lambda x: S.unicode_decode(x, "UTF-8", replace_control_characters=True).to_tensor(-1)),
    "unicode_split": _of(lambda x: S.unicode_split(x, "UTF-8").to_tensor("")),
    "encode": _of(lambda x: S.unicode_encode(x, "UTF-8"), np.int32([[97, 233, 20320, 128512], [127, 128, 2047, 2048]])),
    "encode_wrong": _of(lambda x: S.unicode_encode(x, "UTF-8"), np.int32([[0xD800, 65535, 65536, 0x110000]])),
    "transcode": _of(lambda x: S.unicode_transcode(x, "UTF-8", "UTF-8", replace_control_characters=True)),
    "transcode_others": _of(lambda x: S.unicode_transcode(x, "UTF-8", "UTF-16-BE"), refused="UTF-8"),
    "hashing": Case(lambda: keras.Sequential([keras.Input((2,), dtype="string"), L.Hashing(7)]), opsets=(21,)),
    "hashing_salted": Case(
        lambda: keras.Sequential([keras.Input((2,), dtype="string"), L.Hashing(7, salt=133)]), opsets=(21,)
    ),
    "lookup_unknown": Case(
        lambda: keras.Sequential(
            [keras.Input((2,), dtype="string"), L.StringLookup(vocabulary=["a", "b"], num_oov_indices=3)]
        ),
        opsets=(21,),
    ),
}
