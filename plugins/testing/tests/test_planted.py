"""Planted defects are found by the check that the documentation names; correct ops pass all checks."""

from __future__ import annotations

from pathlib import Path

import planted_claims
import pytest
import right_ops
from planted import DEFECTS, fails, found, page

from tenonnx_testing.cases import Case

PAGE = Path(__file__).parents[3] / "docs" / "why" / "planted-defects.md"

#: Correct ops, by name.
RIGHT = {
    function.__name__: function
    for function in (
        right_ops.weighted,
        right_ops.product,
        right_ops.inverse,
        right_ops.negated,
        right_ops.greatest,
        right_ops.summed,
        right_ops.twice_said,
        right_ops.clipped,
        planted_claims.broadcasting,
    )
}


@pytest.mark.parametrize("defect", DEFECTS, ids=[f"{each.kind}: {each.what}" for each in DEFECTS])
def test_a_planted_defect_is_found(defect):
    assert fails(defect.make(), defect.check)


@pytest.mark.parametrize("base", RIGHT.values(), ids=RIGHT)
def test_an_op_without_a_defect_passes_every_check(base):
    made, drawn = base()
    assert found(Case(made, drawn)) == {}


def test_the_docs_list_all_defects():
    assert PAGE.read_text("utf-8") == page(), "run tools/generate_planted_defects.py"
