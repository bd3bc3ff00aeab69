"""Kinds of rules, including those of other packages, and traits."""

import pytest
import tiny

from tenonnx.errors import InvalidCall
from tenonnx.extend import find_rule, find_trait, moves_data, op, rule_kind
from tenonnx.op import rule_kinds


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(rule_kinds, "kinds", dict(rule_kinds.kinds))
    return rule_kind("toybox", "arrays, then attributes")


def test_a_package_adds_a_kind_of_rule(toy):
    made = op("Doubled", domain="com.example")(lambda x: tiny.exp(x))
    made.rule(toy.name, lambda x: x)
    assert find_rule(made, "toybox") is not None
    assert rule_kind("toybox", "arrays, then attributes") == toy
    with pytest.raises(InvalidCall, match="did you mean toybox"):
        made.rule("toyboy", lambda x: x)


@pytest.mark.parametrize("name", ["numpy", "toybox", "num_py"])
def test_a_kind_needs_a_unique_name(toy, name):
    with pytest.raises(InvalidCall, match="kind"):
        rule_kind(name, "something else")


def test_traits_are_declared_once_and_read():
    made = op("Doubled", domain="com.example", data_movement=True)(lambda x: tiny.exp(x))
    made.traits(on_request=True, needs_float32="it adds")
    assert moves_data(made, {})
    assert (find_trait(made, "needs_float32"), find_trait(made, "any_version")) == ("it adds", None)
    with pytest.raises(InvalidCall, match="has the trait on_request already"):
        made.traits(on_request=True)


@pytest.mark.parametrize("facts", [{"rare": True}, {"on_request": False}, {"needs_float32": ""}])
def test_unknown_and_meaningless_traits_are_refused(facts):
    made = op("Doubled", domain="com.example")(lambda x: tiny.exp(x))
    with pytest.raises(InvalidCall, match=r"(empty|unknown) trait"):
        made.traits(**facts)


def test_data_movement_may_depend_on_attributes():
    made = op("Put", domain="com.example", data_movement={"how": ["copy"]})(lambda x, *, how="copy": tiny.exp(x))
    assert moves_data(made, {"how": "copy"})
    assert moves_data(made, {})
    assert not moves_data(made, {"how": "add"})
