"""The packages of custom ops in the metadata of files, and the message for a missing one."""

import io
import json

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx.errors import PluginError, installing
from tenonnx.extend import op
from tenonnx.op.op import Op
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.packages import KEY
from tenonnx.registry.registry import Registry
from tenonnx.transforms.missing_ops import absence


@op("Halve", domain="com.acme")
def halve(X):
    return X


def model(op="com.acme.Halve", **metadata):
    header = '<ir_version: 8, opset_import: ["": 17, "com.acme": 1]>'
    made = onnx.parser.parse_model(f"{header} g (float[2] x) => (float[2] y) {{ y = {op}(x) }}")
    onnx.helper.set_model_props(made, metadata)
    return made


@pytest.fixture
def registry(monkeypatch):
    """A registry in which a third-party package provides the op."""
    result = Registry()
    result.add(halve)
    monkeypatch.setattr(Registry, "source", lambda self, op: "tenonnx-acme 2.1")
    return result


def written(graph, **options):
    stream = io.BytesIO()
    tx.export(graph, stream, **options)
    return onnx.load_from_string(stream.getvalue())


def props(model):
    return {entry.key: entry.value for entry in model.metadata_props}


def test_an_export_names_third_party_packages(registry):
    saved = written(tx.load(model(author="me"), registry=registry))
    assert json.loads(props(saved)[KEY]) == {"com.acme": "tenonnx-acme 2.1"}
    assert props(saved)["author"] == "me"
    without = tx.load(saved, registry=Registry())
    with pytest.raises(tx.UnsupportedOp, match="no installed package provides 1 of its ops") as caught:
        without.run({"x": np.ones(2, np.float32)}, backend="numpy")
    assert "which the file says is of tenonnx-acme 2.1" in caught.value.given
    assert "pip install" not in caught.value.do  # a file must not cause advice to install a package
    assert props(written(without))[KEY] == props(saved)[KEY]


def test_recorded_packages_are_removed_with_the_ops():
    graph = tx.load(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        )
    )
    assert KEY not in props(written(graph))
    graph.metadata[KEY] = json.dumps({"com.acme": "tenonnx-acme 2.1"})
    assert KEY not in props(written(graph))


UNSAID = [
    "",
    "[",
    "[1]",
    "3",
    '{"com.acme": 1}',
    '{"com.acme": "evil; rm 1"}',
    '{"com.acme": "a\\u001b[31m 1"}',
    "[" * 9999,
]


@pytest.mark.parametrize("said", UNSAID)
def test_records_that_no_export_writes_are_not_repeated(said):
    with pytest.raises(tx.UnsupportedOp) as caught:
        tx.load(model(**{KEY: said}), registry=Registry()).run({"x": np.ones(2, np.float32)}, backend="numpy")
    assert "which the file says" not in caught.value.given


NOT_YET = '<ir_version: 8, opset_import: ["tiny": 1]> g (float[2] x) => (float[2] y) { y = tiny.Late(x) }'


@pytest.mark.parametrize(
    ("since", "before", "version", "when"), [(3, None, 1, "from version 3 on"), (1, 2, 5, "below version 2")]
)
def test_an_op_of_other_versions_is_reported(since, before, version, when):
    registry = Registry()
    registry.add(Op(lambda x: x, "Late", domain="tiny", since=since, before=before))
    graph = tx.load(onnx.parser.parse_model(NOT_YET.replace('"tiny": 1', f'"tiny": {version}')), registry=registry)
    with pytest.raises(tx.UnsupportedOp) as caught:
        graph.run({"x": np.ones(2, np.float32)}, backend="numpy")
    assert f"an op of tiny {when}, while the file is of version {version}" in caught.value.given
    assert "give the file the version of tiny that it was written for" in caught.value.do
    with pytest.raises(tx.NotRepresentable, match="give the file the version of tiny"):
        tx.retarget(graph, {"tiny": 4})


def test_a_package_that_failed_is_reported():
    registry = Registry()
    assert absence(registry, "ai.onnx", "Relu", 14).do == installing("tenonnx-standard")
    registry.failures[Plugin("ai.onnx", "m", "tenonnx.ops", "tenonnx-standard", "1")] = PluginError("broken")
    assert absence(registry, "ai.onnx", "Relu", 14).reason == "tenonnx-standard failed to load, see tenonnx plugins"
