"""Gradients of the example models: PyTorch's, through ``tenonnx_torch.module``, against our gradient graphs."""

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from modules import CASES, sequences  # noqa: F401  (they register cases)
from modules.rounding import assert_within_rounding
from torch.utils._pytree import tree_leaves

import tenonnx as tx
import tenonnx_torch

EXAMPLES = Path(__file__).parents[4] / "examples"

#: Sizes of dims where an example has no samples.
SIZES = {"total": 4, "height": 8, "width": 8}

#: Examples whose weights are attributes of nodes.
WITHOUT = {"iris/iris", "iris/tree"}

#: Examples with a search loop over growing tensors: PyTorch differentiates each iteration, we do not.
SEARCHES = {"gpt2/gpt2-beams", "whisper/whisper"}


def examples():
    return sorted(f"{path.parent.name}/{path.stem}" for path in EXAMPLES.glob("*/*.onnx"))


def fed(graph, name):
    """Inputs: the samples of an example, or random contents."""
    path = EXAMPLES / f"{name}.onnx"
    model, _, kind = path.stem.partition("-")
    stored = [path.with_name(f"{each}.npz") for each in (f"samples-{kind}", model, "samples")]
    archive = next((dict(np.load(each)) for each in stored if each.exists()), {})
    random = np.random.default_rng(0)
    feeds = {}
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else SIZES.get(str(dim), 2) for dim in value.shape]
        drawn = random.normal(size=shape) if value.tensor.dtype.is_float else random.integers(0, 2, shape)
        feeds[value.name] = archive.get(value.name, drawn.astype(value.tensor.dtype.numpy))
    return feeds


#: Trained variables of examples without weights: scales of quantized values, or penalties of a search.
UNUSUAL = {
    "digits/digits-int8": "*scale*",
    "quantized/resnet-qoperator": "*scale*",
    "gpt2/gpt2-beams": "*_penalty",
    "whisper/whisper": "*_penalty",
}


@pytest.mark.parametrize("name", examples())
def test_gradients_of_an_example_are_ours(name):
    graph = tx.load(EXAMPLES / f"{name}.onnx")
    feeds = fed(graph, name)
    network = tenonnx_torch.module(graph, trainable=UNUSUAL.get(name, ()))
    result = network(**feeds)
    result = result if isinstance(result, tuple) else (result,)
    given = zip(graph.outputs, result, strict=True)
    outputs = {v.name: tensor for v, tensor in given if isinstance(tensor, torch.Tensor) and tensor.requires_grad}
    assert (name in WITHOUT) == (not outputs)
    if not outputs:
        return
    random = np.random.default_rng(1)
    seeds = {key: random.normal(size=tensor.shape).astype(np.float32) for key, tensor in outputs.items()}
    torch.autograd.backward(list(outputs.values()), [torch.from_numpy(seed) for seed in seeds.values()])
    parameters = dict(network.named_parameters())
    if name in SEARCHES:
        with pytest.raises(tx.NotDifferentiable):
            tx.grad(graph, of=list(outputs), wrt=list(parameters), seeds={key: f"{key}/seed" for key in seeds})
        return
    slope = tx.grad(graph, of=list(outputs), wrt=list(parameters), seeds={key: f"{key}/seed" for key in seeds})
    ours = slope.run({**feeds, **{f"{key}/seed": seed for key, seed in seeds.items()}}, "numpy")
    # tolerance for another order of float32 sums; where numbers are quantized, ties may round either way
    quantized = any("QLinear" in node.op_type or "Quantize" in node.op_type for node in graph.walk())
    close = 2e-3 if quantized else 2e-5
    for key, parameter in parameters.items():
        expected = ours[f"{key}/grad"]
        actual = np.zeros_like(expected) if parameter.grad is None else parameter.grad.numpy()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=close * np.abs(expected).max() + 1e-6, err_msg=key)


THERE_AND_BACK = ["RNN of any length", "LSTM both ways in two layers", "embedding bag"]


@pytest.mark.parametrize("name", THERE_AND_BACK)
def test_a_module_there_and_back_has_its_own_numbers_and_gradients(name):
    case = CASES[name]
    module, examples = case.make()
    network = tenonnx_torch.module(tx.retarget(tx.load(module, *examples, dims=case.dims, verify=False), 13))
    precise = copy.deepcopy(module).double()
    widened = [t.double() if t.is_floating_point() else t for t in tree_leaves(examples)]
    calls = {network: tree_leaves(examples), module: tree_leaves(examples), precise: widened}
    outputs = [tree_leaves(each(*given)) for each, given in calls.items()]
    for result in zip(*outputs, strict=True):
        assert_within_rounding(*(tensor.detach() for tensor in result))
    for result in outputs:
        sum(tensor.square().sum() for tensor in result).backward()
    slopes = [{name: parameter.grad for name, parameter in each.named_parameters()} for each in calls]
    for key in slopes[1]:
        assert_within_rounding(*(each[key] for each in slopes), key)


def test_a_quantized_file_is_tuned_by_pytorch(tmp_path):
    """Gradients pass straight through the quantized values; scales of weights are trained, too."""
    graph = tx.load(EXAMPLES / "quantized/resnet-qdq.onnx")
    network = tenonnx_torch.module(graph)
    (images,) = map(torch.from_numpy, fed(graph, "quantized/resnet-qdq").values())
    wanted = torch.tensor([3, 1])
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images[:2]), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    tx.export(network.write_back(), tmp_path / "tuned.onnx")
    before, after = (onnx.load(path) for path in (EXAMPLES / "quantized/resnet-qdq.onnx", tmp_path / "tuned.onnx"))
    assert before.graph.node == after.graph.node
    with torch.no_grad():
        expected = network(images).numpy()
    result = tx.load(tmp_path / "tuned.onnx").run({graph.inputs[0].name: images.numpy()}, backend="onnxruntime")
    np.testing.assert_allclose(*result.values(), expected, atol=0.1)
