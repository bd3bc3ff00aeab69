"""Lazily imported modules of rules."""

import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tenonnx.errors import InvalidCall, PluginError
from tenonnx.op import rules
from tenonnx.op.rules import await_rules, find_rule
from tenonnx.registry.registry import Registry
from tenonnx_cli import main

OPS = """
from tenonnx.extend import op

@op("First", domain="awaited")
def first(x):
    return x

@op("Second", domain="awaited")
def second(x):
    return x
"""
#: Pauses the import between two rules, so that a consumer sees an incomplete module.
LATER = """
import time
from awaited.ops import first, second

first.rewrite(lambda x: needed)
time.sleep(0.05)
second.rewrite(lambda x: needed)
needed = "found"
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Factory of a package's ops and registry; arguments are the text of the module ``later``."""

    def made(text=LATER, /, **declared):
        folder = tmp_path / "awaited"
        folder.mkdir()
        for name, lines in {"__init__": "", "ops": OPS, "later": text}.items():
            (folder / f"{name}.py").write_text(lines)
        monkeypatch.syspath_prepend(str(tmp_path))
        registry = Registry()
        registry.add_package("awaited", **declared)
        return registry, importlib.import_module("awaited.ops")

    monkeypatch.setattr(rules, "_awaited", {})
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "awaited"]:
        del sys.modules[name]


def test_rules_are_imported_for_the_consumers_that_they_are_declared_for(package):
    registry, ops = package(later="rewrite normal")
    assert registry.lookup("awaited", "First", 1) is ops.first
    assert find_rule(ops.first, "numpy") is None
    assert "awaited.later" not in sys.modules
    assert find_rule(ops.first, "rewrite")(1) == "found"
    assert find_rule(ops.first, "normal") is None
    assert rules._awaited == {}


def test_modules_that_are_not_declared_are_imported_with_the_package(package):
    _, ops = package()
    assert set(ops.first.rules) == {"rewrite"}


def test_concurrent_threads_find_complete_rules(package):
    _, ops = package(later="rewrite")
    barrier = threading.Barrier(8, timeout=300)

    def ask(_):
        barrier.wait()
        return [find_rule(op, "rewrite")(1) for op in (ops.first, ops.second)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [["found", "found"]] * 8


def test_rules_added_during_imports_are_still_awaited(package):
    _, ops = package("from tenonnx.op.rules import await_rules\nawait_rules('more', ['rewrite'])\n", later="rewrite")
    find_rule(ops.first, "rewrite")
    assert rules._awaited == {"rewrite": ["more"]}


def test_ops_stay_as_defined_by_their_package(package):
    _, ops = package(later="rewrite")
    with pytest.raises(PluginError, match="was changed after the import of awaited"):
        ops.second.rewrite(lambda x: x)
    assert find_rule(ops.second, "rewrite")(1) == "found"
    with pytest.raises(PluginError, match="was changed after the import of awaited"):
        ops.second.rule("normal", lambda x: x)


def test_a_module_that_is_not_there_is_refused_with_those_that_are(package):
    with pytest.raises(PluginError, match="rule modules were declared that awaited does not have") as caught:
        package(latter="rewrite")
    assert "latter" in str(caught.value)
    assert "later, ops" in str(caught.value)


def test_an_unknown_consumer_is_refused():
    with pytest.raises(InvalidCall, match=r"awaited\.later: unknown kind of rule"):
        await_rules("awaited.later", ["rewrit"])


def test_a_module_that_cannot_be_imported_is_named_to_whoever_asks(package):
    _, ops = package("import nothing_like_it\n", later="rewrite")
    for _ in range(2):
        with pytest.raises(PluginError, match=r"cannot import awaited\.later, .* rules for rewrite") as caught:
            find_rule(ops.first, "rewrite")
        assert "nothing_like_it" in str(caught.value)
    assert find_rule(ops.first, "numpy") is None


def test_a_check_of_the_plugins_imports_what_is_awaited(package, capsys):
    package("import nothing_like_it\n", later="rewrite normal")
    assert main(["plugins"]) == 0
    assert "awaited.later" not in capsys.readouterr().err
    assert main(["plugins", "--check"]) == 1
    printed = capsys.readouterr().err
    assert printed.count("cannot import awaited.later") == 1
    assert "nothing_like_it" in printed
