"""Lowerings for targets with lists of ops, each compared with its op on numpy by accuracy class."""

import re
from dataclasses import replace
from functools import cache, partial
from inspect import signature

import ml_dtypes
import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.extend import NotRepresentable, TypeMismatch, UnsupportedOp, subgraph
from tenonnx_standard.lowerings import LOWERINGS
from tenonnx_standard.lowerings.shapes import squeeze_by_reduce_sum, squeeze_by_reshape
from tenonnx_testing.cases import call, collected, load
from tenonnx_testing.kit import covering_calls
from tenonnx_testing.run import completed, evaluate, is_index, run_graph, trace

#: Calls per conformance case of an op.
DRAWS = 3

#: Values that exact and rounding lowerings treat like the op.
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e30)

#: Ulps of a rounding lowering whose docstring states none.
FEW = 4

#: Ops with sums, compared on integers, since the order of additions differs between CPUs.
SUMS = {ops.matmul, ops.gemm, ops.conv, ops.average_pool, ops.global_average_pool, ops.mean, ops.sum_}

DOES_NOT_SERVE = (NotRepresentable, TypeMismatch, UnsupportedOp)

ROW = np.float32([0.5, -1.25, 3, -0.75])
MATRIX = np.float32([[0.5, -1.25, 3], [2, 0.25, -4]])
IMAGE = np.arange(-6, 6, dtype=np.float32).reshape(1, 3, 2, 2) / 2
BY_CHANNEL = np.float32([0.5, -3, 7]).reshape(3, 1, 1)
TRUTH = np.array([True, False, False, True])

NUMBER, CONDITION = tx.TensorType(tx.DType.int64, ()), tx.TensorType(tx.DType.bool, ())


def growing(step, going_on, state):
    """An iteration of a loop that ends when a sum is large."""
    return ops.less(ops.reduce_max(state, keepdims=0), 9.0), state * 2.0


GROWING = subgraph(
    growing, [("step", NUMBER), ("going_on", CONDITION), ("state", tx.TensorType(tx.DType.float32, (4,)))]
)


#: Additional calls for lowerings whose required contents the cases never have.
FURTHER = {
    ops.leaky_relu: [call(ROW, alpha=0.25)],
    ops.clip: [call(ROW, np.float32(0)), call(ROW, np.float32(0), np.float32(1))],
    ops.loop: [
        call(np.int64(5), None, ROW, body=GROWING, _outputs=1),
        call(np.int64(0), np.array(True), ROW, body=GROWING, _outputs=1),
    ],
    ops.add: [call(IMAGE, BY_CHANNEL), call(BY_CHANNEL, IMAGE), call(MATRIX, ROW[:3])],
    ops.mul: [
        call(ROW, ROW),
        call(IMAGE, BY_CHANNEL),
        call(ROW, np.float32(-1)),
        call(np.float32(2), ROW),
        call(ROW, np.float32([0.25, 8, -2, 1])),
        call(ROW, np.float32([3, 0.7, -5, 11])),
    ],
    ops.div: [
        call(ROW, np.float32([0.25, 8, -2, 1])),
        call(ROW, np.float32([3, 0.7, -5, 11])),
        call(np.float32(1), ROW),
    ],
    ops.pow_: [call(abs(ROW), np.float32(power)) for power in (0.5, 2, 3, 6, -1, -2)],
    ops.maximum: [call(ROW, np.float32(0.5)), call(ROW, ROW[::-1].copy()), call(ROW, np.float32(0))],
    ops.minimum: [call(ROW, np.float32(0.5)), call(ROW, ROW[::-1].copy())],
    ops.conv: [call(IMAGE, np.ones((2, 3, 2, 2), np.float32), np.float32([1, -2]))],
    ops.pad: [
        call(np.array(["a", "b"], object), np.int64([1, 2])),
        call(ROW, np.int64([2, -5])),
        call(IMAGE, np.int64([0, 0, 1, 2, 0, 0, 0, 1])),
    ],
    ops.equal: [
        call(TRUTH, ~TRUTH[::-1]),
        call(ROW, ROW.copy()),
        call(ROW, np.float32(0.5)),
        call(np.int64([1, 2]), np.int64(2)),
    ],
    ops.where: [
        call(TRUTH, ROW, ROW[::-1].copy()),
        call(TRUTH, ROW, np.zeros(4, np.float32)),
        call(TRUTH, TRUTH[::-1].copy(), ~TRUTH),
    ],
    ops.prelu: [call(ROW, np.float32([0.25])), call(ROW.astype(np.float64), np.array([0.7]))],
    ops.softplus: [call(np.float16([12, -12, 1]))],
    ops.cast: [
        call(TRUTH, to=tx.DType.float32),
        call(ROW, to=tx.DType.bool),
        call(np.int64([0, 3, -1]), to=tx.DType.bool),
    ],
    ops.gemm: [call(MATRIX, MATRIX, np.float32([1, 2]), alpha=0.5, beta=2.0, transB=1)],
    ops.transpose: [call(MATRIX), call(MATRIX, perm=[1, 0]), call(IMAGE, perm=[1, 0, 2, 3])],
    ops.reshape: [call(IMAGE, np.int64(shape)) for shape in ([1, 3, 1, 2, 2], [3, 2, 2], [3, 4])],
    ops.gather: [call(ROW, np.int64([2, 0, -1])), call(np.array(["a"], object), np.int64(0))],
    ops.one_hot: [call(np.int64([2, 0]), np.int64(3), np.float32([0, 1]))],
    ops.reduce_sum: [call(MATRIX, np.int64([1]), keepdims=0)],
    ops.reduce_max: [call(MATRIX, np.int64([1]), keepdims=0), call(IMAGE, np.int64([2, 3]))],
    ops.matmul: [call(np.stack([MATRIX, -MATRIX]), MATRIX.T.copy())],
    ops.average_pool: [call(IMAGE, kernel_shape=[2, 2], pads=[1, 0, 0, 1])],
    ops.lrn: [call(IMAGE, size=2)],
    ops.shrink: [call(ROW, lambd=0.5, bias=0.5)],
    ops.scatter_elements: [call(ROW, np.int64([1, 3]), np.float32([5, -1]), reduction="add")],
    ops.sign: [call(np.int64([3, 0, -2]))],
    ops.slice_: [
        call(ROW, np.int64([0]), np.int64([4]), np.int64([0]), np.int64([2])),
        call(MATRIX, np.int64([1]), np.int64([3]), np.int64([1])),
        call(IMAGE, np.int64([0]), np.int64([2]), np.int64([3]), np.int64([2])),
    ],
    ops.reduce_mean: [
        call(IMAGE, np.int64([2, 3])),
        call(IMAGE, np.int64([-2, -1]), keepdims=0),
        call(IMAGE, np.int64([1])),
    ],
    ops.resize: [
        *(call(IMAGE, None, None, np.int64(size), mode="nearest") for size in ([1, 3, 4, 4], [1, 3, 4, 0])),
        call(IMAGE, None, np.float32([1, 1, 2, 1.5]), mode="linear"),
    ],
}


def name_of(function):
    if isinstance(function, partial):
        return f"{function.func.__name__}({getattr(function.args[0], 'name', function.args[0].__name__)})"
    return function.__name__


@cache
def calls(op):
    load()
    drawn = [each for case in collected(op) for each in covering_calls(case, DRAWS)]
    return [*drawn, *(completed(op, each) for each in FURTHER.get(op, ()))]


def lowered(op, function, given):
    """Graph of the lowering of a call, with as few constant inputs as necessary, and its feeds."""
    count = len(given.inputs)

    def apply(builder, values):
        if are_same(given.inputs):
            values = [values[0]] * count
        counted = {"_outputs": given.outputs} if "_outputs" in signature(function).parameters else {}
        result = function(*values, **given.attributes, **counted)
        if result is None:
            raise NotRepresentable("the lowering returned None")
        return result if isinstance(result, tuple) else (result,)

    for constant in (range(0), range(1, count), [0, *range(2, count)]):
        try:
            return trace(op, given, apply, symbolic=False, known=constant)
        except DOES_NOT_SERVE as error:
            reason = error
    raise reason


def are_same(inputs):
    """Whether two or more inputs have equal contents, so that one value serves for all."""
    arrays = [each for each in inputs if isinstance(each, np.ndarray)]
    kinds = {(each.dtype, each.shape, each.tobytes()) for each in arrays}
    return len(arrays) == len(inputs) > 1 == len(kinds)


def changed(op, given, change):
    """The call with ``change`` applied to its floating-point inputs."""
    inputs = list(given.inputs)
    for place, array in enumerate(inputs):
        if isinstance(array, np.ndarray) and is_float(array) and array.size and not is_index(op, place):
            inputs[place] = np.asarray(change(array)).astype(array.dtype)
    return replace(given, inputs=tuple(inputs))


def planted(special, array):
    """The array with every fourth number replaced; huge numbers are smaller in float16."""
    result = array.copy()
    result.reshape(-1)[::4] = min(special, 1e3) if array.dtype == np.float16 else special
    return result


def is_finite(contents):
    return not (isinstance(contents, np.ndarray) and is_float(contents)) or bool(np.all(np.isfinite(contents)))


def is_float(array):
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def stated(function, pattern, default):
    result = re.search(pattern, function.__doc__ or "")
    if result is None:
        return default
    return {"an": 1.0, "two": 2.0}.get(result[1]) or float(result[1])


def bound_of(op, accuracy, function, given, wanted):
    """Largest allowed difference for each element of each output."""
    made = np.abs(wanted.astype(np.float64))
    eps = float(ml_dtypes.finfo(wanted.dtype).eps)
    if accuracy == "exact":
        return 0 * made
    if accuracy == "rounding":
        positive = [np.abs(v) if isinstance(v, np.ndarray) and is_float(v) else v for v in given.inputs]
        sums = np.asarray(evaluate(op, replace(given, inputs=tuple(positive)))[0]).astype(np.float64)
        scale = np.fmax(made, np.abs(sums)) if sums.shape == made.shape else made
        if " of 1." in (function.__doc__ or ""):
            scale = np.maximum(scale, 1)
        return stated(function, r"Off by (an|two|\d+) ulp", FEW) * eps * scale
    if accuracy == "finite":
        return max(1e-5, 8 * eps) * np.maximum(made, 1)
    error = max(stated(function, r"[Ww]ithin (\S+?)[ ,]", None), 4 * eps)
    return error * (made if "of the result" in function.__doc__ else 1)


def problem_of(found, wanted, bound):
    """Description of the first element that differs by more than the bound; None if there is none."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    wrong = found != wanted
    if is_float(wanted):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            wrong &= ~(np.isnan(a) & np.isnan(b)) & ~(np.abs(a - b) <= bound)
    if not np.any(wrong):
        return None
    place = tuple(map(int, np.argwhere(wrong)[0]))
    return f"{found[place]} instead of {wanted[place]} at {list(place)}, {wanted.dtype}"


def compare(op, accuracy, function):
    """Assert that the lowering agrees with the op. Returns the number of comparisons, and reasons of refusals."""
    compared, refusals = 0, []
    whole = accuracy == "exact" and op in SUMS
    specials = (SPECIAL[:-1] if whole else SPECIAL) if accuracy in ("exact", "rounding") else ()
    for each in calls(op):
        drawn = changed(op, each, np.rint) if whole else each
        if not specials and not all(map(is_finite, drawn.inputs)):
            continue
        for given in [drawn, *(changed(op, drawn, partial(planted, special)) for special in specials)]:
            with np.errstate(all="ignore"):
                try:
                    graph, feeds = lowered(op, function, given)
                except DOES_NOT_SERVE as error:
                    refusals.append(str(error).splitlines()[0])
                    continue
                outputs = zip(run_graph(graph, feeds), evaluate(op, given), strict=True)
                for result, expected in [tuple(map(np.asarray, pair)) for pair in outputs]:
                    bound = bound_of(op, accuracy, function, given, expected) if is_float(expected) else None
                    problem = problem_of(result, expected, bound)
                    assert problem is None, f"{accuracy}: {problem}: {given.inputs}, {given.attributes}"
            compared += 1
    return compared, refusals


@pytest.mark.parametrize(
    ("op", "accuracy", "function"),
    [
        pytest.param(op, accuracy, function, id=f"{op.name}-{name_of(function)}")
        for op, ways in LOWERINGS.items()
        for accuracy, function in ways
    ],
)
def test_lowering_agrees_with_its_op(op, accuracy, function):
    compared, refusals = compare(op, accuracy, function)
    assert compared, f"none of {len(refusals)} calls of {op.title} has this lowering: {sorted(set(refusals))}"


def doubled(X):
    return ops.add(X, X)


def relu_by_product(X):
    return ops.mul(X, ops.cast(ops.greater(X, 0.0), to=X.dtype))


def log_by_offset(input):
    """Within 1e-6 of it."""
    return ops.add(ops.log(input), 1e-3)


def refusing(X):
    raise NotRepresentable("it never serves")


@pytest.mark.parametrize(
    ("op", "accuracy", "function"),
    [
        (ops.relu, "exact", doubled),
        (ops.relu, "finite", doubled),
        (ops.relu, "rounding", relu_by_product),  # correct only for finite numbers
        (ops.log, "approximate", log_by_offset),
        (ops.relu, "exact", refusing),
    ],
)
def test_wrong_lowering_is_found(op, accuracy, function):
    with pytest.raises(AssertionError):
        test_lowering_agrees_with_its_op(op, accuracy, function)


def test_a_squeeze_without_axes_of_length_one_is_its_input():
    x = tx.Graph(opsets={"ai.onnx": 21}).input("x", "float32", (2, 3))
    assert squeeze_by_reshape(x, None) is x
    with pytest.raises(NotRepresentable):
        squeeze_by_reduce_sum(x, None)
