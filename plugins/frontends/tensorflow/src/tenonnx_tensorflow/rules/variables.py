"""Variables: handles, reads and assignments."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx.extend import DType, NotRepresentable, Value, constant
from tenonnx.extend.transforms import constant_value
from tenonnx_tensorflow.attributes import dtype_of
from tenonnx_tensorflow.rules import rule
from tenonnx_tensorflow.tracked_values import Variable, as_dtype, known


@rule("VarHandleOp", interpreter=True)
def handle(interpreter: Any, node: Any) -> Any:
    return interpreter.state.handle(node.get("shared_name", "") or node.name)


@rule("VariableV2", "Variable", "TemporaryVariable", interpreter=True)
def reference(interpreter: Any, node: Any) -> Any:
    """A variable of TensorFlow 1, which has no handle: reading the node reads its contents."""
    result = interpreter.state.handle(node.get("shared_name", "") or node.name)
    return interpreter.state.read(result) if interpreter.state.is_running else result


@rule("ReadVariableOp", "_ReadVariablesOp", interpreter=True)
def read(interpreter: Any, node: Any, variable: Any) -> Any:
    return interpreter.state.read(variable) if isinstance(variable, Variable) else variable


@rule("AssignVariableOp", "Assign", interpreter=True)
def assign(interpreter: Any, node: Any, variable: Any, content: Any) -> Any:
    _of_variable(node, variable)
    interpreter.state.assign(variable, content)
    return content


@rule("AssignAddVariableOp", "AssignSubVariableOp", "AssignAdd", "AssignSub", interpreter=True)
def assign_sum(interpreter: Any, node: Any, variable: Any, content: Value) -> Any:
    _of_variable(node, variable)
    combine = ops.add if "Add" in node.op else ops.sub
    result = combine(interpreter.state.read(variable), content)
    interpreter.state.assign(variable, result)
    return result


def _of_variable(node: Any, variable: Any) -> None:
    if not isinstance(variable, Variable):
        raise NotRepresentable("a value is assigned that is not a variable", given=node.title)


@rule("VarIsInitializedOp", "IsVariableInitialized", interpreter=True)
def is_initialized(interpreter: Any, node: Any, variable: Any) -> Value:
    return constant(np.asarray(True))


@rule("VariableShape", interpreter=True)
def variable_shape(interpreter: Any, node: Any, variable: Any) -> Value:
    return as_dtype(ops.shape(interpreter.state.read(variable)), dtype_of(node.get("out_type", 3)))


@rule("DestroyResourceOp", "DeleteSessionTensor", interpreter=True)
def destroyed(interpreter: Any, node: Any, *_: Any) -> list[Any]:
    return []


@rule("RestoreV2", outputs="tensors", interpreter=True)
def restore(interpreter: Any, node: Any, prefix: Any, names: Value, slices: Value) -> list[Any]:
    """Read entries of a checkpoint by name."""
    if interpreter.state.restored is None:
        raise NotRepresentable("no checkpoint was found next to the graph", given=node.title)
    result = []
    wanted = (known(each, "the names of what a checkpoint holds").reshape(-1) for each in (names, slices))
    for key, part in zip(*wanted, strict=True):
        array = np.asarray(interpreter.state.restored(str(key)))
        part_of_array = array[_place(str(part))] if part else array
        # each a distinct value, unlike equal constants, since variables are identified by their keys
        result.append(constant_value(part_of_array, DType.of(part_of_array.dtype), interpreter.state.graph, str(key)))
        interpreter.state.keys[result[-1]] = str(key)
    return result


def _place(part: str) -> tuple[slice, ...]:
    """Slice of a variable, from text such as ``4 6 0,2:-``: the complete shape, then starts and lengths."""
    pairs = [pair.split(",") for pair in part.split()[-1].split(":")]
    return tuple(slice(None) if pair == ["-"] else slice(int(pair[0]), int(pair[0]) + int(pair[1])) for pair in pairs)


@rule("MergeV2Checkpoints", "SaveV2", "ShardedFilename", "StringJoinForSaving", interpreter=True)
def saved(interpreter: Any, node: Any, *_: Any) -> list[Any]:
    return []


@rule("Placeholder", interpreter=True)
def unfed(interpreter: Any, node: Any) -> Any:
    if not interpreter.state.is_running:
        return constant(np.asarray("", object))
    raise NotRepresentable(
        "the graph reads a value that is not among its inputs", given=node.title, do="name it: inputs=[...]"
    )
