"""The PyTorch page of the documentation: its programs run, and its table matches the cases."""

import re
import sys
from pathlib import Path

import pytest
from modules import CASES, architectures, functions, layers, programs, sequences  # noqa: F401  (they register cases)

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "plugins" / "frontends" / "torch" / "benchmarks"))

import table  # noqa: E402


@pytest.mark.parametrize(
    "name",
    [
        "docs/how-to/devices.md",
        "docs/how-to/pytorch.md",
        "docs/how-to/to-torch-export.md",
        "docs/start/a-module.md",
        "plugins/frontends/torch/README.md",
    ],
)
def test_python_blocks_run(name, monkeypatch, tmp_path):
    text = (ROOT / name).read_text("utf-8")
    text = re.sub(r"(?ms)^## (?!PyTorch).*?(?=^## |\Z)", "", text) if name == "docs/how-to/devices.md" else text
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)


def test_the_table_of_components_is_that_of_the_cases():
    assert table.page(CASES) == table.PAGE.read_text("utf-8"), "run python plugins/frontends/torch/benchmarks/table.py"
