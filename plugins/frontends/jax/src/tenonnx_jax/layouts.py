"""Storing parameters in the layout in which the graph reads them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tenonnx.extend import ArrayConstant, Graph, TensorType, static

#: Ops that are folded into a parameter.
_MOVES = ("Transpose", "Reshape")


def lay_out(graph: Graph, state: Collection[str]) -> None:
    """Fold a transposition or reshape that is the only reader of a parameter, such as a kernel, into the parameter."""
    uses = graph.uses()
    for value in list(graph.variables):
        readers = uses.get(value, [])
        if value.name not in state or len(readers) != 1 or readers[0].op_type not in _MOVES or value in graph.outputs:
            continue
        node, contents = readers[0], static(value)
        result = node.outputs[0]
        if contents is None or result is None or result in graph.outputs or node not in graph.nodes:
            continue
        if node.op_type == "Reshape":
            array = np.reshape(contents, np.asarray(static(node.inputs[1])))
        else:
            array = np.ascontiguousarray(np.transpose(contents, node.attributes["perm"]))
        value._replace_fields(data=ArrayConstant(array), type=TensorType(value.dtype, array.shape))
        graph.replace(result, value)
        graph.remove(node)
