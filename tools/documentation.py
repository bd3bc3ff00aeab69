"""Build the documentation site into ``build/site``: the pages in ``docs``, and pages generated from the code.

    python -m pip install -r docs/requirements.txt       # once
    python tools/documentation.py --serve                # build, then show it at http://127.0.0.1:8008

Warnings, dead links and failing notebook cells are errors. ``--no-notebooks`` shows notebooks without running them.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import subprocess
import sys
from pathlib import Path

from documenting import api, commands, entry_points, json_output, notebooks, ops, pages

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"


def build(*, run_notebooks: bool) -> Path:
    """Build the site and return its folder. Raises ``SystemExit`` after a warning, a dead link or a failing cell."""
    source, site = BUILD / "pages", BUILD / "site"
    shutil.rmtree(source, ignore_errors=True)
    pages.write(source)
    ops.write(source / "ops")
    commands.write(source / "reference" / "commands.md")
    json_output.write(source / "reference" / "json.md", source / "_static")
    entry_points.write(source / "reference" / "entry-points.md")
    api.write(source / "reference" / "api")
    notebooks.write(source / "start" / "notebooks", run=run_notebooks)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
    done = subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(site)], check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(done.returncode)
    return site


def serve(site: Path, port: int) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        sys.stdout.write(f"http://127.0.0.1:{port}\n")
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="show the site when it is built")
    parser.add_argument("--port", type=int, default=8008)
    parser.add_argument("--no-notebooks", action="store_true", help="do not run the notebooks")
    given = parser.parse_args()
    site = build(run_notebooks=not given.no_notebooks)
    sys.stdout.write(f"{site / 'index.html'}\n")
    if given.serve:
        serve(site, given.port)


if __name__ == "__main__":
    main()
