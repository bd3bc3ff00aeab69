"""Rules of installed packages for their own ops."""

from pathlib import Path

import pytest

from tenonnx.extend import PluginError
from tenonnx.extend.formats import Plugin
from tenonnx_litert.reading import layers  # noqa: F401 - its rules
from tenonnx_litert.reading.calls import LITE_RULES
from tenonnx_tensorflow import table
from tenonnx_tensorflow.rules import RULES

TABLES = {"rule": (RULES, "Relu"), "lite_rule": (LITE_RULES, "CONV_2D")}
SOURCES = {"rule": "tenonnx_tensorflow", "lite_rule": "tenonnx_litert.reading"}


@pytest.mark.parametrize("kind", TABLES)
def test_a_package_cannot_replace_existing_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    rules, name = TABLES[kind]
    own, before = f"AcmeOwn{kind}", rules[name]  # type: ignore[index]
    module = tmp_path / f"acme_{kind}s.py"
    module.write_text(
        f"from {SOURCES[kind]} import {kind}\n"
        f"{kind}('{own}')(lambda *given: exit(0))\n{kind}('{name}')(lambda *given: None)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugin = Plugin(kind, module.stem, table.GROUP, "acme", "1.0")
    with pytest.raises(
        PluginError, match=f"(?s)plugin .* of acme 1.0 could not be imported.*a second rule for an operator.*{name}"
    ):
        plugin.load()
    assert rules[name] is before  # type: ignore[index]
    function = RULES[own].function if kind == "rule" else LITE_RULES[own]
    with pytest.raises(PluginError, match=rf"(?s)acme 1\.0 has a rule for {own} that failed.*SystemExit: 0"):
        function(None)
    del rules[own]  # type: ignore[attr-defined]
