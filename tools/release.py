"""Makes a release: ``python tools/release.py VERSION`` sets the version, writes the changelog, builds and checks.

It leaves in ``dist`` the wheels and source distributions of all our packages, which are reproducible byte by byte, and
a list of their requirements (``sbom.cdx.json``, CycloneDX). It publishes nothing: commit the changes, tag the commit
``vVERSION`` and push the tag; ``.github/workflows/release.yml`` then builds again and publishes. ``--check`` changes no
file and does the rest with the present version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from public_api import write as write_api
from wheels import EXAMPLE, ROOT, build, metadata, packages

CHANGELOG = ROOT / "CHANGELOG.md"

#: Packages to install, one after the other in one environment.
ORDER = ("tenonnx", "tenonnx[training]", "tenonnx[all]")


class Refused(Exception):
    """A reason why the release cannot be made."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="?", help="such as 0.2.0 or 0.2.0rc1")
    parser.add_argument("--check", action="store_true", help="change no file, and build the version that is there")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to fill (default dist)")
    given = parser.parse_args()
    if bool(given.version) == given.check:
        parser.error("give a VERSION or --check")
    try:
        if given.version:
            prepare(given.version)
        built = build_twice(given.out)
        for file in built:
            check_contents(file)
        check_with_tools(built)
        write_sbom(given.out)
        install_and_try(given.out)
    except Refused as error:
        sys.stderr.write(f"no release: {error}\n")
        return 1
    sys.stdout.write(f"{len(built)} files in {given.out} are ready\n")
    return 0


# ----- what a release changes -----------------------------------------------------------------------------------------


def prepare(version: str) -> None:
    """Set the version, and move the fragments of ``changes`` into the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise Refused(f"a version is like 0.2.0 or 0.2.0rc1, not {version!r}")
    if _said("git", "status", "--porcelain"):
        raise Refused("there are changes that are not committed")
    if f"v{version}" in _said("git", "tag").split():
        raise Refused(f"there is a tag v{version} already")
    fragments = [file for file in (ROOT / "changes").glob("*.md") if file.name != "README.md"]
    first = "\n## Unreleased" in CHANGELOG.read_text("utf-8")
    if not fragments and not first:
        raise Refused("the folder changes says of nothing that changed")
    set_version(version)
    write_api()
    _tool("towncrier", "build", "--yes", "--version", version)
    text = CHANGELOG.read_text("utf-8")
    CHANGELOG.write_text(re.sub(r"\n## Unreleased[^\n]*\n", "\n", text, count=1), encoding="utf-8")
    _call("uv", "lock", "--quiet")


def set_version(version: str) -> None:
    """Set the version of each package, of its requirements on our packages, and in core's source."""
    for name, folder in packages().items():
        if name != EXAMPLE:
            file = folder / "pyproject.toml"
            _replace(file, r'(?m)^version = "[^"]+"', f'version = "{version}"')
            bounds = re.sub(r'("tenonnx[^"~]*)~=[^"]+"', rf'\1~={version}"', file.read_text("utf-8"))
            file.write_text(bounds, encoding="utf-8")
    _replace(ROOT / "core/src/tenonnx/__init__.py", r'(?m)^__version__ = "[^"]+"', f'__version__ = "{version}"')
    _replace(ROOT / "recipe/recipe.yaml", r'(?m)^  version: "[^"]+"', f'  version: "{version}"')


def _replace(file: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, file.read_text("utf-8"))
    if count != 1:
        raise Refused(f"{file.relative_to(ROOT)} does not say its version once")
    file.write_text(changed, encoding="utf-8")


# ----- what is built --------------------------------------------------------------------------------------------------


def build_twice(out: Path) -> list[Path]:
    """Build into ``out``, which is emptied before, and again elsewhere. Raises ``Refused`` if the bytes differ."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    built = [file for file in build(out, source=True) if not file.name.startswith(EXAMPLE.replace("-", "_"))]
    with tempfile.TemporaryDirectory() as name:
        again = {file.name: _digest(file) for file in build(Path(name), source=True)}
    for file in set(out.iterdir()) - set(built):
        file.unlink()
    unlike = [file.name for file in built if again.get(file.name) != _digest(file)]
    if unlike:
        raise Refused(f"two builds differ: {', '.join(unlike)}")
    return built


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_contents(file: Path) -> None:
    """Check that a file has its sources and the license, and no generated files such as bytecode."""
    names = _names(file)
    if not any(Path(name).name == "LICENSE" for name in names):
        raise Refused(f"{file.name} has no LICENSE")
    unwanted = [name for name in names if re.search(r"__pycache__|\.pyc$|(^|/)\.(?!gitignore$)|\.egg-info", name)]
    if unwanted:
        raise Refused(f"{file.name} has files that no source is: {', '.join(unwanted[:3])}")
    if file.suffix == ".whl":
        package = file.name.split("-")[0]
        roots = {"tenonnx" if package == "tenonnx_core" else package, f"{'-'.join(file.name.split('-')[:2])}.dist-info"}
        others = sorted({name.split("/")[0] for name in names} - roots)
        if others:
            raise Refused(f"{file.name} has {', '.join(others)} beside its package")


def _names(file: Path) -> list[str]:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return wheel.namelist()
    with tarfile.open(file) as source:
        return [member.name.partition("/")[2] for member in source.getmembers()]


def check_with_tools(files: list[Path]) -> None:
    _tool("twine", "check", "--strict", *map(str, files))
    # W007, W008, W009: tenonnx has no module, since it only requires the others; a wheel may have several packages
    wheels = [str(file) for file in files if file.suffix == ".whl"]
    _tool("check-wheel-contents", "--ignore", "W007,W008,W009", *wheels)


def write_sbom(out: Path) -> None:
    """Write the published files with their digests, and their requirements at the versions in the lock file."""
    line = "uv export --quiet --locked --no-dev --all-packages --format cyclonedx1.5 --preview-features sbom-export"
    found = json.loads(_said(*line.split()))
    del found["serialNumber"], found["metadata"]["timestamp"]  # keeps the file reproducible
    wheels = {entry["Name"]: (file, entry) for file in sorted(out.glob("*.whl")) for entry in [metadata(file)]}
    known = {EXAMPLE, "tenonnx-workspace", *wheels}
    components = [each for each in found["components"] if each["name"] not in known]
    edges = [each for each in found["dependencies"] if each["ref"] in {c["bom-ref"] for c in components}]
    found["metadata"]["component"] = {
        "type": "application",
        "name": "tenonnx",
        "version": wheels["tenonnx"][1]["Version"],
    }
    refs = {each["name"]: each["bom-ref"] for each in components} | {name: name for name in wheels}
    for name, (file, entry) in wheels.items():
        needs = [Requirement(each) for each in entry.get_all("Requires-Dist") or ()]
        needs = [each for each in needs if each.marker is None or each.marker.evaluate({"extra": ""})]
        components += [
            {"type": "library", "bom-ref": each.name, "name": each.name, "description": f"{each}, of any such version"}
            for each in needs
            if each.name not in refs
        ]
        refs.update({each.name: each.name for each in needs if each.name not in refs})
        components.append(
            {
                "type": "library",
                "bom-ref": name,
                "name": name,
                "version": entry["Version"],
                "purl": f"pkg:pypi/{name}@{entry['Version']}",
                "licenses": [{"expression": entry["License-Expression"]}],
                "hashes": [{"alg": "SHA-256", "content": _digest(file)}],
            }
        )
        edges.append({"ref": name, "dependsOn": sorted(refs[each.name] for each in needs)})
    found |= {"components": components, "dependencies": edges}
    (out / "sbom.cdx.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


# ----- what users do with it ------------------------------------------------------------------------------------------

_BLOCKS = """
import re, sys
blocks = re.findall(r"```python\\n(.*?)```", open(sys.argv[1], encoding="utf-8").read(), re.DOTALL)
scope = {"__name__": "readme"}
for block in [block for block in blocks if not block.startswith("# tenonnx_acme")]:
    exec(compile(block, "README.md", "exec"), scope)
print(len(blocks), "blocks of README.md ran")
"""


def install_and_try(out: Path) -> None:
    """Install from the folder as users do, then run the examples of README.md."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _call("uv", "venv", "--quiet", "--no-python-downloads", str(folder / "env"))
        python = str(folder / "env/bin/python")
        for wanted in ORDER:
            line = ["uv", "pip", "install", "--quiet", "--python", python, "--find-links", str(out.absolute())]
            _call(*line, "--reinstall-package", "tenonnx", wanted)
        (folder / "work").mkdir()
        (folder / "work/examples").symlink_to(ROOT / "examples")
        _call(python, "-c", _BLOCKS, str(ROOT / "README.md"), cwd=folder / "work")
        _call(str(folder / "env/bin/tenonnx"), "plugins", "--check", cwd=folder / "work")


def _tool(*line: str) -> None:
    _call("uv", "run", "--quiet", "--isolated", "--only-group", "release", *line)


def _said(*line: str) -> str:
    return subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _call(*line: str, cwd: Path = ROOT) -> None:
    done = subprocess.run(line, cwd=cwd, check=False, capture_output=True, text=True, env={**os.environ})
    if done.returncode:
        raise Refused(f"{' '.join(line[:8])} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
