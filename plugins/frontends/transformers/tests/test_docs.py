"""Programs of the documentation page on transformers and of the README run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", ["docs/how-to/transformers.md", "plugins/frontends/transformers/README.md"])
def test_python_blocks_run(name, monkeypatch, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)
