"""Collection of cases by ``conformance``: entry points, ops without cases, failing imports."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tenonnx.errors import InvalidCall, PluginError
from tenonnx.op.op import op
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.registry import Registry
from tenonnx_testing import cases as declare
from tenonnx_testing import conformance
from tenonnx_testing.cases import _collected, load
from tenonnx_testing.collecting import find_items
from tenonnx_testing.run import Failure

OPS = """
    from tenonnx.extend import hookimpl, op

    @op("Twice", domain="acme")
    def twice(X):
        return X

    @op("Thrice", domain="acme")
    def thrice(X):
        return X

    @op("Other", domain="acme.extra")
    def other(X):
        return X

    @op("Sin", since=8)
    def sine(input):
        return input

    @hookimpl
    def register_ops(registry):
        registry.add(twice, thrice, other, sine)
"""

CASES = """
    from acme_ops import other, sine, twice
    from tenonnx_testing import call, cases

    @cases(twice)
    def _(draw):
        return call(1.0)

    @cases(twice, gradient=False)
    def _(draw):
        return call(1.0)

    @cases(other, gradient=False)
    def _(draw):
        return call(1.0)
"""


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """Install a distribution ``acme-ops`` with two domains, and a package of cases with a broken module."""
    files = {
        "acme_ops.py": OPS,
        "acme_cases/__init__.py": "",
        "acme_cases/good.py": CASES,
        "acme_cases/broken.py": "raise RuntimeError('half written')",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tenonnx_testing.collecting.plugins", lambda group: PLUGINS[group])
    held = dict(_collected)
    _collected.clear()
    yield
    _collected.clear()
    _collected.update(held)
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def plugin(name, value, group):
    return Plugin(name, value, group, "acme-ops", "1.0")


PLUGINS = {
    "tenonnx.ops": [plugin(domain, "acme_ops", "tenonnx.ops") for domain in ("acme", "acme.extra", "ai.onnx")],
    "tenonnx.conformance": [plugin("acme", "acme_cases", "tenonnx.conformance")],
}


def items(wanted):
    return {item.label: item.run for item in find_items(wanted, Registry(PLUGINS["tenonnx.ops"]))}


def test_a_distribution_is_tested_with_all_its_domains():
    labels = list(items("acme-ops"))
    assert labels[0] == "acme_cases.broken-import"
    assert "acme.Twice@1-types" in labels
    assert "acme.Twice@1-gradient" in labels
    assert "acme.Twice@1#2-types" in labels
    assert "acme.Twice@1#2-gradient" not in labels
    assert "acme.extra.Other@1-types" in labels
    assert "acme.Thrice@1-cases" in labels
    assert "acme.Twice@1-cases" not in labels
    assert "Sin@8-signature" in labels
    assert "acme-ops-ai.onnx-coverage" in labels


def test_a_single_domain_can_be_tested():
    labels = list(items("acme.extra"))
    assert "acme.extra.Other@1-types" in labels
    assert not [label for label in labels if label.startswith(("acme.Twice", "Sin"))]


def test_missing_cases_and_broken_modules_fail():
    result = items("acme-ops")
    with pytest.raises(Failure, match=r"acme_cases\.broken cannot be imported: half written"):
        result["acme_cases.broken-import"](1)
    with pytest.raises(Failure, match="acme::Thrice@1 has no conformance case"):
        result["acme.Thrice@1-cases"](1)
    with pytest.raises(Failure, match="since=8 is not a version of Sin"):
        result["Sin@8-signature"](1)
    result["acme-ops-ai.onnx-coverage"](1)


def test_ops_of_a_domain_without_an_entry_fail(monkeypatch):
    monkeypatch.setitem(PLUGINS, "tenonnx.ops", [plugin("acme", "acme_ops", "tenonnx.ops")])
    with pytest.raises(Failure, match=r'lacks "acme\.extra"'):
        items("acme")["acme-ops-acme.extra-served"](1)


def test_cases_of_an_op_that_is_not_registered_fail(tmp_path):
    text = textwrap.dedent(OPS).replace("add(twice, ", "add(")
    (tmp_path / "acme_ops.py").write_text(text, "utf-8")
    for expected in ("acme", "acme-ops"):
        with pytest.raises(Failure, match=r"acme::Twice@1 has cases in acme_cases\.good and is not registered"):
            items(expected)["acme.Twice@1-registered"](1)


@pytest.mark.filterwarnings("ignore:plugin:tenonnx.PluginWarning")
def test_a_package_whose_ops_cannot_be_imported_fails_by_name(tmp_path):
    (tmp_path / "acme_ops.py").write_text("import nothing_of_that_name", "utf-8")
    sys.modules.pop("acme_ops", None)
    with pytest.raises(Failure, match=r'plugin "acme" of acme-ops 1\.0 could not be imported') as caught:
        items("acme-ops")["acme-ops-acme-import"](1)
    assert f"correct {tmp_path / 'acme_ops.py'}:1" in str(caught.value)


def test_an_unknown_name_lists_the_available_ones():
    with pytest.raises(InvalidCall, match='"acne" is neither an installed package nor a domain of one') as caught:
        conformance("acne")
    assert caught.value.available == "acme, acme-ops, acme.extra, ai.onnx"


def test_load_reports_every_module():
    result = load(PLUGINS["tenonnx.conformance"])
    assert {name: type(error) for name, error in result.items()} == {
        "acme_cases": type(None),
        "acme_cases.good": type(None),
        "acme_cases.broken": RuntimeError,
    }
    missing = [plugin("acme", "acme_nowhere", "tenonnx.conformance")]
    assert isinstance(load(missing)["acme_nowhere"], PluginError)


def test_cases_validate_their_arguments():
    made = op("Twice", domain="acme")(lambda X: X)
    with pytest.raises(InvalidCall, match="something other than an op"):
        declare(len)
    with pytest.raises(InvalidCall, match=r"gradient names \['Y'\]"):
        declare(made, gradient=["Y"])
    assert not _collected.get(made)


def test_incomparable_ops_need_a_reason():
    from tenonnx_testing import incomparable

    with pytest.raises(InvalidCall, match=r"incomparable\(\) got no reason"):
        incomparable(reason="")


@pytest.mark.parametrize("selection", [["-k", "nothing"], ["test_acme.py::test[acme.Twice@1-types]"]])
def test_failed_imports_fail_in_every_selection(tmp_path, selection):
    entries = {"tenonnx.ops": {"acme": "acme_ops"}, "tenonnx.conformance": {"acme": "acme_cases"}}
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in held.items())
        for group, held in entries.items()
    ]
    (tmp_path / "acme_ops-1.0.dist-info").mkdir()
    (tmp_path / "acme_ops-1.0.dist-info" / "METADATA").write_text("Name: acme-ops\nVersion: 1.0\n")
    (tmp_path / "acme_ops-1.0.dist-info" / "entry_points.txt").write_text("".join(lines))
    (tmp_path / "test_acme.py").write_text('from tenonnx_testing import conformance\ntest = conformance("acme-ops")\n')
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--tenonnx-examples=1", *selection],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "acme_cases.broken cannot be imported: half written" in run.stdout
    assert run.stdout.count("FAILED") == run.stdout.count("FAILED test_acme.py::test[acme_cases.broken-import]") == 1
