"""Commands as tools: schemas, paths and processes. ``browser/test_mcp.py`` tests the server."""

import asyncio
import json
import sys
import time

import jsonschema
import pytest

import tenonnx_cli
from tenonnx import InvalidCall
from tenonnx_serve import mcp_tools
from tenonnx_serve.mcp_tools import OPTIONS, Limits, command_line, parameters, schema, shortened
from tenonnx_serve.op_sources import op_sources


@pytest.fixture
def limits(tmp_path):
    (tmp_path / "a.onnx").touch()
    return Limits(tmp_path, None, 60)


@pytest.mark.parametrize("command", OPTIONS)
def test_the_options_of_a_tool_are_those_of_the_command(command):
    jsonschema.Draft202012Validator.check_schema(schema(command))
    expected = {name.replace("-", "_") for name in OPTIONS[command]}
    assert expected <= parameters(command).keys(), "an option of the table is none of the command"


def test_arguments_become_words_of_the_command_line(limits, tmp_path):
    arguments = {"model": "a.onnx", "opset": [17, "com.microsoft=1"], "fuse": False, "simplify": True, "qdq": False}
    words = command_line("plan", {**arguments, "target": None, "without": "-x"}, limits)
    assert words[:1] + words[-3:] == ["plan", "--json", "--", str(tmp_path / "a.onnx")]
    assert set(words[1:-3]) == {"--opset=17", "--opset=com.microsoft=1", "--no-fuse", "--simplify", "--without=-x"}


@pytest.mark.parametrize("name", ["x" * 300, "no\0name", "b.onnx", "../" * 60 + "etc/hostname"])
def test_a_path_that_cannot_be_read_is_refused(name, limits):
    with pytest.raises(InvalidCall):
        limits.readable(name)


def test_a_process_is_killed_at_the_time_limit(tmp_path):
    start = time.monotonic()
    with pytest.raises(InvalidCall, match=r"did not end within 0\.5 seconds"):
        asyncio.run(mcp_tools._run(["timeit", "-n", "1000000000000"], 0.5, str(tmp_path)))
    assert time.monotonic() - start < 30


def test_a_process_that_prints_no_json_is_an_error(tmp_path):
    with pytest.raises(InvalidCall, match="ended with code"):
        asyncio.run(mcp_tools._run(["no_such_module"], 60, str(tmp_path)))


def test_lists_of_a_long_result_are_cut():
    rows = [{"name": "x" * 100, "dims": list(range(20))} for _ in range(5000)]
    cut = json.loads(shortened({"rows": rows, "count": 5000}))
    assert cut == {"rows": [*rows[:100], "and 4,900 more"], "count": 5000}
    assert json.loads(shortened(rows[:3])) == rows[:3]
    with pytest.raises(InvalidCall, match="longer than"):
        shortened({"text": "x" * 1_000_000})


def test_sources_are_those_of_bodies():
    sources = op_sources("Softmax")
    assert any(text.count("def softmax") for text in sources.values())
    assert op_sources("com.microsoft::FastGelu")
    assert op_sources("nothing") == {}


def test_without_the_package_the_message_has_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert tenonnx_cli.main(["serve", "--mcp"]) == tenonnx_cli.REFUSED
    output = capsys.readouterr().err
    assert "the package mcp is not installed" in output
    assert "tenonnx-serve[mcp]" in output
    assert "mcp.server" not in sys.modules
