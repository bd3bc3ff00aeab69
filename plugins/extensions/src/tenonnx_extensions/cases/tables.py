"""Cases of lookup tables, masks, hashes, ragged tensors, matrices and segments."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_extensions.cases.library import kernel, library
from tenonnx_extensions.checks import strings
from tenonnx_extensions.hashing import string_to_hash_bucket, string_to_hash_bucket_fast
from tenonnx_extensions.mapping import masked_fill, string_mapping, string_to_vector, vector_to_string
from tenonnx_extensions.numeric import inverse, neg_pos, segment_extraction, segment_sum, stft_norm
from tenonnx_extensions.ragged import ragged_tensor_to_dense, ragged_tensor_to_sparse, string_ragged_tensor_to_dense
from tenonnx_testing import Gap, call, cases, tensors

WORDS = [
    "",
    "a",
    "b",
    "bb",
    "\u00e4",
    "hello world",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef+",
]
TABLES = ["a\tx\nbb\ty z", "a\t\u00fc", "a\tb\na\tc"]


def words(draw, size=None):
    count = draw(st.integers(1, 4)) if size is None else size
    return strings(draw(st.lists(st.sampled_from(WORDS), min_size=count, max_size=count)))


@cases(string_mapping, gradient=False, reference=kernel("StringMapping"))
def string_mapping_cases(draw):
    return call(words(draw), map=draw(st.sampled_from(TABLES)))


@cases(string_to_vector, gradient=False, reference=kernel("StringToVector"))
def string_to_vector_cases(draw):
    table, unknown = draw(st.sampled_from([("a\t0 1\nb\t2 3", "-1 9"), ("a\t4\n\u00e4\t5", "7")]))
    return call(words(draw), map=table, unk=unknown)


@cases(vector_to_string, gradient=False, reference=kernel("VectorToString"))
def vector_to_string_cases(draw):
    if draw(st.booleans()):
        return call(np.asarray(draw(st.lists(st.integers(-1, 3), min_size=1, max_size=4))), map="a\t0\nb\t1", unk="?")
    ids = np.asarray(draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))).reshape(2, 2)
    return call(ids, map="a\t0 1\nb\t1 1\nc\t2 0", unk="?")


@cases(masked_fill, gradient=False, reference=kernel("MaskedFill"))
def masked_fill_cases(draw):
    values = words(draw)
    return call(values, np.asarray(draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))))


WHOLE = Gap(
    "expected",
    "the library multiplies once more than TensorFlow does after texts of a multiple of 8 bytes",
    when=lambda call: any(len(text.encode()) % 8 == 0 for text in call.inputs[0].reshape(-1)),
)


@cases(string_to_hash_bucket, gradient=False, gaps=[WHOLE], reference=kernel("StringToHashBucket"))
def string_to_hash_bucket_cases(draw):
    return call(words(draw), np.asarray([draw(st.sampled_from([1, 10, 1 << 20]))]))


@cases(string_to_hash_bucket_fast, gradient=False)
def string_to_hash_bucket_fast_cases(draw):
    return call(words(draw), np.asarray([draw(st.sampled_from([1, 10, 1 << 20]))]))


def splits(draw):
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    return np.cumsum([0, *sizes])


def _sparse(n_element, **attributes):
    """The library kernel, which does not check the order and crashes."""
    if len(n_element) == 0 or n_element[0] != 0 or (np.diff(n_element) < 0).any() or n_element[-1] > 99:
        raise ValueError("n_element does not rise from 0")
    run = kernel("RaggedTensorToSparse", 2)
    assert run is not None
    return run(n_element, **attributes)


@cases(ragged_tensor_to_sparse, gradient=False, reference=_sparse if library() else None)
def ragged_tensor_to_sparse_cases(draw):
    return call(splits(draw))


@cases(
    ragged_tensor_to_dense,
    gradient=False,
    reference=kernel("RaggedTensorToDense"),
    undrawn=dict.fromkeys(("missing_value", "tensor_type"), "they have no effect"),
)
def ragged_tensor_to_dense_cases(draw):
    starts = splits(draw)
    values = np.asarray(
        draw(st.lists(st.integers(0, 99), min_size=int(starts[-1]), max_size=int(starts[-1]))), np.int64
    )
    return call(np.zeros(1, np.int64), values, np.asarray([-3]), starts)


@cases(string_ragged_tensor_to_dense, gradient=False, reference=kernel("StringRaggedTensorToDense"))
def string_ragged_tensor_to_dense_cases(draw):
    """``missing`` has the size of the splits, since the library takes the number of rows from it."""
    starts = splits(draw)
    return call(np.zeros(1, np.int64), words(draw, int(starts[-1])), starts, words(draw, len(starts)))


SINGULAR = Gap(
    "expected", "what has no inverse", when=lambda c: bool(np.linalg.matrix_rank(c.inputs[0]) < len(c.inputs[0]))
)


@cases(inverse, reference=kernel("Inverse"), gaps=[Gap("special values", "what has no inverse"), SINGULAR])
def inverse_cases(draw):
    size = draw(st.integers(1, 4))
    return call(draw(tensors(["float32"], shape=(size, size))) + np.float32(20) * np.eye(size, dtype=np.float32))


@cases(neg_pos, reference=kernel("NegPos", 2))
def neg_pos_cases(draw):
    return call(draw(tensors(["float32"])))


@cases(segment_sum, reference=kernel("SegmentSum"))
def segment_sum_cases(draw):
    steps = draw(st.lists(st.integers(0, 1), min_size=1, max_size=5))
    ids = np.cumsum(steps)
    return call(draw(tensors(["float32"], shape=(len(ids), 2))), ids)


@cases(segment_extraction, gradient=False, reference=kernel("SegmentExtraction", 2))
def segment_extraction_cases(draw):
    return call(np.asarray(draw(st.lists(st.integers(0, 2), min_size=1, max_size=9))))


ALL_BINS = Gap("export", "the shape inference of onnx gives STFT as many bins as samples, whatever onesided says")


@cases(stft_norm, gradient=False, gaps=[ALL_BINS], reference=kernel("StftNorm"))
def stft_norm_cases(draw):
    size = draw(st.sampled_from([8, 16]))
    wave = np.random.default_rng(size).normal(size=(1, draw(st.integers(size, 40)))).astype(np.float32)
    window = np.hanning(size).astype(np.float32)
    sizes = [np.asarray([n]) for n in (size, draw(st.integers(2, 8)))]
    return call(wave, *sizes, window, np.asarray([size]), onesided=draw(st.integers(0, 1)))
