"""Feeds of a model in batches, from paths, arrays, data loaders and datasets."""

import numpy as np
import pytest

import tenonnx as tx
from tenonnx_data import batches_of
from tenonnx_data.loaders import Samples

A, B = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5, dtype=np.int64)


@pytest.fixture
def graph():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.input("a", "float32", ("n", 2))
    graph.input("b", "int64", ("n",))
    return graph


class Column(Samples):
    """Lazily read rows."""

    shape = (5, 2)

    def __getitem__(self, chosen):
        return A[chosen]


class Rows:
    """A dataset that is indexed by sample."""

    def __len__(self):
        return 5

    def __getitem__(self, k):
        return A[k], B[k], "label"


def npz(folder):
    np.savez(folder / "rows.npz", a=A, b=B, labels=B)
    return str(folder / "rows.npz")


SOURCES = {
    "path": npz,
    "Path": lambda folder: folder / npz(folder),
    "arrays": lambda _: {"a": A, "b": B, "labels": B},
    "samples": lambda _: {"a": Column(), "b": B},
    "tuple": lambda _: (A, B, B),
    "data set": lambda _: Rows(),
    "mappings": lambda _: [{"a": A[k : k + 2], "b": B[k : k + 2], "y": B} for k in (0, 2, 4)],
    "tuples": lambda _: [(A[k : k + 2], B[k : k + 2], B) for k in (0, 2, 4)],
    "nested": lambda _: (((A[k : k + 2], B[k : k + 2]), B) for k in (0, 2, 4)),
    "named": lambda _: [({"b": B[k : k + 2], "a": A[k : k + 2]}, B) for k in (0, 2, 4)],
    "function": lambda _: lambda: iter([(A[k : k + 2], B[k : k + 2]) for k in (0, 2, 4)]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_all_sources_have_the_same_batches(graph, tmp_path, kind):
    result = list(batches_of(graph, SOURCES[kind](tmp_path), batch_size=2))
    assert [sorted(batch) for batch in result] == [["a", "b"]] * 3
    assert [len(batch["a"]) for batch in result] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([batch["a"] for batch in result]), A)
    np.testing.assert_array_equal(np.concatenate([batch["b"] for batch in result]), B)


def test_inputs_of_fixed_size_are_not_cut():
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.input("a", "float32", (5, 2))
    (whole,) = batches_of(graph, {"a": A}, batch_size=2)
    np.testing.assert_array_equal(whole["a"], A)


def test_columns_of_a_table_by_input(tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.input("a", "float32", ("n", 2))
    (tmp_path / "rows.csv").write_text("u,v,w\n1,2,x\n3,4,y\n", "utf-8")
    (batch,) = batches_of(graph, tmp_path / "rows.csv", columns={"a": ["v", "u"]})
    np.testing.assert_array_equal(batch["a"], [[2, 1], [4, 3]])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ([{"a": A}], "a batch lacks inputs of the model"),
        ({"A": A, "b": B}, "a batch lacks inputs of the model"),
        ([(A,)], "a batch lacks inputs"),
        ([A], "a batch lacks inputs"),
        ([3], "a batch lacks inputs"),
        (3, "neither arrays, a path nor an iterable"),
        ("no-such.npz", "no-such.npz"),
        ("no-such.csv", "no-such.csv"),
    ],
)
def test_data_that_does_not_fit(graph, data, match):
    with pytest.raises(tx.TenonnxError, match=match):
        list(batches_of(graph, data))
