"""Execution plan of a network: a rule and slots for each node."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from tenonnx import limits
from tenonnx.extend import Graph, InvalidCall, Node, NotRepresentable, TenonnxError, TensorType, Value, find_rule
from tenonnx.extend.backends import Slots
from tenonnx.extend.transforms import bind, decompose_and_fold, known_op
from tenonnx_standard.casting import of_quantized
from tenonnx_torch.autograd_bridge import Slope, exact
from tenonnx_torch.kept_calls import gives_quantized, is_computed
from tenonnx_torch.shape_numbers import LONGEST, Numbers, as_tensor, computed, known_numbers
from tenonnx_torch.values import Place, is_native, is_traced, is_unsigned, tensors_in, to_arrays, to_contents


def owner_of(root: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    """The module that owns the attribute ``name``, and its name there; creates one nested module for each part.

    Names come from files; ``_modules`` is set directly, since PyTorch's ``add_module`` rejects some of them.
    """
    *parts, last = name.split(".")
    for part in parts:
        inner = root._modules.get(part)
        if inner is None:
            inner = root._modules[part] = torch.nn.Module()
        root = inner
    return root, last


class Held:
    """Tensors that a plan and its subgraphs read in addition to their inputs: states of a module, and constants."""

    def __init__(self, states: Collection[str]) -> None:
        self.states = states
        self.names: list[str] = []
        self.constants: dict[str, torch.Tensor] = {}

    def state(self, name: str) -> int:
        """Index of a state among the tensors."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def constant(self, tensor: torch.Tensor) -> int:
        """Index of a new constant."""
        name = f"(constants).{len(self.constants)}"
        self.constants[name] = tensor
        self.names.append(name)
        return len(self.names) - 1


class Function:
    """A subgraph as an argument of rules: a function from contents to a tuple of contents. ``graph`` has the types.

    ``captured`` are contents of the enclosing graph, ``constants`` the tensors of the plan.
    """

    def __init__(self, plan: Plan, captured: Sequence[Any], constants: Sequence[torch.Tensor]) -> None:
        self.graph, self._plan, self._captured, self._held = plan.graph, plan, captured, constants

    def __call__(self, *contents: Any) -> tuple[Any, ...]:
        place = self._plan.place
        return tuple(map(place, self._plan([*map(place, contents), *self._captured], self._held)))

    @property
    def outside(self) -> list[Any]:
        """Contents that the subgraph reads in addition to its inputs, and None for tensors that it does not read."""
        read = self._plan.tensor_indices
        return [*self._captured, *(each if place in read else None for place, each in enumerate(self._held))]

    def with_outside(self, outside: Sequence[Any]) -> Function:
        """The same subgraph with other ``outside`` contents."""
        count = len(self._captured)
        return Function(self._plan, outside[:count], outside[count:])


class Step:
    """A node with its PyTorch and numpy rules, and the slots of its inputs and outputs."""

    def __init__(self, node: Node, plan: Plan) -> None:
        op, self._place = known_op(node), plan.place
        self._op = op
        inputs, attributes = bind(node)
        if op.signature.counts_outputs:
            attributes["_outputs"] = len(node.outputs)
        self.node, self.attributes, self.values = node, attributes, inputs
        self.plans = {
            name: Plan(graph, plan.tensors, place=plan.place)
            for name, graph in attributes.items()
            if isinstance(graph, Graph)
        }
        self.captures = [plan.slot(value) for value in node.captures]
        self.outputs = [plan.slot(value) for value in node.outputs]
        values = [v for v in (*inputs, *node.outputs) if v is not None]
        self.numpy = find_rule(op, "numpy")
        self.torch = find_rule(op, "torch") if self.plans or all(is_native(v.type) for v in values) else None
        if self.torch is None and all(is_native(v.type) or is_unsigned(v.type) for v in values):
            self.torch = find_rule(op, "torch.unsigned")
        self.passes = (
            gives_quantized(op)
            or find_rule(op, "vjp") is not None
            or any(v is not None and _is_float(v) for v in node.outputs)
        )
        moves = getattr(self.torch, "moves", False) or any(v is not None and of_quantized(v) for v in inputs)
        self.quantized = [] if moves else [k for k, v in enumerate(inputs) if v is not None and not _is_float(v)]
        self.slope = Slope(node, inputs, attributes, plan.graph.opsets)
        numbers = getattr(self.torch, "numbers", ())
        self._known = [
            known_numbers(value, LONGEST)
            if k in numbers and _is_vector(value)
            else None
            if value in plan.trained
            else known_numbers(value)
            for k, value in enumerate(inputs)
        ]
        self._fixed = {k: known for k, known in enumerate(self._known) if known is not None and k in numbers}
        self._numbers = set(numbers)
        self.inputs = [-1 if k in self._fixed else plan.slot(value) for k, value in enumerate(inputs)]
        self._body: Plan | None = None

    def __call__(self, slots: list[Any], tensors: Sequence[torch.Tensor]) -> None:
        arguments = [self._fixed.get(k, slots[slot]) for k, slot in enumerate(self.inputs)]
        attributes = self.attributes
        if self.plans:
            captured = [slots[slot] for slot in self.captures]
            functions = {name: Function(plan, captured, tensors) for name, plan in self.plans.items()}
            attributes = {**attributes, **functions}
        try:
            found = self._by_numbers(arguments)
            if found is NotImplemented:
                found = self._by_tensors(arguments, attributes)
        except TenonnxError as error:
            error.what = f"{self.node.title}: {error.what}"
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            given = ", ".join(str(list(t.shape)) for each in arguments for t in tensors_in(each))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidCall(f"{self.node.title} cannot be computed by PyTorch: {reason}", given=given) from error
        results = found if isinstance(found, tuple) else (found,)
        for slot, contents in zip(self.outputs, results, strict=False):
            slots[slot] = contents if isinstance(contents, Numbers) else self._place(contents)
        slots[-1] = None

    def _by_numbers(self, arguments: list[Any]) -> Any:
        """The results where all arguments are shape numbers or constants, with at least one of the former."""
        if self.numpy is None or all(k in self._fixed or not isinstance(a, Numbers) for k, a in enumerate(arguments)):
            return NotImplemented
        given = [a if isinstance(a, Numbers) else n for a, n in zip(arguments, self._known, strict=True)]
        if any(n is None and a is not None for a, n in zip(arguments, given, strict=True)):
            return NotImplemented
        return computed(self._op, self.numpy, given, self.attributes)

    def _by_tensors(self, arguments: list[Any], attributes: dict[str, Any]) -> Any:
        tensors = [each if k in self._numbers else as_tensor(each) for k, each in enumerate(arguments)]
        if self.torch is not None:
            for position in self.quantized:
                tensors[position] = exact(tensors[position], self.values[position])
            result = self.torch(*tensors, **attributes)
            if result is not NotImplemented:
                return result
        tensors = [as_tensor(each) for each in arguments]
        if is_traced(*(tensor for each in tensors for tensor in tensors_in(each))):
            try:
                return self._by_body(tensors)
            except NotRepresentable:  # a size within the body has to be a number
                return self._by_body(arguments)
        return self._by_numpy(tensors, attributes)

    def _by_body(self, arguments: list[Any]) -> Any:
        """Compute the op by its body, without numpy, in a trace. Raises ``NotRepresentable`` if PyTorch cannot."""
        if self._body is None:
            self._body = self._body_plan()
        given = [a for a, n in zip(arguments, self._known, strict=True) if a is not None and n is None]
        return tuple(self._body(given, list(self._body.tensors.constants.values())))

    def _body_plan(self) -> Plan:
        op = self._op
        refused = NotRepresentable(f"PyTorch cannot trace {op.title} with these arguments")
        if op.primitive or self.plans:
            raise refused
        graph = self.slope.graph([k for k, known in enumerate(self._known) if known is None])
        plan = Plan(decompose_and_fold(graph, keep=lambda call: call.op is not op and is_computed(call)), Held(()))
        if plan.by_numpy:
            raise refused
        return plan

    def _by_numpy(self, arguments: list[Any], attributes: dict[str, Any]) -> Any:
        trained = torch.is_grad_enabled() and any(t.requires_grad for each in arguments for t in tensors_in(each))
        if trained and self.passes:
            return self.slope(arguments)
        arrays = [to_arrays(exact(a, value)) for a, value in zip(arguments, self.values, strict=True)]
        return self.slope.forward(arrays) if self.numpy is None else self.numpy(*arrays, **attributes)


class Plan:
    """Runs a graph on contents of its inputs and on the tensors of ``held.names``. The last slot is for absent inputs.

    ``fixed_rows`` of states get no gradient. Without states nothing is trained, and static values are constants.
    """

    def __init__(
        self,
        graph: Graph,
        held: Held,
        fixed_rows: Mapping[str, Sequence[int]] | None = None,
        place: Place | None = None,
    ) -> None:
        self.graph, self.tensors, self.place = graph, held, place or Place()
        self._rows = dict(fixed_rows or {})
        self._permutations: dict[int, tuple[int, ...]] = {}
        self._slots = Slots(self._initial)
        self._variables: list[tuple[int, int]] = []
        self._inputs = [self.slot(value) for value in (*graph.inputs, *graph.captures)]
        self.trained: set[Any] = _depending(graph) if held.states else set()
        static = [
            n for n in graph.nodes if known_op(n).pure and _is_static(n) and not self.trained.intersection(n.outputs)
        ]
        for node in static:
            for value in node.outputs:
                self.slot(value)
        skipped = {id(node) for node in static}
        self._steps = [Step(node, self) for node in graph.nodes if id(node) not in skipped]
        self._outputs = [self.slot(value) for value in graph.outputs]
        self._dead = self._freed()
        self._slots.contents.append(None)

    def __deepcopy__(self, memo: Any) -> Plan:
        return self  # its tensors belong to the caller

    def __call__(self, inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        slots = self._slots.contents.copy()
        for slot, place in self._variables:
            slots[slot] = tensors[place]
            if rows := self._rows.get(self.tensors.names[place]):
                slots[slot] = _without_gradient(slots[slot], rows)
            if slot in self._permutations:
                slots[slot] = slots[slot].permute(self._permutations[slot])
        for slot, contents in zip(self._inputs, inputs, strict=True):
            slots[slot] = contents
        end = limits.end()
        for step, dead in zip(self._steps, self._dead, strict=True):
            if end is not None and time.monotonic() > end:
                raise limits.out_of_time()
            step(slots, tensors)
            for slot in dead:
                slots[slot] = None
        return [_in_order(slots[slot]) for slot in self._outputs]

    @property
    def tensor_indices(self) -> set[int]:
        """Indices of the tensors of ``tensors`` that the plan reads, including its subgraphs."""
        inner = (plan.tensor_indices for step in self._steps for plan in step.plans.values())
        return {place for _, place in self._variables}.union(*inner)

    @property
    def by_numpy(self) -> list[Node]:
        """The nodes without a PyTorch rule, including those of subgraphs."""
        inner = [node for step in self._steps for plan in step.plans.values() for node in plan.by_numpy]
        return [step.node for step in self._steps if step.torch is None] + inner

    def slot(self, value: Value | None) -> int:
        """Slot of a value."""
        return self._slots.of(value)

    def _initial(self, value: Value, slot: int) -> Any:
        if value.producer is None and value.name in self.tensors.states:
            self._variables.append((slot, self.tensors.state(value.name)))
            if value.role is not None and value.role.permutation is not None:
                self._permutations[slot] = value.role.permutation
        elif value.data is not None:
            contents = to_contents(value.data.array())
            if not isinstance(contents, torch.Tensor):
                return contents
            self._variables.append((slot, self.tensors.constant(contents)))
        return None

    def _freed(self) -> list[tuple[int, ...]]:
        """Slots that can be released after each step."""
        kept = {*self._outputs, *(slot for slot, _ in self._variables)}
        return self._slots.freed([(*step.inputs, *step.captures, *step.outputs) for step in self._steps], kept)


def _in_order(contents: Any) -> Any:
    """An image in row-major layout, converted from channels-last."""
    contents = as_tensor(contents)
    if isinstance(contents, torch.Tensor) and contents.ndim == 4 and not contents.is_contiguous():
        return contents.contiguous() if contents.is_contiguous(memory_format=torch.channels_last) else contents
    return contents


def _without_gradient(tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """``tensor`` with the gradient of these rows blocked."""
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    mask = torch.zeros([len(tensor), *[1] * (tensor.ndim - 1)], dtype=torch.bool, device=tensor.device)
    mask[rows] = True
    return torch.where(mask, tensor.detach(), tensor)


def _is_float(value: Value) -> bool:
    kind: Any = value.type
    while kind is not None and hasattr(kind, "element"):
        kind = kind.element
    return getattr(getattr(kind, "dtype", None), "is_float", True)


def _is_vector(value: Value | None) -> bool:
    """Whether a value is a vector, such as the scales of Resize, which are never trained."""
    return value is not None and isinstance(value.type, TensorType) and value.type.rank == 1


def _is_static(node: Node) -> bool:
    return all(value is None or value.data is not None for value in node.outputs)


def _depending(graph: Graph) -> set[Value]:
    """The values that depend on floating-point variables, which training changes."""
    result = {v for v in (*graph.variables, *graph.captures) if _is_float(v)}
    for node in graph.nodes:
        if result.intersection(node.uses):
            result.update(v for v in node.outputs if v is not None)
    return result
