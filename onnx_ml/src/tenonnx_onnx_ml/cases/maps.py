"""Cases of ZipMap, CastMap and DictVectorizer."""

from __future__ import annotations

from hypothesis import strategies as st

from tenonnx_onnx_ml.maps import cast_map, dict_vectorizer, zip_map
from tenonnx_testing import Gap, call, cases, tensors

WORDS = ["", "a", "b", "ab", "zwölf"]


@cases(zip_map, gradient=False)
def zip_map_cases(draw):
    x = draw(tensors("float32", min_rank=1, max_rank=2, max_side=4))
    labels = draw(st.permutations(range(x.shape[-1])))
    if draw(st.booleans()):
        return call(x, classlabels_int64s=labels)
    return call(x, classlabels_strings=[WORDS[k] for k in labels])


def map_of(draw, keys, dtype):
    """A map from some of the keys to scalars."""
    chosen = draw(st.permutations(keys))[: draw(st.integers(1, len(keys)))]
    if dtype == "string":
        return {key: draw(st.sampled_from(["1", "-2", "37"])) for key in chosen}
    return dict(zip(chosen, draw(tensors(dtype, shape=(len(chosen),), min_value=-9, max_value=9)), strict=True))


@cases(cast_map, gradient=False)
def cast_map_cases(draw):
    x = map_of(draw, range(5), draw(st.sampled_from(["float32", "string"])))
    cast_to = draw(st.sampled_from(["TO_FLOAT", "TO_INT64", "TO_STRING"]))
    if draw(st.booleans()):
        return call(x, cast_to=cast_to)
    return call(x, cast_to=cast_to, map_form="SPARSE", max_map=draw(st.integers(5, 7)))


@cases(
    dict_vectorizer,
    gradient=False,
    gaps=[Gap("reference", "onnx.reference returns a vector, onnxruntime a row")],
)
def dict_vectorizer_cases(draw):
    dtype = draw(st.sampled_from(["float32", "float64", "int64", "string"]))
    if dtype != "string" and draw(st.booleans()):
        return call(map_of(draw, WORDS, dtype), string_vocabulary=draw(st.permutations(WORDS)))
    vocabulary = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    return call(map_of(draw, range(5), dtype if dtype != "int64" else "float32"), int64_vocabulary=vocabulary)
