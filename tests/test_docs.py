"""The programs in the documentation run, block after block."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tenonnx_cli import main

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "SECURITY.md",
        "docs/why/architecture.md",
        "docs/how-to/writing-a-plugin.md",
        "docs/reference/rules-and-hooks.md",
        "docs/how-to/editing.md",
        "docs/how-to/recipes.md",
        "plugins/training/README.md",
        "onnx_ml/README.md",
        "quantized/README.md",
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
    for archive in scope.values():
        if isinstance(archive, np.lib.npyio.NpzFile):
            archive.close()  # a program's end closes it


@pytest.mark.parametrize("name", ["docs/how-to/editing.md", "docs/how-to/recipes.md"])
def test_commands_run(name, monkeypatch, tmp_path):
    commands = re.findall(r"^\$ tenonnx (.*)$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
    assert commands
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        assert main(shlex.split(command)) == 0, command


def test_an_op_of_a_script_runs(tmp_path):
    """A script is no package that could ship a table of element types."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nfrom tenonnx.extend import op\n\n"
        "@op('Twice', domain='org.lab', since=1)\ndef twice(X):\n    return X * 2.0\n\n"
        "print(twice(np.ones(2, np.float32)))\n"
    )
    found = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    assert found.stdout == "[2. 2.]\n"
