"""Dispatch of sources to front ends."""

import sys
import types

import pytest

from tenonnx.errors import InvalidCall, InvalidModel, PluginError
from tenonnx.graph.graph import Graph
from tenonnx.loading import is_onnx_file, load
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin
from tenonnx.registry.registry import Registry
from tenonnx_cli import main

REGISTRY = Registry()


class Network:
    """An object of another library."""


Network.__module__ = "nets.layers"


class OwnNetwork(Network):
    """A user's subclass of a library class."""


def read(source, *examples, registry, scale=1, base_dir=None):
    if scale == 0:
        raise ZeroDivisionError("scale")
    graph = Graph(f"{type(source).__name__} {len(examples)} {scale} {base_dir}")
    graph.registry = registry
    return graph


@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    """A front end ``nets`` for objects of that library, and for files and folders of two kinds."""
    monkeypatch.setitem(sys.modules, "nets_reader", types.SimpleNamespace(read=read))
    names = ("nets", "net", "weights.bin")
    made = [Plugin(name, "nets_reader", "tenonnx.frontends", "nets-dist", "2.0") for name in names]
    genuine = discovery._installed
    monkeypatch.setattr(
        discovery,
        "_installed",
        lambda group: genuine(group) if group == "tenonnx.extensions" else tuple(p for p in made if p.group == group),
    )


def test_an_object_is_read_by_the_front_end_of_its_library():
    assert load(Network(), 1, 2, registry=REGISTRY, scale=3).name == "Network 2 3 None"
    assert load(OwnNetwork(), registry=REGISTRY).registry is REGISTRY


def test_a_file_is_read_by_its_suffix_and_a_folder_by_what_lies_in_it(tmp_path):
    assert load(tmp_path / "m.NET", base_dir="there").name.endswith("0 1 there")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "weights.bin").touch()
    assert load(str(tmp_path / "saved")).name == "str 0 1 None"


def test_unknown_sources_are_refused_with_the_list_of_front_ends():
    with pytest.raises(InvalidCall, match="what an installed front end reads") as caught:
        load(3)
    assert caught.value.given == "int"
    assert "nets by nets-dist 2.0" in caught.value.available


def test_the_package_that_would_read_an_object_is_named(monkeypatch):
    monkeypatch.setattr("tenonnx.loading.provider", lambda group, name: {"lib": "tenonnx-lib"}.get(name))
    with pytest.raises(InvalidCall) as caught:
        load(type("Other", (), {"__module__": "lib.nn"})())
    assert caught.value.given == "lib.nn.Other"
    assert "--find-links WHEELS tenonnx-lib" in caught.value.do


def test_the_package_that_would_read_a_file_or_folder_is_named(tmp_path):
    (tmp_path / "m.tflite").write_bytes(b"TFL3")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    packages = {tmp_path / "m.tflite": "tenonnx-litert", str(tmp_path / "saved"): "tenonnx-tensorflow"}
    for source, package in packages.items():
        with pytest.raises(InvalidCall, match="what an installed front end reads") as caught:
            load(source)
        assert caught.value.given == repr(str(source))
        assert package in caught.value.do
    with pytest.raises(InvalidCall, match="cannot read"):
        load(tmp_path / "absent.tflite")


def test_an_unknown_option_is_answered_with_the_options_of_the_front_end():
    with pytest.raises(InvalidCall, match=r"nets-dist 2\.0 does not take these examples and options") as caught:
        load(Network(), scael=2)
    assert "scael" in caught.value.given
    assert "scale=1" in caught.value.available


def test_an_error_of_a_front_end_names_it():
    with pytest.raises(PluginError, match=r'plugin "nets" of nets-dist .* could not read Network') as caught:
        load(Network(), scale=0)
    assert caught.value.given == "nets_reader: ZeroDivisionError: scale"


def test_a_front_end_returns_a_graph(monkeypatch):
    monkeypatch.setitem(sys.modules, "nets_reader", types.SimpleNamespace(read=lambda source, registry: None))
    with pytest.raises(PluginError, match=r"the front end of nets-dist 2\.0 returned no graph") as caught:
        load(Network())
    assert caught.value.given == "None"


@pytest.mark.parametrize(("examples", "options", "given"), [((1,), {}, "examples"), ((), {"dims": {}}, "dims")])
def test_a_model_file_accepts_no_examples_and_options(tmp_path, examples, options, given):
    with pytest.raises(InvalidCall, match="examples or unknown options were given for a model file") as caught:
        load(tmp_path / "m.onnx", *examples, **options)
    assert caught.value.given == given


def test_a_path_of_no_known_kind_is_read_as_onnx(tmp_path):
    (tmp_path / "model").write_bytes(b"nonsense")
    with pytest.raises(InvalidModel, match="is not an ONNX model"):
        load(tmp_path / "model")


def test_sources_of_front_ends_are_not_checked_as_onnx_files(tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "weights.bin").touch()
    read_otherwise = (tmp_path / "m.NET", tmp_path / "saved", tmp_path / "m.safetensors")
    assert not any(map(is_onnx_file, read_otherwise))
    assert all(map(is_onnx_file, (tmp_path / "m.ONNX", tmp_path / "model", "m.pb")))
    judged = []
    monkeypatch.setattr("tenonnx.tools.structure_problems", lambda source, **_: judged.append(source) or [])
    assert main(["check", str(tmp_path / "m.net")]) == 0
    assert isinstance(judged[0], Graph)
