"""Wrong rules: the kit finds each one and names the cause."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import strategies as st

import tenonnx_standard as ops
from tenonnx.extend import Index, TensorType, axis, op
from tenonnx_testing import broadcastable, call, tensors
from tenonnx_testing.cases import Case
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import check_case
from tenonnx_testing.run import Failure


def weighted():
    """Return a correct op for ``X * W + by``, to which tests add wrong rules."""

    @op("Weighted", domain="com.example")
    def made(X, W, *, by=2.0):
        return X * W + by

    return made


def drawn(draw):
    return call(*draw(broadcastable(2, ["float32", "float64"])), by=0.5)


def found(made, names=tuple(CHECKS), drawn=drawn):
    """Messages of the failing checks, by name."""
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


def source_line(what, function):
    """Return the source line of a function's error as messages show it."""
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
    """Multiply in memory order, which is correct for C-contiguous inputs only."""
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
    assert any("com.example::Weighted@1" in text and source_line("numpy", rule) in text for text in failures.values())


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
    assert source_line("vjp", rule) in text


def test_a_residuals_rule_with_other_outputs_is_found():
    made = weighted()
    made.broadcasts = True
    rule = made.residuals(lambda demand, X, W, *, by: ((X * W - by,), (X, W)))
    made.vjp(lambda g, kept, X, W, *, by: (g * kept[1], g * kept[0]))
    text = found(made, ["gradient"])["gradient"]
    assert "Weighted@1 differs from what its rule residuals gives: output 0" in text
    assert source_line("residuals", rule) in text


def test_a_random_op_without_pure_false_is_reported():
    @op("Noisy", domain="com.example")
    def noisy(X):
        return X + ops.random_uniform_like(X)

    failures = found(noisy, ["numpy=body"], lambda draw: call(draw(tensors())))
    assert "the body draws at random: declare the op with pure=False" in failures["numpy=body"]


TYPES = {
    "a rank too many": lambda X, W, *, by: X.tensor.with_shape((1, *(X.tensor.shape or ()))),
    "a list": lambda X, W, *, by: [X.type],
    "another element type": lambda X, W, *, by: TensorType(ops.equal(X, X).dtype, None),
}


@pytest.mark.parametrize("rule", TYPES.values(), ids=TYPES)
def test_a_wrong_type_is_found(rule):
    made = weighted()
    made.type(rule)
    assert source_line("type", rule) in found(made, ["types"])["types"]


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
    assert source_line("lowering 0", swapped) in text


def test_an_old_meaning_that_is_wrong_is_found():
    @op("Taken", domain="com.example", since=1)
    def taken(X, W, *, by=2.0):
        return X - W * by

    @taken.until(3)
    def taken_once(X, W):
        return X + W

    taken.lower(to=taken_once)(lambda X, W, *, by: taken_once(X, W * by))
    assert source_line("the meaning below 3", taken_once.function) in found(taken, ["own versions"])["own versions"]


# ----- sporadic errors ------------------------------------------------------------------------------------------------


def test_a_type_rule_that_is_wrong_for_scalars_is_found_without_such_calls():
    def rule(X, W, *, by):
        return X.tensor.with_shape((1,)) if X.rank == W.rank == 0 else ops.mul.rules["type"](X, W)

    def of_some_rank(draw):
        return call(*draw(broadcastable(2, min_rank=1)))

    made = weighted()
    made.type(rule)
    text = found(made, ["empty axes"], of_some_rank)["empty axes"]
    assert "an output is inferred as float32[1], not float32[]" in text
    assert source_line("type", rule) in text


def test_an_output_that_is_written_again_is_found():
    kept = {}

    def rule(X, W, *, by):
        y = _right(X, W, by)
        held = kept.setdefault((y.shape, y.dtype), y)
        held[...] = y
        return held

    made = weighted()
    made.numpy(rule)
    text = found(made, ["layout"])["layout"]
    assert "com.example::Weighted@1 gives as output 0 an array that it gave before, and writes it again" in text
    assert source_line("numpy", rule) in text


def test_a_kernel_that_writes_its_result_again_is_found():
    def prepare(X, W, *, by):
        held = np.empty(np.broadcast_shapes(X.shape, W.shape), X.dtype)

        def kernel(X, W):
            held[...] = _right(X, W, by)
            return held

        return kernel

    made = weighted()
    made.numpy(lambda X, W, *, by: _right(X, W, by))
    made.specialize(prepare)
    text = found(made, ["specialized"])["specialized"]
    assert "the prepared kernel of com.example::Weighted@1 gives as output 0 an array that it gave before" in text


def test_a_cache_by_shape_is_found():
    kept = {}

    def rule(X, W, *, by):
        return kept.setdefault((X.shape, W.shape, X.dtype, by), _right(X, W, by)).copy()

    made = weighted()
    made.numpy(rule)
    assert source_line("numpy", rule) in found(made, ["special values"])["special values"]


def test_a_sporadic_error_is_found_and_reported_as_such():
    count = itertools.count(1)

    def rule(X, W, *, by):
        return _right(X, W, by) + X.dtype.type(next(count) % 5 == 0)

    made = weighted()
    made.numpy(rule)
    text = found(made, [BODY])[BODY]
    assert "the same call does not fail each time" in text
    assert source_line("numpy", rule) in text


def _other_bits(count):
    """Return a rule with a different last bit in every second call."""
    return lambda X, W, *, by: np.nextafter(_right(X, W, by), X.dtype.type(np.inf if next(count) % 2 else -np.inf))


def _of_the_main_thread(X, W, *, by):
    first = threading.current_thread() is threading.main_thread()
    return _right(X, W, by) if first else _right(X, W, by) + X


REPEATED = {
    "in other bits": (_other_bits(itertools.count()), "gives other bits"),
    "in another thread": (_of_the_main_thread, "gives other bits in another thread"),
}


@pytest.mark.parametrize(("rule", "says"), REPEATED.values(), ids=REPEATED)
def test_a_different_result_in_a_second_call_is_found(rule, says):
    made = weighted()
    made.numpy(rule)
    text = found(made, ["repeated"])["repeated"]
    assert says in text
    assert source_line("numpy", rule) in text


def summed():
    @op("Summed", domain="com.example")
    def made(X, *, axis=-1):
        return ops.reduce_sum(X, [axis])

    return made


def test_a_rule_that_is_wrong_for_negative_axes_is_found_though_no_call_has_one():
    def rule(X, *, axis):
        return X.sum(axis if axis >= 0 else max(-X.ndim, axis - 1), keepdims=True)

    def from_the_front(draw):
        x = draw(tensors(min_rank=2))
        return call(x, axis=draw(st.integers(0, x.ndim - 1)))

    made = summed()
    made.requires(axis("axis", of="X"))
    made.numpy(rule)
    text = found(made, ["negative axes"], from_the_front)["negative axes"]
    assert "com.example::Summed@1 differs from itself with axes counted from the other end" in text
    assert source_line("numpy", rule) in text


INTEGERS = {
    "by fewer bits": lambda X, W, *, by: (X.astype(np.int32) * W.astype(np.int32)).astype(X.dtype),
    "by floats": lambda X, W, *, by: (X.astype(np.float32) * W.astype(np.float32)).astype(X.dtype),
}


@pytest.mark.parametrize("rule", INTEGERS.values(), ids=INTEGERS)
def test_a_rule_that_overflows_is_found(rule):
    @op("Product", domain="com.example")
    def product(X, W, *, by=1):
        return X * W

    product.numpy(rule)
    failures = found(product, ["special values"], lambda draw: call(*draw(broadcastable(2, "int64"))))
    assert "its body where an input holds a large integer" in failures["special values"]
    assert source_line("numpy", rule) in failures["special values"]


def test_a_rule_that_is_wrong_for_booleans_is_found():
    @op("Both", domain="com.example")
    def both(X, W):
        return ops.cast(ops.cast(X, to="float32") * ops.cast(W, to="float32"), to=X.dtype)

    def rule(X, W):
        return X | W if X.dtype == bool else (X.astype("f4") * W.astype("f4")).astype(X.dtype)

    both.numpy(rule)
    failures = found(both, drawn=lambda draw: call(*draw(broadcastable(2, ["float32", "int64", "bool"]))))
    assert any(source_line("numpy", rule) in text for text in failures.values())


def test_an_old_meaning_that_is_wrong_for_one_of_three_modes_is_found():
    reductions = {"sum": ops.reduce_sum, "mean": ops.reduce_mean, "max": ops.reduce_max}

    @op("Chosen", domain="com.example")
    def chosen(X, *, mode="sum", keep=1):
        return reductions[mode](X, keepdims=keep)

    @chosen.until(3)
    def chosen_once(X, *, mode="sum"):
        return (reductions | {"max": ops.reduce_min})[mode](X)

    chosen.lower(to=chosen_once)(lambda X, *, mode, keep: chosen_once(X, mode=mode) if keep else None)

    def any_word(draw):
        return call(
            draw(tensors(min_rank=1)), mode=draw(st.sampled_from(list(reductions))), keep=draw(st.integers(0, 1))
        )

    text = found(chosen, ["own versions"], any_word)["own versions"]
    assert source_line("the meaning below 3", chosen_once.function) in text


def test_a_gradient_that_is_wrong_where_positions_repeat_is_found():
    @op("Taken", domain="com.example")
    def taken(X, places: Index):
        return ops.gather(X, places)

    def rule(g, y, X, places):
        return ops.scatter_nd(X * 0.0, ops.unsqueeze(places, [-1]), g), None

    def anywhere(draw):
        x = draw(tensors(min_rank=1))
        return call(x, draw(tensors("int64", min_rank=1, max_rank=1, min_value=0, max_value=x.shape[0] - 1)))

    taken.vjp(rule)
    assert source_line("vjp", rule) in found(taken, ["gradient"], anywhere)["gradient"]


def test_a_lowering_that_is_wrong_at_dim_1_is_found():
    @op("Taken", domain="com.example", since=1)
    def taken(X, W, *, by=2.0):
        return X - W * by

    @taken.until(3)
    def taken_once(X, W):
        return X - W

    def lowered(X, W, *, by):
        return taken_once(X, W if X.shape and X.shape[0] == 1 else W * by)

    taken.lower(to=taken_once)(lowered)
    assert source_line("lowering 0", lowered) in found(taken, ["own versions"])["own versions"]


def test_a_body_that_is_wrong_is_found_by_the_reference_of_its_case():
    def wrong(X, W, *, by=2.0):
        return X * W - by

    made = op("Weighted", domain="com.example")(wrong)
    right = Case(weighted(), drawn, reference=lambda X, W, *, by: _right(X, W, by))
    check_case(right, "expected")
    assert right.compared["expected"] > 0
    with pytest.raises(Failure, match="differs from the reference of its case: output 0"):
        check_case(Case(made, drawn, reference=lambda X, W, *, by: _right(X, W, by)), "expected")


# ----- traits and other rules -----------------------------------------------------------------------------------------

CLAIMS = {
    "to move data": ("data_movement", True, "has the trait data_movement, and computes"),
    "to be simpler": ("rewrite", lambda X, W, *, by: X * W, "differs from what its rule rewrite says"),
    "to be fewer": ("rewrite.if_fewer", lambda X, W, *, by: X * W, "differs from what its rule rewrite.if_fewer says"),
}


@pytest.mark.parametrize(("consumer", "rule", "says"), CLAIMS.values(), ids=CLAIMS)
def test_a_wrong_trait_or_rule_is_found(consumer, rule, says):
    made = weighted()
    made.numpy(lambda X, W, *, by: _right(X, W, by))
    if consumer == "data_movement":
        made.traits(data_movement=rule)
    else:
        made.rule(consumer, rule)
    check = "data movement" if consumer == "data_movement" else "rewrite"
    text = found(made, [check])[check]
    assert says in text
    assert consumer == "data_movement" or source_line(consumer, rule) in text


def test_a_wrong_symbolic_rule_is_found():
    @op("Doubled", domain="com.example")
    def doubled(X):
        return X + X

    doubled.symbolic(lambda X: X)
    text = found(doubled, ["symbolic"], lambda draw: call(draw(tensors("int64", max_rank=1))))["symbolic"]
    assert "the symbolic rule of com.example::Doubled@1 gives of ints" in text


def test_correct_traits_pass():
    @op("Turned", domain="com.example", data_movement=True, rewrite=lambda X: X if X.rank == 1 else None)
    def turned(X):
        return ops.transpose(X)

    turned.symbolic(lambda X: X.T)
    case = Case(turned, lambda draw: call(draw(tensors(["float32", "int64"]))))
    for name in ("data movement", "rewrite", "symbolic"):
        check_case(case, name)
        assert case.compared[name] > 0
