"""Feeds: the exact type of an input, casts of numbers to floats, and other lossless casts."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import tenonnx as tx
from tenonnx_run.feeds import FeedCheck, check_feeds


def formals(**types):
    graph = tx.Graph()
    return [graph.input(name, dtype, shape) for name, (dtype, shape) in types.items()]


@pytest.fixture(params=["slow", "fast"])
def check(request):
    if request.param == "slow":
        return check_feeds
    return lambda values, feeds: FeedCheck(values)(feeds)


def test_feeds_come_in_the_order_of_the_formals(check):
    values = formals(a=("float32", ("n",)), b=("int64", ()))
    a, b = np.zeros(3, np.float32), np.array(1)
    first, second = check(values, {"b": b, "a": a})
    assert first is a
    assert second is b


@pytest.mark.parametrize(
    ("dtype", "contents"),
    [
        ("float32", [1, 2]),
        ("int8", np.array([-128, 127])),
        ("int64", np.array([1.0, 2.0])),
        ("bool", [0, 1]),
        ("float32", np.array([1, 2], ml_dtypes.bfloat16)),
        ("int4", np.array([-8, 7], np.int8)),
        ("complex64", np.array([1.0])),
    ],
)
def test_exact_casts_are_made(check, dtype, contents):
    (array,) = check(formals(x=(dtype, None)), {"x": contents})
    assert array.dtype == tx.DType.of(dtype).numpy
    np.testing.assert_array_equal(array.astype(complex), np.asarray(contents).astype(complex))


@pytest.mark.parametrize(
    ("dtype", "contents", "expected"),
    [
        ("float32", np.array([0, 255], np.uint8), [0, 255]),
        ("float32", np.array([0.1, np.nan, np.inf]), [0.1, np.nan, np.inf]),
        ("float32", np.array([2**24 + 1]), [2**24]),
        ("float32", np.array([True]), [1]),
        ("float64", np.float32(0.5), 0.5),
        ("float16", np.array([1.0001], np.float32), [1]),
        ("bfloat16", np.array([1.001], np.float32), [1]),
    ],
)
def test_numbers_are_cast_to_floats_with_a_warning(check, dtype, contents, expected):
    with pytest.warns(UserWarning, match=f'^input "x": {contents.dtype} is cast to {dtype}$') as caught:
        (array,) = check(formals(x=(dtype, None)), {"x": contents})
    assert len(caught) == 1
    assert array.dtype == tx.DType.of(dtype).numpy
    np.testing.assert_allclose(array.astype(np.float64), expected, rtol=1e-6)


def test_a_warning_of_a_cast_is_given_once(check):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        values = formals(x=("float32", None))
        for _ in range(3):
            check(values, {"x": np.zeros(2, np.uint8)})
    assert len(caught) == 1


def test_numbers_of_python_are_cast_without_a_warning(check):
    (array,) = check(formals(x=("float32", None)), {"x": [0.1, 2]})
    assert array.dtype == np.float32


@pytest.mark.parametrize(("dtype", "number"), [("float32", 1e300), ("float16", 70000.0), ("float16", 70000)])
def test_numbers_beyond_the_range_are_refused(check, dtype, number):
    with pytest.raises(tx.InvalidFeed, match=f'"x" is fed with numbers beyond the range of {dtype}') as caught:
        check(formals(x=(dtype, None)), {"x": np.array([1, number])})
    assert "70000" in caught.value.given or "1e+300" in caught.value.given


@pytest.mark.parametrize(
    ("dtype", "contents"),
    [
        ("float8e4m3fn", np.array([0.3])),
        ("int8", np.array([128])),
        ("int64", np.array([0.5])),
        ("int64", np.array([np.nan])),
        ("uint8", np.array([-1])),
        ("bool", np.array([2])),
        ("int4", np.array([8], np.int8)),
        ("float32", np.array([1j])),
        ("float32", np.array(["1"])),
        ("string", np.array([1])),
        ("float32", None),
    ],
)
def test_other_casts_are_refused(check, dtype, contents):
    with pytest.raises(tx.InvalidFeed, match='input "x" got a feed that is not') as caught:
        check(formals(x=(dtype, None)), {"x": contents})
    assert caught.value.given


def test_strings_are_arrays_of_objects(check):
    (array,) = check(formals(x=("string", ("n",))), {"x": np.array(["a", "bc"])})
    assert array.dtype == object
    assert array.tolist() == ["a", "bc"]


@pytest.mark.parametrize("shape", [(2,), (2, 4), (3, 3), (1, 2, 3)])
def test_mismatched_shapes_are_refused(check, shape):
    with pytest.raises(tx.InvalidFeed, match=r"float32\[2, 3\]"):
        check(formals(x=("float32", (2, 3))), {"x": np.zeros(shape, np.float32)})


def test_a_symbol_is_one_number_in_all_feeds(check):
    values = formals(a=("float32", ("n", "m")), b=("float32", ("n",)), c=("float32", ("2*n", None)))
    feeds = {name: np.zeros(shape, np.float32) for name, shape in {"a": (2, 5), "b": 2, "c": (4, 1)}.items()}
    assert [array.shape for array in check(values, feeds)] == [(2, 5), (2,), (4, 1)]
    with pytest.raises(tx.InvalidFeed, match='dim "n" has two sizes'):
        check(values, feeds | {"b": np.zeros(3, np.float32)})


@pytest.mark.parametrize("feeds", [{}, {"x": np.zeros(1, np.float32), "y": 1}, {"y": np.zeros(1, np.float32)}])
def test_unknown_names_are_refused(check, feeds):
    with pytest.raises(tx.InvalidFeed) as caught:
        check(formals(x=("float32", None)), feeds)
    assert "x: float32" in caught.value.available


def test_feeds_are_a_mapping(check):
    with pytest.raises(tx.InvalidFeed, match="do not map names") as caught:
        check(formals(a=("float32", ("n",))), np.zeros(3, np.float32))
    assert caught.value.given == "ndarray"
    assert "graph.run" in caught.value.do


class Obstinate:
    def __array__(self, *arguments, **keywords):
        raise KeyError("no array")


ENDLESS: list = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "contents", [[[1], [2, 3]], Obstinate(), ENDLESS, np.zeros(2, [("a", "f4")])], ids=["ragged", "own", "endless", "V"]
)
def test_other_objects_are_refused(check, contents):
    with pytest.raises(tx.InvalidFeed, match=r'input "x" got a feed that is not float32\[n\]'):
        check(formals(x=("float32", ("n",))), {"x": contents})


@pytest.mark.parametrize("other", [None, 1.5, ["b"], np.zeros(2)])
def test_strings_are_text_or_bytes(check, other):
    contents = np.array(["a", b"b", None], object)
    contents[2] = other
    with pytest.raises(tx.InvalidFeed, match=f"with {type(other).__name__}"):
        check(formals(x=("string", (3,))), {"x": contents})
