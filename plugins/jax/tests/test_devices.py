"""Several devices: a process of its own has eight, forced on the processor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_backend import network

import tenonnx as tx
import tenonnx_jax

PROGRAM = """
import json, sys
import numpy as np
import jax
import tenonnx_training as tt
sys.path.insert(0, sys.argv[1])
from test_backend import network

assert len(jax.devices()) == 8
generator = np.random.default_rng(1)
data = generator.standard_normal((80, 4)).astype(np.float32), generator.integers(0, 3, 80)
found = {}
for name, options in {
    "one": {},
    "data": {"mesh": {"data": 8}, "sharding": {"x": ("data",)}},
    "tensor": {"mesh": {"data": 2, "model": 4}, "sharding": {"x": ("data",), "w0*": (None, "model")}},
    "optimizer": {"mesh": {"data": 8}, "sharding": {"x": ("data",), "w0__*": (None, "data")}},
}.items():
    graph = network()
    history = tt.fit(graph, data, loss="softmax_cross_entropy", optimizer=tt.Adam(1e-2), batch_size=16, epochs=3,
                     shuffle=False, backend="jax", **options)
    weights = {value.name: value.data.array().tolist() for value in graph.variables}
    found[name] = {"losses": [epoch["loss"] for epoch in history.epochs], "weights": weights}
print(json.dumps(found))
"""


def test_losses_over_eight_devices_are_those_of_one():
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for name in ("data", "tensor", "optimizer"):
        np.testing.assert_allclose(found[name]["losses"], found["one"]["losses"], rtol=1e-5)
        for weight, contents in found["one"]["weights"].items():
            np.testing.assert_allclose(found[name]["weights"][weight], contents, rtol=1e-3, atol=1e-5)


def test_a_plan_tells_what_each_device_holds():
    import jax
    from jax.sharding import AbstractMesh

    mesh = AbstractMesh((4, 2), ("data", "model"))
    plan = tenonnx_jax.layout_plan(network(), mesh, {"w0": (None, ("data", "model"))})
    assert {each.name: each.bytes for each in plan.arrays} == {"w0": 4 * 8 * 4 // 8, "w1": 8 * 3 * 4}
    assert plan.bytes_per_device == 16 + 96
    assert "everywhere" in str(plan)
    assert len(jax.devices()) < 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mesh": {"data": 4096}}, "no more devices than JAX finds"),
        ({"mesh": {"data": 1}, "sharding": {"x": ("model",)}}, "one of the mesh"),
        ({"sharding": {"x": ("data",)}}, "must have a mesh"),
        ({"mesh": {"data": 1}, "device": "cpu"}, "a device or on a mesh"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(options, said):
    with pytest.raises(tx.InvalidCall, match=said):
        network().compile("jax", **options)


def test_what_cannot_be_cut_evenly_is_refused():
    from jax.sharding import AbstractMesh

    with pytest.raises(tx.InvalidCall, match="cut evenly"):
        tenonnx_jax.layout_plan(network(), AbstractMesh((2,), ("model",)), {"w1": (None, "model")})
    with pytest.raises(tx.InvalidCall, match="must fit an input"):
        tenonnx_jax.layout_plan(network(), AbstractMesh((2,), ("model",)), {"no such*": ("model",)})
