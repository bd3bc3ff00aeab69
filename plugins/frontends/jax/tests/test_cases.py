"""All cases, exported at old and new opsets and run in onnxruntime, compared with JAX."""

import pytest
from cases import load_all
from judging import OPSETS, Judged

CASES = load_all()


@pytest.mark.parametrize("name", sorted(CASES))
def test_files_agree_with_jax(name):
    judged = Judged(CASES[name])
    assert {opset: wrong for opset in OPSETS if (wrong := judged.at(opset))} == {}
