"""Failures name their root cause first, and the missing requirement behind a foreign error."""

import numpy as np
import pytest
from authored_kit import failures
from mistakes import planted

import tenonnx_standard as ops
from tenonnx.extend import floats, op, shapes
from tenonnx_testing import call, tensors
from tenonnx_testing.cases import Case
from tenonnx_testing.declared import takes_what_rules_are_given
from tenonnx_testing.foreign import missing_requirement
from tenonnx_testing.kit import check_case
from tenonnx_testing.mutations import refuse_or_agree
from tenonnx_testing.run import Failure

MISTAKES = {f"{each.kind}: {each.op}: {each.what}": each for each in planted()}


def said_of(title):
    """First line of each check's message about a mistake."""
    return {
        label.rpartition("@1-")[2]: output.partition("\n")[0]
        for label, output in failures(MISTAKES[title].op, MISTAKES[title]).items()
    }


def test_an_overwritten_buffer_is_not_reported_as_a_kink():
    output = said_of("numpy: swish: a buffer kept between calls")
    assert {"kinks", "layout"} <= output.keys()
    assert all(each.endswith("an array that it gave before, and writes it again") for each in output.values()), output


def test_a_wrong_numpy_rule_is_not_reported_as_a_wrong_gradient():
    output = said_of("numpy: swish: results cached by shape")
    assert {"gradient", "kinks", "constants"} <= output.keys()
    assert all("differs from" in each and "its body" in each for each in output.values()), output


def test_the_failure_of_the_check_itself_is_in_a_note():
    mistake = MISTAKES["numpy: swish: results cached by shape"]
    output = next(each for label, each in failures("swish", mistake).items() if label.endswith("-kinks"))
    assert 'therefore the check "kinks" fails, too: the gradient of com.authored::Swish@1 where X is' in output


def test_a_wrong_gradient_is_reported_as_such():
    output = said_of("gradient: huber: the sign of the target")
    assert output["gradient"].startswith("the gradient of com.authored::Huber@1 with respect to")


def reports(made, *checks):
    """Messages of checks on an op with one input, in order."""
    case, output = Case(made, lambda draw: call(np.ones((2, 3), np.float32))), []
    for name in checks:
        try:
            check_case(case, name)
        except Failure as failure:
            output.append("\n".join([str(failure), *failure.__notes__]))
        except pytest.skip.Exception as skipped:
            output.append(f"skipped: {skipped}")
    return output


def test_an_error_of_a_body_is_reported_with_its_line():
    @op("Misspelled", domain="tiny")
    def misspelled(X):
        return ops.abs_of(X)

    misspelled.numpy(lambda X: abs(X))
    (output,) = reports(misspelled, "constants")
    assert output.startswith("the body of tiny::Misspelled@1 raised AttributeError: ")
    assert 'therefore the check "constants" fails, too' in output
    assert f"at {__file__}:" in output
    assert "return ops.abs_of(X)" in output


def test_a_call_that_cannot_be_computed_fails_once():
    @op("Halved", domain="tiny")
    def halved(X):
        return ops.reshape(X, [2, 2])

    first, *others = reports(halved, "types", "layout", "bad input")
    assert "draws a call that the op does not compute: draw others, or mend the op" in first
    assert others == ['skipped: a call of its case cannot be computed: see the check "types"'] * 2


def test_a_rule_with_wrong_parameters_is_reported_with_the_call():
    @op("Doubled", domain="tiny")
    def doubled(X, *, by=2.0):
        return X * by

    doubled.vjp(lambda g, X, *, by: g * by)
    (output,) = takes_what_rules_are_given(doubled, [])
    assert "the rule vjp is called as <lambda>(g, y, X, by=...): too many positional arguments" in output


# ----- foreign errors -------------------------------------------------------------------------------------------------


def scaled_by(*requirements):
    """Return an op that needs one scale per column."""

    @op("ScaledBy", domain="tiny")
    def made(X, scale, *, power=1):
        return X * scale

    made.numpy(lambda X, scale, *, power: X * np.stack([scale[k] for k in range(X.shape[1])]) ** (6 // power))
    made.type(lambda X, scale, *, power: X.tensor)
    return made.requires(floats("X", "scale"), *requirements)


X, SCALE = np.ones((2, 3), np.float32), np.ones(3, np.float32)


def refusal(made, changed):
    drawn = call(X, SCALE, power=1)
    refuse_or_agree(Case(made, lambda draw: drawn), drawn, changed, (X,), symbolic=False)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (call(X, SCALE[:2], power=1), r'IndexError: .*may be shapes\(X="_ rows", scale="rows"\)'),
        (call(X, SCALE, power=0), r"ZeroDivisionError: .*may be at_least\(power=1\) or one_of\(power=\(1, \.\.\.\)\)"),
    ],
)
def test_a_call_that_ends_in_a_foreign_error_names_the_missing_requirement(changed, says):
    with pytest.raises(Failure, match="tiny::ScaledBy@1 takes by its requirements a call that ends in " + says):
        refusal(scaled_by(), changed)


def test_the_missing_requirement_of_one_input_leaves_leading_axes_open():
    square = np.ones((2, 2), np.float32)
    assert missing_requirement(ops.relu, call(square), call(square[0])) == 'shapes(X="... rows columns")'


def test_a_mistake_of_the_numpy_rule_alone_is_not_blamed_on_the_requirements():
    with pytest.raises(Failure, match=r"its body computes this call: mend the numpy rule, or else .*at_least"):
        refusal(scaled_by(), call(X, SCALE, power=0))


def test_a_name_that_the_body_lacks_is_no_missing_requirement():
    @op("Misspelled", domain="tiny")
    def misspelled(X, *, power=1):
        return X if power else X.astype("float32")

    drawn, changed = call(X, power=1), call(X, power=0)
    with pytest.raises(Failure, match=r"AttributeError: .*mend the line below: no requirement is missing"):
        refuse_or_agree(Case(misspelled, lambda draw: drawn), drawn, changed, (X,), symbolic=False)


def test_a_rule_that_writes_into_an_input_is_told_what_to_do():
    @op("Doubled", domain="tiny")
    def doubled(X):
        return X + X

    doubled.numpy(lambda X: np.add(X, X, out=X))
    with pytest.raises(Failure) as caught:
        check_case(Case(doubled, lambda draw: call(draw(tensors()))), "numpy=body")
    assert "the op writes into an input" in caught.value.__notes__[0]


def test_other_positions_of_equal_elements_are_named():
    output = said_of("numpy: peaks: the last of equal elements")
    assert "positions of equal elements of X, of which the other takes the first" in output["expected"]


def test_a_rejected_call_needs_no_further_requirement():
    refusal(scaled_by(shapes(X="rows columns", scale="columns")), call(X, SCALE[:2], power=1))


def test_an_error_of_an_op_in_the_body_is_not_foreign():
    @op("Reshaped", domain="tiny")
    def reshaped(X):
        return ops.reshape(X, [3, 2])

    drawn, changed = call(X), call(np.ones((2, 4), np.float32))
    refuse_or_agree(Case(reshaped, lambda draw: drawn), drawn, changed, (X.T,), symbolic=False)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (call(X.astype(np.int64), SCALE, power=1), 'dtypes(X="float") or same_dtype("scale", "X")'),
        (call(X[:, :0], SCALE, power=1), 'shapes(X="rows columns", scale="columns"), at_least(columns=1)'),
        (call(X, SCALE[:1].reshape(()), power=1), 'shapes(X="_ rows", scale="rows")'),
        (call(X[0], SCALE, power=1), 'shapes(X="rows columns", scale="columns")'),
    ],
)
def test_the_missing_requirement_depends_on_the_change(changed, wanted):
    assert missing_requirement(scaled_by(), call(X, SCALE, power=1), changed) == wanted
