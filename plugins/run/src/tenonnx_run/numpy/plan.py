"""Execution plan of a graph: kernels in order, the slots that they read and write, and when slots are freed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from tenonnx import limits
from tenonnx.errors import TenonnxError
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import UNFORESEEN, bind, cannot_compute, known_op
from tenonnx.op.evaluate import GraphFunction
from tenonnx.op.rules import find_rule
from tenonnx_run.numpy.size_guard import Guard
from tenonnx_run.numpy.specialization import SMALLEST_REUSED, Observations, Schedule, Signatures
from tenonnx_run.numpy.steps import Kernel, Step
from tenonnx_run.slots import Slots


class Watch(Protocol):
    """Callback that is called after every step."""

    def note(self, step: Step, slots: list[Any]) -> None: ...


class Plan:
    """Execution plan of a graph whose ops all have numpy kernels. Slot -1 is the absent input and always None.

    Calls share only the kernels prepared for the shapes of feeds, which are immutable once they are shared.
    """

    def __init__(self, graph: Graph, *, inner: bool = False) -> None:
        self.inner = inner
        self.dtypes: list[DType | None] = []
        self._slots = Slots(self._initial)
        self.slots, self.contents = self._slots.slots, self._slots.contents
        self.formals = (*graph.all_inputs, *graph.captures)
        self.all_inputs = [self._slots.of(value) for value in self.formals]
        self.steps = [self._step(node) for node in graph.nodes if not self._is_static(node)]
        self.outputs = [self._slots.of(value) for value in graph.outputs]
        self._mark_dead()
        self.contents.append(None)
        self.constants = {id(c) for c in self.contents if isinstance(c, np.ndarray)}
        self._signatures = Signatures()

    def run(self, feeds: Sequence[Any], watch: Watch | None = None) -> list[Any]:
        """The outputs for the contents of inputs and captures, in order; ``watch`` is called after every step."""
        signature = tuple([getattr(feed, "shape", None) for feed in feeds])
        schedule = self._signatures.find(signature)
        if schedule is not None:
            slots = schedule.contents.copy()
            for slot, feed in zip(self.all_inputs, feeds, strict=True):
                slots[slot] = feed
            _follow(schedule, slots, watch)
            return [slots[i] for i in self.outputs]
        slots = self.contents.copy()
        for slot, feed in zip(self.all_inputs, feeds, strict=True):
            slots[slot] = feed
        guard = Guard(self.dtypes, () if self.inner else feeds)
        if self._signatures.seen_before(signature):
            observations = Observations(self, feeds)
            _execute(self.steps, slots, guard, observations)
            self._signatures.keep(signature, observations.schedule())
        else:
            _execute(self.steps, slots, guard, watch)
        return [slots[i] for i in self.outputs]

    # ----- planning -----------------------------------------------------------------------------------------------

    def _initial(self, value: Value, slot: int) -> Any:
        self.dtypes.append(value.type.dtype if isinstance(value.type, TensorType) else None)
        return None if value.data is None else value.data.array()

    def _is_static(self, node: Node) -> bool:
        """Whether constant propagation knows all outputs, so that their slots are filled from the start."""
        op = known_op(node)
        return op.pure and all(v is None or v.data is not None for v in node.outputs)

    def _step(self, node: Node) -> Step:
        op = known_op(node)
        inputs, attributes = bind(node)
        rule = find_rule(op, "numpy")
        assert rule is not None, "decomposition keeps ops with a numpy rule alone"
        if op.signature.counts_outputs:
            attributes["_outputs"] = len(node.outputs)
        subgraphs = {name: a for name, a in attributes.items() if isinstance(a, Graph)}
        if subgraphs:
            kernel: Kernel = _Controlling(rule, attributes, subgraphs, len(inputs))
        elif isinstance(rule, np.ufunc):
            kernel = rule
        else:
            kernel = partial(rule, **attributes) if attributes else rule
        slots = tuple(self._slots.of(v) for v in (*inputs, *node.captures))
        fixed = None if subgraphs else attributes
        return Step(node, kernel, slots, tuple(self._slots.of(v) for v in node.outputs), fixed)

    def _mark_dead(self) -> None:
        kept = {*self.outputs, *self.all_inputs}
        freed = self._slots.freed([(*step.inputs, *step.outputs) for step in self.steps], kept)
        for step, slots in zip(self.steps, freed, strict=True):
            step.dead = tuple(slot for slot in slots if slot not in step.outputs)
        for step in self.steps:
            if isinstance(step.kernel, np.ufunc) and len(step.outputs) == 1:
                dtype = self.dtypes[step.outputs[0]]
                fitting = (k for k, slot in enumerate(step.inputs) if slot in step.dead and self.dtypes[slot] is dtype)
                step.reuse = next(fitting, -1)


class _Controlling:
    """A kernel with subgraphs, which are planned once; each call passes them the captured contents."""

    def __init__(self, rule: Kernel, attributes: dict[str, Any], subgraphs: dict[str, Graph], inputs: int) -> None:
        self.rule = rule
        self.attributes = {name: a for name, a in attributes.items() if name not in subgraphs}
        self.plans = {name: Plan(graph, inner=True) for name, graph in subgraphs.items()}
        self.graphs = subgraphs
        self.inputs = inputs

    def __call__(self, *arguments: Any) -> Any:
        captured = arguments[self.inputs :]
        functions = {name: GraphFunction(self.graphs[name], _Run(plan, captured)) for name, plan in self.plans.items()}
        return self.rule(*arguments[: self.inputs], **self.attributes, **functions)


class _Run:
    """A plan bound to the contents of its captures."""

    def __init__(self, plan: Plan, captured: Sequence[Any]) -> None:
        self.plan, self.captured = plan, captured

    def __call__(self, *feeds: Any) -> tuple[Any, ...]:
        return tuple(self.plan.run([*feeds, *self.captured]))


def _follow(schedule: Schedule, slots: list[Any], watch: Watch | None = None) -> None:
    """``_execute`` for a schedule without a callback."""
    if limits.end() is not None or watch is not None:
        _execute(schedule.steps, slots, watch=watch)
        return
    result: Any = None
    with np.errstate(all="ignore"):
        for step, kernel, get, single, reuses, target, dead in schedule.calls:
            try:
                if reuses:
                    result = None  # drop the reference to the last result, so that its buffer may be reused
                    result = _in_place(step, slots)
                elif single:
                    result = kernel(get(slots))
                else:
                    result = kernel(*get(slots))
            except Exception as error:
                _explain(step, slots, error)
                raise
            for slot in dead:
                slots[slot] = None
            if type(result) is np.ndarray and target >= 0:
                slots[target] = result
            else:
                _store(step, result, slots)


def _execute(steps: Sequence[Step], slots: list[Any], guard: Guard | None = None, watch: Watch | None = None) -> None:
    end = limits.end()
    if end is not None and time.monotonic() > end:
        raise limits.out_of_time()
    result: Any = None
    with np.errstate(all="ignore"):
        for step in steps:
            if end is not None and time.monotonic() > end:
                raise limits.out_of_time()
            if guard is not None:
                guard.check(step, slots)
            try:
                if step.reuse >= 0:
                    result = None
                    result = _in_place(step, slots)
                elif len(step.inputs) == 1:
                    result = step.kernel(step.get(slots))
                else:
                    result = step.kernel(*step.get(slots))
            except Exception as error:
                _explain(step, slots, error)
                raise
            for slot in step.dead:
                slots[slot] = None
            _store(step, result, slots)
            if guard is not None:
                guard.note(result)
            if watch is not None:
                watch.note(step, slots)


def _in_place(step: Step, slots: list[Any]) -> Any:
    """The result of a ufunc, written to the buffer of an input if that is free."""
    buffer, arguments = _free_buffer(step, slots), step.get(slots)
    return step.kernel(*(arguments if len(step.inputs) > 1 else (arguments,)), out=buffer)


def _store(step: Step, result: Any, slots: list[Any]) -> None:
    """Store the results of a kernel in the slots of its outputs."""
    if type(result) is not tuple:
        result = (result,)
    for slot, each in zip(step.outputs, result, strict=False):
        slots[slot] = np.asarray(each) if isinstance(each, np.generic) else each
    slots[-1] = None


def _explain(step: Step, slots: list[Any], error: Exception) -> None:
    """Add the node to an error; unexpected exceptions are raised as errors of tenonnx."""
    if isinstance(error, TenonnxError):
        error.what = f"{step.node.title}: {error.what}"
    elif isinstance(error, UNFORESEEN):
        arguments = [slots[i] for i in step.inputs]
        raise cannot_compute(step.node.title, arguments, step.node.attributes, error) from error


def _free_buffer(step: Step, slots: list[Any]) -> Any:
    """The buffer of an input that is last used here, unshared, and fit for the result; or None.

    The input is unshared if the slot holds the only reference, as a view would hold one more.
    """
    position = step.inputs[step.reuse]
    buffer = slots[position]
    if buffer.nbytes < SMALLEST_REUSED or sys.getrefcount(buffer) != _UNSHARED or buffer.base is not None:
        return None
    others = (slots[slot] for slot in step.inputs if slot != position)
    fits = buffer.flags.c_contiguous and all(_broadcasts_into(other, buffer) for other in others)
    return buffer if fits else None


def _references(slots: list[Any]) -> int:
    """Number of references to an array that is held by one slot and one local variable."""
    buffer = slots[0]
    return sys.getrefcount(buffer)


_UNSHARED = _references([np.empty(0)])


def _broadcasts_into(array: Any, target: Any) -> bool:
    if array.dtype != target.dtype or array.ndim > target.ndim:
        return False
    return all(a in (1, b) for a, b in zip(array.shape[::-1], target.shape[::-1], strict=False))


def owned(results: Sequence[Any], feeds: Sequence[Any], plan: Plan) -> list[Any]:
    """``results`` as arrays that only the caller holds: aliases of feeds, constants and each other are copied."""
    taken = {id(_root(f)) for f in feeds if isinstance(f, np.ndarray)}
    mine = []
    for result in results:
        if isinstance(result, np.ndarray):
            root = _root(result)
            if (
                id(root) in taken
                or id(root) in plan.constants
                or not isinstance(root, np.ndarray)
                or not result.flags.writeable
            ):
                result = result.copy()
            else:
                taken.add(id(root))
        elif isinstance(result, list):
            result = [r.copy() if isinstance(r, np.ndarray) else r for r in result]
        mine.append(result)
    return mine


def _root(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
