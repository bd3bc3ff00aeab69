"""The conformance kit on correct ops, and on ops with one defect each."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import strategies as st

from tenonnx import DType
from tenonnx.errors import InvalidCall
from tenonnx.extend import Operators, TensorType, elementwise, floats, op, primitive
from tenonnx.graph.definitions import defined_by
from tenonnx.registry.registry import Registry
from tenonnx_run.compare import compare
from tenonnx_testing import (
    Gap,
    axis_of,
    broadcastable,
    call,
    check_case,
    mutations,
    shapes,
    tensors,
)
from tenonnx_testing.cases import CHECKS, Case, cases
from tenonnx_testing.collecting import items_of_cases
from tenonnx_testing.coverage import check_outputs, has_several_outputs
from tenonnx_testing.gradients import differences
from tenonnx_testing.report import never_drawn, seen_here
from tenonnx_testing.repro import one_line
from tenonnx_testing.run import Failure
from tenonnx_testing.suite import run_item

# ----- a tiny family ------------------------------------------------------------------------------------------------


def unary(name, since, rule, vjp=None, type_rule=lambda x: x.tensor):
    def function(X): ...

    made = primitive(name, since=since, type=type_rule)(function)
    made.numpy(rule)
    if vjp is not None:
        made.vjp(vjp)
    return made


@elementwise("Add", since=14)
def add(A, B): ...


@elementwise("Mul", since=14)
def mul(A, B): ...


add.numpy(np.add)
add.vjp(lambda g, y, a, b: (g, g))
mul.numpy(np.multiply)
mul.vjp(lambda g, y, a, b: (mul(g, b), mul(g, a)))
identity = unary("Identity", 1, lambda x: x, lambda g, y, x: g)
cosine = unary("Cos", 7, np.cos)
sine = unary("Sin", 7, np.sin, lambda g, y, x: mul(g, cosine(x)))
ones_like = unary("OnesLike", 1, np.ones_like)


@pytest.fixture(autouse=True)
def operators():
    registry = Registry()
    registry.add_operators(lambda: Operators(add=add, multiply=mul, identity=identity, ones_like=ones_like))
    with defined_by(registry):
        yield


def case_of(made, draw=lambda draw: call(draw(tensors())), **keywords):
    return Case(made, draw, **keywords)


def fails(case, check, match):
    with pytest.raises(Failure, match=match) as caught:
        check_case(case, check)
    return "\n".join(getattr(caught.value, "__notes__", []))


# ----- correct ops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["onnxruntime", "reference", "types", "gradient", "oracle", "export"])
def test_a_right_primitive_passes(check):
    case = case_of(sine, lambda draw: call(draw(tensors(["float32", "float64", "float16"]))))
    check_case(case, check)
    assert case.compared[check] > 0


def test_a_right_composite_passes():
    @op("Celu", since=12)
    def twice(X):
        return add(X, X)

    twice.numpy(lambda x: x * 2)
    twice.vjp(lambda g, y, x: g * 2)
    for check in ("numpy=body", "types", "gradient"):
        check_case(case_of(twice), check)


def test_each_check_that_applies_is_one_test():
    labels = [test.label for test in items_of_cases([case_of(sine)])]
    names = ["onnxruntime", "reference", "types", "gradient", "export", "layout", "empty axes", "bad input", "oracle"]
    names += ["repeated", "constants", "variations", "broadcast", "kinks"]
    assert labels == [f"Sin@7-{name}" for name in names]


# ----- defective ops ------------------------------------------------------------------------------------------------


def test_a_wrong_numpy_rule_differs_from_the_oracles():
    wrong = unary("Sin", 7, np.cos)
    notes = fails(
        case_of(wrong), "onnxruntime", r"ai.onnx::Sin@7 differs from onnxruntime at version 7: output 0: float32"
    )
    assert notes.startswith("reproduce: import numpy as np; from ")
    assert "test_kit import function; from tenonnx_testing import replay; replay(" in notes
    fails(case_of(wrong), "reference", "differs from onnx.reference at version 7")


def test_a_numpy_rule_of_another_dtype_differs():
    wrong = unary("Sin", 7, lambda x: np.sin(x.astype(np.float64)))
    fails(case_of(wrong), "onnxruntime", r"float64\[.*\] instead of float32")


def test_a_numpy_rule_that_disagrees_with_the_body_fails():
    @op("Celu", since=12)
    def twice(X):
        return add(X, X)

    twice.numpy(lambda x: x * 3)
    fails(case_of(twice), "numpy=body", "differs from its body")


@pytest.mark.parametrize("vague", [None, (None,)])
def test_a_type_rule_that_knows_less_than_the_body_fails(vague):
    @op("Celu", since=12)
    def twice(X):
        return add(X, X)

    twice.type(lambda x: x.tensor.with_shape(vague))
    fails(case_of(twice, lambda draw: call(draw(tensors(shape=(2,))))), "types", "with static shapes knows less than")


def test_a_type_rule_that_knows_no_symbols_fails():
    @op("Twice", domain="com.kit")
    def twice(x):
        return x + x

    twice.type(lambda x: x.tensor.with_shape(tuple(d if isinstance(d, int) else None for d in x.shape)))
    fails(case_of(twice, lambda draw: call(draw(tensors(shape=(2,))))), "types", "with symbolic dims knows less than")


def test_a_graph_that_bypasses_requirements_fails(monkeypatch):
    @op("Celu", since=12)
    def twice(X):
        return add(X, X)

    twice.requires(floats("X"))
    monkeypatch.setattr(mutations, "broken_requirement", lambda made, drawn: "X must be another one")
    fails(case_of(twice), "bad input", "what breaks its requirements: X must be another one")


def test_a_body_that_needs_static_shapes_fails():
    @op("Celu", since=12)
    def static_alone(X):
        return add(X, np.float32(sum(1 for dim in X.shape if dim > 0) * 0))

    fails(case_of(static_alone, lambda draw: call(draw(tensors(min_rank=1)))), "numpy=body", "with symbolic dims")


def test_a_rule_that_writes_into_its_input_fails():
    fails(case_of(unary("Sin", 7, lambda x: np.sin(x, out=x))), "onnxruntime", "output array is read-only")


def test_a_rule_that_warns_fails():
    def warning(x):
        warnings.warn("look out", stacklevel=1)
        return np.sin(x)

    fails(case_of(unary("Sin", 7, warning)), "onnxruntime", "on the drawn inputs raised UserWarning: look out")


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (lambda x: TensorType(DType.int64, x.tensor.shape), "the dtypes differ"),
        (lambda x: x.tensor.with_shape((*x.shape, 1)), "the ranks differ"),
        (lambda x: x.tensor.with_shape(tuple(7 for _ in x.shape)), "dim 0 would be 7"),
        (lambda x: x.tensor.with_shape(tuple(d if isinstance(d, int) else d + 1 for d in x.shape)), "for d0_0="),
        (lambda x: x.tensor.with_shape(None), r"and ONNX infers \["),
        (lambda x: x.tensor.with_shape(tuple(d * 1 for d in x.shape)), "with unknown dims raised TypeMismatch"),
    ],
)
def test_a_wrong_type_rule_fails(rule, match):
    case = case_of(unary("Sin", 7, np.sin, type_rule=rule), lambda draw: call(draw(tensors(min_rank=1))))
    fails(case, "types", match)


def test_a_wrong_gradient_fails():
    wrong = unary("Sin", 7, np.sin, lambda g, y, x: mul(g, x))
    fails(case_of(wrong), "gradient", "along a random direction is .*, and finite differences give")


def test_a_missing_gradient_fails():
    fails(case_of(unary("Sin", 7, np.sin)), "gradient", "raised NotDifferentiable")


def test_a_gradient_of_another_shape_fails():
    wrong = unary("Sin", 7, np.sin, lambda g, y, x: column(g))
    column = unary("Column", 1, lambda x: x[..., None], type_rule=lambda x: x.tensor.with_shape((*x.shape, 1)))
    fails(case_of(wrong), "gradient", "is not float64")


def test_kinks_are_distinguished_from_a_wrong_gradient():
    sign = unary("Sign", 13, np.sign)
    absolute = unary("Abs", 13, np.abs, lambda g, y, x: mul(g, sign(x)))
    near = tensors(shape=(9,), min_value=-1e-3, max_value=1e-3)
    off_kinks, kinks = tensors(exclude_near=(0.0,)), near.map(lambda x: x / 10)
    check_case(case_of(absolute, lambda draw: call(draw(off_kinks))), "gradient")
    fails(
        case_of(absolute, lambda draw: call(draw(kinks))),
        "gradient",
        "finite differences do not converge .* the case draws kinks",
    )


@pytest.mark.parametrize(
    ("function", "slope", "error"),
    [
        (lambda h: np.sin(1 + h), np.cos(1), 1e-10),
        (lambda h: float(np.float32(np.sin(np.float32(1 + h)))), np.cos(1), 1e-4),
        (lambda h: 1e6 + 5 * h, 5, 1e-5),
        (lambda h: 3.0, 0, 0),
        (lambda h: abs(h + 1e-3), 1, 1e-10),
    ],
)
def test_differences_have_an_uncertainty(function, slope, error):
    result, uncertainty = differences(function)
    assert abs(result - slope) <= error
    assert abs(result - slope) <= 4 * uncertainty + 1e-10
    assert uncertainty <= 10 * error + 1e-9


def test_differences_over_a_kink_are_uncertain():
    assert differences(lambda h: abs(h + 1e-5))[1] > 0.01
    assert differences(lambda h: float("nan") if h < 0 else h)[1] == float("inf")


def test_a_primitive_that_nothing_else_computes_fails():
    alone = primitive("Alone", domain="test", type=lambda x: x.tensor)(lambda x: ...)
    alone.numpy(np.sin)
    fails(case_of(alone), "oracle", "is a primitive that nothing else computes")


def test_an_oracle_without_a_kernel_is_skipped():
    case = case_of(sine, lambda draw: call(draw(tensors("bfloat16"))))
    with pytest.raises(pytest.skip.Exception, match="nothing to compare with"):
        check_case(case, "onnxruntime")


# ----- gaps ---------------------------------------------------------------------------------------------------------


def test_a_gap_is_an_expected_failure():
    case = case_of(unary("Sin", 7, np.cos), gaps=(Gap("reference", "it is a cosine"),))
    with pytest.raises(pytest.xfail.Exception, match="it is a cosine"):
        check_case(case, "reference")
    fails(case, "onnxruntime", "differs")


def test_a_stale_gap_fails():
    fails(
        case_of(sine, gaps=(Gap("reference", "once wrong"),)), "reference", "the gap of reference is stale.*once wrong"
    )


def test_a_gap_may_cover_some_calls_only():
    def rule(x):
        return np.sin(x) if x.ndim else np.cos(x)

    scalar = Gap("reference", "scalars are wrong", when=lambda call: call.inputs[0].ndim == 0)
    check_case(case_of(unary("Sin", 7, rule), gaps=(scalar,)), "reference")
    few = Gap("reference", "small ranks are wrong", when=lambda call: call.inputs[0].ndim < 3)
    fails(case_of(sine, gaps=(few,)), "reference", "stale")
    vectors = Gap("reference", "vectors are wrong", when=lambda call: call.inputs[0].ndim == 1)
    fails(case_of(unary("Sin", 7, rule), gaps=(vectors,)), "reference", "differs")


def test_a_gap_may_cover_some_versions_only():
    old = Gap("reference", "wrong before 22", when=lambda call: call.version < 22)
    fails(case_of(sine, gaps=(old,)), "reference", "stale")


def test_a_gap_names_a_check_and_a_reason():
    with pytest.raises(InvalidCall, match="unknown check"):
        Gap("numbers", "why")
    with pytest.raises(InvalidCall, match="has no reason"):
        Gap("types", "")
    assert all(Gap(name, "why").check == name for name in CHECKS)


# ----- strategies ---------------------------------------------------------------------------------------------------


def drawn(strategy, count=30):
    from hypothesis import HealthCheck, given, settings

    result = []

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value):
        result.append(value)

    collect()
    return result


def test_tensors_have_the_requested_dtype_shape_and_range():
    for x in drawn(tensors(["float32", "int8", "bfloat16", "uint4"], min_rank=1, max_rank=2, max_side=3)):
        assert x.dtype.name in ("float32", "int8", "bfloat16", "uint4")
        assert 1 <= x.ndim <= 2
        assert max(x.shape) <= 3
        assert np.abs(x.astype(np.float64)).max() <= 4
    assert {x.shape for x in drawn(tensors(shape=(2, 3)))} == {(2, 3)}
    assert {x.dtype.name for x in drawn(tensors(["bool", "string", "complex64"]))} == {"bool", "object", "complex64"}


def test_values_keep_away_from_excluded_numbers():
    for x in drawn(tensors(exclude_near=(0.0, 1.0))):
        assert np.all(np.abs(x) > 0.099)
        assert np.all(np.abs(x - 1) > 0.099)
    for x in drawn(tensors("int32", exclude_near=(0,))):
        assert np.all(x != 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64"])
def test_distinct_elements_differ(dtype):
    for x in drawn(tensors(dtype, distinct=True, max_rank=3)):
        assert len(np.unique(x.astype(np.float64))) == x.size


def test_broadcastable_arrays_broadcast():
    ranks = set()
    for arrays in drawn(broadcastable(3, ["float32", "int64"], exclude_near=(0.0,))):
        np.broadcast_shapes(*(a.shape for a in arrays))
        assert len({a.dtype for a in arrays}) == 1
        ranks.add(len({a.ndim for a in arrays}))
    assert len(ranks) > 1


def test_axes_are_counted_from_both_ends():
    x = np.zeros((2, 3, 4))
    assert set(drawn(axis_of(x), 100)) == set(range(-3, 3))
    with pytest.raises(InvalidCall, match="a scalar has no axis"):
        axis_of(np.float32(1))
    assert all(isinstance(s, tuple) for s in drawn(shapes(2, 3)))
    assert isinstance(tensors(), st.SearchStrategy)


# ----- reproduction -------------------------------------------------------------------------------------------------


def test_a_repro_can_be_pasted(capsys):
    arrays = [
        np.array([1.5, np.nan, -np.inf], np.float32),
        np.array([[1, 2]], np.int64),
        np.array(["a", "b"], object),
        np.zeros((0, 2), np.float32),
        np.array([1.5], DType.bfloat16.numpy),
        np.array([-3], DType.int4.numpy),
        None,
        [np.float32(1)],
    ]
    drawn = call(*arrays, to=DType.int4, alpha=float("nan"), names=["x"], value=np.array(True), _outputs=2)
    text = one_line(shown, drawn)
    assert text.startswith("import numpy as np; from tenonnx import DType; from ")
    statements = text.split("; ")
    exec("; ".join([*statements[:2], statements[-1].replace("print(", "found = (")]), scope := {"shown": call})
    assert compare(list(scope["found"].inputs), arrays).equal
    assert scope["found"].attributes["to"] is DType.int4
    assert np.isnan(scope["found"].attributes["alpha"])


@op("Shown")
def shown(*inputs):
    return inputs


def test_inputs_and_attributes_that_no_case_draws_are_named(monkeypatch):
    @op("Partial", domain="kit")
    def partial(X, bias=None, *, rounds=1):
        return identity(X)

    drawn = [call(np.ones(2, np.float32)), call(np.ones(2, np.float32), rounds=2)]
    case = case_of(partial, lambda draw: draw(st.sampled_from(drawn)))
    monkeypatch.setattr("tenonnx_testing.report.collected", lambda made=None: iter([case]))
    assert never_drawn(seen_here()) == {}, "nothing was compared yet"
    check_case(case, "types")
    assert never_drawn(seen_here()) == {"kit::Partial@1": ["bias"]}
    known = case_of(partial, lambda draw: draw(st.sampled_from(drawn)), undrawn={"bias": "no kernel takes it"})
    monkeypatch.setattr("tenonnx_testing.report.collected", lambda made=None: iter([case, known]))
    assert never_drawn(seen_here()) == {}
    check_case(known, "types")
    assert seen_here()["cases"][f"{known.module}:{known.title}"]["gaps"] == {"drawing bias": ["no kernel takes it"]}
    with pytest.raises(Failure, match="rounds declared as undrawn, but a call has it"):
        check_case(case_of(partial, lambda draw: drawn[1], undrawn={"rounds": "it is drawn"}), "types")


@pytest.mark.parametrize("undrawn", [{"rounds": "no such name"}, {"X": ""}])
def test_undrawn_names_exist_and_have_a_reason(undrawn):
    with pytest.raises(InvalidCall, match="undrawn does not name inputs or attributes, each with a reason"):
        cases(identity, undrawn=undrawn)


def test_some_call_returns_every_output_of_the_schema(monkeypatch):
    @op("TopK", since=11)
    def one(X, K, *, axis=-1, largest=1, sorted=1):
        return identity(X)

    @op("TopK", since=11)
    def both(X, K, *, axis=-1, largest=1, sorted=1):
        return identity(X), identity(X)

    def judge(made, *gaps):
        case = case_of(made, lambda draw: call(np.ones(2, np.float32), np.ones(1, np.int64)), gaps=gaps)
        monkeypatch.setattr("tenonnx_testing.coverage.collected", lambda op: [case])
        assert has_several_outputs(made)
        check_outputs(made, 2)

    gap = Gap("outputs", "no places here")
    judge(both)
    with pytest.raises(Failure, match="give up to 1 outputs, and the schema has Values, Indices"):
        judge(one)
    with pytest.raises(pytest.xfail.Exception, match="no places here"):
        judge(one, gap)
    with pytest.raises(Failure, match="the gap of outputs is stale"):
        judge(both, gap)


def test_a_failure_names_its_source_line_instead_of_a_traceback():
    @op("Broken", domain="kit")
    def broken(X):
        return identity(X, 1 // 0)

    with pytest.raises(pytest.fail.Exception) as caught:
        run_item(lambda examples: check_case(case_of(broken), "types"), 2)
    assert f"at {__file__}:" in str(caught.value)
    assert "1 // 0" in str(caught.value)
