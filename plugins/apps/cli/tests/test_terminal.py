"""Output for people: the verdict, the table of sizes, colors, -q and -v."""

import re
import sys

import numpy as np
import onnx
import pytest

from tenonnx_cli.output import human_bytes

ESCAPE = "\x1b["


def row(text, name):
    """The cells of a table row."""
    return re.search(rf"(?m)^ *{re.escape(name)}  +(.*)$", text)[1].split()


@pytest.fixture
def external(tmp_path):
    """A model with external data."""
    text = (
        '<ir_version: 8, opset_import: ["tiny": 4]> g (float[n, 3] x) => (float[n, 3] y) { y = tiny.Multiply (x, w) }'
    )
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1000, 3), np.float32), "w"))
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.append(onnx.helper.make_node("Double", ["w"], ["y"], domain="tiny"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("y", 1, [1000, 3]))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return tmp_path / "m.onnx"


def test_convert_prints_the_verdict_first_then_one_table(tenonnx, model):
    result = tenonnx("convert", model, "-o", "old.onnx", "--opset", "tiny=3")
    first, second, blank, head, *_ = result.out.splitlines()
    assert first.startswith(f"old.onnx: verified bit for bit against {model} in numpy, on random inputs (seed 0)")
    assert re.fullmatch(r"4 -> 5 nodes, [0-9.,]+ -> [0-9.,]+ bytes", second)
    assert blank == ""
    assert head.split() == ["before", "after"]
    assert row(result.out, "opset tiny") == ["4", "3"]
    assert row(result.out, "nodes") == ["4", "5"]
    assert row(result.out, "parameters")[0] == "3"
    assert row(result.out, "y") == ["0", "bit", "for", "bit"]
    assert "expanded" not in result.out


def test_v_lists_each_node_and_q_only_prints_the_verdict(tenonnx, model):
    arguments = "convert", model, "-o", "old.onnx", "--opset", "tiny=3"
    verbose = tenonnx(*arguments, "-v").out
    assert "expanded into" in verbose
    assert "with this meaning exists from version 4" in verbose
    quiet = tenonnx(*arguments, "--quiet").out
    assert quiet.count("\n") == 1
    assert quiet.startswith("old.onnx: verified")
    assert tenonnx(*arguments, "-q", "--no-verify").out == "old.onnx: not verified\n"


def test_sizes_include_data_files_in_other_places(tenonnx, external):
    result = tenonnx("convert", external, "-o", "out.onnx", "--external-data-threshold", "8")
    assert result.code == 0, result.err
    before, after = (int(n.replace(",", "")) for n in row(result.out, "bytes"))
    assert before > 12_000
    assert after > 12_000
    data = tenonnx("convert", external, "-o", "out.onnx", "--json").json
    assert data["before"]["bytes"] == before
    assert data["before"]["parameters"] == data["after"]["parameters"] == 3000
    assert data["after"]["ops"] == {"tiny::Double": 1}


@pytest.mark.parametrize(
    ("sizes", "texts"),
    [
        ((0, 1023), ["0", "1,023 bytes"]),
        ((97 << 20, 96 << 20), ["97.0", "96.0 MiB"]),
        ((1 << 10,), ["1.0 KiB"]),
        ((100, 5 << 30), ["0.0", "5.0 GiB"]),
    ],
)
def test_bytes_are_in_the_unit_of_the_largest(sizes, texts):
    assert human_bytes(*sizes) == texts


@pytest.mark.parametrize(
    ("environment", "is_terminal", "colored"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_verdicts_and_errors_have_colors_on_a_terminal(tenonnx, model, monkeypatch, environment, is_terminal, colored):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    output = tenonnx("convert", model, "-o", "old.onnx", "-q")
    assert output.out.startswith(f"{ESCAPE}32m") == colored
    assert (ESCAPE in output.out) == colored
    failed = tenonnx("inspect", "none.onnx")
    assert (f"{ESCAPE}1;31mInvalidCall" in failed.err) == colored
    assert (ESCAPE in failed.err) == colored
    assert tenonnx("inspect", model, "--json").out.startswith("{")


def test_text_of_a_file_does_not_become_markup_or_wrap(tenonnx, model, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    failed = tenonnx("inspect", "[red]" + "x" * 60 + ".onnx")
    assert "[red]" + "x" * 60 in failed.err
