"""Shape-specialized execution plans.

A signature is the shapes of all feeds. The second call with a signature is observed to find what it determines: shapes
whose dims are known functions of the dims of feeds, and contents that are computed from shapes only. If all inputs of
an op are determined and none is empty, its rule ``specialize`` may return a kernel for these shapes; a step whose
outputs are determined contents is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tenonnx.graph.graph import Value
from tenonnx.graph.symbolic import symbols_of
from tenonnx.graph.types import TensorType
from tenonnx.op.binding import known_op
from tenonnx.op.operand import Operand
from tenonnx.op.rules import find_rule

if TYPE_CHECKING:
    from tenonnx_run.numpy.steps import Step

#: Number of signatures with schedules of their own; beyond it the general kernels are used.
MOST_SIGNATURES = 16

#: Determined contents of more bytes than this are recomputed by every call.
LARGEST_SETTLED = 1 << 16

#: Below this many bytes allocating a buffer is cheaper than proving that another one can be reused.
SMALLEST_REUSED = 1 << 14

FeedSignature = tuple[Any, ...]


class Schedule:
    """The steps for one signature, and the initial slots."""

    __slots__ = ("calls", "contents", "steps")

    def __init__(self, steps: Sequence[Step], contents: list[Any]) -> None:
        self.steps, self.contents = steps, contents
        #: the fields of each step that a run reads, as tuples are faster than attributes
        self.calls = [
            (s, s.kernel, s.get, len(s.inputs) == 1, s.reuse >= 0, s.outputs[0] if s.outputs else -1, s.dead)
            for s in steps
        ]


class Signatures:
    """The schedules of a plan by signature. A schedule is complete when it is stored and never changes."""

    def __init__(self) -> None:
        self._known: dict[FeedSignature, Schedule | None] = {}
        self._lock = threading.Lock()
        #: The schedule for a signature, or None.
        self.find: Callable[[FeedSignature], Schedule | None] = self._known.get

    def seen_before(self, signature: FeedSignature) -> bool:
        """Whether an earlier call had this signature; records it."""
        with self._lock:
            if signature in self._known:
                return True
            if len(self._known) >= MOST_SIGNATURES:
                once = (known for known, schedule in self._known.items() if schedule is None)
                del self._known[next(once, next(iter(self._known)))]
            self._known[signature] = None
            return False

    def keep(self, signature: FeedSignature, schedule: Schedule) -> None:
        with self._lock:
            if signature in self._known:
                self._known[signature] = schedule


class PlanView(Protocol):
    """The part of a plan that specialization reads."""

    steps: list[Step]
    slots: dict[Value, int]
    contents: list[Any]
    formals: tuple[Value, ...]
    all_inputs: list[int]
    dtypes: Any


class Observations:
    """Observations during a call: the values that the signature of its feeds determines."""

    def __init__(self, plan: PlanView, feeds: Sequence[Any]) -> None:
        self._plan = plan
        self._contents = plan.contents.copy()
        self._operands: dict[int, Operand] = {}
        self._values = {slot: value for value, slot in plan.slots.items()}
        self._symbols = {
            str(dim)
            for value in plan.formals
            if isinstance(value.type, TensorType)
            for dim in value.type.shape or ()
            if str(dim) in symbols_of(dim)
        }
        for slot, contents in enumerate(plan.contents):
            if isinstance(contents, np.ndarray):
                self._operands[slot] = Operand(contents.shape, contents.dtype, contents)
        for slot, feed in zip(plan.all_inputs, feeds, strict=True):
            self._operands.pop(slot, None)
            if self._is_tensor(slot, feed):
                self._operands[slot] = Operand(feed.shape, feed.dtype)

    def note(self, step: Step, slots: Sequence[Any]) -> None:
        """Record the determined outputs of a step."""
        pure = known_op(step.node).pure and step.attributes is not None
        follows = pure and all(slot < 0 or self._is_fixed(slot) for slot in step.inputs)
        for slot in step.outputs:
            array = slots[slot]
            if slot < 0 or not self._is_tensor(slot, array):
                continue
            value = self._values[slot]
            contents = None
            if array.nbytes <= LARGEST_SETTLED and (follows or (pure and self._contents_follow(value))):
                contents = array.copy()
                contents.flags.writeable = False
            if contents is not None or follows or self._shape_follows(value):
                self._operands[slot] = Operand(array.shape, array.dtype, contents)

    def schedule(self) -> Schedule:
        """The remaining steps, each with its best kernel."""
        contents = self._contents
        for slot, operand in self._operands.items():
            if operand.contents is not None:
                contents[slot] = operand.contents
        steps = []
        for step in self._plan.steps:
            if all(slot < 0 or self._is_fixed(slot) for slot in step.outputs):
                continue
            kernel = self._kernel(step)
            result = self._operands.get(step.outputs[0]) if step.reuse >= 0 else None
            if kernel is None and result is not None and result.size * result.dtype.itemsize < SMALLEST_REUSED:
                kernel = step.kernel
            steps.append(step if kernel is None else step.with_kernel(kernel))
        return Schedule(steps, contents)

    def _kernel(self, step: Step) -> Callable[..., Any] | None:
        rule = None if step.attributes is None else find_rule(known_op(step.node), "specialize")
        operands = [self._operands.get(slot) for slot in step.inputs]
        are_known = all(operand is not None or slot < 0 for operand, slot in zip(operands, step.inputs, strict=True))
        if rule is None or not are_known or not all(operand is None or operand.size for operand in operands):
            return None
        kernel: Callable[..., Any] | None = rule(*operands, **step.attributes or {})
        return kernel

    def _is_fixed(self, slot: int) -> bool:
        operand = self._operands.get(slot)
        return operand is not None and operand.contents is not None

    def _is_tensor(self, slot: int, contents: Any) -> bool:
        """Whether the contents are an array of the value's known element type."""
        dtype = self._plan.dtypes[slot]
        return isinstance(contents, np.ndarray) and dtype is not None and contents.dtype == dtype.numpy

    def _shape_follows(self, value: Value) -> bool:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        return shape is not None and all(map(self._follows, shape))

    def _contents_follow(self, value: Value) -> bool:
        return value.symbolic_contents is not None and all(map(self._follows, value.symbolic_contents.flat))

    def _follows(self, dim: Any) -> bool:
        return dim is not None and (isinstance(dim, int) or symbols_of(dim) <= self._symbols)
