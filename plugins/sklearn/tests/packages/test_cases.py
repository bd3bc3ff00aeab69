"""Every case, with the boosters: at the newest opset, at 13 and in plain ai.onnx, none is wrong."""

import pytest

from tenonnx_sklearn.cases import cases
from tenonnx_sklearn.judging import WAYS, judged

CASES = list(cases())

#: Estimators that are refused, since they solve a problem for each row or draw at random, and the settings of others.
REFUSED = (
    "DictionaryLearning", "LatentDirichletAllocation", "LocallyLinearEmbedding", "NMF", "SparseCoder",
    "SVC(probability=True", "predict_cov",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case(case, tmp_path):
    model, rows = case.fitted()
    found = judged(model, rows, tmp_path / "model.onnx", WAYS, **case.options)
    if any(name in case.name for name in REFUSED):
        assert all(verdict == "right" or verdict.startswith("refused") for verdict in found.values())
        return
    if "Vectorizer" in case.name:
        assert found.pop("plain").startswith("refused")
    assert set(found.values()) == {"right"}
