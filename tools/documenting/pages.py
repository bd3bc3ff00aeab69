"""The hand-written pages, in ``docs`` and elsewhere in the repository, with every link resolved."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: Pages outside ``docs``, and their paths on the site.
ELSEWHERE = {
    "CHANGELOG.md": "reference/changelog.md",
    "SECURITY.md": "reference/security.md",
    "benchmarks/README.md": "why/benchmarks.md",
    "benchmarks/log.md": "why/benchmarks-log.md",
    "benchmarks/matrix.md": "reference/versions.md",
    "examples/README.md": "start/examples.md",
    **{
        str(path.relative_to(ROOT)): f"reference/packages/{path.parent.name.replace('_', '-')}.md"
        for path in sorted([*ROOT.glob("plugins/**/README.md"), *ROOT.glob("*/README.md")])
        if path.parent.name not in ("benchmarks", "examples", "docs")
    },
}

#: Links of the repository to generated pages: they lead to headings of this page.
REFERENCE = DOCS / "reference" / "index.md"
GENERATED = {
    "python-api": "reference/api/index.md",
    "commands": "reference/commands.md",
    "json-output": "reference/json.md",
    "entry-points": "reference/entry-points.md",
}

FENCE = re.compile(r"^(```|~~~).*?^\1[ ]*$", re.MULTILINE | re.DOTALL)
#: A table of contents, which is a comment in the repository and becomes a directive on the site.
TOCTREE = re.compile(r"^<!-- toctree\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def places() -> dict[Path, Path]:
    """Pages of the repository, each with its path on the site."""
    found = {path: path.relative_to(DOCS) for path in sorted(DOCS.rglob("*.md"))}
    return found | {ROOT / path: Path(place) for path, place in ELSEWHERE.items() if (ROOT / path).exists()}


def write(folder: Path) -> None:
    """Write the pages into a new folder. Raises ``SystemExit`` listing the dead links."""
    ignored = shutil.ignore_patterns("*.md", "__pycache__")
    shutil.copytree(DOCS, folder, ignore=ignored)
    known, dead = places(), []
    for path, place in known.items():
        text, lost = resolved(path, known)
        dead += [f"{path.relative_to(ROOT)}: {target}" for target in lost]
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    packages = sorted(place.stem for place in known.values() if place.parent == Path("reference/packages"))
    tree = "".join(f"{name}\n" for name in packages)
    (folder / "reference" / "packages" / "index.md").write_text(
        f"# Packages\n\n```{{toctree}}\n:maxdepth: 1\n\n{tree}```\n", "utf-8"
    )
    if dead:
        raise SystemExit("links that lead nowhere:\n" + "\n".join(dead))


def resolved(path: Path, known: dict[Path, Path]) -> tuple[str, list[str]]:
    """The text of a page with the links of the site, and the link targets that do not exist."""
    text, dead, parts, start = path.read_text("utf-8"), [], [], 0
    text = TOCTREE.sub(r"```{toctree}\n:hidden:\n\n\1```", text)

    def link(match: re.Match[str]) -> str:
        mark, said, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        name, _, anchor = target.partition("#")
        meant = Path(os.path.normpath(path.parent / name))
        if meant.is_dir() and meant / "README.md" in known:
            meant /= "README.md"
        if meant == REFERENCE and anchor in GENERATED:
            return f"{mark}[{said}]({os.path.relpath(GENERATED[anchor], known[path].parent)})"
        if meant in known or (DOCS in meant.parents and meant.is_file()):
            place = known.get(meant) or meant.relative_to(DOCS)
            address = os.path.relpath(place, known[path].parent) + (f"#{anchor}" if anchor else "")
            return f"{mark}[{said}]({address})"
        if not meant.exists():
            dead.append(target)
        file = str(meant.relative_to(ROOT))
        return f"`{file}`" if said.strip("`") == file else f"{said} (`{file}`)"

    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, LINK.sub(link, text[start:])]), dead
