"""The execution plan of a network: a rule and slots for each node."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from tenonnx import limits
from tenonnx.extend import Graph, InvalidCall, Node, Op, TenonnxError, Value, find_rule
from tenonnx.extend.transforms import bind, known_op
from tenonnx_standard.casting import of_quantized
from tenonnx_torch.autograd_bridge import Slope, exact
from tenonnx_torch.values import Place, is_native, is_unsigned, tensors_in, to_arrays, to_contents


def owner_of(root: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    """The module that holds what is called ``name``, and its name there; one module in another for each part.

    Names come from files, so that they are put where PyTorch looks them up, past its check for names in Python.
    """
    *parts, last = name.split(".")
    for part in parts:
        inner = root._modules.get(part)
        if inner is None:
            inner = root._modules[part] = torch.nn.Module()
        root = inner
    return root, last


class Function:
    """A subgraph as rules take it: from contents to a tuple of them. ``graph`` tells the types."""

    def __init__(self, graph: Graph, run: Callable[..., Sequence[Any]], place: Place) -> None:
        self.graph, self._run, self._place = graph, run, place

    def __call__(self, *contents: Any) -> tuple[Any, ...]:
        return tuple(map(self._place, self._run([self._place(each) for each in contents])))


class Step:
    """One node: the rules of PyTorch and of numpy for it, the slots that it reads and writes."""

    def __init__(self, node: Node, plan: Plan, root: torch.nn.Module, states: Collection[str]) -> None:
        op, self._place = known_op(node), plan.place
        inputs, attributes = bind(node)
        if op.signature.counts_outputs:
            attributes["_outputs"] = len(node.outputs)
        self.node, self.attributes, self.values = node, attributes, inputs
        self.plans = {
            name: Plan(graph, root, states, place=plan.place)
            for name, graph in attributes.items()
            if isinstance(graph, Graph)
        }
        self.inputs = [plan.slot(value) for value in inputs]
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

    def __call__(self, slots: list[Any]) -> None:
        arguments = [slots[slot] for slot in self.inputs]
        attributes = self.attributes
        if self.plans:
            captured = [slots[slot] for slot in self.captures]
            made = {
                name: Function(p.graph, lambda given, p=p: p([*given, *captured]), self._place)
                for name, p in self.plans.items()
            }
            attributes = {**attributes, **made}
        try:
            found = NotImplemented
            if self.torch is not None:
                held = [*arguments]
                for position in self.quantized:
                    held[position] = exact(held[position], self.values[position])
                found = self.torch(*held, **attributes)
            if found is NotImplemented:
                found = self._by_numpy(arguments, attributes)
        except TenonnxError as error:
            error.what = f"{self.node.title}: {error.what}"
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            given = ", ".join(str(list(t.shape)) for each in arguments for t in tensors_in(each))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InvalidCall(f"{self.node.title} cannot be computed by PyTorch: {reason}", given=given) from error
        results = found if isinstance(found, tuple) else (found,)
        for slot, contents in zip(self.outputs, results, strict=False):
            slots[slot] = self._place(contents)
        slots[-1] = None

    def _by_numpy(self, arguments: list[Any], attributes: dict[str, Any]) -> Any:
        self._place.check_numpy()
        trained = torch.is_grad_enabled() and any(t.requires_grad for each in arguments for t in tensors_in(each))
        if trained and self.passes:
            return self.slope(arguments)
        arrays = [to_arrays(exact(a, value)) for a, value in zip(arguments, self.values, strict=True)]
        return self.slope.forward(arrays) if self.numpy is None else self.numpy(*arrays, **attributes)


class Plan:
    """Runs a graph. The last slot is the absent input; ``states`` are looked up in ``root`` on every run.

    Of those with ``fixed_rows`` no gradient comes to these. Without states nothing is trained, and what is static is
    constant.
    """

    def __init__(
        self,
        graph: Graph,
        root: torch.nn.Module,
        states: Collection[str],
        fixed_rows: Mapping[str, Sequence[int]] | None = None,
        place: Place | None = None,
    ) -> None:
        self.graph, self._states, self.place = graph, states, place or Place()
        self._root = [root]  # in a list, as a module would take it for a part of itself
        self._rows = {owner_of(root, name): list(rows) for name, rows in (fixed_rows or {}).items()}
        self._permutations: dict[int, tuple[int, ...]] = {}
        self._slots: dict[Value, int] = {}
        self._contents: list[Any] = []
        self._constants: list[tuple[int, Any]] = []
        self._variables: list[tuple[int, torch.nn.Module, str]] = []
        self._inputs = [self.slot(value) for value in (*graph.inputs, *graph.captures)]
        trained = _depending(graph) if states else set()
        static = [n for n in graph.nodes if known_op(n).pure and _is_static(n) and not trained.intersection(n.outputs)]
        for node in static:
            for value in node.outputs:
                self.slot(value)
        skipped = {id(node) for node in static}
        self._steps = [Step(node, self, root, states) for node in graph.nodes if id(node) not in skipped]
        self._outputs = [self.slot(value) for value in graph.outputs]
        self._contents.append(None)
        self._mark_dead()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        slots = self._contents.copy()
        for slot, owner, name in self._variables:
            slots[slot] = owner._parameters.get(name, owner._buffers.get(name))
            if (owner, name) in self._rows:
                slots[slot] = _without_gradient(slots[slot], self._rows[owner, name])
            if slot in self._permutations:
                slots[slot] = slots[slot].permute(self._permutations[slot])
        for slot, contents in zip(self._inputs, inputs, strict=True):
            slots[slot] = contents
        end = limits.end()
        for step, dead in zip(self._steps, self._dead, strict=True):
            if end is not None and time.monotonic() > end:
                raise limits.out_of_time()
            step(slots)
            for slot in dead:
                slots[slot] = None
        return [_in_order(slots[slot]) for slot in self._outputs]

    @property
    def by_numpy(self) -> list[Node]:
        """The nodes that PyTorch has no rule for, those of subgraphs included."""
        inner = [node for step in self._steps for plan in step.plans.values() for node in plan.by_numpy]
        return [step.node for step in self._steps if step.torch is None] + inner

    def slot(self, value: Value | None) -> int:
        """Slot of the contents of a value while the plan runs."""
        if value is None:
            return -1
        slot = self._slots.get(value)
        if slot is None:
            slot = self._slots[value] = len(self._contents)
            self._contents.append(None)
            self._fill(slot, value)
        return slot

    def _fill(self, slot: int, value: Value) -> None:
        (root,) = self._root
        if value.producer is None and value.name in self._states:
            self._variables.append((slot, *owner_of(root, value.name)))
            if value.role is not None and value.role.permutation is not None:
                self._permutations[slot] = value.role.permutation
        elif value.data is not None:
            contents = to_contents(value.data.array())
            if isinstance(contents, torch.Tensor):
                constants = root._modules.setdefault("(constants)", torch.nn.Module())
                assert constants is not None
                name = str(len(constants._buffers))
                constants.register_buffer(name, contents, persistent=False)
                self._variables.append((slot, constants, name))
            else:
                self._contents[slot] = contents

    def _mark_dead(self) -> None:
        """After which step nobody needs a slot any more."""
        kept = {-1, *self._outputs, *(slot for slot, *_ in self._variables)}
        kept |= {slot for slot, contents in enumerate(self._contents) if contents is not None}
        last: dict[int, int] = {}
        for place, step in enumerate(self._steps):
            last.update(dict.fromkeys((*step.inputs, *step.captures, *step.outputs), place))
        self._dead = [
            [slot for slot, at in last.items() if at == place and slot not in kept] for place in range(len(self._steps))
        ]


def _in_order(contents: Any) -> Any:
    """An image with its axes one after the other in memory, whatever order convolutions are fastest in."""
    if isinstance(contents, torch.Tensor) and contents.ndim == 4 and not contents.is_contiguous():
        return contents.contiguous() if contents.is_contiguous(memory_format=torch.channels_last) else contents
    return contents


def _without_gradient(tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """``tensor``, to whose rows no gradient comes."""
    if not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    mask = torch.zeros([len(tensor), *[1] * (tensor.ndim - 1)], dtype=torch.bool, device=tensor.device)
    mask[rows] = True
    return torch.where(mask, tensor.detach(), tensor)


def gives_quantized(op: Op) -> bool:
    """Whether an op has a gradient that PyTorch does not know, such as that of QuantizeLinear."""
    known = any(find_rule(op, kind) is not None for kind in ("vjp", "vjp.surrogate"))
    return known and find_rule(op, "torch") is None


def _is_float(value: Value) -> bool:
    kind: Any = value.type
    while kind is not None and hasattr(kind, "element"):
        kind = kind.element
    return getattr(getattr(kind, "dtype", None), "is_float", True)


def _is_static(node: Node) -> bool:
    return all(value is None or value.data is not None for value in node.outputs)


def _depending(graph: Graph) -> set[Value]:
    """The values that are computed from floating-point variables, which training changes."""
    found = {v for v in (*graph.variables, *graph.captures) if _is_float(v)}
    for node in graph.nodes:
        if found.intersection(node.uses):
            found.update(v for v in node.outputs if v is not None)
    return found
