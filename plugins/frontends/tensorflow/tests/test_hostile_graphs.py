"""Frozen graphs with inconsistent nodes, or with excessive function calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tenonnx as tx

FLOAT = tf.float32.as_datatype_enum


def _graph() -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
    return graph.as_graph_def()


def _node(nodes: Any, op: str, *inputs: str, name: str = "z", **attributes: int) -> Any:
    node = nodes.add()
    node.name, node.op = name, op
    node.input.extend(inputs)
    node.attr["T"].type = FLOAT
    for key, value in attributes.items():
        node.attr[key].i = value
    return node


def _call(nodes: Any, function: str, source: str, name: str = "z") -> None:
    node = _node(nodes, "PartitionedCall", source, name=name)
    node.attr["f"].func.name = function
    for key in ("Tin", "Tout"):
        node.attr[key].list.type.append(FLOAT)


def _functions(count: int, *, last: str, calls: int) -> Any:
    """A chain of functions, each calling the next one ``calls`` times; the last one calls ``last``."""
    graph = _graph()
    for k in range(count):
        function = graph.library.function.add()
        function.signature.name = f"f{k}"
        for argument, name in ((function.signature.input_arg, "x"), (function.signature.output_arg, "y")):
            made = argument.add()
            made.name, made.type = name, FLOAT
        source = "x"
        for j in range(calls):
            _call(function.node_def, f"f{k + 1}" if k + 1 < count else last, source, f"c{j}")
            source = f"c{j}:output:0"
        function.ret["y"] = source
    _call(graph.node, "f0", "x")
    return graph


def _nodes(*given: Any, **attributes: int) -> Any:
    graph = _graph()
    _node(graph.node, *given, **attributes)
    return graph


def _split() -> Any:
    graph = _graph()
    axis = graph.node.add()
    axis.name, axis.op = "axis", "Const"
    axis.attr["dtype"].type = tf.int32.as_datatype_enum
    axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1))
    _node(graph.node, "Split", "axis", "x", num_split=1 << 40)
    return graph


HOSTILE: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "a function that calls itself": (lambda: _functions(1, last="f0", calls=1), tx.LimitExceeded),
    "calls that double forty times": (lambda: _functions(40, last="f39", calls=2), tx.LimitExceeded),
    "a function that is not there": (lambda: _functions(1, last="f1", calls=1), tx.TenonnxError),
    "too few inputs": (lambda: _nodes("Add", "x"), tx.InvalidModel),
    "too many inputs": (lambda: _nodes("Relu", *["x"] * 5), tx.InvalidModel),
    "a million million parts": (_split, tx.LimitExceeded),
    "a thousand million parts": (lambda: _nodes("Unpack", "x", num=1 << 30, axis=1), tx.LimitExceeded),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_graph_is_refused(name: str, tmp_path: Path) -> None:
    make, error = HOSTILE[name]
    path = tmp_path / "frozen.pb"
    path.write_bytes(make().SerializeToString())
    with tx.limits.override(nodes=300), pytest.raises(error) as raised:
        tx.load(path, verify=False)
    assert not isinstance(raised.value, tx.PluginError)
