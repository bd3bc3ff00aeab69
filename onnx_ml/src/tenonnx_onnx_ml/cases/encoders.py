"""Cases of LabelEncoder, CategoryMapper and OneHotEncoder."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx_onnx_ml.encoders import (
    COMPARED,
    category_mapper,
    label_encoder,
    label_encoder_by_classes,
    one_hot_encoder,
)
from tenonnx_testing import Gap, call, cases, tensors

WORDS = ["", "a", "b", "ab", "zwölf"]


def keys_of(draw, dtype):
    """Some keys, and a tensor of keys and other elements."""
    if dtype == "string":
        keys = draw(st.permutations(WORDS))[: draw(st.integers(1, 4))]
        return np.asarray(keys, dtype=object), draw(tensors("string"))
    size = draw(st.integers(1, 5))
    keys = draw(tensors(dtype, shape=(size,), min_value=-3, max_value=3, distinct=True))
    x = draw(tensors(dtype, min_value=-3, max_value=3))
    x = np.where(draw(tensors("bool", shape=x.shape)), keys[0], x)
    if keys.dtype.kind == "f" and draw(st.booleans()):
        keys[-1] = np.nan
        x = np.where(draw(tensors("bool", shape=x.shape)), np.asarray(np.nan, keys.dtype), x)
    return keys, np.asarray(x, keys.dtype)


def values_of(draw, dtype, size):
    if dtype == "string":
        return np.asarray([draw(st.sampled_from(WORDS)) for _ in range(size)], dtype=object)
    return draw(tensors(dtype, shape=(size,)))


KINDS = {"string": "strings", "int64": "int64s", "float32": "floats"}

NAN_IN_REFERENCE = Gap(
    "reference", "onnx.reference does not find NaN, or keys of keys_tensor", when=lambda c: has_nan(c)
)


def has_nan(c):
    keys = c.attributes["keys_tensor"]
    return has_nan_key(c) or (keys is not None and any(key != key for key in keys.array().tolist()))


def has_nan_key(c):
    return any(k != k for k in c.attributes["keys_floats"] or ())


NAN_IN_ONNXRUNTIME = Gap(
    "onnxruntime", "onnxruntime does not find NaN below version 4", when=lambda c: has_nan_key(c) and c.version < 4
)


@cases(label_encoder, gradient=False, gaps=[NAN_IN_REFERENCE, NAN_IN_ONNXRUNTIME])
def label_encoder_cases(draw):
    """Keys and values as lists."""
    given, wanted = draw(st.sampled_from(list(KINDS))), draw(st.sampled_from(list(KINDS)))
    keys, x = keys_of(draw, given)
    values = values_of(draw, wanted, len(keys))
    attributes = {f"keys_{KINDS[given]}": keys.tolist(), f"values_{KINDS[wanted]}": values.tolist()}
    default = {"string": "?", "int64": 7, "float32": 0.5}[wanted]
    if draw(st.booleans()):
        attributes[f"default_{KINDS[wanted].removesuffix('s')}"] = default
    return call(x, **attributes)


@cases(label_encoder, gradient=False, gaps=[NAN_IN_REFERENCE])
def label_encoder_cases_2(draw):
    """Keys and values as tensors."""
    dtypes = ["string", "int64", "float32", "int32", "int16", "float64"]
    keys, x = keys_of(draw, draw(st.sampled_from(dtypes)))
    values = values_of(draw, draw(st.sampled_from(dtypes)), len(keys))
    default = (
        values[:1]
        if draw(st.booleans())
        else values_of(draw, "string" if values.dtype == object else values.dtype.name, 1)
    )
    return call(x, keys_tensor=keys, values_tensor=values, default_tensor=default)


@cases(label_encoder_by_classes, gradient=False)
def label_encoder_by_classes_cases(draw):
    classes = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))
    x = draw(tensors(["string", "int64"], min_value=-1, max_value=4))
    return call(x, classes_strings=classes, default_int64=draw(st.sampled_from([-1, 5])), default_string="?")


def meets_repeated(c):
    """Whether an element has a key that is repeated with another value. NaN equals NaN."""
    arrays = c.inputs[0], *(c.attributes[name].array() for name in ("keys_tensor", "values_tensor"))
    x, keys, values = (["nan" if each != each else each for each in array.reshape(-1).tolist()] for array in arrays)
    first, last = dict(zip(keys[::-1], values[::-1], strict=True)), dict(zip(keys, values, strict=True))
    return any(first.get(key) != last.get(key) for key in x)


FIRST = Gap("onnxruntime", "ONNX uses the last of repeated keys, onnxruntime the first", when=meets_repeated)


@cases(label_encoder, gradient=False, gaps=[NAN_IN_REFERENCE, FIRST])
def label_encoder_cases_3(draw):
    """More keys than are compared one by one."""
    dtype = draw(st.sampled_from(["int64", "float32", "int32", "int16", "float64"]))
    size = COMPARED + draw(st.integers(1, 20))
    keys = draw(tensors(dtype, shape=(size,), min_value=-90, max_value=90))
    x = draw(tensors(dtype, min_value=-91, max_value=91))
    x = np.where(draw(tensors("bool", shape=x.shape)), keys[draw(tensors("int64", shape=x.shape, min_value=0))], x)
    if keys.dtype.kind == "f" and draw(st.booleans()):
        keys[::9] = np.nan
        x = np.where(draw(tensors("bool", shape=x.shape)), np.asarray(np.nan, keys.dtype), x)
    values = draw(tensors("int64", shape=(size,), min_value=-99, max_value=99))
    return call(np.asarray(x, keys.dtype), keys_tensor=keys, values_tensor=values, default_tensor=np.array([7]))


@cases(category_mapper, gradient=False)
def category_mapper_cases(draw):
    count = draw(st.integers(1, 4))
    words, numbers = draw(st.permutations(WORDS))[:count], draw(st.permutations(range(-2, 4)))[:count]
    x = draw(tensors(["string", "int64"], min_value=-2, max_value=4))
    default = draw(st.sampled_from([-1, 5]))
    return call(x, cats_strings=words, cats_int64s=numbers, default_int64=default, default_string="?")


def is_repeated(categories):
    return len(set(categories)) < len(categories)


@cases(
    one_hot_encoder,
    gradient=False,
    gaps=[
        Gap(
            "reference",
            "onnx.reference does not cast to int64, and counts a repeated category once",
            when=lambda c: c.inputs[0].dtype.kind == "f" or is_repeated(c.attributes["cats_int64s"] or ()),
        )
    ],
)
def one_hot_encoder_cases(draw):
    if draw(st.booleans()):
        words = draw(st.permutations(WORDS))
        x = draw(tensors("string", max_rank=2))
        return call(x, cats_strings=words[: draw(st.integers(1, 5))])
    categories = draw(st.lists(st.integers(-2, 4), min_size=1, max_size=5))
    x = draw(tensors(["int64", "int32", "float32", "float64"], max_rank=3, min_value=-3, max_value=5))
    return call(x, cats_int64s=categories)


@cases(one_hot_encoder, gradient=False)
def one_hot_encoder_cases_2(draw):
    """Every element has a category."""
    x = draw(tensors(["int64", "int32"], min_rank=1, max_rank=2, min_value=-1, max_value=2))
    return call(x, cats_int64s=draw(st.permutations(range(-1, 3))), zeros=0)
