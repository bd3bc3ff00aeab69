"""Lowerings of module classes: the tracer records a call of such a module as one operator."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils import _pytree as pytree

from tenonnx.extend import DType, Graph, InvalidCall, Value
from tenonnx_torch.values import NATIVE

#: Opset version of the graphs that infer the output types of lowerings.
_OPSET = 24

_DTYPES = {dtype: ours for ours, dtype in NATIVE.items()}

#: Functions that the text of a symbolic dim may contain, over the tracer's symbols.
_FUNCTIONS = {
    "__builtins__": {},
    "max": lambda *sizes: functools.reduce(torch.sym_max, sizes),
    "min": lambda *sizes: functools.reduce(torch.sym_min, sizes),
}

_CALLS: WeakValueDictionary[int, ModuleCall] = WeakValueDictionary()
_NUMBERS = itertools.count()


@torch.library.custom_op("tenonnx::module", mutates_args=())  # type: ignore[untyped-decorator]
def _module(tensors: list[torch.Tensor], call: int) -> list[torch.Tensor]:
    raise NotImplementedError("a module that has a form is traced, and not computed")


@_module.register_fake  # type: ignore[untyped-decorator]
def module_fake(tensors: list[torch.Tensor], call: int) -> list[torch.Tensor]:
    return _CALLS[call].traced(tensors)


#: The operator that represents a call of a module.
OPERATOR = torch.ops.tenonnx.module.default


class Held:
    """A module for its lowering: parameters and buffers are values, other attributes are unchanged."""

    def __init__(self, module: torch.nn.Module, values: Mapping[str, Any], prefix: str = "") -> None:
        self._module, self._values, self._prefix = module, values, prefix

    def __getattr__(self, name: str) -> Any:
        path = self._prefix + name
        if path in self._values:
            return self._values[path]
        result = getattr(self._module, name)
        return Held(result, self._values, f"{path}.") if isinstance(result, torch.nn.Module) else result

    def __getitem__(self, key: int | str) -> Any:
        return getattr(self, str(key))

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self._module._modules)


class ModuleCall:
    """A traced call of a module with a lowering."""

    def __init__(self, form: Callable[..., Any], module: torch.nn.Module, arguments: Any) -> None:
        self._form, self._module = form, module
        self._leaves, self._spec = pytree.tree_flatten(arguments)
        self._tensor_positions = [place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        state = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        self._names = [name for name, _ in state]
        self.tensors = [*(self._leaves[place] for place in self._tensor_positions), *(tensor for _, tensor in state)]
        self.number = next(_NUMBERS)
        self.count = 0
        self.returned: Any = None
        _CALLS[self.number] = self

    def __call__(self, tensors: Sequence[Value], call: int = 0) -> tuple[Value, ...]:
        """Run the lowering on the values of arguments, parameters and buffers."""
        leaves = list(self._leaves)
        for place, value in zip(self._tensor_positions, tensors, strict=False):
            leaves[place] = value
        arguments, keywords = pytree.tree_unflatten(leaves, self._spec)
        state = dict(zip(self._names, tensors[len(self._tensor_positions) :], strict=True))
        found, self.returned = pytree.tree_flatten(self._form(Held(self._module, state), *arguments, **keywords))
        if not found or not all(isinstance(each, Value) for each in found):
            raise InvalidCall(
                f"the form of {type(self._module).__name__} returned something other than values",
                given=", ".join(type(each).__name__ for each in found) or "nothing",
            )
        self.count = len(found)
        return tuple(found)

    def traced(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Fake tensors with the types of the lowering's outputs, and the tracer's dims."""
        graph = Graph(opsets={"ai.onnx": _OPSET})
        sizes: dict[str, Any] = {}
        values = []
        for place, tensor in enumerate(tensors):
            dims = [dim if isinstance(dim, int) else f"dim_{place}_{axis}" for axis, dim in enumerate(tensor.shape)]
            sizes |= {dim: size for dim, size in zip(dims, tensor.shape, strict=True) if isinstance(dim, str)}
            values.append(graph.input(f"x{place}", _DTYPES.get(tensor.dtype, DType.float32), tuple(dims)))
        return [self._empty(value, sizes, tensors[0].device) for value in self(values)]

    def _empty(self, value: Value, sizes: Mapping[str, Any], device: torch.device) -> torch.Tensor:
        kind = value.tensor
        if kind.shape is None or any(dim is None for dim in kind.shape):
            name = type(self._module).__name__
            raise InvalidCall(f"the form of {name} returned a value of unknown shape", given=str(kind))
        shape = [eval(str(dim), _FUNCTIONS, dict(sizes)) for dim in kind.shape]  # noqa: S307  (a text of our own)
        return torch.empty(shape, dtype=NATIVE[kind.dtype], device=device)


@contextlib.contextmanager
def standing_in(
    module: torch.nn.Module, form_of: Callable[[torch.nn.Module], Callable[..., Any] | None], kept: list[ModuleCall]
) -> Iterator[None]:
    """Replace calls of modules with lowerings by calls of the operator; ``kept`` collects the calls."""
    changed = []
    for inner in module.modules():
        form = form_of(inner)
        if form is None:
            continue

        @functools.wraps(inner.forward)
        def forward(*arguments: Any, _inner: Any = inner, _form: Any = form, **keywords: Any) -> Any:
            call = ModuleCall(_form, _inner, (arguments, keywords))
            kept.append(call)
            return pytree.tree_unflatten(OPERATOR(call.tensors, call.number), call.returned)

        changed.append((inner, inner.__dict__.get("forward")))
        inner.__dict__["forward"] = forward
    try:
        yield
    finally:
        for inner, before in changed:
            if before is None:
                del inner.__dict__["forward"]
            else:
                inner.__dict__["forward"] = before
