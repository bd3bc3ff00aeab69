"""Target files, valid and invalid, and conversion to a target."""

import io
import sys

import numpy as np
import pytest
import tiny

from tenonnx.errors import InvalidCall, NotRepresentable
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.op.op import Opaque
from tenonnx.registry import discovery
from tenonnx.registry.discovery import Plugin
from tenonnx.transforms.retarget import retarget, retarget_to
from tenonnx.transforms.target import target_for
from tenonnx_convert.convert import export
from tenonnx_targets.files import find_runtime, runtimes

GOOD = """
title = "A toy"
source = "its manual"

[targets.toy-1]
opsets = { tiny = 3 }

[targets.toy-2]
note = "of late"
opsets = { tiny = 5, "ai.onnx" = "any" }
minimum = { tiny = 4 }
ir_version = 8
dtypes = ["float32", "float16", "int64"]

[[targets.toy-2.ops]]
domain = "tiny"
dtypes = ["float32"]
names = ["Mul", "Exp", "Add"]

[[targets.toy-2.ops]]
domain = "tiny"
names = ["OnlyNew"]
"""


#: The package of target files that is released with core.
SHIPPED = Plugin("tenonnx", "tenonnx_targets", "tenonnx.targets", "tenonnx-targets", "0.1.0")


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Factory of installed packages of target files, given as file names with their text."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TENONNX_PLUGINS", raising=False)

    def installed(**packages):
        made = [SHIPPED]
        for name, files in packages.items():
            monkeypatch.delitem(sys.modules, name, raising=False)
            folder = tmp_path / name
            folder.mkdir()
            (folder / "__init__.py").touch()
            for file, text in files.items():
                (folder / file).write_text(text)
            made.append(Plugin(name, name, "tenonnx.targets", f"dist-{name}", "1.0"))
        genuine = discovery._installed
        monkeypatch.setattr(
            discovery,
            "_installed",
            lambda group: (
                genuine(group) if group == "tenonnx.extensions" else made if group == "tenonnx.targets" else ()
            ),
        )

    return installed


@pytest.fixture
def toy(install):
    install(tenonnx_toy_targets={"toy.toml": GOOD})


def chain(version=4, dtype="float32"):
    graph = Graph("chain", opsets={"tiny": version})
    graph.registry = tiny.registry()
    graph.output("y", tiny.exp(tiny.double(graph.input("x", dtype, ("n",)))))
    return graph


def test_the_shipped_files_say_where_they_have_their_figures_from():
    result, failures = runtimes()
    assert not failures
    assert {"onnxruntime-1.14", "onnxruntime-1.32", "tensorrt-8", "tensorrt-10", "openvino-2024"} < set(result)
    for runtime in result.values():
        assert "https://" in runtime.source or "tenonnx targets probe" in runtime.source
        assert runtime.title
        assert "ai.onnx" in runtime.opsets
        assert runtime.ir_version or "IR version" in runtime.note


def test_a_file_of_a_plugin_is_read(toy):
    runtime = find_runtime("toy-2")
    assert (runtime.title, runtime.note, runtime.package) == ("A toy", "of late", "dist-tenonnx_toy_targets 1.0")
    assert runtime.opsets == {"tiny": 5, "ai.onnx": None}
    assert (runtime.versions("tiny"), runtime.versions("ai.onnx")) == ("4 to 5", "any")
    assert runtime.to_dict()["ops"] == ["tiny::Add", "tiny::Exp", "tiny::Mul", "tiny::OnlyNew"]
    assert find_runtime("toy-1").ops is None


HEAD = 'title = "t"\nsource = "s"\n[targets.bad]\n'

WRONG = {
    "no toml": ("title = ", "Invalid value"),
    "no targets": ('title = "t"\nsource = "s"\n', "has no table [targets.NAME]"),
    "no table": ("targets = { bad = 3 }\n", '"targets.bad" is not a table'),
    "no opsets": (HEAD, "target bad lacks opsets"),
    "no source": ('title = "t"\n[targets.bad]\nopsets = { a = 1 }\n', "lacks source"),
    "unknown key": (HEAD + "opset = 3\n", '"opset" of target bad is not one of title'),
    "wrong type": (HEAD + 'ir_version = "8"\n', '"ir_version" of target bad is not of type int'),
    "wrong version": (HEAD + "opsets = { a = 0 }\n", "is not a whole number from 1 on"),
    "wrong minimum": (HEAD + 'opsets = { a = 2 }\nminimum = { a = "any" }\n', "is not a whole number from 1 on"),
    "wrong dtype": (HEAD + 'opsets = { a = 1 }\ndtypes = ["float33"]\n', "'float33', which ONNX does not define"),
    "wrong names": (HEAD + 'opsets = { a = 1 }\nops = [{ names = "Add" }]\n', "is not a list of strings"),
    "wrong group": (HEAD + "opsets = { a = 1 }\nops = [3]\n", "are not tables of names"),
    "taken name": (GOOD.replace("toy-1", "tensorrt-10"), '"tensorrt-10" is a target of tenonnx-targets 0.1.0 too'),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_named_and_affects_no_other(install, text, problem):
    install(tenonnx_wrong_targets={"wrong.toml": text, "z.toml": GOOD.replace("toy-", "late-")})
    result, (failure,) = runtimes()
    assert "target file wrong.toml of dist-tenonnx_wrong_targets 1.0 is ignored" in str(failure)
    assert problem in str(failure)
    assert "late-2" in result
    assert "tensorrt-10" in result
    with pytest.raises(InvalidCall, match=r"wrong\.toml"):
        find_runtime("bad")


def test_a_plugin_that_is_not_a_package_is_named(install, monkeypatch):
    install()
    monkeypatch.setattr(
        discovery,
        "_installed",
        lambda group: [SHIPPED, *(Plugin(name, name, group, "dist", "1") for name in ("tiny", "no_such"))],
    )
    result, failures = runtimes()
    assert "tensorrt-10" in result
    assert ["is not a package" in f.what or "could not be imported" in f.what for f in failures] == [True, True]


def test_a_wrong_name_is_refused_with_near_ones():
    with pytest.raises(InvalidCall) as caught:
        find_runtime("tensort10")
    assert "tensorrt-10" in caught.value.available
    assert "tenonnx targets" in caught.value.do


def test_a_graph_keeps_its_versions_where_the_target_has_them(toy):
    assert target_for(chain(4), name="toy-2").opsets["tiny"] == 4
    assert target_for(chain(2), name="toy-2").opsets["tiny"] == 4
    assert target_for(chain(4), name="toy-1").opsets == {"tiny": 3}
    assert target_for(chain(4), {"tiny": 5}, name="toy-2").opsets["tiny"] == 5
    with pytest.raises(InvalidCall, match="does not support the requested opset") as caught:
        target_for(chain(4), {"tiny": 4}, name="toy-1")
    assert caught.value.available == "tiny up to 3"


def test_ops_off_the_list_are_expanded_or_refused(toy):
    assert [node.op_type for node in retarget(chain(), target="toy-2").nodes] == ["Add", "Exp"]
    graph = chain()
    graph.output("z", tiny.round_(graph["y"]))
    with pytest.raises(NotRepresentable) as caught:
        retarget(graph, target="toy-2")
    assert "toy-2: tiny 4" in caught.value.what
    assert "tiny::Round is not on the list of ops of toy-2" in caught.value.given
    assert caught.value.do


def test_element_types_follow_the_list(toy):
    result = retarget_to(chain(dtype="float64"), target_for(chain(), name="toy-2"), refuse=False)
    refused = {change.node: change for change in result.refused}
    assert (refused["x"].op, refused["x"].reason) == ("graph input", "toy-2 has no float64")
    assert refused["y"].op == "graph output"
    assert "tiny::Exp of toy-2 does not take float64" in refused["Exp"].reason


def test_an_opaque_op_follows_the_list(toy):
    graph = chain()
    graph.append(Node(Opaque("tiny", "Nobody"), 4, [graph["y"]], {}, [Value("z", graph=graph)], name="n"))
    (refused,) = retarget_to(graph, target_for(graph, name="toy-2"), refuse=False).refused
    assert refused.node == "n"
    assert "no installed package knows the op, and tiny::Nobody is not on the list" in refused.reason
    assert refused.do.startswith("correct the name, or ")
    (refused,) = retarget_to(graph, target_for(graph, name="toy-1"), refuse=False).refused
    assert "cannot move from version 4 to 3" in refused.reason


@pytest.mark.parametrize(("name", "moves"), [("VendorThing", True), ("EfficientNMS_TRT", True), ("Softmax", False)])
def test_a_vendors_op_of_the_default_domain_moves_between_versions(name, moves):
    graph = Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 4))
    graph.append(Node(Opaque("ai.onnx", name), 17, [x], {"k": 3}, [Value("y", x.type, graph=graph)]))
    graph.outputs.append(graph["y"])
    for version in (11, 21):
        result = retarget_to(graph, target_for(graph, version), refuse=False)
        assert bool(result.refused) is not moves
        if moves:
            assert result.graph.opsets == {"ai.onnx": version}
            assert [(node.op_type, node.version) for node in result.graph.nodes] == [(name, version)]


def test_export_writes_an_ir_version_that_the_target_reads(toy):
    graph = chain()
    graph.ir_version = 13
    report = export(graph, io.BytesIO(), target="toy-2")
    assert report.ir_version == 4
    assert export(graph, io.BytesIO()).ir_version == 13
    assert graph.ir_version == 13


def test_contents_that_need_a_newer_ir_version_are_refused(toy):
    graph = chain()
    graph.variable("w", np.zeros(2, "float32").astype(tiny.DType.float8e5m2.numpy))
    with pytest.raises(NotRepresentable, match="float8e5m2") as caught:
        export(graph, io.BytesIO(), target="toy-2")
    assert caught.value.available == "IR version up to 8"
