"""Execution providers: io binding on the CPU provider, and messages for absent ones."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import tenonnx as tx
import tenonnx_standard as ops
import tenonnx_training as tt
from tenonnx_onnxruntime import places, providers

CPU = "CPUExecutionProvider"


def layer(dtype="float32"):
    graph = tx.Graph(opsets={"ai.onnx": 18})
    x = graph.input("x", dtype, ("n", 3))
    weights = np.arange(12).reshape(3, 4).astype(getattr(ml_dtypes, dtype, dtype))
    graph.output("y", ops.cast(ops.matmul(ops.cast(x, to="float32"), weights.astype(np.float32)), to=dtype))
    return graph


@pytest.fixture
def bindings(monkeypatch):
    """The arguments of all output bindings."""
    result = []
    made = onnxruntime.IOBinding.bind_output

    def bound(binding, name, *place, **more):
        result.append((name, *place))
        return made(binding, name, *place, **more)

    monkeypatch.setattr(onnxruntime.IOBinding, "bind_output", bound)
    return result


@pytest.mark.parametrize("provider", [CPU, "cpu", "CPU", (CPU, {}), ("cpu", {})])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_calls_are_bound_to_the_device_of_a_provider(provider, dtype, bindings):
    graph = layer(dtype)
    program = graph.compile("onnxruntime", provider=provider, strict=True)
    for rows in (2, 5, 1):
        x = np.arange(3 * rows).reshape(rows, 3).astype(getattr(ml_dtypes, dtype, dtype))
        expected = graph.run({"x": x}, backend="numpy")["y"]
        result = program({"x": x})["y"]
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=1e-2)
    assert len(bindings) == 3


def test_results_of_one_call_stay_when_another_follows():
    program = layer().compile("onnxruntime", provider=CPU, strict=True)
    first = program({"x": np.ones((2, 3), np.float32)})["y"]
    kept = first.copy()
    program({"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(first, kept)


def test_text_needs_no_binding():
    graph = tx.Graph(opsets={"ai.onnx": 20})
    text = graph.input("text", "string", (2,))
    graph.output("both", ops.string_concat(text, text))
    result = graph.compile("onnxruntime", provider=CPU, strict=True)({"text": np.array(["a", "b"], object)})
    assert result["both"].tolist() == ["aa", "bb"]


def test_state_stays_on_the_device(monkeypatch, bindings):
    put, empty = [], []

    class Noted(providers.Place):
        def put(self, array, dtype):
            put.append(dtype)
            return super().put(array, dtype)

        def empty(self, shape, dtype):
            empty.append(tuple(shape))
            return super().empty(shape, dtype)

    monkeypatch.setattr(providers, "Place", Noted)
    graph = tx.Graph(opsets={"ai.onnx": 21})
    w = graph.variable("w", np.arange(6, dtype=np.float32).reshape(3, 2))
    graph.output("y", ops.matmul(graph.input("x", "float32", ("n", 3)), w))
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    result = {}
    for name, options in {"numpy": {}, "onnxruntime": {"provider": CPU, "strict": True}}.items():
        step = tt.TrainingStep(graph.copy(), "mean_squared_error", tt.Adam(0.1), backend=name, **options)
        result[name] = [step({"x": x, "labels": y})["loss"] for _ in range(5)], step.program.state["w"]
    np.testing.assert_allclose(result["onnxruntime"][0], result["numpy"][0], rtol=1e-5)
    np.testing.assert_allclose(result["onnxruntime"][1], result["numpy"][1], rtol=1e-5)
    assert (3, 2) in empty
    assert put
    assert "w" not in [name for name, *_ in bindings]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"provider": "CUDAExecutionProvider"}, "onnxruntime-gpu"),
        ({"provider": "cuda"}, "does not have this provider"),
        ({"provider": "dml"}, "onnxruntime-directml"),
        ({"provider": "CPUExecutionProvidr"}, "did you mean CPUExecutionProvider"),
        ({"provider": 3}, "neither a name nor a name and its options"),
        ({"provider": (CPU, {"device_id": "first"})}, "is not a non-negative number"),
        ({"provider": CPU, "providers": [CPU]}, "both given"),
    ],
)
def test_unknown_providers_are_refused(options, said):
    if str(options["provider"]).lower().startswith(("cuda", "dml")) and len(onnxruntime.get_available_providers()) > 2:
        pytest.skip("this build has more providers")
    with pytest.raises(tx.InvalidCall) as caught:
        layer().compile("onnxruntime", **options)
    assert said in str(caught.value)


def test_a_provider_without_a_device_is_reported(monkeypatch):
    """The runtime silently falls back to the CPU."""
    known = ["CUDAExecutionProvider", CPU]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: known)
    opened = onnxruntime.InferenceSession

    def by_processor(*arguments, providers, **more):
        return opened(*arguments, providers=[CPU], **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", by_processor)
    with pytest.raises(tx.InvalidCall, match="CUDAExecutionProvider found no device"):
        layer().compile("onnxruntime", provider="cuda")


def test_device_placement_of_tensors(monkeypatch):
    """Allocations on a device that this machine lacks."""
    calls = []

    class Tensors:
        @staticmethod
        def ortvalue_from_numpy(array, *place):
            calls.append(place)

        @staticmethod
        def ortvalue_from_shape_and_type(shape, kind, *place):
            calls.append((tuple(shape), kind, *place))

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", CPU])
    monkeypatch.setattr(places, "OrtValue", Tensors)
    expected, place = providers.chosen(("cuda", {"device_id": 1}), None)
    assert expected == [("CUDAExecutionProvider", {"device_id": 1}), CPU]
    place.put(np.ones(2, np.float32), tx.DType.float32)
    place.empty((2, 3), tx.DType.float16)
    assert calls == [("cuda", 1), ((2, 3), int(tx.DType.float16), "cuda", 1)]
