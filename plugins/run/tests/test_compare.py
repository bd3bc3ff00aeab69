"""Comparison and the table of tolerances."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tenonnx.errors import InvalidCall
from tenonnx.graph.dtypes import DType
from tenonnx_run.compare import Tolerances, compare, compare_by
from tenonnx_run.tolerance import EXACT, Tolerance, tolerance_for


def f32(*values):
    return np.array(values, np.float32)


def test_equal_contents_have_no_difference():
    result = compare(f32(1, 2), f32(1, 2))
    assert result.equal
    assert (result.absolute, result.relative, result.path, result.reason) == (0.0, 0.0, None, "")


def test_rounding_is_allowed_and_reported():
    result = compare(f32(1, 2.000001), f32(1, 2))
    assert result.equal
    assert result.absolute == pytest.approx(1e-6, rel=0.1)
    assert result.relative == pytest.approx(5e-7, rel=0.1)


def test_a_difference_has_its_position_and_size():
    result = compare(np.array([[1.0, 2.0], [3.0, 4.5]], np.float32), np.array([[1, 2], [3, 4]], np.float32))
    assert not result.equal
    assert result.path == (1, 1)
    assert result.absolute == 0.5
    assert result.relative == 0.125
    assert "float32[2, 2] at [1, 1]: 4.5 instead of 4.0; 1 of 4 elements differ" in result.reason


@pytest.mark.parametrize(
    ("actual", "expected", "reason"),
    [
        (f32(1), np.array([1.0]), "float32[1] instead of float64[1]"),
        (f32(1), f32(1, 1), "float32[1] instead of float32[2]"),
        (np.float32(1), f32(1), "float32[] instead of float32[1]"),
        (None, f32(1), "nothing instead of a tensor"),
        ([f32(1)], f32(1), "a sequence instead of a tensor"),
        ([f32(1)], [f32(1), f32(1)], "1 elements instead of 2"),
        ({"a": 1}, {"b": 1}, "keys ['a'] instead of ['b']"),
        (np.array(["a"], object), np.array(["b"], object), "string[1] at [0]: 'a' instead of 'b'; may not differ"),
    ],
)
def test_kinds_dtypes_shapes_and_keys_are_exact(actual, expected, reason):
    result = compare(actual, expected)
    assert not result.equal
    assert result.reason == reason


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_numbers_of_two_types_are_as_near_as_the_less_exact_allows(dtype):
    x = f32(1, 1 / 3, 1e-3)
    assert not compare(x.astype(dtype), x).equal
    assert compare(x.astype(dtype), x, numbers=True).equal
    assert compare(x, x.astype(dtype), numbers=True).equal
    result = compare((x * 2).astype(dtype), x, numbers=True)
    assert result.path == (0,)
    assert "2.0 instead of 1.0" in result.reason
    assert not compare(x.astype(dtype), x[:, None], numbers=True).equal


def test_numbers_are_those_of_floats_to_compute_with():
    assert not compare(np.array([1]), f32(1), numbers=True).equal
    assert not compare(f32(1).astype(ml_dtypes.float8_e4m3fn), f32(1), numbers=True).equal


def test_nan_equals_nan_and_an_infinity_only_itself():
    assert compare(f32(np.nan, np.inf, -np.inf), f32(np.nan, np.inf, -np.inf)).equal
    assert not compare(f32(np.nan), f32(1)).equal
    assert not compare(f32(1), f32(np.nan)).equal
    assert not compare(f32(np.inf), f32(-np.inf)).equal
    assert not compare(f32(3e38), f32(np.inf)).equal
    assert not compare(f32(np.inf), f32(3e38)).equal


def test_containers_are_compared_inside():
    expected = [f32(1), {"a": f32(2), "b": None}]
    assert compare([f32(1), {"a": f32(2), "b": None}], expected).equal
    result = compare([f32(1), {"a": f32(3), "b": None}], expected)
    assert result.path == (1, "a", 0)
    assert result.reason.startswith("[1]: ['a']: float32[1] at [0]: 3.0 instead of 2.0")


def test_strings_of_any_numpy_kind_are_strings():
    assert compare(np.array(["a", "bc"]), np.array(["a", "bc"], object)).equal


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, ml_dtypes.int4, ml_dtypes.uint2])
def test_integers_are_exact_unless_steps_are_allowed(dtype):
    a, b = np.array([3, 1], dtype), np.array([2, 1], dtype)
    assert compare(a, a).equal
    assert not compare(a, b).equal
    assert not compare(b, a).equal
    assert compare(a, b, steps=1).equal
    assert compare(b, a, steps=1).equal


def test_the_ends_of_an_integer_type_are_far_apart():
    ends = np.iinfo(np.int64)
    assert not compare(np.array([ends.min]), np.array([ends.max]), steps=1).equal
    assert not compare(np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), steps=1).equal


def test_steps_of_small_floats_are_their_neighbors():
    a, b = (np.array([v], ml_dtypes.float8_e4m3fn) for v in (208, 224))
    assert not compare(a, b).equal
    assert compare(a, b, steps=1).equal
    assert not compare(a, np.array([np.nan], ml_dtypes.float8_e4m3fn), steps=1).equal


def test_steps_say_nothing_of_floats():
    assert not compare(f32(1), f32(2), steps=1).equal


def test_complex_parts_are_compared_apart():
    a = np.array([1 + 2j], np.complex64)
    assert compare(a, a + np.complex64(1e-7j)).equal
    result = compare(a, a + np.complex64(1j))
    assert not result.equal
    assert result.path == (0,)


def test_an_override_carries_a_reason():
    with pytest.raises(InvalidCall, match="has no reason"):
        compare(f32(1), f32(2), tolerance=Tolerance(1, 0))
    assert compare(f32(1), f32(2), tolerance=Tolerance(1, 0, "the runtime approximates")).equal
    assert not compare(np.array([1]), np.array([2]), tolerance=Tolerance(1, 0, "integers stay exact")).equal


def test_empty_tensors_are_equal():
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).equal
    assert not compare(np.zeros((0, 3)), np.zeros((0, 4))).equal


@pytest.mark.parametrize("dtype", list(DType))
def test_the_table_is_exact_but_for_floats_to_compute_with(dtype):
    wide = dtype.is_complex or dtype in (DType.float64, DType.float32, DType.float16, DType.bfloat16)
    assert (tolerance_for(dtype) is not EXACT) == wide


def test_tolerances_grow_with_fewer_digits_and_longer_sums():
    order = [DType.float64, DType.float32, DType.float16, DType.bfloat16]
    bounds = [tolerance_for(dtype).relative for dtype in order]
    assert bounds == sorted(bounds)
    assert tolerance_for(DType.float32, 100).absolute == 10 * tolerance_for(DType.float32).absolute
    assert tolerance_for(DType.int64, 100) is EXACT


def test_tolerances_of_half_precision_do_not_depend_on_the_dtype_of_results():
    close, far = 1 + 2e-3, 1 + 2e-2
    rules = Tolerances(half=DType.float16)
    for dtype in (np.float16, np.float32, np.float64):
        one = np.array([1], dtype)
        assert compare_by(rules, one * dtype(close), one).equal
        assert compare_by(rules, [one * dtype(close)], [one]).equal
        assert not compare_by(rules, one * dtype(far), one).equal
    assert compare_by(replace(rules, absolute=0.0), f32(close), f32(1)).equal, "one number replaces no other"
    assert not compare_by(replace(rules, relative=0.0, absolute=0.0), f32(close), f32(1)).equal


@pytest.mark.parametrize(("actual", "expected"), [(["a", "b"], "ab"), ("ab", ["a", "b"])])
def test_a_string_is_not_a_sequence(actual, expected):
    assert not compare(actual, expected).equal
