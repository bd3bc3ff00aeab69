"""``tenonnx serve --mcp`` with a client of the Model Context Protocol on stdin and stdout."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from mcp import Client, StdioServerParameters

import tenonnx_cli

EXAMPLES = Path(__file__).parents[5] / "examples"
CNN = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"


def finished(function):
    """Result of a coroutine function, in a thread, as browser tests leave an event loop running in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(function())).result()


def asked(*calls, options=(), cwd=None, environment=()):
    """Tools of a server with these options, and its answers to calls: whether each failed, and its text."""

    async def ask():
        words = ["-P", "-m", "tenonnx", "serve", "--mcp", *map(str, options)]
        server = StdioServerParameters(
            command=sys.executable, args=words, cwd=cwd, env={**os.environ, **dict(environment)}
        )
        async with Client(server, read_timeout_seconds=120) as client:
            answers = []
            for name, arguments in calls:
                answer = await client.call_tool(name, arguments)
                answers.append((bool(answer.is_error), answer.content[0].text))
            return (await client.list_tools()).tools, answers

    return finished(ask)


def results(*calls, **how):
    """Results of calls that succeed."""
    _, answers = asked(*calls, **how)
    assert [failed for failed, _ in answers] == [False] * len(calls), answers
    return [json.loads(text) for _, text in answers]


def refusals(*calls, **how):
    """Messages of calls that fail."""
    _, answers = asked(*calls, **how)
    assert [failed for failed, _ in answers] == [True] * len(calls), answers
    assert not any("Traceback" in text for _, text in answers)
    return [text for _, text in answers]


@pytest.fixture
def changed(tmp_path):
    """The example with another bias."""
    model = onnx.load(CNN)
    tensor = next(each for each in model.graph.initializer if len(each.dims) == 1 and each.data_type == 1)
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) + 1, tensor.name))
    onnx.save(model, tmp_path / "changed.onnx")
    return tmp_path / "changed.onnx"


def test_tools_read_only_unless_a_folder_is_named(tmp_path):
    tools, _ = asked()
    assert [tool.name for tool in tools] == ["inspect", "ops", "plan", "verify", "compare"]
    assert all(tool.annotations.read_only_hint for tool in tools)
    tools, _ = asked(options=["--write", tmp_path])
    assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["convert"]
    plan = next(tool for tool in tools if tool.name == "plan").input_schema
    assert plan["required"] == ["model"]
    assert plan["properties"]["opset"]["type"] == "array"
    assert "Target opset" in plan["properties"]["opset"]["description"]
    offered = {name for tool in tools for name in tool.input_schema["properties"]}
    assert offered.isdisjoint(
        {"trust", "load", "rules", "hook", "verify_with", "config", "overwrite", "example", "git"}
    )


def test_results_are_those_of_the_command_line(changed):
    shown, planned, impossible, same, different, compared = results(
        ("inspect", {"model": str(CNN), "op": ["Conv"]}),
        ("plan", {"model": str(CNN), "opset": 13}),
        ("plan", {"model": str(EXAMPLES / "llama" / "llama.onnx"), "opset": ["1"]}),
        ("verify", {"first": str(CNN)}),
        ("verify", {"first": str(CNN), "second": str(changed)}),
        ("compare", {"first": str(CNN), "second": str(changed), "seed": 3}),
    )
    assert shown["file"] == str(CNN)
    assert {node["op"].split("@")[0].split("::")[-1] for node in shown["nodes"]} == {"Conv"}
    assert planned["possible"] is True
    assert planned["opsets"]["ai.onnx"] == 13
    assert impossible["possible"] is False
    assert any(node["action"] == "refused" for node in impossible["nodes"])
    assert same["passed"] is True
    assert different["passed"] is False
    assert compared["equal"] is False
    assert compared["first_divergence"]


def test_ops_come_with_their_bodies():
    gelu, listed = results(("ops", {"name": "Gelu"}), ("ops", {"domain": "com.microsoft"}))
    assert gelu[0]["source"].count("def gelu")
    assert "tanh" in gelu[0]["source"]
    assert listed[0]["op"].startswith("com.microsoft::")
    assert "source" not in listed[0]


def test_convert_writes_a_verified_file_in_the_folder(tmp_path):
    arguments = {"model": str(CNN), "output": "a.onnx", "opset": [17], "simplify": True}
    (result,) = results(("convert", arguments), options=["--write", tmp_path])
    assert result["opsets"]["ai.onnx"] == 17
    assert onnx.load(tmp_path / "a.onnx").opset_import[0].version == 17
    before = (tmp_path / "a.onnx").read_bytes()
    (text,) = refusals(("convert", {**arguments, "opset": 18}), options=["--write", tmp_path])
    assert text.startswith("the output exists")
    assert (tmp_path / "a.onnx").read_bytes() == before
    results(("convert", {**arguments, "opset": 18, "replace": True}), options=["--write", tmp_path])
    assert onnx.load(tmp_path / "a.onnx").opset_import[0].version == 18
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_settings_of_a_folder_do_not_allow_writing(tmp_path):
    (tmp_path / "tenonnx.toml").write_text('[serve]\nwrite = "."\n')
    tools, _ = asked(cwd=tmp_path)
    assert "convert" not in [tool.name for tool in tools]


def test_nothing_is_written_elsewhere(tmp_path):
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "link").symlink_to(other)
    (folder / "file.onnx").symlink_to(other / "file.onnx")
    outputs = ["../a.onnx", str(other / "a.onnx"), "link/a.onnx", "file.onnx", "link/../../a.onnx", ".", "a\0.onnx"]
    calls = [("convert", {"model": str(CNN), "output": output, "replace": True}) for output in outputs]
    for text in refusals(*calls, options=["--write", folder]):
        assert text.startswith(("the output is outside of the folder", "cannot read the path"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file.onnx", "folder", "link", "other"]
    (text,) = refusals(("convert", {"model": str(CNN), "output": str(folder / "a.onnx")}))
    assert text.startswith("the server was started without --write")


def test_only_models_of_the_folder_are_read(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(CNN, folder / "cnn.onnx")
    (folder / "link.onnx").symlink_to(CNN)
    results(("inspect", {"model": "cnn.onnx"}), options=[folder])
    paths = [str(CNN), "link.onnx", "../folder/../x.onnx"]
    calls = [("inspect", {"model": path}) for path in paths]
    calls += [
        ("verify", {"first": "cnn.onnx", "inputs": "/etc/hostname"}),
        ("plan", {"model": "cnn.onnx", "target": "/a.toml"}),
    ]
    for text in refusals(*calls, options=[folder]):
        assert text.startswith("the file is outside of the folder")


def test_no_code_runs(tmp_path):
    code = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\ndef make(): return None\n"
    (tmp_path / "net.py").write_text(code)
    (tmp_path / "tenonnx.toml").write_text('[inspect]\nload = ["net.py"]\ntrust = true\nnodes = "no"\n')
    (tmp_path / "tenonnx").mkdir()
    (tmp_path / "tenonnx" / "__main__.py").write_text(code)
    shutil.copy(CNN, tmp_path / "cnn.onnx")
    texts = refusals(
        ("plan", {"model": "net.py:make"}),
        ("plan", {"model": "net.py"}),
        ("inspect", {"model": "cnn.onnx", "load": ["net.py"]}),
        ("inspect", {"model": "cnn.onnx", "trust": True}),
        ("inspect", {"model": "--trust"}),
        ("inspect", {"model": "cnn.onnx", "node": ["--load=net.py"]}),
        cwd=tmp_path,
    )
    assert [text.partition("\n")[0] for text in texts] == [
        "the server does not execute Python files",
        "the server does not execute Python files",
        'inspect has no argument "load"',
        'inspect has no argument "trust"',
        "no model or file of that name",
        'the model has no node "--load=net.py"',
    ]
    results(("inspect", {"model": "cnn.onnx"}), cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_errors_have_the_message_of_the_command(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"\x08\xff nothing")
    texts = refusals(
        ("inspect", {"model": str(tmp_path / "broken.onnx")}),
        ("inspect", {"model": str(CNN.with_name("digits-cn.onnx"))}),
        ("plan", {"model": str(CNN), "target": "tensorrt"}),
        ("plan", {"model": str(CNN), "opset": True}),
        ("plan", {"model": str(CNN), "opset": [[1]]}),
        ("plan", {}),
        ("ops", {"name": "Sofmax"}),
        ("verify", {"first": str(CNN), "seed": "one"}),
        ("remove", {}),
    )
    assert "broken.onnx" in texts[0]
    assert "did you mean" in texts[1]
    assert texts[2].startswith("unknown target")
    assert texts[3].startswith('the argument "opset" has a value of the wrong type')
    assert texts[4].startswith('the argument "opset" has a value of the wrong type')
    assert texts[5] == 'the argument "model" of plan is missing'
    assert "Softmax" in texts[6]
    assert texts[7].startswith('the argument "seed" has a value of the wrong type')
    assert texts[8].startswith("unknown tool: remove")


def test_a_call_ends_at_the_time_limit_and_leaves_nothing_behind(tmp_path):
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["go_in"], ["go_out"]), onnx.helper.make_node("Sin", ["x_in"], ["x_out"])],
        "body",
        [onnx.helper.make_tensor_value_info(*each, []) for each in (("step", 7), ("go_in", 9), ("x_in", 1))],
        [onnx.helper.make_tensor_value_info(*each, []) for each in (("go_out", 9), ("x_out", 1))],
    )
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)],
        "endless",
        [onnx.helper.make_tensor_value_info("x", 1, [])],
        [onnx.helper.make_tensor_value_info("y", 1, [])],
        [onnx.numpy_helper.from_array(np.array(2**40), "n"), onnx.numpy_helper.from_array(np.array(True), "go")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "endless.onnx")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    start = time.monotonic()
    _, answers = asked(
        ("verify", {"first": str(tmp_path / "endless.onnx")}),
        ("inspect", {"model": str(CNN)}),
        options=["--timeout", "3"],
        environment={"TMPDIR": str(temporary), "TENONNX_LIMIT_WORK": "1" + "0" * 18},
    )
    assert time.monotonic() - start < 60
    failed, text = answers[0]
    assert failed or json.loads(text)["passed"] is not True
    assert "3 s" in text
    assert answers[1][0] is False
    assert not list(temporary.iterdir())


def test_a_long_result_is_cut(tmp_path):
    nodes = [onnx.helper.make_node("Relu", [f"x{k}"], [f"x{k + 1}"], name=f"relu{k}") for k in range(5000)]
    ends = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x0", "x5000")]
    graph = onnx.helper.make_graph(nodes, "long", ends[:1], ends[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "long.onnx")
    path = str(tmp_path / "long.onnx")
    long, part = results(
        ("inspect", {"model": path, "nodes": True}), ("inspect", {"model": path, "node": ["relu4999"]})
    )
    assert "more" in long["nodes"][-1]
    assert len(json.dumps(long)) < 100_000
    assert [node["name"] for node in part["nodes"]] == ["relu4999"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mcp", "--port", "80", "--no-browser"], "--port, --no-browser"),
        (["--mcp", str(CNN)], "the source is not a folder"),
        (["--write", "."], "--write was given without --mcp"),
        (["--mcp", "--write", "nowhere"], "nowhere"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, said, capsys):
    assert tenonnx_cli.main(["serve", *arguments]) == tenonnx_cli.REFUSED
    assert said in capsys.readouterr().err


def test_stdout_has_nothing_but_messages():
    async def ask():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenonnx", "serve", "--mcp"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        first = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        }
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(first).encode() + b"\nno json\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        process.stdin.close()
        rest = await process.stdout.read()
        return [json.loads(each) for each in (line + rest).splitlines()], await process.wait()

    messages, code = finished(ask)
    assert messages[0]["result"]["serverInfo"]["name"] == "tenonnx"
    assert code == 0
