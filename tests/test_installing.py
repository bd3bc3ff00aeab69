"""What pip is told to install from a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
PROJECTS = {
    (made := tomllib.loads(path.read_text("utf-8"))["project"])["name"]: (path.parent, made) for path in FOLDERS
}


def needed(name: str) -> set[Path]:
    """The folders of a package and of those of ours that it requires."""
    folder, project = PROJECTS[name]
    names = {re.split(r"[\s\[<>=!~;]", each)[0] for each in project["dependencies"]}
    return {folder}.union(*(needed(each) for each in names & PROJECTS.keys()))


def test_a_package_is_installed_with_those_of_ours_that_it_needs():
    """Alone pip looks for these on an index, where they are not."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    lines = [
        line for page in pages for line in re.findall(r"^\$ pip install (\./[^\n]*)", page.read_text("utf-8"), re.M)
    ]
    assert lines
    for line in lines:
        *others, last = ((ROOT / folder).resolve() for folder in line.split())
        name = tomllib.loads((last / "pyproject.toml").read_text("utf-8"))["project"]["name"]
        assert {*others, last} == needed(name), line
