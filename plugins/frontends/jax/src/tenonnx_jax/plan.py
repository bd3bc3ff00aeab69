"""Execution plan of a graph: a rule and slots for each node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

import tenonnx_jax.kernels.arrangement
import tenonnx_jax.kernels.control
import tenonnx_jax.kernels.elementwise
import tenonnx_jax.kernels.layers
import tenonnx_jax.kernels.reductions  # noqa: F401 - what they are imported for is their rules
from tenonnx.extend import (
    DType,
    Graph,
    Node,
    NotRepresentable,
    TenonnxError,
    TensorType,
    TypeMismatch,
    Value,
    find_rule,
)
from tenonnx.extend.backends import RunFailure, Slots
from tenonnx.extend.transforms import Call, bind, decompose, known_op
from tenonnx_jax.kernels import (
    IN_RANGE,
    DataDependent,
    Inconclusive,
    Unproven,
    is_symbolic,
    is_traced,
    traced,
    with_symbols,
)

#: Element types that JAX supports. Numpy computes the others (strings, integers of few bits).
NATIVE = frozenset(
    d for d in DType if d is DType.bool or (d.is_integer and d.bits >= 8) or (d.is_float and d.bits >= 16)
)

#: Maximum number of elements of contents that stay known, because shapes may be computed from them.
SMALL = 64

#: Whether the plan runs eagerly, without compilation.
EAGER: ContextVar[bool] = ContextVar("EAGER", default=False)

#: Whether traced operations are annotated with their node.
NAMED: ContextVar[bool] = ContextVar("NAMED", default=False)

#: Errors that JAX raises for arguments that a rule does not support.
_FAILURES = (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError, NotImplementedError)

#: Errors of rules for symbolic dims that they do not support.
_INCONCLUSIVE = (Inconclusive, TypeError, ValueError, AttributeError)


def lowered(graph: Graph) -> Graph:
    """The graph in ops that a plan runs: with a JAX rule, else by their body, else with a numpy rule."""
    try:
        return decompose(graph, keep=_is_kept)
    except (TypeMismatch, NotRepresentable):  # a body may need types that the file lacks
        return decompose(graph, keep=lambda call: _is_kept(call) or find_rule(call.op, "numpy") is not None)


def is_native(kind: Any) -> bool:
    while kind is not None and hasattr(kind, "element"):
        kind = kind.element
    return not isinstance(kind, TensorType) or kind.dtype in NATIVE


def _is_kept(call: Call) -> bool:
    if call.op.primitive:
        return True
    if not all(is_native(value.type) for value in call.inputs if value is not None):
        return find_rule(call.op, "numpy") is not None
    rule = find_rule(call.op, "jax")
    return rule is not None and _takes(rule, call.inputs, call.attributes, call.outputs, call.op)


def _takes(rule: Any, inputs: Any, attributes: Mapping[str, Any], outputs: int | None, op: Any) -> bool:
    takes = getattr(rule, "takes", None)
    if takes is None:
        return True
    given = {**attributes, "_outputs": outputs} if op.signature.counts_outputs else attributes
    try:
        return bool(takes(*inputs, **given))
    except TenonnxError:  # of unknown types
        return False


class Function:
    """A subgraph as an argument of rules: a function from contents to a tuple; ``captured`` are outer contents."""

    def __init__(self, graph: Graph, run: Callable[..., Sequence[Any]], captured: Sequence[Any]) -> None:
        self.graph, self._run, self.captured = graph, run, captured

    def __call__(self, *contents: Any) -> tuple[Any, ...]:
        token = IN_RANGE.set(None)  # traced values of the subgraph must not leak
        try:
            return tuple(self._run([*contents, *self.captured]))
        finally:
            IN_RANGE.reset(token)


class Step:
    """A node with its JAX and numpy rules, and the slots of its inputs and outputs."""

    def __init__(self, node: Node, plan: Plan) -> None:
        op = known_op(node)
        inputs, attributes = bind(node)
        if op.signature.counts_outputs:
            attributes["_outputs"] = len(node.outputs)
        self.node, self.attributes, self.pure = node, attributes, op.pure
        self.plans = {name: Plan(graph) for name, graph in attributes.items() if isinstance(graph, Graph)}
        self.inputs = [plan.slot(value) for value in inputs]
        self.captures = [plan.slot(value) for value in node.captures]
        self.outputs = [plan.slot(value) for value in node.outputs]
        self.dtypes = [v.type.dtype if v is not None and isinstance(v.type, TensorType) else None for v in node.outputs]
        values = [v for v in (*inputs, *node.outputs) if v is not None]
        self.numpy = find_rule(op, "numpy")
        rule = find_rule(op, "jax") if self.plans or all(is_native(v.type) for v in values) else None
        given = {k: v for k, v in attributes.items() if k != "_outputs"}
        self.jax = rule if rule is None or _takes(rule, inputs, given, len(node.outputs), op) else None

    def __call__(self, slots: list[Any]) -> None:
        arguments = [slots[slot] for slot in self.inputs]
        try:
            results = self._computed(arguments, [slots[slot] for slot in self.captures])
        except DataDependent as error:
            raise DataDependent(
                f"{self.node.title} cannot be computed while JAX traces: {error.what}",
                given=error.given,
                do="leave jax.jit and jax.vmap out, or compute it outside of the graph",
            ) from error
        except TenonnxError as error:
            error.what = f"{self.node.title}: {error.what}"
            raise
        except _FAILURES as error:
            _require_equal(str(error), arguments)
            given = ", ".join(str(list(np.shape(each))) for each in arguments if not isinstance(each, list))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RunFailure(f"{self.node.title} cannot be computed by JAX: {reason}", given=given) from error
        for slot, contents in zip(self.outputs, results, strict=False):
            slots[slot] = _array(contents)
        slots[-1] = None

    def _computed(self, arguments: list[Any], captured: list[Any]) -> Sequence[Any]:
        attributes = self.attributes
        if self.plans:
            functions = {name: Function(p.graph, p, captured) for name, p in self.plans.items()}
            attributes = {**attributes, **functions}
        elif self.pure and self.numpy is not None and all(a is None or type(a) is np.ndarray for a in arguments):
            with suppress(*_INCONCLUSIVE) if any(map(with_symbols, arguments)) else nullcontext():
                result = _as_tuple(self._by_numpy(arguments, attributes))
                if all(map(_is_known, result)) and (self.jax is None or all(np.size(each) <= SMALL for each in result)):
                    return result
        result = NotImplemented if self.jax is None else self._by_jax(arguments, attributes)
        if result is NotImplemented:
            result = self._by_numpy(arguments, attributes)
            return [self._from_numpy(each, dtype) for each, dtype in zip(_as_tuple(result), self.dtypes, strict=False)]
        return _as_tuple(result)

    def _by_jax(self, arguments: list[Any], attributes: Any) -> Any:
        """Apply the JAX rule to symbolic dims as a shape, or else as an array."""
        assert self.jax is not None
        if any(map(with_symbols, arguments)):
            with suppress(*_INCONCLUSIVE):
                return self._as_declared(self.jax(*arguments, **attributes))
            return self._as_declared(self.jax(*map(traced, arguments), **attributes))
        return self.jax(*arguments, **attributes)

    def _as_declared(self, found: Any) -> Any:
        """Results in the element types of the node; symbolic dims have none."""
        return tuple(
            each.astype(dtype.numpy) if dtype is not None and isinstance(each, jax.Array) else each
            for each, dtype in zip(_as_tuple(found), self.dtypes, strict=False)
        )

    def _by_numpy(self, arguments: list[Any], attributes: Any) -> Any:
        if any(map(is_traced, jax.tree_util.tree_leaves(arguments))):
            raise DataDependent("no traceable implementation in JAX", given=self.node.title)
        if self.numpy is None:
            raise NotRepresentable(f"{self.node.title} has no rule for JAX or for numpy")
        if not self.pure and not EAGER.get():
            raise DataDependent(
                "a random number would be drawn once, while JAX traces, and not in each call", given=self.node.title
            )
        arrays = jax.tree_util.tree_map(lambda a: np.asarray(a) if isinstance(a, jax.Array) else a, arguments)
        with np.errstate(all="ignore"):
            return self.numpy(*arrays, **attributes)

    def _from_numpy(self, contents: Any, dtype: Any) -> Any:
        """A numpy result as a JAX array; small contents stay known."""
        if dtype in NATIVE and isinstance(contents, np.ndarray) and contents.size > SMALL:
            return jax.numpy.asarray(contents)
        return contents


def _array(contents: Any) -> Any:
    """A numpy scalar or a symbolic dim as an array; symbolic dims may cancel to Python numbers."""
    if is_symbolic(contents):
        return np.array(contents, object)
    if isinstance(contents, np.ndarray) and contents.dtype == object and contents.size:
        return contents.astype(np.int64) if all(isinstance(n, int) for n in contents.flat) else contents
    return np.asarray(contents) if isinstance(contents, np.generic | int) else contents


def _is_known(contents: Any) -> bool:
    """Whether contents are known; a quotient of symbolic dims by numpy has traced elements."""
    elements = contents.flat if isinstance(contents, np.ndarray) and contents.dtype == object else [contents]
    return not any(map(is_traced, elements))


def _require_equal(problem: str, arguments: Sequence[Any]) -> None:
    """Raise ``Unproven`` for symbolic dims that must be equal for broadcasting or a matrix product."""
    for first, second in itertools.combinations([np.shape(each) for each in arguments if hasattr(each, "shape")], 2):
        pairs = list(zip(reversed(first), reversed(second), strict=False)) if "broadcast" in problem else []
        if "contracting" in problem and first and second:
            pairs = [(first[-1], second[max(0, len(second) - 2)])]
        for one, other in pairs:
            if (is_symbolic(one) or is_symbolic(other)) and 1 not in (one, other) and one != other:
                symbol, rest = (one, other) if str(one).isidentifier() else (other, one)
                raise Unproven(f"{symbol} == {rest}")


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


class Plan:
    """Runs a graph whose ops all have a rule. The last slot is for absent inputs.

    Contents are JAX arrays; numpy arrays are known during tracing. ``given`` are further inputs, in addition to the
    inputs and captures of the graph.
    """

    def __init__(self, graph: Graph, given: Sequence[Value] = ()) -> None:
        self.graph = graph
        self._slots = Slots(self._initial)
        self.inputs = [*graph.inputs, *graph.captures, *given]
        brought = {id(value) for value in self.inputs}
        self._provided = brought
        self._input_slots = [self.slot(value) for value in self.inputs]
        self._steps = [Step(node, self) for node in graph.nodes]
        self._outputs = [self.slot(value) for value in graph.outputs]
        used = [(*step.inputs, *step.captures, *step.outputs) for step in self._steps]
        self._freed = self._slots.freed(used, {*self._outputs, *self._input_slots})
        self._slots.contents.append(None)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        slots = self._slots.contents.copy()
        for slot, contents in zip(self._input_slots, inputs, strict=True):
            slots[slot] = contents
        named = NAMED.get()
        for step, freed in zip(self._steps, self._freed, strict=True):
            with jax.named_scope(step.node.title) if named else nullcontext():
                step(slots)
            for slot in freed:
                slots[slot] = None
        return [slots[slot] for slot in self._outputs]

    def slot(self, value: Value | None) -> int:
        """Slot of a value."""
        return self._slots.of(value)

    def _initial(self, value: Value, slot: int) -> Any:
        known = value.data if value.producer is None and id(value) not in self._provided else None
        return None if known is None else known.array()

    def steps(self) -> list[Step]:
        """All steps, including those of subgraphs."""
        return [each for s in self._steps for each in (s, *(i for p in s.plans.values() for i in p.steps()))]
