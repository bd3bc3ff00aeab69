"""The notebooks in ``examples``, with the output of their cells."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"

HEAD = """# Notebooks

Each is in `examples/notebooks`, and runs in less than a minute.

```{toctree}
:maxdepth: 1

"""


def write(folder: Path, *, run: bool) -> None:
    """Copy the notebooks, with ``run`` after executing them in their folder. Raises the error of a cell."""
    folder.mkdir(parents=True)
    names = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        if run:
            NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
        nbformat.write(notebook, folder / path.name)
        names.append(path.stem)
    (folder / "index.md").write_text(HEAD + "\n".join(names) + "\n```\n", "utf-8")
