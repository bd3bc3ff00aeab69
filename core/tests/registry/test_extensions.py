"""Names that installed packages add to ``tenonnx``, its namespaces and ``Graph``."""

import types

import pytest

import tenonnx as tx
from tenonnx.errors import PluginWarning, installing
from tenonnx.registry import discovery, extensions
from tenonnx.registry.discovery import EXTENSIONS, Plugin


@pytest.fixture
def adding(tmp_path, monkeypatch):
    """Factory of an installed package that adds names, each as a function of its module."""
    monkeypatch.setattr(extensions, "_found", {})
    monkeypatch.setattr(discovery, "warn_once", discovery.warn_once.__wrapped__)
    (tmp_path / "tenonnx_test_adding.py").write_text("def double(graph): return graph, 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = discovery._installed(EXTENSIONS)

    def install(*names, distribution="acme"):
        made = tuple(Plugin(name, "tenonnx_test_adding:double", EXTENSIONS, distribution, "1.0") for name in names)
        monkeypatch.setattr(discovery, "_installed", lambda group: (before if group == EXTENSIONS else ()) + made)

    yield install
    for space in (tx, tx.extend, __import__("tenonnx.extend.checks").extend.checks):
        vars(space).pop("double", None)


def test_a_package_adds_functions_and_methods(adding):
    adding("double", "Graph.double", "extend.checks.double")
    graph = tx.Graph()
    assert tx.double(1) == (1, 2)
    assert graph.double() == (graph, 2)
    assert isinstance(graph.double, types.MethodType)
    assert {"double", "convert", "load"} <= set(dir(tx))
    assert "double" not in tx.extend.__all__
    assert __import__("tenonnx.extend.checks").extend.checks.double(3) == (3, 2)


def test_names_that_no_package_adds_are_no_attributes(adding):
    adding()
    with pytest.raises(AttributeError, match="tenonnx has no 'conert'; did you mean convert"):
        tx.conert  # noqa: B018
    with pytest.raises(AttributeError, match="'Graph' object has no attribute 'double'"):
        tx.Graph().double()
    assert not hasattr(tx.Graph(), "_double")


@pytest.mark.parametrize(("name", "owner"), [("convert", "tenonnx-convert"), ("load", "tenonnx itself")])
def test_the_name_of_another_is_refused_with_both_named(adding, name, owner):
    adding(name)
    with pytest.warns(PluginWarning, match=f'"{name}" in tenonnx.extensions is already registered by') as caught:
        result = extensions.extensions()
    assert name not in result or result[name].distribution == owner
    assert owner in str(caught[0].message)
    assert "acme 1.0" in str(caught[0].message)


@pytest.mark.parametrize("name", ["verify", "Graph.run", "extend.backends.Backend"])
def test_disabled_and_missing_names_name_their_package(monkeypatch, name):
    package = "tenonnx-convert" if name == "verify" else "tenonnx-run"
    monkeypatch.setattr(extensions, "_found", {})
    monkeypatch.setenv("TENONNX_PLUGINS", f"-{package}")
    with pytest.raises(tx.PluginError, match=f"{name} is in {package}, which TENONNX_PLUGINS leaves out"):
        extensions.extension(name)
    monkeypatch.delenv("TENONNX_PLUGINS")
    monkeypatch.setattr(extensions, "plugins", lambda group, name=None: [])
    monkeypatch.setattr(extensions, "find_spec", lambda name: None)
    with pytest.raises(tx.PluginError, match=f"{name} is in {package}, which is not installed") as caught:
        extensions.extension(name)
    assert caught.value.do == installing(package)


@pytest.mark.parametrize("text", ["", "tenonnx-standard", "acme"])
def test_a_selection_of_packages_keeps_our_functions(monkeypatch, text):
    monkeypatch.setattr(extensions, "_found", {})
    monkeypatch.setenv("TENONNX_PLUGINS", text)
    monkeypatch.setattr(discovery, "warn_once", lambda text: None)
    assert extensions.find_extension("verify") is not None
