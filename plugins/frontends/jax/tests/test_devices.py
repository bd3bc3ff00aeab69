"""Several devices: a subprocess with eight CPU devices."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_backend import network

import tenonnx as tx
import tenonnx_jax
import tenonnx_training as tt

HEAD = """
import json, os, sys
import numpy as np
import jax
import tenonnx as tx
import tenonnx_training as tt
sys.path.insert(0, sys.argv[1])
from test_backend import network

generator = np.random.default_rng(1)
data = generator.standard_normal((80, 4)).astype(np.float32), generator.integers(0, 3, 80)
LAYOUTS = {
    "one": {},
    "data": {"mesh": {"data": 8}, "sharding": {"x": ("data",)}},
    "usual": {"mesh": {"data": 4, "model": 2}},
    "tensor": {"mesh": {"data": 2, "model": 4}, "sharding": {"x": ("data",), "w0*": (None, "model")}},
    "optimizer": {"mesh": {"data": 8}, "sharding": {"x": ("data",), "w0__*": (None, "data")}},
}
HOW = {"loss": "softmax_cross_entropy", "optimizer": tt.Adam(1e-2), "batch_size": 16, "backend": "jax"}
"""

TRAINED = """
assert len(jax.devices()) == 8
found = {}
for name, options in LAYOUTS.items():
    graph = network()
    history = tt.fit(graph, data, epochs=3, shuffle=False, **HOW, **options)
    weights = {value.name: value.data.array().tolist() for value in graph.variables}
    step = tt.TrainingStep(network(), **{k: v for k, v in HOW.items() if k != "batch_size"}, **options)
    step({"x": data[0][:16], "labels": data[1][:16]})
    first = jax.devices()[0]
    parts = [part for held in step.program.state.arrays.values() for part in held.addressable_shards]
    held = sum(part.data.nbytes for part in parts if part.device == first)
    found[name] = {"losses": [epoch["loss"] for epoch in history.epochs], "weights": weights, "held": held}
print(json.dumps(found))
"""

#: Program of two processes with four devices each, which pass the same data and contribute their parts.
TOGETHER = """
jax.distributed.initialize(f"localhost:{sys.argv[2]}", num_processes=2, process_id=int(sys.argv[3]))
assert (len(jax.devices()), len(jax.local_devices())) == (8, 4)
found = {}
for name, options in LAYOUTS.items():
    if name == "one":
        continue
    graph = network()
    history = tt.fit(graph, data, epochs=3, shuffle=False, metrics=["accuracy"], **HOW, **options)
    weights = {value.name: value.data.array().tolist() for value in graph.variables}
    found[name] = {"losses": [epoch["loss"] for epoch in history.epochs], "weights": weights}
print(json.dumps(found))
"""

#: Program that is killed in its second epoch, and resumed from its last checkpoint.
KILLED = """
checkpoint, ends = sys.argv[2], sys.argv[3] == "killed"
graph = tx.load(checkpoint) if os.path.exists(checkpoint) else network()
before = 0 if graph.training_state is None else graph.training_state.settings["epoch"]
how = {**HOW, "seed": 3, "checkpoint": checkpoint, **LAYOUTS["tensor"]}
if ends:
    from tenonnx_training.fitting import _Run
    trained, count = _Run._train, []
    def train(run, batch, **how):
        trained(run, batch, **how)
        count.append(1)
        if len(count) == 8:
            os.kill(os.getpid(), 9)
    _Run._train = train
    how["checkpoint_every"] = 3
history = tt.fit(graph, data, epochs=3 - before, **how)
print(json.dumps({"weights": {v.name: v.data.array().tolist() for v in graph.variables}, "steps": len(history.losses)}))
"""

#: Program of two processes that are both killed in the second epoch.
IN_PARTS = """
from tenonnx_training.fitting import _Run
jax.distributed.initialize(f"localhost:{sys.argv[2]}", num_processes=2, process_id=int(sys.argv[3]))
trained, count = _Run._train, []
def train(run, batch, **how):
    trained(run, batch, **how)
    count.append(1)
    if len(count) == 8:
        print(json.dumps(run.history.losses), flush=True)
        os.kill(os.getpid(), 9)
_Run._train = train
how = {**HOW, **LAYOUTS["optimizer"], "checkpoint": sys.argv[4], "checkpoint_every": 3, "shuffle": False}
tt.fit(network(), data, epochs=3, **how)
"""


def started(program, *arguments, devices=8):
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", HEAD + program, str(Path(__file__).parent), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    out, told = process.communicate(timeout=500)
    assert process.returncode == 0, told[-2000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def trained():
    return ended(started(TRAINED))


def assert_alike(found, expected):
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5)
    for weight, contents in expected["weights"].items():
        np.testing.assert_allclose(found["weights"][weight], contents, rtol=1e-3, atol=1e-5)


def test_losses_over_eight_devices_are_those_of_one(trained):
    for name in ("data", "usual", "tensor", "optimizer"):
        assert_alike(trained[name], trained["one"])


def test_bytes_on_each_device_agree_with_the_plan(trained):
    step = tt.TrainingStep(network(), "softmax_cross_entropy", tt.Adam(1e-2), backend="numpy")
    graph, kept = step.graph(), set(step.program.state)
    for name, (mesh, sharding) in {
        "data": ({"data": 8}, {"x": ("data",)}),
        "usual": ({"data": 4, "model": 2}, None),
        "tensor": ({"data": 2, "model": 4}, {"x": ("data",), "w0*": (None, "model")}),
        "optimizer": ({"data": 8}, {"x": ("data",), "w0__*": (None, "data")}),
    }.items():
        plan = tenonnx_jax.layout_plan(graph, mesh, sharding, state=step._step_graph.state)
        assert trained[name]["held"] == sum(each.bytes for each in plan.arrays if each.name in kept)
    assert trained["data"]["held"] == trained["one"]["held"] > trained["optimizer"]["held"]
    assert trained["one"]["held"] > trained["tensor"]["held"] > trained["usual"]["held"]


def test_losses_of_two_processes_are_those_of_one(trained):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    both = [started(TOGETHER, port, str(k), devices=4) for k in range(2)]
    for result in map(ended, both):
        for name, each in result.items():
            assert_alike(each, trained["one"] | {"losses": trained[name]["losses"]})


def test_checkpoints_of_two_killed_processes_resume_over_another_mesh_or_none(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    folder = str(tmp_path / "run.shards")
    both = [started(IN_PARTS, port, str(k), folder, devices=4) for k in range(2)]
    for process in both:
        process.communicate(timeout=500)
        assert process.returncode in (-9, -6), "JAX ends a process whose fellow is gone"
    generator = np.random.default_rng(1)
    data = generator.standard_normal((80, 4)).astype(np.float32), generator.integers(0, 3, 80)
    how = {"loss": "softmax_cross_entropy", "optimizer": tt.Adam(1e-2), "batch_size": 16, "shuffle": False}
    whole = network()
    expected = tt.fit(whole, data, epochs=3, backend="numpy", **how)
    weights = {value.name: value.data.array() for value in whole.variables}
    (parts,) = [sorted(each.glob("part-*")) for each in Path(folder).iterdir() if each.name == "000000006"]
    assert len(parts) == 2
    for options in ({"backend": "numpy"}, {"backend": "jax"}):
        graph = tx.load(folder)
        assert (graph.training_state.settings["epoch"], graph.training_state.settings["samples"]) == (1, 16)
        history = tt.fit(graph, data, epochs=2, **options)
        np.testing.assert_allclose(history.losses, expected.losses[6:], rtol=1e-4)
        for value in graph.variables:
            np.testing.assert_allclose(value.data.array(), weights[value.name], rtol=1e-3, atol=1e-5)
    over_tensors = ended(started(KILLED, folder, "rest"))
    assert over_tensors["steps"] == 9
    for name, contents in over_tensors["weights"].items():
        np.testing.assert_allclose(contents, weights[name], rtol=1e-3, atol=1e-5)


def test_a_process_that_is_killed_in_an_epoch_resumes_bit_for_bit(tmp_path):
    whole = ended(started(KILLED, str(tmp_path / "whole.safetensors"), "whole"))
    checkpoint = str(tmp_path / "parts.safetensors")
    killed = started(KILLED, checkpoint, "killed")
    killed.communicate(timeout=500)
    assert killed.returncode == -9
    settings = tx.load(checkpoint).training_state.settings
    epoch, samples = settings["epoch"], settings["samples"]
    assert (epoch, samples) in ((1, 0), (1, 16))  # the latest checkpoint may be incomplete
    rest = ended(started(KILLED, checkpoint, "rest"))
    assert rest["weights"] == whole["weights"]
    assert (whole["steps"], rest["steps"]) == (15, 15 - 5 * epoch - samples // 16)


def test_a_plan_shows_the_contents_of_each_device():
    import jax
    from jax.sharding import AbstractMesh

    mesh = AbstractMesh((4, 2), ("data", "model"))
    plan = tenonnx_jax.layout_plan(network(), mesh, {"w0": (None, ("data", "model"))})
    by_name = {each.name: each.bytes for each in plan.arrays}
    assert by_name == {"w0": 4 * 8 * 4 // 8, "w1": 8 * 3 * 4, "x": 8 * 4 * 4}
    assert plan.bytes_per_device == 16 + 96 + 128
    assert "everywhere" in str(plan)
    assert len(jax.devices()) < 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mesh": {"data": 4096}}, "more devices than JAX finds"),
        ({"mesh": {"data": 1}, "sharding": {"x": ("model",)}}, "the mesh has no axis"),
        ({"sharding": {"x": ("data",)}}, "without a mesh"),
        ({"mesh": {"data": 1}, "device": "cpu"}, "both a device and a mesh"),
        ({"mesh": {"data": 2}, "devices": 3}, "multiply to the number of devices"),
        ({"mesh": {"data": 0}}, "or one without devices"),
        ({"mesh": {"rows": 1}}, "has no axis"),
        ({"mesh": {"data": True}}, "or one without devices"),
        ({"mesh": "data=1"}, "does not map axes to sizes"),
        ({"mesh": {"data": 1}, "sharding": {"z": ("data",)}}, "(?s)fits no input.*available  x, w0, w1$"),
        ({"mesh": {"data": 1}, "sharding": {"x": "data"}}, "for each axis of an array"),
        ({"mesh": {"data": 1}, "sharding": {"x": None}}, "for each axis of an array"),
        ({"mesh": {"data": 1}, "sharding": ("data",)}, "does not map names"),
        ({"mesh": {"data": 1}, "sharding": {"x": ("data", "data")}}, "splits several axes"),
        ({"mesh": {"data": 1}, "sharding": {"w0": (None, None, "data")}}, "split evenly"),
        ({"device": 3}, "does not find the device"),
        ({"device": "cpu:-1"}, "does not find the device"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(options, said):
    with pytest.raises(tx.InvalidCall, match=said):
        network().compile("jax", **options)


def test_a_feed_with_fewer_axes_than_its_sharding_is_refused():
    program = network().compile("jax", mesh={"data": 1}, sharding={"x": ("data", None, None)}, strict=True)
    with pytest.raises(tx.InvalidCall, match="split evenly"):
        program({"x": np.ones((2, 4), np.float32)})


def test_a_sharding_of_a_step_serves_its_validation_and_a_wrong_one_is_refused():
    data = np.ones((8, 4), np.float32), np.zeros(8, np.int64)
    how = {"loss": "softmax_cross_entropy", "backend": "jax", "mesh": {"data": 1}, "validation": data}
    history = tt.fit(network(), data, sharding={"x": ("data",), "*__adam_m": ("data",)}, optimizer=tt.Adam(), **how)
    assert "validation_loss" in history.epochs[-1]
    with pytest.raises(tx.InvalidCall, match="fits no input"):
        tt.fit(network(), data, sharding={"pixels": ("data",)}, **how)


def test_uneven_splits_are_refused():
    from jax.sharding import AbstractMesh

    with pytest.raises(tx.InvalidCall, match="split evenly"):
        tenonnx_jax.layout_plan(network(), AbstractMesh((2,), ("model",)), {"w1": (None, "model")})
    with pytest.raises(tx.InvalidCall, match="fits no input"):
        tenonnx_jax.layout_plan(network(), AbstractMesh((2,), ("model",)), {"no such*": ("model",)})


def test_shardings_determine_the_exchanges_of_a_step():
    step = tt.TrainingStep(network(), "softmax_cross_entropy", tt.Adam(1e-2), backend="numpy")
    graph, mesh = step.graph(), {"data": 4, "model": 2}
    batch = {"x": ("data",), "labels": ("data",)}

    def told(sharding):
        plan = tenonnx_jax.layout_plan(graph, mesh, sharding, state=step._step_graph.state)
        assert not plan.unknown
        return {(each.kind, each.axes, each.bytes) for each in plan.exchanges}

    weights = 4 * 8 * 4, 8 * 3 * 4
    gradients = {("reduced", ("data",), size) for size in weights}
    assert told({}) == set()
    loss = {("reduced", ("data",), 4), ("reduced", ("data",), 1)}  # including whether all labels are in range
    assert told(batch) == {*gradients, *loss}
    assert told({**batch, "w0__*": (None, "data")}) == told(batch) | {("gathered", ("data",), weights[0])}
    halves = {("reduced", ("data",), size // 2) for size in weights}
    rows = 8 // 4 * 3 * 4  # partial sums of the scores of each device over its half of the hidden units
    everything = {**batch, "w0*": (None, "model"), "w1*": ("model",)}
    assert told(everything) == {*halves, ("reduced", ("model",), rows), *loss}


def command(*arguments, **more):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **more}
    environment.pop("XLA_FLAGS", None)
    line = [sys.executable, "-m", "tenonnx", *map(str, arguments)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=500)


EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_command_line_plans_and_trains_over_devices(tmp_path):
    model, mesh = EXAMPLES / "digits_cnn/digits-cnn.onnx", ("--devices", "8", "--mesh", "data=4,model=2")
    done = command("plan", model, *mesh, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["devices"] == 8
    assert report["bytes_per_device"] < report["bytes_in_all"]
    shown = command("plan", model, *mesh, "--sharding", "classifier.weight=-,data+model").stdout
    assert "classifier.weight [10, 128] -,data+model" in shown
    assert "bytes on each of 8 devices" in shown
    with np.load(EXAMPLES / "digits_cnn/digits.npz") as archive:
        np.savez(tmp_path / "few.npz", images=archive["images"][:64], labels=archive["labels"][:64])
    step = tmp_path / "step.onnx"
    trained = command(
        "train",
        model,
        "--data",
        tmp_path / "few.npz",
        "--loss",
        "softmax_cross_entropy",
        "-o",
        tmp_path / "out.onnx",
        "--backend",
        "jax",
        *mesh,
        "--epochs",
        "1",
        "--emit-step",
        step,
        "--json",
    )
    assert trained.returncode == 0, trained.stderr
    one = command(
        "train",
        model,
        "--data",
        tmp_path / "few.npz",
        "--loss",
        "softmax_cross_entropy",
        "-o",
        tmp_path / "one.onnx",
        "--backend",
        "numpy",
        "--epochs",
        "1",
        "--json",
    )
    losses = [json.loads(each.stdout)["epochs"][0]["loss"] for each in (trained, one)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    planned = json.loads(command("plan", step, *mesh, "--json").stdout)
    assert planned["reduced"] > 0
    assert planned["unknown"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mesh", "data=4,a"), "not a mesh such as"),
        (("--mesh", "data=4", "--sharding", "x"), "not a sharding such as"),
        (("--sharding", "x=data"), "--sharding was given without --mesh"),
        (("--devices", "8", "--opset", "13"), "of a conversion and of devices"),
        (("--devices", "8", "--mesh", "data=3"), "multiply to the number"),
        (("--mesh", "data=4", "--sharding", "nothing*=data"), "fits no input"),
    ],
)
def test_the_command_line_refuses_invalid_shardings(options, said):
    done = command("plan", EXAMPLES / "digits/digits.onnx", *options)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
