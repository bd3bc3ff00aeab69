"""``python -m tenonnx`` imports no module from the current folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("flags", [[], ["-P"]])
def test_no_module_is_taken_from_the_current_folder(flags: list[str], tmp_path: Path) -> None:
    for name in ("numpy", "click", "re", "json", "tenonnx_cli", "tenonnx_standard", "onnx", "typing"):
        (tmp_path / f"{name}.py").write_text("import os; open('taken', 'a').write(__name__)")
    command = [sys.executable, *flags, "-m", "tenonnx", "ops", "Relu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "taken").exists()
