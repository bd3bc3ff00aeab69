"""Jobs: successful, failed and refused exports, comparisons and runs; limits of time and memory; cancellation."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture
def page(serve):
    return serve(EXAMPLES)


def opened(page, way):
    return page.ask("/models", file=way)["id"]


def test_an_export_passes_and_its_file_runs(page):
    model = opened(page, "exports/resnet-dynamo.onnx")
    job = page.done(task="export", model=model, options={"convert": {"--opset": ["15"], "--simplify": True}})
    result = job["result"]
    assert (job["state"], result["passed"], result["opsets"]) == ("done", True, {"ai.onnx": 15})
    assert job["steps"][0] == "Reading"
    assert "Comparing with the original" in job["steps"]
    assert {each["backend"] for each in result["verification"]["outputs"]} >= {"numpy", "onnxruntime"}
    assert "tenonnx convert exports/resnet-dynamo.onnx" in result["command"]
    (group,) = result["nodes"]["groups"]
    assert (group["action"], group["nodes"][0][1]) == ("adapted", "n24")
    answer = page.client.get(f"/api/jobs/{job['id']}/file")
    assert "attachment" in answer.headers["content-disposition"]
    assert len(answer.content) == result["bytes"][1]
    import onnxruntime

    session = onnxruntime.InferenceSession(answer.content)
    assert session.run(None, {"image": np.zeros((3, 3, 32, 32), "f4")})[0].shape == (3, 16, 1, 1)


def test_dims_are_fixed_and_external_data_is_in_the_same_archive(page):
    model = opened(page, "exports/resnet-dynamo.onnx")
    requested = {"--fix-shapes": ["image:1,?,?,?"], "--external-data-threshold": "64"}
    job = page.done(task="export", model=model, options={"convert": requested})
    assert job["result"]["file"].endswith(".zip")
    archive = zipfile.ZipFile(io.BytesIO(page.client.get(f"/api/jobs/{job['id']}/file").content))
    (name,) = (each for each in archive.namelist() if each.endswith(".onnx"))
    assert len(archive.namelist()) == 2
    shape = onnx.load_from_string(archive.read(name)).graph.input[0].type.tensor_type.shape
    assert shape.dim[0].dim_value == 1


def test_a_refusal_lists_all_nodes_with_their_keys_in_the_drawing(page):
    model = opened(page, "decoder/decoder.onnx")
    job = page.done(task="export", model=model, options={"convert": {"--opset": ["7"], "--domains": "ai.onnx"}})
    refused = job["result"]["refused"]
    assert job["state"] == "done"
    assert job["file"] is None
    assert refused["blockers"]
    names = {entry[0]: entry for entry in page.ask(f"/models/{model}/open")["index"]}
    for blocker in refused["blockers"]:
        assert blocker["reason"]
        for label, key in blocker["nodes"]:
            assert not key or names[key][2] == label


def test_a_model_that_differs_fails_without_a_file(page):
    model = opened(page, "bert/bert.onnx")
    requested = {"--opset": ["13"], "--exact": True, "--domains": "ai.onnx"}
    result = page.done(task="export", model=model, options={"convert": requested})["result"]
    assert result["passed"] is False
    assert any(not each["equal"] and each["absolute"] > 0 for each in result["verification"]["outputs"])
    assert "file" not in result


@pytest.mark.parametrize(
    "asked",
    [
        {"--hook": "/etc/passwd.py:f"},
        {"--rules": "x.py"},
        {"--output": "/tmp/x.onnx"},
        {"--inputs": "/etc/passwd"},
        {"--json": True},
        {"-o": "x"},
        {"--opset=17 --output": "x"},
        {"--opset": ["no number"]},
        {"--domains": ["ai.onnx,,"]},
    ],
)
def test_requests_that_the_page_may_not_make_are_refused(page, asked):
    model = opened(page, "digits/digits.onnx")
    job = page.done(task="export", model=model, options={"convert": asked})
    assert job["state"] == "failed"
    assert job["error"]["what"]
    assert not any(page.server.folder.rglob("*.onnx"))


def test_an_export_may_have_another_format(page):
    model = opened(page, "digits/digits.onnx")
    result = page.done(task="export", model=model, options={"convert": {}, "format": ".safetensors"})["result"]
    assert (result["passed"], result["file"]) == (True, "digits.safetensors")
    assert result["command"].endswith("-o digits.safetensors")
    for options in ({"format": ".exe"}, {"format": ".safetensors", "quantize": {}}):
        job = page.done(task="export", model=model, options={"convert": {}, **options})
        assert job["state"] == "failed"
        assert re.search("format|quantized", job["error"]["what"])


def test_a_quantized_export_reports_its_errors(page):
    model = opened(page, "digits_cnn/digits-cnn.onnx")
    options = {"convert": {"--opset": ["17"]}, "quantize": {"--mode": "dynamic"}}
    result = page.done(task="export", model=model, options=options)["result"]
    assert result["quantized"]["outputs"]
    assert result["bytes"][1] < result["bytes"][0]
    assert "lowest SQNR" in result["verdict"]
    assert max(each["absolute"] for each in result["verification"]["outputs"]) > 0, "of the file that is offered"


def test_quantization_without_options_is_quantization(page):
    model = opened(page, "digits_cnn/digits-cnn.onnx")
    job = page.done(task="export", model=model, options={"convert": {}, "quantize": {}})
    written = onnx.load_from_string(page.client.get(f"/api/jobs/{job['id']}/file").content)
    assert "DynamicQuantizeLinear" in {node.op_type for node in written.graph.node}
    assert "&& tenonnx quantize" in job["result"]["command"]


def test_an_export_without_comparable_outputs_does_not_pass(page, tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 18]> drawn (float[n] x) => (float[n] y) { y = RandomNormalLike(x) }'
    sent = page.send("drawn.onnx", onnx.parser.parse_model(text).SerializeToString())
    result = page.done(task="export", model=sent["id"], options={"convert": {"--opset": ["17"]}})["result"]
    assert result["passed"] is None
    assert result["verdict"] == "not verified"


def test_the_command_that_is_shown_writes_the_same_bytes(page, tmp_path):
    feeds = page.send("samples.npz", (EXAMPLES / "digits" / "samples.npz").read_bytes())
    options = {"convert": {"--opset": ["15"], "--simplify": True}, "quantize": {"--mode": "static"}}
    job = page.done(task="export", model=opened(page, "digits/digits.onnx"), options=options, feeds=feeds["id"])
    shutil.copytree(EXAMPLES / "digits", tmp_path / "digits")
    shutil.copy(EXAMPLES / "digits" / "samples.npz", tmp_path)
    python = shlex.quote(sys.executable)
    command = job["result"]["command"].replace("tenonnx ", f"{python} -m tenonnx ")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, capture_output=True)
    assert (tmp_path / job["file"]).read_bytes() == page.client.get(f"/api/jobs/{job['id']}/file").content


def test_two_models_are_compared(page):
    one, two = opened(page, "quantized/resnet.onnx"), opened(page, "quantized/resnet-qdq.onnx")
    result = page.done(task="compare", model=one, other=two)["result"]
    ours, theirs = result["fates"]
    assert "added" in theirs.values(), "QuantizeLinear and DequantizeLinear"
    assert set(ours.values()) <= {"equal", "changed", "removed"}
    assert result["verification"]["outputs"]
    same = page.done(task="compare", model=one, other=one)["result"]
    assert set(same["fates"][0].values()) == set(same["fates"][1].values()) == {"equal"}
    assert same["passed"] is True
    others = page.done(task="compare", model=one, other=opened(page, "digits/digits.onnx"))["result"]
    assert others["passed"] is None, "no output is compared of models with other inputs"
    assert "inputs are not image" in others["verification"]["problems"][0]


def test_a_run_returns_outputs_and_every_value(page):
    feeds = page.send("samples.npz", (EXAMPLES / "digits" / "samples.npz").read_bytes())
    job = page.done(task="run", model=opened(page, "digits/digits.onnx"), feeds=feeds["id"])
    result = job["result"]
    assert result["inputs"]["pixels"]["given"]
    assert result["outputs"]["probabilities"]["max"] <= 1
    assert set(result["values"]) == {key for key, *_ in page.ask(f"/models/{job['model']}/open")["index"]}
    outputs = np.load(io.BytesIO(page.client.get(f"/api/jobs/{job['id']}/file").content))
    assert set(outputs.files) == {"label", "probabilities"}


# ----- failures -------------------------------------------------------------------------------------------------------


def made(tmp_path, text):
    (tmp_path / "model.py").write_text(text)
    return f"{tmp_path}/model.py:make"


def test_a_job_that_hangs_ends_and_the_server_answers(serve, tmp_path):
    page = serve(made(tmp_path, "def make():\n    while True:\n        pass\n"), seconds=3)
    (model,) = page.client.get("/api/state").json()["models"]
    job = page.done(task="export", model=model["id"])
    assert (job["state"], "within 3 seconds" in job["error"]["what"]) == ("failed", True)
    assert "within 3 seconds" in page.ask(f"/models/{model['id']}/open", 422)["what"]
    assert page.client.get("/api/state").status_code == 200


def test_a_job_is_cancelled_whether_it_runs_or_waits(serve, tmp_path):
    mark = tmp_path / "started"
    text = f"import time, pathlib\ndef make():\n    pathlib.Path({str(mark)!r}).touch()\n    time.sleep(600)\n"
    page = serve(made(tmp_path, text))
    (model,) = page.client.get("/api/state").json()["models"]
    one, two = (page.ask("/jobs", task="export", model=model["id"])["id"] for _ in range(2))
    page.awaited(one, ["running"])
    assert page.job(two)["state"] == "waiting"
    limit = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert page.ask(f"/jobs/{two}/cancel")["state"] == "cancelled"
    assert page.ask(f"/jobs/{one}/cancel")["state"] == "cancelled"
    assert page.ask(f"/jobs/{one}/cancel")["state"] == "cancelled", "once more does nothing"
    assert not any((page.server.folder / "results").iterdir())


def test_a_job_with_too_much_memory_ends(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("TENONNX_LIMIT_MEMORY", str(1 << 28))
    text = "import time\ndef make():\n    held = b'x' * (1 << 30)\n    time.sleep(600)\n"
    page = serve(made(tmp_path, text))
    (model,) = page.client.get("/api/state").json()["models"]
    job = page.done(task="export", model=model["id"])
    assert job["state"] == "failed"
    assert "memory" in job["error"]["what"]


def test_a_process_that_exits_is_reported(serve, tmp_path):
    page = serve(made(tmp_path, "import os\ndef make():\n    os._exit(7)\n"))
    (model,) = page.client.get("/api/state").json()["models"]
    assert "code 7" in page.done(task="run", model=model["id"])["error"]["what"]
    assert "code 7" in page.ask(f"/models/{model['id']}/open", 422)["what"]


def test_only_so_many_jobs_wait(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("tenonnx_serve.jobs.MOST_WAITING", 2)
    page = serve(made(tmp_path, "import time\ndef make():\n    time.sleep(600)\n"))
    (model,) = page.client.get("/api/state").json()["models"]
    for _ in range(2):
        page.ask("/jobs", task="export", model=model["id"])
    assert "Too many" in page.ask("/jobs", 429, task="export", model=model["id"])["what"]


def test_the_oldest_jobs_are_forgotten_with_their_files(page, monkeypatch):
    monkeypatch.setattr("tenonnx_serve.jobs.KEPT", 2)
    model = opened(page, "digits/digits.onnx")
    jobs = [page.done(task="export", model=model)["id"] for _ in range(4)]
    assert page.client.get(f"/api/jobs/{jobs[0]}").status_code == 404
    left = [path.name for path in (page.server.folder / "results").iterdir()]
    assert set(left) == set(jobs[-3:]), "two, and the one that came after them"


def test_news_of_a_job_come_as_events(page):
    job = page.ask("/jobs", task="export", model=opened(page, "digits/digits.onnx"))
    with page.client.stream("GET", f"/api/jobs/{job['id']}/news") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        states = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert states[-1]["state"] == "done"
    assert states[-1]["result"]["passed"] is True
    again = page.client.get(f"/api/jobs/{job['id']}/news").text
    assert again.count("data: ") == 1, "whoever comes later hears the end"


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b"[" * 100_000, b'{"task": "open"}', b'{"task": "export", "model": "x"}', b"\xff"]
)
def test_invalid_requests_are_refused(page, body):
    assert page.client.post("/api/jobs", content=body).status_code in (400, 404)
    assert page.client.get("/api/state").status_code == 200
