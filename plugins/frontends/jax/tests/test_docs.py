"""The JAX page of the documentation and the README: their programs run."""

import re
from pathlib import Path

import pytest
from components import PAGE, page

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    "name", ["docs/how-to/jax.md", "docs/how-to/to-stablehlo.md", "plugins/frontends/jax/README.md"]
)
def test_python_blocks_run(name, monkeypatch, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    assert blocks
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, name, "exec"), scope)


def test_the_section_on_devices_runs(monkeypatch, tmp_path):
    text = (ROOT / "docs/how-to/devices.md").read_text("utf-8").split("## JAX")[1].split("\n## ")[0]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "devices", "exec"), {"__name__": "page"})


def test_the_table_of_components_is_that_of_the_cases():
    assert PAGE.read_text("utf-8") == page(), "run plugins/frontends/jax/tests/components.py"
