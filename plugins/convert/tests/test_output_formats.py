"""Files in other formats: run by their package, compared, and then moved into place."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx.errors import InvalidCall, NotRepresentable, PluginError, UnsupportedOp, VerificationFailed
from tenonnx.registry.discovery import Plugin
from tenonnx_convert import conversion, output_formats
from tenonnx_convert.verifying.quantization import moved_by_roundings

PLUGIN = Plugin("twin", "made_up", output_formats.GROUP, "made-up", "1.0")


def small():
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.relu(graph.input("x", "float32", ("n", 3))))
    return graph


class Twin:
    """A format of two files: the graph in ONNX, and a text file."""

    title, runtime = "Twin", "numpy"
    off = 0.0

    def write(self, graph, path):
        graph.save(path.with_suffix(".onnx"))
        path.with_suffix(".onnx").rename(path)
        path.with_suffix(".note").write_text("beside")
        return ()

    def open(self, path, graph):
        program = tx.load(path.read_bytes()).compile("numpy")
        return lambda feeds: {name: array + np.float32(self.off) for name, array in program(feeds).items()}


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Write a small graph in a format of a mocked plugin."""

    def write(form, **options):
        chosen = output_formats.InstalledFormat(form, PLUGIN)
        monkeypatch.setattr(conversion, "output_format", lambda path: chosen if str(path).endswith(".twin") else None)
        return tx.convert(small(), tmp_path / "m.twin", **options)

    return write


def test_the_file_is_run_and_compared(written, tmp_path):
    report = written(Twin())
    assert report.verification.equal
    assert {each.backend.partition(",")[0] for each in report.verification.outputs} == {"Twin in numpy"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.note", "m.twin"]
    assert tx.load((tmp_path / "m.twin").read_bytes()).nodes


def test_a_wrong_file_is_not_left(written, tmp_path):
    form = Twin()
    form.off = 1.0
    with pytest.raises(VerificationFailed, match="differ from those of the original"):
        written(form)
    assert list(tmp_path.iterdir()) == []


def test_without_verification_it_is_written_directly(written, tmp_path):
    form = Twin()
    form.off = 1.0
    assert written(form, verify=False).verification is None
    assert (tmp_path / "m.note").read_text() == "beside"


def test_an_old_file_is_only_replaced_after_the_comparison(written, tmp_path):
    (tmp_path / "m.twin").write_text("old")
    form = Twin()
    form.off = 1.0
    with pytest.raises(VerificationFailed):
        written(form)
    assert (tmp_path / "m.twin").read_text() == "old"
    written(Twin())
    assert (tmp_path / "m.twin").read_bytes() != b"old"


def raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize(
    ("part", "error", "kind", "said"),
    [
        (
            "write",
            UnsupportedOp("no such op", given="node"),
            NotRepresentable,
            "no Twin form: no such op",
        ),
        ("write", ValueError("7"), PluginError, "made-up 1.0 cannot write the model"),
        ("open", UnsupportedOp("no kernel"), VerificationFailed, "the file does not load: no kernel"),
        ("open", KeyError("7"), PluginError, "cannot open the file that it wrote"),
    ],
)
def test_limitations_of_a_package_are_reported(written, tmp_path, part, error, kind, said):
    form = Twin()
    setattr(form, part, raising(error))
    with pytest.raises(kind, match=said):
        written(form)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_while_it_runs_is_not_verified(written, tmp_path):
    form = Twin()
    form.open = lambda path, graph: raising(RuntimeError("out of order"))
    with pytest.raises(VerificationFailed, match="out of order"):
        written(form)
    assert list(tmp_path.iterdir()) == []


def test_a_limit_of_the_format_is_reported(written):
    class Narrow(Twin):
        def write(self, graph, path):
            super().write(graph, path)
            return ["n - 2 >= 0"]

        def open(self, path, graph):
            program = super().open(path, graph)
            first = graph.inputs[0].name

            def run(feeds):
                if feeds[first].shape[0] < 2:
                    raise RuntimeError("too few rows")
                return program(feeds)

            return run

    report = written(Narrow())
    assert report.verification.equal
    assert "note: the file does not take n=1: it needs n - 2 >= 0" in report.notes
    assert all("n=1" not in run.covers for run in report.verification.runs)


def test_hooks_have_no_message_to_change(written, tmp_path):
    with pytest.raises(InvalidCall, match="hooks were given for an output file"):
        written(Twin(), post_export_hooks=[lambda model: None])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(tmp_path):
    if importlib.util.find_spec("tenonnx_jax") is not None:
        pytest.skip("tenonnx-jax is installed, and writes the file")
    with pytest.raises(InvalidCall, match="no package that writes") as caught:
        tx.convert(small(), tmp_path / "m.stablehlo")
    assert "tenonnx-jax" in caught.value.do


def test_formats_are_listed():
    listed = {each["suffix"]: each for each in output_formats.output_formats()}
    assert listed[".onnx"]["package"] == "tenonnx-core"
    assert listed[".safetensors"]["installed"]
    assert set(output_formats.output_suffixes()) == set(listed)


def test_a_plugin_needs_both_functions():
    from tenonnx.registry.discovery import GROUPS

    fits = GROUPS[output_formats.GROUP].fits
    assert fits(Twin())
    assert not fits(SimpleNamespace(write=print))


def test_roundings_of_the_format_count_twice():
    feeds = {"x": np.float32([[1, -2, 3]])}
    without = tx.Graph(opsets={"ai.onnx": 17})
    with without.building():
        without.output("y", ops.relu(without.input("x", "float32", ("n", 3))) + np.float32(0.25))
    expected = small().run(feeds, backend="numpy")
    assert moved_by_roundings(small(), feeds, expected)["y"] < 0.01
    assert moved_by_roundings(small(), feeds, expected, without)["y"] == 0.5


def test_a_format_may_keep_the_verdict(written, tmp_path):
    form = Twin()
    form.annotate = lambda path, verdict: path.with_suffix(".note").write_text(verdict)
    written(form)
    assert (tmp_path / "m.note").read_text() == "equal, bit for bit"


@pytest.mark.parametrize("has_roundings", [True, False])
def test_a_format_may_name_the_model_without_roundings(has_roundings, tmp_path):
    form, graph = Twin(), small()
    if has_roundings:
        form.unrounded = lambda graph: graph
    with output_formats.FormatWriter(output_formats.InstalledFormat(form, PLUGIN), tmp_path / "m.twin") as writer:
        writer.write(graph)
        assert writer.opened(graph).unrounded is (graph if has_roundings else None)


def test_an_error_in_leaving_out_roundings_names_the_package(tmp_path):
    form = Twin()
    form.unrounded = lambda graph: 1 / 0
    with output_formats.FormatWriter(output_formats.InstalledFormat(form, PLUGIN), tmp_path / "m.twin") as writer:
        writer.write(small())
        with pytest.raises(PluginError, match="cannot leave out the roundings"):
            writer.opened(small())
