import sys
import textwrap
from pathlib import Path

import pytest

from tenonnx.registry import discovery

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a package for one test: its entry points and modules."""
    site, modules = tmp_path / "site", set(sys.modules)
    before = list(sys.path)

    def installed(name, group, entry, text, value=None):
        module = name.replace("-", "_")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(textwrap.dedent(text))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {value or f'{module}:{entry}'}\n")
        sys.path[:] = [str(site), *before]
        discovery._everything.cache_clear()

    yield installed
    sys.path[:] = before
    discovery._everything.cache_clear()
    for module in [name for name in sys.modules if name not in modules and name.startswith("acme")]:
        del sys.modules[module]


@pytest.fixture
def installed(tmp_path):
    """A function that installs a distribution into its own folder: its entry points and modules."""

    def install(name, group, entry, text, module=None):
        module = module or name.replace("-", "_").lower()
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {module}\n")
        (info / "RECORD").write_text("")

    install.path = str(tmp_path)
    return install


@pytest.fixture(scope="module")
def python():
    from interpreters import Interpreters

    interpreters = Interpreters()
    yield interpreters
    interpreters.close()
