"""Tests of the documentation: programs and commands run in order and print the output shown on the page."""

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tenonnx.tools import GROUPS
from tenonnx_cli import main

ROOT = Path(__file__).parent.parent
#: A program, and its output if a text block follows directly.
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
#: Commands with their output; ``console fails`` marks commands that exit with an error.
CONSOLE = re.compile(r"^```console( fails)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ tenonnx (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)

#: Pages whose programs need a framework, with the packages whose tests run them.
OF_FRAMEWORKS = {
    "docs/how-to/devices.md": "torch",
    "docs/how-to/jax.md": "jax",
    "docs/how-to/pytorch.md": "torch",
    "docs/how-to/tensorflow.md": "tensorflow",
    "docs/how-to/to-openvino.md": "openvino",
    "docs/how-to/to-stablehlo.md": "jax",
    "docs/how-to/to-torch-export.md": "torch",
    "docs/how-to/transformers.md": "transformers",
    "docs/start/a-module.md": "torch",
    "plugins/frontends/jax/README.md": "jax",
    "plugins/frontends/tensorflow/README.md": "tensorflow",
    "plugins/frontends/torch/README.md": "torch",
    "plugins/frontends/transformers/README.md": "transformers",
}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "plugins/**/README.md")
    for path in ROOT.glob(pattern)
)
HERE = [name for name in PAGES if name not in OF_FRAMEWORKS]


def programs(name):
    """The programs of a page, each with its output, or an empty string if the page does not show it."""
    return PYTHON.findall((ROOT / name).read_text("utf-8"))


def commands(name):
    """The commands of a page, each with its output and whether it fails.

    ``console no-run`` marks blocks that need files of the reader.
    """
    blocks = CONSOLE.findall((ROOT / name).read_text("utf-8")) if name.startswith("docs/") else ()
    return [(command, bool(fails), shown) for fails, block in blocks for command, shown in COMMAND.findall(block)]


def assert_shown(shown, printed):
    """Compare the output on a page with the printed one: three dots match anything, white space any white space."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not shown or doctest.OutputChecker().check_output(shown, printed, options), printed


@pytest.mark.parametrize("name", [name for name in HERE if programs(name) or commands(name)])
def test_the_page_runs(name, monkeypatch, tmp_path, capsys):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": f"docs.{Path(name).stem}"}
    for block, shown in programs(name):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, name, "exec"), scope)
        assert_shown(shown, printed.getvalue())
    for archive in scope.values():
        if isinstance(archive, np.lib.npyio.NpzFile):
            archive.close()  # at the end of a program Python would close it
    capsys.readouterr()
    for command, fails, shown in commands(name):
        code = main(shlex.split(command))
        printed = capsys.readouterr()
        assert (code != 0) == fails, (command, printed)
        assert_shown(shown, printed.out + printed.err)


@pytest.mark.parametrize(("name", "package"), OF_FRAMEWORKS.items())
def test_pages_of_frameworks_run_in_the_tests_of_a_package(name, package):
    assert programs(name)
    tests = (ROOT / "plugins").glob(f"*/{package}/tests/test_*.py")
    assert any(f'"{name}"' in path.read_text("utf-8") for path in tests)


def tool(name):
    """Import a module of the site generator."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "documenting" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_link_is_dead():
    pages = tool("pages")
    known = pages.places()
    assert len(known) > 40
    dead = {str(path): pages.resolved(path, known)[1] for path in known}
    assert not {path: links for path, links in dead.items() if links}


PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_has_both_themes_and_no_local_path(path):
    text = path.read_text("utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text) < 32_768
    assert "@media(prefers-color-scheme:dark)" in text
    assert 'class="ground"' in text, "a page may be dark where the system is light"
    result = re.findall(r"(?<![\w.])(?:[A-Za-z]:\\|/)(?:Users|home|root|tmp|var|opt|usr|mnt|private)\b.*", text)
    assert not result
    assert str(ROOT) not in text
    assert not re.findall(r"(?:href|src|url)=|@import|@font-face", text), "nothing is loaded from elsewhere"


def test_every_picture_is_on_a_page():
    shown = "".join((ROOT / name).read_text("utf-8") for name in PAGES)
    assert not [path.name for path in PICTURES if f"pictures/{path.name})" not in shown]


def test_pictures_of_terminals_show_the_commands_of_the_page():
    """``tools/pictures.py`` updates them."""
    page = (ROOT / "docs" / "start" / "command-line.md").read_text("utf-8")
    shown = re.findall(r"^\$ (.*)\n```\n\n!\[.*\]\(\.\./(pictures/.*)\)$", page, re.MULTILINE)
    assert len(shown) == page.count("```console") == 6
    for command, picture in shown:
        texts = ElementTree.parse(ROOT / "docs" / picture).iter("{http://www.w3.org/2000/svg}text")
        assert "".join(text.text for text in texts).startswith(f"$ {command}"), "run tools/pictures.py"


def test_every_group_of_entry_points_has_a_section(tmp_path, monkeypatch):
    made = tool("entry_points")
    made.write(tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text("utf-8")
    for name, group in GROUPS.items():
        assert f"\n## {name}\n" in page
        assert page.count(f"The value must be {group.needs}.") >= 1
    assert "| `com.microsoft` | `tenonnx_contrib_ms.plugin` | tenonnx-contrib-ms |" in page
    monkeypatch.setattr(made, "GROUPS", {**GROUPS, "tenonnx.new": next(iter(GROUPS.values()))})
    with pytest.raises(KeyError, match=r"tenonnx\.new"):  # a new group needs a description
        made.write(tmp_path / "page.md")


def test_every_key_of_json_has_a_row(tmp_path):
    made = tool("json_output")
    made.write(tmp_path / "page.md", tmp_path)
    page = (tmp_path / "page.md").read_text("utf-8")
    result = list(made.every_key())
    assert len(result) > 400
    for command, key in result:
        part = page.partition(f"## tenonnx {command}\n")[2].partition("\n## ")[0]
        assert not key or f"| `{key}` |" in part.replace("?", ""), key
    assert (tmp_path / "json.schema.json").is_file()


def test_an_op_of_a_script_runs(tmp_path):
    """A script cannot ship a table of element types."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nfrom tenonnx.extend import op\n\n"
        "@op('Twice', domain='org.lab', since=1)\ndef twice(X):\n    return X * 2.0\n\n"
        "print(twice(np.ones(2, np.float32)))\n"
    )
    result = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    assert result.stdout == "[2. 2.]\n"
