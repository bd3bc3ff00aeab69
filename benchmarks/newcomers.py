"""Time of the commands on each page of docs/start: ``python benchmarks/newcomers.py``.

Runs the commands of the pages in a fresh clone, after writing the programs of the pages to the files that they name.
``--cold`` begins with empty caches of uv and pip, as on a new machine. ``--torch`` is a PyTorch requirement, which is
installed for the page about modules before the clock starts.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
START = ROOT / "docs/start"
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)

#: By page: whether to run the installation of the index first, the file of its programs, and their number.
PAGES = {"a-file": (True, "", 0), "a-module": (False, "net.py", 1), "an-op": (True, "squareplus.py", 2)}


def commands(page: str) -> list[str]:
    """Commands of a page, after the installation command of the index if the page requires it."""
    own = COMMAND.findall((START / f"{page}.md").read_text("utf-8"))
    return COMMAND.findall((START / "index.md").read_text("utf-8"))[:1] * PAGES[page][0] + own


def measure(page: str, folder: Path, environment: dict[str, str], torch: str) -> None:
    clone = folder / page
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / f"{page}-env")], check=True)
    first = f"cd {clone} && source {folder}/{page}-env/bin/activate"
    _, file, count = PAGES[page]
    if file:
        programs = PYTHON.findall((START / f"{page}.md").read_text("utf-8"))
        (clone / file).write_text("\n\n".join(programs[:count]), "utf-8")
    if page == "a-module":
        subprocess.run(["bash", "-ec", f"{first} && pip install --quiet {torch}"], check=True, env=environment)
    lines, total = [first], 0.0
    for command in commands(page):
        start = time.monotonic()
        # one shell, since these lines activate an environment
        script = "\n".join([*(line for line in lines if "activate" in line), command])
        lines.append(command.rpartition(" && ")[2] if "activate" in command else "")
        done = subprocess.run(["bash", "-ec", script], cwd=clone, env=environment, capture_output=True, text=True)
        spent = time.monotonic() - start
        total += spent
        print(f"  {spent:6.1f} s  {command[:100]}")
        if done.returncode:
            raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-3000:]}")
    print(f"{page}: {len(commands(page))} commands, {total:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", default=list(PAGES), metavar="PAGE", help=", ".join(PAGES))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--torch", default="torch==2.13.0")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
        if given.cold:
            environment |= {"UV_CACHE_DIR": str(folder / "uv"), "PIP_CACHE_DIR": str(folder / "pip")}
        for page in given.pages:
            measure(page, folder, environment, given.torch)


if __name__ == "__main__":
    main()
