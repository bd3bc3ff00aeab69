"""Limits on the total lines of code of an operator."""

import pytest
from lines_of_ops import LIMITS, lines_of


@pytest.mark.parametrize("title", LIMITS)
def test_an_operator_has_few_lines_in_total(title):
    module, functions, most = LIMITS[title]
    result = lines_of(module, functions)
    assert 0 < sum(result.values()) <= most, result


def test_rules_tables_and_helpers_count():
    result = lines_of("tenonnx_standard.activation", ("gelu",))
    assert [*result] == [f"plugins/standard/src/tenonnx_standard/{name}.py" for name in ("activation", "layouts")]
    assert result["plugins/standard/src/tenonnx_standard/layouts.py"] == 1
