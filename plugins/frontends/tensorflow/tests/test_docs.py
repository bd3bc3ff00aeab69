"""The TensorFlow page of the documentation and the README: their programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tenonnx_tensorflow.rules import RULES

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", ["docs/how-to/tensorflow.md", "plugins/frontends/tensorflow/README.md"])
def test_python_blocks_run(name: str, monkeypatch: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)
    RULES.pop("AcmeScale", None)
