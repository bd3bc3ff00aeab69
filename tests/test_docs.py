"""The programs in the documentation run, block after block."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/architecture.md",
        "docs/writing-a-plugin.md",
        "plugins/training/README.md",
        "onnx_ml/README.md",
    ],
)
def test_python_blocks_run(name, monkeypatch, tmp_path):
    text = (ROOT / name).read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": f"docs.{Path(name).stem}"}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)
