"""Inferred types compared with real values, for every value in the models of the ONNX suites and of the examples."""

from __future__ import annotations

import functools
from weakref import WeakKeyDictionary

import models
import numpy as np
import onnx
import onnx_suites
import pytest
from onnx.backend.test.loader import load_model_tests

import tenonnx as tx
import tenonnx.op.infer
import tenonnx_standard as ops
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.types import OptionalType, SequenceType, TensorType
from tenonnx.op.evaluate import evaluate_graph
from tenonnx.op.graph_inference import infer
from tenonnx_testing.inference import contradiction

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")

#: Values whose declared type is wrong in the file; an outdated entry fails the test.
MISDECLARED = {
    ("test_loop16_seq_none", "seq_res"): "the file declares a sequence of scalars, and the loop collects vectors"
}

#: Ops with data-dependent output dims, which types and contents of small integer inputs do not determine.
DATA_DEPENDENT = {
    "Compress": "as many elements as conditions hold",
    "ConcatFromSequence": "the sequence may have any length",
    "If": "either branch may be taken",
    "ImageDecoder": "the size is in the file",
    "Loop": "as many iterations as its condition holds",
    "NonMaxSuppression": "as many boxes as are left",
    "NonZero": "as many elements as are not zero",
    "OneHot": "the depth may be a float",
    "Range": "the ends may be floats",
    "Resize": "the scales are floats",
    "SequenceAt": "the position may be any",
    "SequenceEmpty": "the elements to come may have any shape",
    "SplitToSequence": "the parts need not be equal",
    "StringNormalizer": "stop words are left out",
    "StringSplit": "as many parts as the longest text has",
    "Unique": "as many elements as differ",
    "Upsample": "the scales are floats",
}


#: Ops of examples with an unknown dim for symbolic ones: a slice from -sequence differs if the sequence is empty.
SYMBOLIC = {"decoder/decoder": {"Slice"}}


@functools.cache
def cases(kind):
    if kind == "node":
        return onnx_suites.node_cases()
    return {case.name: case for case in load_model_tests(kind=kind)}


def provided(kind):
    """Each model of a suite whose ops all have definitions, with its first inputs.

    Without models of ops that only have a meaning inside a larger graph.
    """
    for name, case in cases(kind).items():
        model, stored = onnx_suites.load(case)
        if not onnx_suites.not_provided(model) and not name.startswith("test_image_decoder"):
            graph = tx.load(model)
            if not any(node.op.signature.reads_graph for node in graph.nodes):
                yield name, graph, stored[0][0]


def contradictions(name, graph, feeds):
    """Run the graph with every value as an output, and yield the values whose type differs from the inferred one."""
    given = dict(zip(graph.inputs, feeds, strict=False))
    contents = [given[v] if v in given else v.data.array() for v in graph.all_inputs]
    contents = [np.asarray(c) if isinstance(c, np.generic) else c for c in contents]
    sizes = {}
    for value, array in zip(graph.all_inputs, contents, strict=True):
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        sizes |= {str(d): n for d, n in zip(shape or (), getattr(array, "shape", ()), strict=False) if symbols_of(d)}
    infer(graph)
    values = [v for node in graph.nodes for v in node.outputs if v is not None]
    graph.outputs = values
    for value, array in zip(values, evaluate_graph(graph, contents), strict=True):
        problem = contradiction(value.type, array, sizes)
        if problem and (name, value.name) not in MISDECLARED:
            yield f"{name}: {value.name} is inferred as {value.type}: {problem}"
        if not problem and (name, value.name) in MISDECLARED:
            yield f"{name}: {value.name} is as declared after all"


@pytest.mark.parametrize("kind", KINDS)
def test_suites(kind):
    result = [text for name, graph, feeds in provided(kind) for text in contradictions(name, graph, feeds)]
    assert not result, "\n".join(result)


@pytest.mark.parametrize("name", models.SAMPLES)
def test_examples(name):
    graph = tx.load(models.example(name))
    arrays = models.feeds(name)
    feeds = [arrays[value.name] for value in graph.inputs]
    assert not list(contradictions(name, graph, feeds))
    assert set(origins(tx.load(models.example(name)), feeds)) == SYMBOLIC.get(name, set())


def is_known(kind):
    if kind is None:
        return False
    if isinstance(kind, SequenceType | OptionalType):
        return is_known(kind.element)
    return not isinstance(kind, TensorType) or (kind.shape is not None and None not in kind.shape)


def origins(graph, feeds):
    """Ops with unknown output dims although the types and small integer contents of their inputs are known."""
    for value, array in zip(graph.inputs, feeds, strict=False):
        kind = value.type
        if isinstance(kind, TensorType) and kind.dtype.is_integer and kind.rank in (0, 1) and array.size <= 64:
            value.data = ArrayConstant(np.asarray(array))
    infer(graph)
    for node in graph.nodes:
        outputs = [v.type for v in node.outputs if v is not None]
        if all(is_known(v.type) for v in node.uses) and not all(map(is_known, outputs)):
            yield node.op_type


def test_dims_are_unknown_only_where_data_decides():
    result = {op: name for kind in KINDS for name, graph, feeds in provided(kind) for op in origins(graph, feeds)}
    assert result.keys() <= DATA_DEPENDENT.keys(), result


def test_inference_does_not_depend_on_earlier_graphs(monkeypatch):
    """A function takes elements of a tensor of unknown rank; its types are inferred before or after another graph's."""
    called = onnx.parser.parse_function(
        """<opset_import: ["" : 18], domain: "local">
        taken (x, shape, places) => (y) { of_some_rank = Reshape(x, shape)
            found = GatherElements<axis = 0>(of_some_rank, places)
            y = Identity(found) }"""
    )
    graph = onnx.parser.parse_graph(
        "g (float[4] x, int64[n] shape, int64[2] places) => (y) { y = local.taken(x, shape, places) }"
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("local", 1)]
    model = onnx.helper.make_model(graph, functions=[called], opset_imports=opsets, ir_version=8)

    def types_of(*, first: bool) -> list[str]:
        monkeypatch.setattr(tenonnx.op.infer, "_memos", WeakKeyDictionary())
        if first:
            alone = tx.Graph()
            x, shape = alone.input("x", "float32", (4,)), alone.input("shape", "int64", ("n",))
            places = alone.input("places", "int64", (2,))
            with alone.building():
                ops.gather_elements(ops.reshape(x, shape), places, axis=0)
        loaded = tx.load(model)
        infer(loaded)
        return [str(value.type) for value in loaded.outputs]

    assert types_of(first=False) == types_of(first=True) == ["float32[2]"]
