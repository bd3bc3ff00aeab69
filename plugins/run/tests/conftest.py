"""Mocked backends for selection."""

import pytest

import tenonnx as tx
from tenonnx.registry.discovery import Plugin
from tenonnx_run import base

#: entry-point group of the mocked backends
GROUP = "a group of tests"


def _say_that_they_are_ours(monkeypatch, ours):
    genuine = Plugin.is_ours.fget
    monkeypatch.setattr(Plugin, "is_ours", property(lambda p: ours if p.group == GROUP else genuine(p)))


@pytest.fixture
def installed(monkeypatch):
    """Mocked installed backends by name, to be filled."""
    backends = {}

    genuine = Plugin.load

    def load(plugin):
        if plugin.group != GROUP:
            return genuine(plugin)
        result = backends[plugin.name]
        if isinstance(result, tx.PluginError):
            raise result
        return result

    monkeypatch.setattr(base, "plugins", lambda _: [Plugin(n, "m", GROUP, f"tenonnx-{n}", "1") for n in backends])
    monkeypatch.setattr(Plugin, "load", load)
    _say_that_they_are_ours(monkeypatch, True)
    return backends


@pytest.fixture
def third_parties(installed, monkeypatch):
    """The same as third-party backends."""
    _say_that_they_are_ours(monkeypatch, False)
    return installed
