"""Fixtures of core's tests: ops of ``tiny`` and its Python operators on values."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def tiny_operators():
    import tiny

    from tenonnx.graph.definitions import defined_by

    with defined_by(tiny.registry()):
        yield


@pytest.fixture
def standard_operators(tiny_operators):
    """Python operators are those of the installed packages in this test."""
    from tenonnx.graph.definitions import defined_by
    from tenonnx.registry.registry import default_registry

    with defined_by(default_registry()):
        yield
