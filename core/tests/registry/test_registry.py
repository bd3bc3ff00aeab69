"""The registry: ranges of versions, conflicts, and plugins that fail."""

import sys
import textwrap

import pytest
import tiny

from tenonnx.errors import PluginError
from tenonnx.extend import op
from tenonnx.op.op import Opaque
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.registry import Registry


def test_lookup_takes_the_meaning_that_holds():
    registry = tiny.registry()
    assert registry.lookup("tiny", "Affine", 3) is tiny.shift_first
    assert registry.lookup("tiny", "Affine", 4) is tiny.affine
    assert registry.lookup("tiny", "Affine", 99) is tiny.affine
    assert registry.lookup("tiny", "OnlyNew", 3) is None
    assert isinstance(registry.resolve("tiny", "Nothing", 1), Opaque)


def test_two_claims_of_one_op_raise_and_name_both():
    @op("Double", domain="tiny")
    def other(x):
        return x

    registry = tiny.registry()
    with pytest.raises(PluginError, match="must be defined once") as caught:
        registry.add(other)
    assert "this program" in str(caught.value)


def test_two_ops_of_one_name_may_divide_the_versions():
    registry = Registry()

    @op("Thing", domain="tiny", since=1, before=5)
    def old(x):
        return x

    @op("Thing", domain="tiny", since=5)
    def new(x):
        return x

    registry.add(old, new)
    assert registry.lookup("tiny", "Thing", 4) is old
    assert registry.lookup("tiny", "Thing", 5) is new


def plugin_from(tmp_path, monkeypatch, name, text):
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return Plugin("tiny", name, "tenonnx.ops", f"dist-{name}", "1.0")


GOOD = """
    from tenonnx.extend import hookimpl, op

    @op("FromPlugin", domain="tiny")
    def from_plugin(x):
        return x

    @hookimpl
    def register_ops(registry):
        registry.add(from_plugin)
"""


def test_only_the_domains_asked_for_are_imported(tmp_path, monkeypatch):
    plugin = plugin_from(tmp_path, monkeypatch, "tenonnx_test_good", GOOD)
    registry = Registry([plugin])
    registry.lookup("other", "Thing", 1)
    assert "tenonnx_test_good" not in sys.modules
    found = registry.lookup("tiny", "FromPlugin", 1)
    assert registry.source(found) == "dist-tenonnx_test_good 1.0"


def test_a_plugin_that_fails_is_reported_and_takes_no_other_down(tmp_path, monkeypatch):
    bad = plugin_from(tmp_path, monkeypatch, "tenonnx_test_bad", "import no_such_module_anywhere")
    good = plugin_from(tmp_path, monkeypatch, "tenonnx_test_good", GOOD)
    registry = Registry([bad, good])
    assert registry.lookup("tiny", "FromPlugin", 1) is not None
    (failure,) = registry.failures.values()
    assert "dist-tenonnx_test_bad 1.0" in str(failure)
    assert "no_such_module_anywhere" in str(failure)


def test_a_hook_with_an_unknown_argument_is_reported(tmp_path, monkeypatch):
    text = "from tenonnx.extend import hookimpl\n@hookimpl\ndef register_ops(registry, colour): ...\n"
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_hook", text)])
    registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "colour" in str(failure)


def test_the_environment_restricts_plugins(monkeypatch):
    made = (Plugin("a", "a", "g", "first", "1"), Plugin("b", "b", "g", "second", "1"))
    monkeypatch.setattr(discovery, "_installed", lambda group: made)
    monkeypatch.setenv("TENONNX_PLUGINS", "second")
    assert [p.distribution for p in discovery.plugins("g")] == ["second"]
    assert [p.distribution for p in discovery.left_out("g")] == ["first"]
    monkeypatch.setenv("TENONNX_PLUGINS", "")
    assert discovery.plugins("g") == []


def test_a_hook_without_its_mark_is_reported(tmp_path, monkeypatch):
    registry = Registry([plugin_from(tmp_path, monkeypatch, "tenonnx_test_bare", "def register_ops(registry): ...\n")])
    registry.load("tiny")
    (failure,) = registry.failures.values()
    assert "marked with @hookimpl" in str(failure)


def test_a_backend_without_what_it_needs_is_reported(tmp_path, monkeypatch):
    (tmp_path / "tenonnx_test_backend.py").write_text("speed = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = Plugin("bad", "tenonnx_test_backend", "tenonnx.backends", "dist-bad", "1.0")
    with pytest.raises(PluginError, match="must have speed and compile") as caught:
        plugin.load()
    assert "no compile" in str(caught.value)
