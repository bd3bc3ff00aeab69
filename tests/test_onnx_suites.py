"""The model files of the onnx package: models that PyTorch exported, small ones by hand, and nine real networks."""

import onnx_suites
import pytest
from onnx.backend.test.loader import load_model_tests

KINDS = ("pytorch-converted", "pytorch-operator", "simple", "real")
CASES = {f"{kind}/{case.name}": case for kind in KINDS for case in load_model_tests(kind=kind)}


def test_the_suites_are_there():
    assert len(CASES) >= 149


@pytest.mark.parametrize("backend", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_suite(name, backend):
    onnx_suites.skip_if_not_provided(CASES[name])
    onnx_suites.check(CASES[name], backend)
