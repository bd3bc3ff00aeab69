"""Preprocessing layers on raw features: words of strings, and buckets of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from judging import Case, array

L = keras.layers
TEXTS = np.asarray([["A cat, a dog!"], ["b"], [""], ["c  c a. (b) c-c 'a' a b c d"], ["é a"]], object)
NUMBERS = np.int64(
    [
        0,
        1,
        -1,
        9,
        10,
        99,
        -99,
        123,
        -123,
        1234,
        99999,
        -99999,
        1234567,
        12345678,
        -1234567,
        123456789012345,
        1234567890123456,
        -123456789012345,
        -1234567890123456,
        12345678901234567,
        123456789012345678,
        2**63 - 1,
        -(2**63),
        -999999999999999999,
        42,
    ]
)


def _layer(dtype: str, size: int, make: Callable[[], Any]) -> Any:
    return keras.Sequential([keras.Input((size,), dtype=dtype), make()])


def _words(**given: Any) -> Any:
    return _layer("string", 1, lambda: L.TextVectorization(vocabulary=["a", "b", "c", "a b", "c c c"], **given))


def _vocabulary() -> Any:
    kept = tf.lookup.KeyValueTensorInitializer(np.int64([5, 7]), np.int64([0, 1]))
    table = tf.lookup.StaticVocabularyTable(kept, 3, lookup_key_dtype=tf.int64)
    return tf.function(lambda x: table.lookup(x))


#: Strings are split by an op of opset 20.
_SPLIT: dict[str, dict[str, Any]] = {
    "words": {},
    "words_cut": {"output_sequence_length": 4},
    "words_many": {"output_mode": "multi_hot"},
    "words_counted": {"output_mode": "count"},
    "words_weighed": {"output_mode": "tf_idf", "idf_weights": [0.1, 0.2, 0.3, 0.4, 0.5]},
    "words_lower": {"standardize": "lower"},
    "words_stripped": {"standardize": "strip_punctuation"},
    "words_as_they_are": {"standardize": None},
    "words_whole": {"split": None},
    "words_pairs": {"ngrams": 2, "output_mode": "count"},
    "words_threes": {"ngrams": 3, "output_sequence_length": 9},
}

CASES = (
    {
        name: Case(lambda given=given: tf.function(_words(**given)), [TEXTS], opsets=(21,))
        for name, given in _SPLIT.items()
    }
    | {
        f"{name}_of_any_batch": Case(lambda given=given: _words(**given), opsets=(21,))
        for name, given in _SPLIT.items()
    }
    | {
        "split": Case(
            lambda: tf.function(lambda x: tf.strings.split(x, ",").to_tensor("-")),
            [np.asarray(["a,b,,c", "d", "", ","], object)],
            opsets=(21,),
        ),
        "split_rows": Case(
            lambda: tf.function(lambda x: tf.strings.split(x).to_tensor(shape=[3, 2])),
            [np.asarray(["a b c", "d", "", "e"], object)],
            opsets=(21,),
        ),
        "rows": Case(
            lambda: tf.function(lambda x: tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 5]).to_tensor(7.0)),
            [array(5, 3)],
        ),
        "hash": Case(
            lambda: tf.function(lambda x: tf.strings.to_hash_bucket_fast(tf.as_string(x), 1000003)), [NUMBERS]
        ),
        "hash_salted": Case(
            lambda: tf.function(lambda x: tf.strings.to_hash_bucket_strong(tf.as_string(x), 1000003, [3, 2**40])),
            [NUMBERS],
        ),
        "hash_int32": Case(
            lambda: tf.function(lambda x: tf.strings.to_hash_bucket_fast(tf.as_string(x), 7)),
            [NUMBERS[:14].reshape(2, 7).astype(np.int32)],
        ),
        "hashing": Case(lambda: _layer("int64", 3, lambda: L.Hashing(5))),
        "hashing_salted": Case(lambda: _layer("int64", 3, lambda: L.Hashing(50, salt=[133, 137]))),
        "hashing_masked": Case(lambda: _layer("int64", 3, lambda: L.Hashing(50, salt=133, mask_value=1))),
        "hashing_one_hot": Case(lambda: _layer("int64", 1, lambda: L.Hashing(5, output_mode="one_hot"))),
        "vocabulary": Case(_vocabulary, [NUMBERS]),
        "lookup_of_unknown": Case(
            lambda: _layer("int64", 3, lambda: L.IntegerLookup(vocabulary=[1, 5, 2], num_oov_indices=3))
        ),
        "invert": Case(lambda: _layer("int64", 3, lambda: L.StringLookup(vocabulary=["b", "a"], invert=True))),
        "unknown_masked": Case(
            lambda: _layer(
                "string",
                3,
                lambda: L.StringLookup(vocabulary=["", "[UNK]", "b", "a"], mask_token="", oov_token="[UNK]"),
            )
        ),
        "weighed": Case(
            lambda: _layer(
                "string", 3, lambda: L.StringLookup(vocabulary=["b", "a"], idf_weights=[0.5, 0.7], output_mode="tf_idf")
            )
        ),
    }
)
