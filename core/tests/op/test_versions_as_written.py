"""Validation of versions, signatures and rules at their declaration."""

import pytest
import tiny

from tenonnx.errors import InvalidCall
from tenonnx.extend import add_rule, op


def scaled():
    @op("Scaled", domain="com.example", since=3)
    def made(X, bias=None, *, by=1.0):
        return X

    return made


def old(X, bias=None, *, by=1.0):
    return X


@pytest.mark.parametrize(
    "versions", [{"since": 0}, {"since": 2.5}, {"since": 4, "before": 4}, {"since": 4, "before": 2}]
)
def test_an_op_is_valid_for_a_range_of_versions(versions):
    with pytest.raises(InvalidCall, match="Scaled: invalid version range"):
        op("Scaled", domain="com.example", **versions)(old)


@pytest.mark.parametrize("version", [3, 1, "13", 7.0, True])
def test_an_older_meaning_is_valid_for_a_range_of_versions(version):
    with pytest.raises(InvalidCall, match="names no version above 3, where made begins"):
        scaled().until(version)(old)
    with pytest.raises(InvalidCall, match="names no version above 3"):
        scaled().until(version, lacks=["bias"])


def test_older_meanings_go_downwards_each_from_the_one_after_it():
    newest = scaled()
    older = newest.until(9)(old)
    with pytest.raises(InvalidCall, match="say what held before with old"):
        newest.until(7)
    with pytest.raises(InvalidCall, match="old would be lost"):
        newest.until(11)
    with pytest.raises(InvalidCall, match="names no version below 9, where old ends"):
        older.until(9)
    oldest = older.until(7)(old)
    assert [(m.since, m.before) for m in newest.meanings] == [(9, None), (7, 9), (3, 7)]
    assert oldest is older.older


def test_a_signature_is_not_lost_below_a_meaning():
    newest = scaled().until(5, renamed={"by": "factor"})
    with pytest.raises(InvalidCall, match="would discard those until version 5"):
        newest.until(8)


def test_a_change_at_a_version_is_declared_once():
    newest = scaled().until(5, lacks=["bias"]).until(5, renamed={"by": "factor"})
    with pytest.raises(InvalidCall, match="declares the differences below"):
        newest.until(5, lacks=["bias"])


def test_a_signature_change_uses_known_keywords():
    with pytest.raises(InvalidCall, match="unknown keyword") as caught:
        scaled().until(5, rename={"by": "factor"})
    assert caught.value.what.endswith("unknown keyword rename")
    assert caught.value.do == "did you mean renamed?"
    with pytest.raises(InvalidCall, match="renamed names \\['bye'\\]"):
        scaled().until(5, renamed={"bye": "factor"})


@pytest.mark.parametrize("wrong", ["vpj", "numpi", "types", "residual"])
def test_a_rule_that_nobody_would_read_is_refused(wrong):
    for write in (
        lambda: scaled().rule(wrong, old),
        lambda: add_rule(tiny.double, wrong, old),
        lambda: op("Scaled", domain="com.example", **{wrong: old})(old),
    ):
        with pytest.raises(InvalidCall, match="unknown kind of rule") as caught:
            write()
        assert "did you mean " in caught.value.do


def test_other_backends_have_rules_of_their_own_name():
    made = scaled()
    made.rule("toy", old)
    made.rule("tvm", old)
    assert set(made.rules) == {"toy", "tvm"}
