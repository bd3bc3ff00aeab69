"""Conversion: the same steps in Python and on the command line, and the number of graph walks."""

import dataclasses
import inspect

import click
import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx import InvalidCall, NotRepresentable, PluginError, VerificationFailed
from tenonnx.extend.options import option
from tenonnx.extend.transforms import StepResult, after, changing, step_after
from tenonnx.formats.onnx.writer import GraphWriter
from tenonnx.registry.discovery import Plugin
from tenonnx.tools import plan, step_options
from tenonnx.transforms.rewrite import Rewriter
from tenonnx_cli import main
from tenonnx_cli.convert import command
from tenonnx_convert.options import ConvertConfig, ExportConfig, options_of
from tenonnx_convert.steps import STEPS

CNN, DECODER = example("digits_cnn/digits-cnn"), example("decoder/decoder")


def made():
    graph = tx.Graph("g", opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("n", 3))
    graph.output("y", ops.softmax(x * 1.0))
    return graph


@pytest.fixture
def counted(monkeypatch):
    """Node counts of each walk over a whole graph, and of each message that is written."""
    result = {"walks": [], "messages": []}
    run, write = Rewriter.run, GraphWriter.write

    def counting_run(self):
        if self.outer is None:
            result["walks"].append(len(self.source.nodes))
        return run(self)

    def counting_write(self):
        if self.graph.root is self.graph:
            result["messages"].append(len(self.graph.nodes))
        return write(self)

    monkeypatch.setattr(Rewriter, "run", counting_run)
    monkeypatch.setattr(GraphWriter, "write", counting_write)
    return result


def test_a_conversion_walks_three_times_and_builds_its_message_once(tmp_path, counted):
    report = tx.convert(DECODER, tmp_path / "m.onnx", opset_version=17, domains=["ai.onnx"], verify=True)
    assert {each.backend for each in report.verification.outputs} == {"numpy", "onnxruntime"}
    assert [each.equal for each in report.verification.default_session] == [True]
    written = len(tx.load(tmp_path / "m.onnx").nodes)
    read = len(tx.load(DECODER).nodes)
    assert sorted(counted["walks"]) == [read, read, written]  # retargeting, and numpy runs before and after it
    assert sorted(counted["messages"]) == [read, written]  # onnxruntime runs the original, too


def test_command_plan_and_export_need_no_more_walks_than_a_conversion(tmp_path, counted):
    read = len(tx.load(DECODER).nodes)
    options = ["--opset", "17", "--domains", "ai.onnx"]
    assert main(["convert", str(DECODER), "-o", str(tmp_path / "m.onnx"), *options, "--verify"]) == 0
    written = len(tx.load(tmp_path / "m.onnx").nodes)
    assert sorted(counted["walks"]) == [read, read, written]
    assert sorted(counted["messages"]) == [read, written]
    target = {"opset_version": 17, "domains": ["ai.onnx"]}
    for part, walks, messages in (
        (lambda: tx.export(tx.load(DECODER), tmp_path / "n.onnx", **target), 1, [written]),
        (lambda: plan(tx.load(DECODER), **target), 1, []),
        (
            lambda: main(["plan", str(DECODER), *options]),
            3,
            [],
        ),  # two for hints on fixed sizes
    ):
        counted.update(walks=[], messages=[])
        part()
        assert counted == {"walks": [read] * walks, "messages": messages}


def test_a_walk_collects_consumers_once(monkeypatch):
    """A search at each node would take quadratic time."""
    graph, asked = tx.load(DECODER), []
    uses = tx.Graph.uses
    monkeypatch.setattr(tx.Graph, "uses", lambda self: asked.append(self) or uses(self))
    tx.fold(graph)
    assert sum(each is graph for each in asked) <= 1


def test_python_converts_as_the_command_does(tmp_path):
    options = ["--opset", "13", "--fix-shapes", "images:1,1,8,8", "--float16", "--for-inference", "--tidy"]
    assert main(["convert", str(CNN), "-o", str(tmp_path / "a.onnx"), *options]) == 0
    report = tx.convert(
        CNN,
        tmp_path / "b.onnx",
        opset_version=13,
        fix_shapes={"images": (1, 1, 8, 8)},
        float16=True,
        transforms=["for-inference"],
        tidy=True,
    )
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert report.verification.verified
    assert report.findings["half_precision"].largest > 0
    reported = report.to_dict()
    assert reported["verification"]["verified"]
    assert reported["half_precision"]


def test_every_option_is_documented_once():
    flags = {name: option for name, option in options_of(ConvertConfig).items() if option.flag}
    flags |= {name: each.option for name, each in step_options().items()}
    assert {"fuse", "float16", "budget", "layout"} <= flags.keys()
    shown = {p.name: p for p in command.get_params(click.Context(command))}
    for name, option in flags.items():
        assert shown[name].help == option.help
        assert set(option.flag.split("/")) == {*shown[name].opts, *shown[name].secondary_opts}
    assert {f.name for f in dataclasses.fields(ExportConfig)} < {f.name for f in dataclasses.fields(ConvertConfig)}
    assert not set(inspect.signature(tx.convert).parameters) & flags.keys()


def test_obstacles_are_listed_after_a_refusal():
    graph = made()
    graph.output("z", ops.non_zero(graph.inputs[0]))
    graph.output("hidden", ops.string_normalizer(graph.input("words", "string", ("m",))))
    with pytest.raises(NotRepresentable):
        tx.convert(graph, "never.onnx", opset_version=7)
    _, changes, _ = plan(graph, opset_version=7, fix_shapes={"x": (1, 3)})
    refused = [change.op.partition("@")[0] for change in changes if change.action == "refused"]
    assert refused == ["ai.onnx::NonZero", "ai.onnx::StringNormalizer"]
    assert {change.op.partition("@")[0] for change in changes} >= {"ai.onnx::Softmax", *refused}


def test_transforms_run_after_the_step_that_they_name(tmp_path):
    seen = []

    def first(graph):
        seen.append(("first", str(graph.inputs[0].type)))
        return graph

    @after("dims")
    def second(graph):
        seen.append(("second", str(graph.inputs[0].type)))
        return graph

    @step_after("retarget")
    def third(graph, state):
        seen.append(("third", state.target.opsets["ai.onnx"]))
        return graph, ()

    tx.convert(
        made(), tmp_path / "m.onnx", transforms=[third, second, first], fix_shapes={"x": (2, 3)}, opset_version=12
    )
    assert seen == [("first", "float32[n, 3]"), ("second", "float32[2, 3]"), ("third", 12)]


@after("baking")
def misplaced(graph):
    return graph


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"transforms": ["simplfy"]}, InvalidCall, 'no transform "simplfy" is installed'),
        ({"transforms": [3]}, InvalidCall, "a transform is neither a name nor a function"),
        ({"transforms": [misplaced]}, PluginError, "follows an unknown step"),
        ({"transforms": [lambda graph: None]}, PluginError, "returned no graph"),
        ({"transforms": [lambda graph: ops.constant_of_shape]}, PluginError, "returned no graph"),
        ({"opset": 13}, InvalidCall, "unknown option: opset"),
        ({"float16": True, "bfloat16": True}, InvalidCall, "two half precisions"),
        ({"verify": "yes"}, InvalidCall, "verify is neither True"),
        ({"functions": "burn"}, InvalidCall, "functions is not one of keep"),
        ({"feeds": {"x": np.zeros((2, 4), np.float32)}}, tx.InvalidFeed, "x"),
    ],
)
def test_invalid_options_are_refused_and_write_nothing(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        tx.convert(made(), tmp_path / "m.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_a_result_with_other_numbers_is_not_written(tmp_path):
    def doubled(graph):
        other = tx.Graph("g", opsets={"ai.onnx": 17})
        other.output("y", ops.softmax(other.input("x", "float32", ("n", 3))) * 2.0)
        return other

    with pytest.raises(VerificationFailed) as caught:
        tx.convert(made(), tmp_path / "m.onnx", transforms=[doubled])
    assert [each.name for each in caught.value.verification.outputs if not each.equal] == ["y", "y"]
    assert not list(tmp_path.iterdir())
    assert tx.convert(made(), tmp_path / "m.onnx", transforms=[doubled], verify=False).verification is None
    assert onnx.load(tmp_path / "m.onnx").graph.node


def test_the_steps_are_in_order():
    assert list(STEPS) == [
        "read",
        "dims",
        "functions",
        "retarget",
        "as_functions",
        "tidy",
        "message",
        "hooks",
        "verify",
        "verify_with",
        "write",
    ]


# ----- transforms with options ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Told:
    text: str

    def to_dict(self):
        return self.text

    def __str__(self):
        return f"told: {self.text}"


@changing("numbers")
@step_after("dims")
@dataclasses.dataclass(frozen=True)
class Scale:
    """Multiplies outputs."""

    scale: float = option(1.0, "Factor of the outputs.", "--scale", kind="positive")
    scale_only: tuple = option((), "Only these outputs. Repeatable.", "--scale-only", kind="texts", metavar="NAME")

    def __call__(self, graph, state):
        scaled = graph.copy()
        for value in list(scaled.outputs):
            if not self.scale_only or value.name in self.scale_only:
                scaled.insert_after(value, lambda x: x * np.float32(self.scale))
        return StepResult(scaled, findings={"scaling": Told(f"{self.scale:g} at {state.request.name}")})


@pytest.fixture
def scaling(monkeypatch):
    """Install a package with a transform that has options."""
    from tenonnx_convert import plugin_steps

    plugin = Plugin("scaling", "own.steps:Scale", "tenonnx.transforms", "tenonnx-own", "1")
    load, there = Plugin.load, plugin_steps.plugins
    monkeypatch.setattr(Plugin, "load", lambda self: Scale if self == plugin else load(self))
    monkeypatch.setattr(plugin_steps, "plugins", lambda group: [*there(group), plugin])


def largest(path):
    return float(tx.load(path).run({"x": np.zeros((1, 3), np.float32)}, "numpy")["y"].max())


def test_a_transform_of_a_package_has_options(tmp_path, scaling, capsys):
    tx.export(made(), tmp_path / "m.onnx")
    report = tx.convert(tmp_path / "m.onnx", tmp_path / "a.onnx", scale=3.0)
    assert largest(tmp_path / "a.onnx") == pytest.approx(1.0)
    assert report.to_dict()["scaling"] == f"3 at {tmp_path / 'm.onnx'}"
    arguments = ["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "b.onnx"), "--scale", "3"]
    assert main([*arguments, "--scale-only", "y"]) == 0
    assert "told: 3 at" in capsys.readouterr().out
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()
    assert main([*arguments, "--scale-only", "z"]) == 0
    assert largest(tmp_path / "b.onnx") == pytest.approx(1 / 3)
    config = ConvertConfig(step_options={"scale": 6.0})
    tx.convert(tmp_path / "m.onnx", tmp_path / "c.onnx", config=config)
    assert largest(tmp_path / "c.onnx") == pytest.approx(2.0)
    assert main(["convert", "--help"]) == 0
    assert "--scale-only NAME" in capsys.readouterr().out
    assert main(["plan", str(tmp_path / "m.onnx"), "--scale", "2"]) == 0


def test_a_transform_with_options_is_a_function_in_python(tmp_path):
    tx.convert(made(), tmp_path / "m.onnx", transforms=[Scale(scale=3.0)])
    assert largest(tmp_path / "m.onnx") == pytest.approx(1.0)


def test_without_its_options_a_transform_does_not_run(tmp_path, scaling):
    assert "scaling" not in tx.convert(made(), tmp_path / "m.onnx", scale=1.0).findings
    assert "scaling" in tx.convert(made(), tmp_path / "m.onnx", transforms=["scaling"]).findings
    with pytest.raises(InvalidCall, match="unknown option: scale"):  # export runs only later steps
        tx.export(made(), tmp_path / "m.onnx", scale=3.0)


def test_an_option_of_two_packages_is_refused(tmp_path, scaling, monkeypatch):
    taken = dataclasses.make_dataclass("Taken", [("float16", bool, option(False, "Another.", "--float16"))])
    load = Plugin.load
    monkeypatch.setattr(Plugin, "load", lambda self: taken if self.distribution == "tenonnx-own" else load(self))
    with pytest.raises(PluginError, match='"float16" is declared twice') as caught:
        tx.convert(made(), tmp_path / "m.onnx", float16=True)
    assert "tenonnx-own 1" in caught.value.given
    monkeypatch.setattr(Plugin, "load", lambda self: dict if self.distribution == "tenonnx-own" else load(self))
    with pytest.raises(PluginError, match="is not a dataclass"):
        tx.convert(made(), tmp_path / "m.onnx", float16=True)


def test_a_transform_that_cannot_be_loaded_stops_no_conversion(tmp_path, scaling, monkeypatch):
    def fail(self):
        raise PluginError("broken")

    load = Plugin.load
    monkeypatch.setattr(Plugin, "load", lambda self: fail(self) if self.distribution == "tenonnx-own" else load(self))
    tx.convert(made(), tmp_path / "m.onnx", fuse=True)
    with pytest.raises(InvalidCall, match="unknown option: scale"):
        tx.convert(made(), tmp_path / "m.onnx", scale=2.0)
