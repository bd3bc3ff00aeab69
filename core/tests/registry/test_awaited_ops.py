"""Lazily imported modules of ops."""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenonnx.errors import PluginError, PluginWarning
from tenonnx.extend import op
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.registry import Registry

DEFINE = """
from tenonnx.extend import op

@op("{name}", domain="demanded")
def {function}(x):
    return x
"""
MODULES = {
    "plugin": "from tenonnx.extend import hookimpl\n\n@hookimpl\ndef register_ops(registry):\n"
    "    registry.add_package('demanded')\n",
    "first": DEFINE.format(name="First", function="first"),
    "second": DEFINE.format(name="Second", function="second"),
    "older": "from demanded.second import second\n\n@second.until(1_000)\ndef second_old(x):\n    return x\n"
    "second_old.rewrite(lambda x: x)\n",
}
INDEX = {"demanded": {"First": "first", "Second": "second older"}}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Factory of a registry with an indexed package; arguments are further modules as text."""

    def made(**texts):
        folder = tmp_path / "demanded"
        folder.mkdir()
        for name, text in {"__init__": "", **MODULES, **texts}.items():
            (folder / f"{name}.py").write_text(text)
        (folder / "ops.json").write_text(json.dumps(INDEX))
        monkeypatch.syspath_prepend(str(tmp_path))
        return Registry([plugin("demanded.plugin")])

    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "demanded"]:
        del sys.modules[name]


def plugin(module, distribution="demanded"):
    return Plugin("demanded", module, "tenonnx.ops", distribution, "1.0")


def imported():
    return {name.partition(".")[2] for name in sys.modules if name.startswith("demanded.")} - {"plugin"}


def test_looking_up_an_op_only_imports_its_modules(package):
    registry = package()
    registry.load("demanded")
    assert imported() == set()
    assert registry.domains() == ["demanded"]
    assert registry.lookup("demanded", "First", 1).name == "First"
    assert imported() == {"first"}
    assert [m.__name__ for m in registry.meanings("demanded", "Second")] == ["second", "second_old"]
    assert imported() == {"first", "second", "older"}
    assert registry.source(registry.lookup("demanded", "Second", 1)) == "demanded 1.0"


def test_whoever_asks_for_all_ops_has_them(package):
    assert {op.name for op in package().ops("demanded")} == {"First", "Second"}
    assert imported() == {"first", "second", "older"}


def test_a_check_of_all_packages_imports_every_module(package):
    registry = package(second="import nothing_like_it\n")
    with pytest.warns(PluginWarning, match="demanded 1.0 could not"):
        registry.load_all()
    assert "nothing_like_it" in str(next(iter(registry.failures.values())))


def test_an_op_that_is_used_and_not_asked_for_has_its_source(package):
    registry = package()
    registry.load("demanded")
    from demanded.first import first

    assert registry.source(first) == "demanded 1.0"


def test_a_package_adds_no_more_ops_after_a_module_failed(package):
    registry = package(second="import nothing_like_it\n")
    with pytest.warns(PluginWarning, match="demanded 1.0 could not"):
        assert registry.lookup("demanded", "Second", 1) is None
    assert registry.lookup("demanded", "First", 1) is None
    (failure,) = registry.failures.values()
    assert "could not be imported" in str(failure)
    assert "second.py:1" in str(failure)


def test_a_package_adds_no_more_ops_after_a_module_tried_to_exit(package):
    registry = package(second="raise SystemExit(3)\n")
    with pytest.warns(PluginWarning, match="SystemExit"):
        assert registry.lookup("demanded", "Second", 1) is None
    assert "SystemExit" in str(next(iter(registry.failures.values())))


def test_the_first_of_two_packages_has_an_op_independent_of_the_order_of_lookups(package, tmp_path):
    registry = package()
    hook = MODULES["plugin"].replace("add_package('demanded')", "add(other)")
    (tmp_path / "demanding.py").write_text(DEFINE.format(name="First", function="other") + hook)
    registry = Registry([plugin("demanding", "another"), plugin("demanded.plugin")])
    with pytest.warns(PluginWarning, match="First of demanded 1.0 left out, as another 1.0 has the first claim"):
        assert registry.source(registry.lookup("demanded", "First", 1)) == "another 1.0"
    assert registry.source(registry.lookup("demanded", "Second", 1)) == "demanded 1.0"


def test_a_program_adds_no_op_that_a_package_awaits(package):
    registry = package()
    registry.load("demanded")

    @op("First", domain="demanded")
    def mine(x):
        return x

    with pytest.raises(PluginError, match="is defined twice"):
        registry.add(mine)


def test_threads_that_ask_at_once_all_find_the_op(package):
    registry = package(second="import time\ntime.sleep(0.05)\n" + MODULES["second"])
    registry.load("demanded")
    barrier = threading.Barrier(8, timeout=300)

    def ask(_):
        barrier.wait()
        return len(registry.meanings("demanded", "Second"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [2] * 8
