"""PyTorch's loaders and data sets as data for training and calibration."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

import tenonnx as tx
import tenonnx_training as tt

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(24, 6)).astype(np.float32), np.arange(24) % 3
TENSORS = TensorDataset(torch.from_numpy(X), torch.from_numpy(LABELS))
HOW = {"loss": "softmax_cross_entropy", "optimizer": tt.SGD(0.1), "backend": "numpy", "epochs": 2}


class Named(Dataset):
    """Samples as mappings, as in Hugging Face data sets."""

    def __len__(self):
        return 24

    def __getitem__(self, k):
        return {"x": torch.from_numpy(X[k]), "labels": int(LABELS[k])}


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(TENSORS)


def graph():
    made = tx.Graph(opsets={"ai.onnx": 21})
    weight = made.variable("w", np.zeros((6, 3), np.float32))
    made.output("y", made.input("x", "float32", ("n", 6)) @ weight)
    return made


def trained(data, **options):
    model = graph()
    tt.fit(model, data, **{**HOW, **options})
    return model["w"].data.array()


SOURCES = {
    "tuples": lambda: DataLoader(TENSORS, batch_size=8),
    "mappings": lambda: DataLoader(Named(), batch_size=8),
    "iterable": lambda: DataLoader(Streamed(), batch_size=8),
    "gradients": lambda: [(torch.from_numpy(X[k : k + 8]).requires_grad_(), LABELS[k : k + 8]) for k in (0, 8, 16)],
    "processes": lambda: DataLoader(TENSORS, batch_size=8, num_workers=1),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_loaders_train_as_their_arrays(kind):
    expected = trained((X, LABELS), batch_size=8, shuffle=False)
    np.testing.assert_array_equal(trained(SOURCES[kind]()), expected)


@pytest.mark.parametrize("dataset", [TENSORS, Named()], ids=["tuples", "mappings"])
def test_data_sets_are_shuffled_as_arrays(dataset):
    how = {"batch_size": 8, "seed": 3}
    np.testing.assert_array_equal(trained(dataset, **how), trained((X, LABELS), **how))


def test_a_sampler_gets_the_epoch():
    sampler = DistributedSampler(TENSORS, num_replicas=1, rank=0, seed=5)
    result = trained(DataLoader(TENSORS, batch_size=8, sampler=sampler))
    other = DistributedSampler(TENSORS, num_replicas=1, rank=0, seed=5)
    batches = []
    for epoch in range(2):
        other.set_epoch(epoch)
        order = list(other)
        batches.append([(X[order[k : k + 8]], LABELS[order[k : k + 8]]) for k in (0, 8, 16)])
    assert batches[0][0][1].tolist() != batches[1][0][1].tolist()
    epochs = iter(batches)
    np.testing.assert_array_equal(result, trained(lambda: next(epochs)))


def test_loaders_validate_and_evaluate():
    loader = DataLoader(TENSORS, batch_size=7)
    model = graph()
    history = tt.fit(model, loader, validation=loader, metrics=["accuracy"], **HOW)
    expected = tt.evaluate(model, (X, LABELS), ["accuracy"], loss="softmax_cross_entropy", backend="numpy")
    result = tt.evaluate(model, loader, ["accuracy"], loss="softmax_cross_entropy", backend="numpy")
    assert result == pytest.approx(expected)
    last = history.epochs[-1]
    assert {name: last[f"validation_{name}"] for name in expected} == pytest.approx(expected)


def test_loaders_calibrate():
    _, expected = tx.quantize(graph(), [{"x": X[k : k + 8]} for k in (0, 8, 16)], mode="static", backend="numpy")
    _, report = tx.quantize(graph(), DataLoader(TENSORS, batch_size=8), mode="static", backend="numpy")
    assert report.to_dict() == expected.to_dict()
