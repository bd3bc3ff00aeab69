"""Failures name their cause before what rests on it, and the requirement that a foreign error shows to be missing."""

import numpy as np
import pytest
from authored_kit import failures
from mistakes import planted

import tenonnx_standard as ops
from tenonnx.extend import floats, op, shapes
from tenonnx_testing import call
from tenonnx_testing.cases import Case
from tenonnx_testing.foreign import missing_requirement
from tenonnx_testing.mutations import refuse_or_agree
from tenonnx_testing.run import Failure

MISTAKES = {f"{each.kind}: {each.op}: {each.what}": each for each in planted()}


def said_of(title):
    """The first line that each check says of a mistake."""
    return {
        label.rpartition("@1-")[2]: said.partition("\n")[0]
        for label, said in failures(MISTAKES[title].op, MISTAKES[title]).items()
    }


def test_a_buffer_that_is_written_again_is_no_kink():
    said = said_of("numpy: swish: a buffer kept between calls")
    assert {"kinks", "layout"} <= said.keys()
    assert all(each.endswith("an array that it gave before, and writes it again") for each in said.values()), said


def test_a_wrong_numpy_rule_is_not_blamed_on_the_gradient():
    said = said_of("numpy: swish: results cached by shape")
    assert {"gradient", "kinks", "constants"} <= said.keys()
    assert all("differs from" in each and "its body" in each for each in said.values()), said


def test_the_failure_of_the_check_itself_is_in_a_note():
    mistake = MISTAKES["numpy: swish: results cached by shape"]
    said = next(each for label, each in failures("swish", mistake).items() if label.endswith("-kinks"))
    assert 'therefore the check "kinks" fails, too: the gradient of com.authored::Swish@1 where X hold' in said


def test_a_wrong_gradient_is_blamed_on_itself():
    said = said_of("gradient: huber: the sign of the target")
    assert said["gradient"].startswith("the gradient of com.authored::Huber@1 with respect to")


# ----- foreign errors -------------------------------------------------------------------------------------------------


def scaled_by(*requirements):
    """An op that needs a scale of one number for each column."""

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


def test_what_a_requirement_refuses_is_right():
    refusal(scaled_by(shapes(X="rows columns", scale="columns")), call(X, SCALE[:2], power=1))


def test_an_error_of_an_op_in_the_body_is_ours():
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
    ],
)
def test_the_missing_requirement_is_told_by_what_was_changed(changed, wanted):
    assert missing_requirement(scaled_by(), call(X, SCALE, power=1), changed) == wanted
