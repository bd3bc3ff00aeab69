"""What all tests share: properties draw the same examples in each run, and none fails for being slow."""

import gc
import os

import numpy as np
import pytest
from hypothesis import settings

# The processes that pytest starts share the cores: threads of each would wait for those of the others, at full load.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile("repository", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repository")

#: What takes long begins first, so that no process waits for it at the end, and what reads the cases of onnx stays
#: together, as it takes a process ten seconds to have them.
LONG = (
    "test_new_package", "test_independence", "test_fuzzing", "test_onnx_backend", "test_report", "test_type_rules",
    "test_types", "test_onnx_node_suite",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """Let a test draw the same numbers from its module's ``RANDOM``, whichever tests ran before."""
    module = getattr(request.node, "module", None)
    if hasattr(module, "RANDOM"):
        module.RANDOM = np.random.default_rng(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end, and most of its rounds."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
