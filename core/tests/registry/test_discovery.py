"""Discovery of plugins: selection, refusal, and the values of entry points."""

import importlib.metadata
import sys
import textwrap

import pytest

from tenonnx.errors import PluginError, PluginWarning, installing
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin, cure


def install(monkeypatch, *made):
    """Replace the installed plugins, and reset the warnings."""
    monkeypatch.setattr(discovery, "_installed", lambda group: tuple(p for p in made if p.group == group))
    monkeypatch.setattr(discovery, "warn_once", discovery.warn_once.__wrapped__)


def backend(name, distribution):
    return Plugin(name, distribution.replace("-", "_"), "tenonnx.backends", distribution, "1")


FIRST, SECOND = backend("a", "First_Dist"), backend("b", "second")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("second", [SECOND]),
        ("FIRST.dist, second", [FIRST, SECOND]),
        ("", []),
        ("-second", [FIRST]),
        ("-First-Dist", [SECOND]),
        ("first-dist,second,-second", [FIRST]),
    ],
)
def test_the_environment_selects_plugins(monkeypatch, text, kept):
    install(monkeypatch, FIRST, SECOND)
    monkeypatch.setenv("TENONNX_PLUGINS", text)
    assert discovery.plugins("tenonnx.backends") == kept
    assert discovery.left_out("tenonnx.backends") == [p for p in (FIRST, SECOND) if p not in kept]


def test_a_selection_that_matches_nothing_is_named(monkeypatch):
    install(monkeypatch, FIRST, SECOND)
    monkeypatch.setenv("TENONNX_PLUGINS", "second,-thrid")
    with pytest.warns(PluginWarning, match="names thrid, but no plugin of such a distribution is installed"):
        assert discovery.plugins("tenonnx.backends") == [SECOND]


@pytest.mark.parametrize(("group", "name"), [("tenonnx.backends", "numpy"), ("tenonnx.frontends", "onnx")])
def test_a_built_in_name_is_refused(monkeypatch, group, name):
    taken = Plugin(name, "module", group, "taker", "2.0")
    install(monkeypatch, taken)
    with pytest.warns(PluginWarning, match=rf'"{name}" in {group} is already registered by'):
        assert discovery.plugins(group) == []
    assert "is already registered by tenonnx itself: taker 2.0 is ignored" in str(
        discovery.refused_plugins(group)[taken]
    )


def test_a_name_of_two_packages_belongs_to_the_owner_or_the_first(monkeypatch):
    ours, third_party = backend("onnxruntime", "tenonnx-onnxruntime"), backend("onnxruntime", "aaa")
    one, other = backend("toy", "b"), backend("toy", "c")
    install(monkeypatch, *sorted([third_party, ours, other, one], key=lambda p: (p.name, p.rank)))
    with pytest.warns(PluginWarning, match="is already registered by"):
        assert discovery.plugins("tenonnx.backends") == [ours, one]
    assert set(discovery.refused_plugins("tenonnx.backends")) == {third_party, other}


@pytest.mark.parametrize(
    ("group", "text", "needs"),
    [
        ("tenonnx.backends", "speed = 1", "a number speed and a function compile"),
        ("tenonnx.backends", "speed = 'fast'\ndef compile(graph): ...", "a number speed"),
        ("tenonnx.frontends", "read = 1", "a function read"),
        ("tenonnx.transforms", "", "a function from a graph to a graph"),
        ("tenonnx.commands", "", "a click command"),
        ("tenonnx.targets", "", "a package that holds"),
    ],
)
def test_the_interface_of_a_plugin_is_checked_when_it_is_loaded(tmp_path, monkeypatch, group, text, needs):
    (tmp_path / "tenonnx_test_lacking.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "tenonnx_test_lacking", raising=False)
    plugin = Plugin("bad", "tenonnx_test_lacking", group, "dist-bad", "1.0")
    with pytest.raises(PluginError, match=needs) as caught:
        plugin.load()
    assert "tenonnx_test_lacking.py" in caught.value.do


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("import no_such_module_anywhere", 1, "ModuleNotFoundError"),
        ("\n\nraise SystemExit(3)", 3, "SystemExit: 3"),
        ("\ndef broken(:", 2, "SyntaxError"),
        ("from tenonnx.extend import op\n\n@op('X')\ndef x(a, b=3):\n    return a", 3, "InvalidCall"),
    ],
)
def test_a_reason_leads_to_the_author_s_own_line(tmp_path, monkeypatch, text, line, kind):
    (tmp_path / "tenonnx_test_raising.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = Plugin("bad", "tenonnx_test_raising", "tenonnx.ops", "dist-bad", "1.0")
    with pytest.raises(PluginError, match=kind) as caught:
        plugin.load()
    assert f"tenonnx_test_raising.py:{line}," in caught.value.do
    assert "TENONNX_PLUGINS=-dist-bad" in caught.value.do


def test_the_advice_for_an_op_of_a_disabled_package_is_not_to_install_it(monkeypatch):
    install(monkeypatch, FIRST, SECOND)
    monkeypatch.setenv("TENONNX_PLUGINS", "-second")
    assert cure(["third", "second"]) == f"{installing('third')}, and allow second in TENONNX_PLUGINS"
    assert cure(["third"]) == installing("third")


def test_a_newer_api_is_reported_before_its_missing_names(tmp_path, monkeypatch):
    text = "from tenonnx.extend import something_new\n\napi = 2\n"
    (tmp_path / "tenonnx_test_newer.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match="is written for a newer API of tenonnx than 1") as caught:
        Plugin("com.new", "tenonnx_test_newer", "tenonnx.ops", "dist-new", "2.0").load()
    assert caught.value.given == "api = 2"
    assert "tenonnx_test_newer" not in sys.modules
    for unreadable in ("tenonnx_test_absent", "itertools"):  # without a module, or without source code
        with pytest.raises(PluginError, match="could not be imported"):
            Plugin("com.new", f"{unreadable}.ops", "tenonnx.ops", "dist-new", "2.0").load()


@pytest.mark.parametrize(
    ("text", "refused"), [("api = 1", False), ("api = 2", True), ("", False), ("import os as api", False)]
)
def test_a_package_that_needs_a_newer_api_is_refused(tmp_path, monkeypatch, text, refused):
    package = tmp_path / f"tenonnx_test_api_{text[-1:]}"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    (package / "ops.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin = Plugin("com.new", f"{package.name}.ops", "tenonnx.ops", "dist-new", "2.0")
    if not refused:
        plugin.load()
        return
    with pytest.raises(PluginError, match="is written for a newer API of tenonnx than 1") as caught:
        plugin.load()
    assert caught.value.given == "api = 2"
    assert "upgrade tenonnx, or install an older dist-new" in caught.value.do


def test_the_same_entry_points_are_found_as_by_the_standard_library():
    expected = {
        (distribution.metadata["Name"], distribution.version, entry.group, entry.name, entry.value)
        for distribution in importlib.metadata.distributions()
        for entry in distribution.entry_points
        if entry.group.startswith("tenonnx.")
    }
    result = {(p.distribution, p.version, p.group, p.name, p.value) for p in discovery._everything()}
    assert {entry for entry in result if entry[2].startswith("tenonnx.")} == expected


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed distributions, the only one on ``sys.path``."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), str(tmp_path)])
    discovery._everything.cache_clear()
    yield tmp_path
    discovery._everything.cache_clear()


def describe(folder, file, metadata, entry_points):
    folder.mkdir()
    (folder / file).write_text(metadata)
    (folder / "entry_points.txt").write_bytes(entry_points)


def test_entry_points_are_read_literally(site):
    text = b"""[console_scripts]
acme = acme:main

# of ours
[tenonnx.transforms]
first=acme.one:first
; not this
  second = acme.two : Steps.second [extra]
"""
    describe(site / "acme_ops-1.5.dist-info", "METADATA", "Name: Acme.Ops\nVersion: 2.0\n\nName: of the text\n", text)
    result = [(p.name, p.value, p.group, p.source) for p in discovery._everything() if p.group.startswith("tenonnx.")]
    assert result == [
        ("first", "acme.one:first", "tenonnx.transforms", "Acme.Ops 2.0"),
        ("second", "acme.two:Steps.second", "tenonnx.transforms", "Acme.Ops 2.0"),
    ]


def test_older_and_damaged_metadata_is_read(site):
    (site / "plain.dist-info").write_text("a file, not a folder")
    describe(site / "old.egg-info", "PKG-INFO", "Name: old\nVersion: 1\n", b"[tenonnx.rules]\na = old\n")
    describe(site / "lost-3.dist-info", "RECORD", "", b"[tenonnx.rules]\nb = \xff\nno entry\n")
    assert [(p.name, p.source) for p in discovery._everything()] == [("a", "old 1"), ("b", "lost 3")]


def test_a_value_names_an_attribute_of_an_attribute(site):
    (site / "tenonnx_test_nested.py").write_text("class Steps:\n    def last(graph): return graph\n")
    plugin = Plugin("last", "tenonnx_test_nested:Steps.last", "tenonnx.transforms", "nested", "1")
    assert plugin.load()(3) == 3
    with pytest.raises(PluginError, match="nested 1 could not be imported"):
        plugin._replace(value="tenonnx_test_nested:Steps.first").load()
