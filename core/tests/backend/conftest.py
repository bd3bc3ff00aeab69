"""Backends that take part in the choice."""

import pytest

import tenonnx as tx
from tenonnx.backend import base
from tenonnx.registry.discovery import Plugin


@pytest.fixture
def installed(monkeypatch):
    """The installed backends by name, to be filled."""
    backends = {}

    def load(plugin):
        found = backends[plugin.name]
        if isinstance(found, tx.PluginError):
            raise found
        return found

    monkeypatch.setattr(base, "plugins", lambda _: [Plugin(n, "m", "g", f"tenonnx-{n}", "1") for n in backends])
    monkeypatch.setattr(Plugin, "load", load)
    monkeypatch.setattr(Plugin, "is_ours", True)
    return backends


@pytest.fixture
def strangers(installed, monkeypatch):
    """The same as backends that others publish."""
    monkeypatch.setattr(Plugin, "is_ours", False)
    return installed
