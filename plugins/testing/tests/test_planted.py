"""Each planted defect is found by the check that the table of the docs names."""

from __future__ import annotations

import planted_claims  # noqa: F401 - what they plant
import planted_numbers  # noqa: F401
import pytest
from planted import DEFECTS, fails


@pytest.mark.parametrize("defect", DEFECTS, ids=[f"{d.kind}: {d.what}" for d in DEFECTS])
def test_a_planted_defect_is_found(defect):
    assert fails(defect.make(), defect.check)
