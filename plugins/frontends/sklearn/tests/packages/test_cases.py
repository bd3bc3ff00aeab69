"""All cases including boosters: right or rejected at the latest opset, at 13 and in plain ai.onnx."""

import pytest

from tenonnx_sklearn.cases import cases
from tenonnx_sklearn.judging import WAYS, judged

CASES = list(cases())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case(case, tmp_path):
    model, rows = case.fitted()
    result = judged(model, rows, tmp_path / "model.onnx", WAYS, **case.options)
    if "Vectorizer" in case.name:
        assert result.pop("plain").startswith("refused")
    assert set(result.values()) == {"right"}
