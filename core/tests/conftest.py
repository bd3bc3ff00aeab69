"""Core is tested with the ops of ``tiny``; Python's operators on values are theirs here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def tiny_operators():
    import tiny

    from tenonnx.graph.values import operator_table

    def sum_to(gradient, like):
        return (
            gradient
            if gradient.shape == like.shape
            else tiny.multiply(tiny.sum_(gradient, keep=0), tiny.ones_like(like))
        )

    tiny_ones = {**tiny.OPERATORS, "sum_to": sum_to}
    before = {name: operator_table[name] for name in tiny_ones if name in operator_table}
    operator_table.update(tiny_ones)
    yield
    for name, function in tiny_ones.items():
        if operator_table[name] is function:  # else a family was loaded meanwhile, for the tests after this one
            del operator_table[name]
    operator_table.update({name: function for name, function in before.items() if name not in operator_table})
