"""Rules that are wrong in one way each: the kit finds every one, and says where to look."""

from __future__ import annotations

import numpy as np
import pytest

import tenonnx_standard as ops
from tenonnx.extend import TensorType, op
from tenonnx_testing import broadcastable, call
from tenonnx_testing.cases import Case
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure


def weighted():
    """``X * W + by``: the op that is right, for the tests to break."""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    return made


def drawn(draw):
    return call(*draw(broadcastable(2, ["float32", "float64"])), by=0.5)


def found(made, names=tuple(CHECKS)):
    """Those of the checks that fail, with what they say."""
    case = Case(made, drawn)
    failures = {}
    for name in names:
        if CHECKS[name].applies(case):
            try:
                check_case(case, name)
            except Failure as failure:
                failures[name] = "\n".join([str(failure), *getattr(failure, "__notes__", [])])
            except pytest.skip.Exception:
                continue
    return failures


def told(what, function):
    """How a message names the line of what is wrong."""
    return f"{what} {__file__}:{function.__code__.co_firstlineno}"


def test_the_right_one_passes():
    made = weighted()
    made.numpy(lambda X, W, *, by: np.asarray(X * W + X.dtype.type(by)))
    made.vjp(lambda g, y, X, W, *, by: (g * W, g * X))
    made.broadcasts = True
    assert found(made) == {}


def _right(X, W, by):
    return np.asarray(X * W + X.dtype.type(by))


def _in_place(X, W, *, by):
    np.multiply(X, W, out=X)
    return X + X.dtype.type(by)


def _by_memory(X, W, *, by):
    """Right where memory is in the order of the axes."""
    y = _right(X, W, by)
    return y.ravel("K").reshape(y.shape) if X.flags.c_contiguous else _right(X, W, by)[..., ::-1]


BODY, SPECIAL = "numpy=body", "special values"
RULES = {
    "a sum for a product": (lambda X, W, *, by: _right(X, W, by) + X, BODY),
    "an attribute forgotten": (lambda X, W, *, by: np.asarray(X * W), BODY),
    "another element type": (lambda X, W, *, by: _right(X, W, by).astype(np.float32), BODY),
    "written in place": (_in_place, BODY),
    "wrong for an empty axis": (lambda X, W, *, by: _right(X, W, by) if X.size else np.ones(1, X.dtype), "empty axes"),
    "wrong for NaN": (
        lambda X, W, *, by: np.nan_to_num(_right(X, W, by), posinf=np.inf, neginf=-np.inf),
        "special values",
    ),
    "wrong for infinities": (
        lambda X, W, *, by: np.clip(_right(X, W, by), -1e30, 1e30).astype(X.dtype),
        "special values",
    ),
    "wrong for large numbers": (
        lambda X, W, *, by: np.clip(_right(X, W, by), -900, 900).astype(X.dtype),
        "special values",
    ),
    "wrong for other layouts": (_by_memory, "layout"),
    "wrong for numbers": (
        lambda X, W, *, by: _right(X, W, by) if X.ndim else np.zeros_like(_right(X, W, by)),
        "numpy=body",
    ),
    "a bare error": (lambda X, W, *, by: {0: 1}[X.ndim] and _right(X, W, by), BODY),
}


@pytest.mark.parametrize(("rule", "check"), RULES.values(), ids=RULES)
def test_a_wrong_numpy_rule_is_found(rule, check):
    made = weighted()
    made.numpy(rule)
    failures = found(made, [check])
    assert any("com.example::Weighted@1" in text and told("numpy", rule) in text for text in failures.values())


def _is_static(X):
    return all(isinstance(dim, int) for dim in X.shape)


GRADIENTS = {
    "off by two": (lambda g, y, X, W, *, by: (g * W * 2.0, g * X), 'input "X"'),
    "of the other input": (lambda g, y, X, W, *, by: (g * W, g * W), 'input "W"'),
    "left out": (lambda g, y, X, W, *, by: (g * W, None), 'input "W"'),
    "of another shape": (lambda g, y, X, W, *, by: (g * W, ops.reduce_sum(g * X)), "gradient"),
    "wrong for symbolic dims": (
        lambda g, y, X, W, *, by: (g * W, g * X if _is_static(X) else g),
        "with symbolic dims",
    ),
    "wrong for known dims": (lambda g, y, X, W, *, by: (g * W, g if _is_static(X) else g * X), 'input "W"'),
}


@pytest.mark.parametrize(("rule", "says"), GRADIENTS.values(), ids=GRADIENTS)
def test_a_wrong_gradient_is_found(rule, says):
    made = weighted()
    made.broadcasts = True
    made.vjp(rule)
    text = found(made, ["gradient"])["gradient"]
    assert says in text
    assert told("vjp", rule) in text


TYPES = {
    "a rank too many": lambda X, W, *, by: X.tensor.with_shape((1, *(X.tensor.shape or ()))),
    "another element type": lambda X, W, *, by: TensorType(ops.equal(X, X).dtype, None),
}


@pytest.mark.parametrize("rule", TYPES.values(), ids=TYPES)
def test_a_wrong_type_is_found(rule):
    made = weighted()
    made.type(rule)
    assert told("type", rule) in found(made, ["types"])["types"]


def test_a_lowering_with_inputs_swapped_is_found():
    @op("Taken", domain="com.example", since=1)
    def taken(X, W, *, by=2.0):
        return X - W * by

    @taken.until(3)
    def taken_once(X, W):
        return X - W

    def swapped(X, W, *, by):
        return taken_once(W * by, X)

    taken.lower(to=taken_once)(swapped)
    text = found(taken, ["own versions"])["own versions"]
    assert "com.example::Taken@3 at version 1 of com.example" in text
    assert told("lowering 0", swapped) in text


def test_an_old_meaning_that_is_wrong_is_found():
    @op("Taken", domain="com.example", since=1)
    def taken(X, W, *, by=2.0):
        return X - W * by

    @taken.until(3)
    def taken_once(X, W):
        return X + W

    taken.lower(to=taken_once)(lambda X, W, *, by: taken_once(X, W * by))
    assert told("the meaning below 3", taken_once.function) in found(taken, ["own versions"])["own versions"]
