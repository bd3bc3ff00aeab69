"""Graphs as pure JAX functions of a pytree of parameters and of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tenonnx.extend import Graph, InvalidCall, InvalidFeed, TensorType, Value, counted
from tenonnx.extend.transforms import copy_graph, infer, opened, trainable_variables
from tenonnx_jax.plan import NATIVE, Plan, lowered


def function(graph: Graph) -> Function:
    """``graph`` as a pure function, see ``Function``. Later changes of the graph have no effect."""
    return Function(graph)


class Function:
    """A graph as a function: ``f(parameters, {"x": x})``, or ``f(parameters, x)``, returns its outputs by name.

    ``parameters`` has the trainable variables of the graph by name; calls accept any pytree of that structure, so that
    ``jax.grad`` and JAX optimizers work. Ops with a rule ``jax`` run in JAX, others by their body. The function can be
    traced by ``jit``, ``grad``, ``vmap``, ``scan`` and ``shard_map``. Data-dependent shapes, random ops and strings
    raise ``NotRepresentable`` naming the node during tracing, and run without tracing. 64-bit types are subject to
    ``jax_enable_x64``, which must be on where the graph requires them. Gradients are JAX's: the rounding in
    QuantizeLinear has gradient 0, where ``tx.grad`` passes it straight through. Raises ``UnsupportedOp`` for ops that
    no package provides.
    """

    def __init__(self, graph: Graph) -> None:
        known = copy_graph(graph)
        infer(known, strict=False)
        trainable = trainable_variables(known)
        names = [*dict.fromkeys([*trainable.parameters, *trainable.frozen])]
        parameters = {
            v.name: v.data.array() for v in graph.variables if v.name in names and is_array(v) and v.data is not None
        }
        self._wide = any(_is_wide(v) for v in (*graph.inputs, *graph.variables, *graph.outputs))
        self._names = [name for name in names if name in parameters]
        self.input_names = [value.name for value in graph.inputs]
        self.output_names = [value.name for value in graph.outputs]
        self._inputs = graph.inputs
        self._plan = planned(graph, self._names)
        self.parameters: dict[str, Any] = {name: jnp.asarray(parameters[name]) for name in self._names}

    def __call__(self, parameters: Mapping[str, Any], *inputs: Any) -> dict[str, Any]:
        """The outputs by name; ``inputs`` is a mapping by name, or all inputs in the order of the graph.

        Raises ``InvalidFeed`` for feeds that do not match the inputs, and for too many or too few.
        """
        if self._wide and not jax.config.jax_enable_x64:
            raise InvalidCall(
                "64-bit types are disabled in JAX, and the graph computes with float64 or large integers",
                given="jax_enable_x64 is off",
                do='jax.config.update("jax_enable_x64", True), or with jax.enable_x64(True)',
            )
        if set(parameters) != set(self._names):
            missing = ", ".join(sorted(set(parameters) ^ set(self._names))[:5])
            raise InvalidCall("the parameters are not those of the graph", given=f"other are {missing}")
        given = [_checked(value, array) for value, array in zip(self._inputs, self._in_order(inputs), strict=True)]
        found = self._plan([*given, *(parameters[name] for name in self._names)])
        return dict(zip(self.output_names, found, strict=True))

    def _in_order(self, inputs: Sequence[Any]) -> Sequence[Any]:
        named = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping) else None
        if len(inputs) != len(self._inputs) if named is None else set(named) != set(self.input_names):
            raise InvalidFeed(
                "inputs are missing, or unknown ones are given",
                given=counted(len(inputs), "array") if named is None else ", ".join(map(str, named)),
                available=", ".join(f"{v.name}: {v.type}" for v in self._inputs),
            )
        return inputs if named is None else [named[name] for name in self.input_names]


def planned(graph: Graph, free: Sequence[str]) -> Plan:
    """The plan of a graph that takes the variables ``free`` as further inputs, so that they are not folded."""
    copied = copy_graph(graph)
    listed = {value.name for value in copied.all_inputs}
    copied.all_inputs += [v for v in copied.variables if v.name in free and v.name not in listed]
    plain = lowered(opened(copied, free))
    values = {value.name: value for value in (*plain.variables, *plain.all_inputs)}
    plain.all_inputs = [v for v in plain.all_inputs if v.name in listed and v.name not in free]
    return Plan(plain, [values[name] for name in free])


def is_array(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in NATIVE


def _is_wide(value: Value) -> bool:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype.bits != 64:
        return False
    if kind.dtype.is_float:
        return True
    if value.data is None:
        return False
    array = value.data.array()
    return bool(array.size) and bool((array != array.astype(np.int32)).any())


def _checked(value: Value, array: Any) -> Any:
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype not in NATIVE:
        return array
    array = jnp.asarray(array)
    wanted, shape = jax.dtypes.canonicalize_dtype(kind.dtype.numpy), kind.shape
    fits = shape is None or (
        len(shape) == array.ndim
        and all(not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True))
    )
    if array.dtype != wanted or not fits:
        given = f"{array.dtype} array of shape {list(array.shape)}"
        raise InvalidFeed(f'input "{value.name}" got a feed that is not {kind}', given=given)
    return array
