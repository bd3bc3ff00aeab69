"""Smoke tests of imports: every module imports, or lacks only the requirement of an extra."""

import importlib
import re
from importlib.metadata import distribution, distributions
from pathlib import PurePosixPath

import pytest

OURS = sorted({d.name for d in distributions() if re.match(r"tenonnx(-|$)", d.name)} - {"tenonnx-workspace"})
MODULES = [
    (name, ".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for name in OURS
    for path in map(PurePosixPath, sorted(map(str, distribution(name).files or ())))
    if path.suffix == ".py" and path.name != "__main__.py" and "template" not in path.parts
]


def required(name: str) -> set[str]:
    """Required distributions of a package, without extras."""
    lines = distribution(name).requires or []
    return {re.split(r"[^A-Za-z0-9_-]", line)[0].lower().replace("-", "_") for line in lines if "extra ==" not in line}


def test_there_are_packages():
    assert "tenonnx-core" in OURS
    assert len(MODULES) > 100


@pytest.mark.parametrize(("name", "module"), MODULES, ids=[module for _, module in MODULES])
def test_imports(name, module):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        assert (error.name or "").split(".")[0].lower() not in required(name) | {"tenonnx"}, error
        pytest.skip(f"an extra of {name} brings {error.name}")
