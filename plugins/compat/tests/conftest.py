import sys
from pathlib import Path

import pytest

from tenonnx_compat import refusal

TRAINING = Path(__file__).parents[2] / "training" / "tests"

sys.path.insert(0, str(TRAINING))  # its models


@pytest.fixture(autouse=True)
def announced(monkeypatch):
    """Reset the announced calls before each test; announcements warn only in tests that check for them."""
    monkeypatch.setattr(refusal, "_announced", set())


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::tenonnx_compat.CompatWarning"))
