"""Reproducible build of the wheels of all our packages: ``python tools/wheels.py FOLDER``.

``pip install --find-links FOLDER tenonnx`` and the like install from there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: The example plugin, which the tests of wheels install and no release publishes.
EXAMPLE = "tenonnx-acme"


def packages() -> dict[str, Path]:
    """The folder of each package, by its name."""
    patterns = ("bundle", "core", "contrib_ms", "onnx_ml", "quantized", "plugins/**", "examples/third_party_plugin")
    files = [file for pattern in patterns for file in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))]
    return {tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent for file in files}


def build(folder: Path, *options: str, source: bool = False) -> list[Path]:
    """Build all wheels, and with ``source`` the source distributions. ``options`` go to uv."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _date()}
    kinds = ["--wheel", "--sdist"] if source else ["--wheel"]
    line = ["uv", "build", "--quiet", "--out-dir", str(folder), *kinds, *options]
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]
    subprocess.run([*line, "--all-packages"], cwd=ROOT, env=environment, check=True)
    for apart in workspace["exclude"]:
        subprocess.run([*line, apart], cwd=ROOT, env=environment, check=True)
    return sorted(file for file in folder.iterdir() if file.suffix in (".whl", ".gz"))


def metadata(wheel: Path) -> Message:
    """Metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def _date() -> str:
    """Time of the last commit in seconds since the epoch, the timestamp of all files in a build."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    line = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("options", nargs="*", help="options of uv build, such as -- --offline")
    given = parser.parse_args()
    sys.stdout.write("\n".join(map(str, build(given.folder, *given.options))) + "\n")
