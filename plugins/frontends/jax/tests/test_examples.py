"""The example models on JAX, and their training compared with numpy."""

from pathlib import Path

import numpy as np
import pytest

import tenonnx as tx
import tenonnx_training as tt

EXAMPLES = Path(__file__).parents[4] / "examples"

#: Without Whisper, which is right, but takes a minute to compile.
MODELS = {
    "bert/bert": "bert/samples",
    "decoder/decoder": "decoder/samples",
    "experts/experts": "experts/samples",
    "gpt2/gpt2": "gpt2/samples",
    "llama/llama": "llama/samples",
    "quantized/llama-4bit": "quantized/llama",
    "quantized/resnet-qdq": "quantized/resnet",
}


def opened(name):
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    with np.load(EXAMPLES / f"{MODELS[name]}.npz") as archive:
        return graph, {value.name: archive[value.name] for value in graph.inputs}


@pytest.mark.parametrize("name", MODELS)
def test_the_examples_agree_with_numpy(name):
    graph, feeds = opened(name)
    expected, result = graph.run(feeds, backend="numpy"), graph.compile("jax", strict=True)(feeds)
    for each, wanted in expected.items():
        bound = 1e-5 * np.abs(wanted).max()
        np.testing.assert_allclose(result[each], wanted, rtol=0, atol=bound)


def test_state_is_that_of_numpy_after_100_steps():
    trained = {}
    for backend in ("numpy", "jax"):
        graph, feeds = opened("bert/bert")
        output = next(value for value in graph.outputs if value.tensor.dtype.is_float)
        step = tt.TrainingStep(graph, "mean_squared_error", tt.Momentum(1e-3), output=output.name, backend=backend)
        labels = np.full_like(graph.run(feeds, backend="numpy")[output.name], 0.5)
        for _ in range(100):
            step({**feeds, step.labels: labels})
        step.write_back()
        trained[backend] = {value.name: np.asarray(value) for value in graph.variables}
    for variable, array in trained["numpy"].items():
        bound = 1e-6 * np.abs(array).max(initial=0)  # 8 ulp of the largest element; 1e-7 was observed
        np.testing.assert_allclose(trained["jax"][variable], array, rtol=0, atol=bound, err_msg=variable)
