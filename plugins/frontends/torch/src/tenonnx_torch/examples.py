"""Example arguments as named tensors with dynamic dims."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tenonnx.extend import DType, InvalidCall
from tenonnx_frontends import Dims, joined, named_axes, resized, sizes_of
from tenonnx_torch import caches


@dataclass(frozen=True)
class Examples:
    """The arguments of one call, with their tensors in order.

    ``tensors`` has them by name: the parameter of ``forward``, followed by keys and positions of nested tensors.
    ``dims`` has the names of dynamic axes for each, ``of_outputs`` those of outputs with other names. ``borders`` are
    sizes just outside the range for which the module was traced.
    """

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    dims: Mapping[str, Mapping[int, Any]]
    of_outputs: Mapping[str, Any] = field(default_factory=dict)
    borders: Sequence[Mapping[str, int]] = ()

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        dims: Dims | None = None,
        names: Sequence[str] | None = None,
    ) -> Examples:
        """The examples of a call. Raises ``InvalidCall`` where ``forward`` does not accept them, and for unknown dims.

        ``names`` are the final names of the tensors, which ``dims`` may use, too.
        """
        caches.recognize()
        given, named = pytree.tree_map(_as_tensor, (tuple(arguments), dict(keywords or {})))
        try:
            bound = inspect.signature(module.forward).bind(*given, **named)
        except TypeError as error:
            raise InvalidCall(
                f"{type(module).__name__}.forward does not take these examples",
                given=str(error),
                available=f"forward{inspect.signature(module.forward)}",
                do="give one example for each argument: tx.load(module, *examples), or --example of a command",
            ) from error
        order = list(bound.signature.parameters)  # order of the signature, independent of the call
        named = dict(sorted(named.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
        tensors = {name: leaf for name, leaf in _leaves(bound.arguments) if isinstance(leaf, torch.Tensor)}
        if not tensors:
            raise InvalidCall("the examples hold no tensor", given=", ".join(map(repr, arguments)) or "no examples")
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        aliases = dict(zip(names or (), tensors, strict=False))
        return cls(given, named, tensors, *named_axes(dims or {}, shapes, aliases))

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each named dim. Raises ``InvalidCall`` for inconsistent sizes."""
        return sizes_of(self.dims, {name: tensor.shape for name, tensor in self.tensors.items()})

    def resized(self, sizes: Mapping[str, int]) -> Examples:
        """Examples with other sizes of these dims, filled by repeating or cutting the elements."""
        changed = {
            name: _resized(tensor, {a: sizes[d] for a, d in self.dims.get(name, {}).items() if d in sizes})
            for name, tensor in self.tensors.items()
        }
        arguments, keywords = self._replaced(list(changed.values()))
        return Examples(arguments, keywords, changed, self.dims, self.of_outputs)

    def copied(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Copies of the arguments, for a call that may write to them."""
        return self._replaced([tensor.detach().clone() for tensor in self.tensors.values()])

    def _replaced(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        left = dict(zip(map(id, self.tensors.values()), tensors, strict=True))
        swap = pytree.tree_map(lambda leaf: left.get(id(leaf), leaf), (self.arguments, dict(self.keywords)))
        return swap[0], swap[1]

    def feeds(self, names: Sequence[str]) -> dict[str, Any]:
        """The tensors as arrays, by the given input names."""
        return {name: to_numpy(tensor) for name, tensor in zip(names, self.tensors.values(), strict=True)}

    def shapes(self, module: torch.nn.Module) -> Any:
        """Dynamic axes in the structure that ``torch.export`` expects."""
        bound = inspect.signature(module.forward).bind(*self.arguments, **self.keywords)
        varying = {id(self.tensors[name]): axes for name, axes in self.dims.items()}

        def of_leaf(leaf: Any) -> Any:
            if caches.is_cache(leaf):
                return [of_tree(child) for child in caches.children(leaf)]
            axes = varying.get(id(leaf), {})
            named = {a: torch.export.Dim.DYNAMIC if isinstance(d, str) else d for a, d in axes.items()}
            return named if isinstance(leaf, torch.Tensor) else None

        def of_tree(tree: Any) -> Any:
            return pytree.tree_map(of_leaf, tree, is_leaf=caches.is_cache)

        kinds = inspect.signature(module.forward).parameters
        result: dict[str, Any] = {}
        for name, argument in bound.arguments.items():
            mapped = of_tree(argument)
            result |= mapped if kinds[name].kind is inspect.Parameter.VAR_KEYWORD else {name: mapped}
        return result


def _as_tensor(leaf: Any) -> Any:
    """An array as a tensor, and a tensor as a separate object even if passed twice."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    return torch.from_numpy(np.array(leaf)) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _leaves(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for parameter, argument in arguments.items():
        for path, leaf in pytree.tree_flatten_with_path(argument)[0]:
            yield joined(parameter, path), leaf


def _resized(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    return to_tensor(resized(to_numpy(tensor), sizes)) if sizes else tensor.detach()


def to_numpy(tensor: torch.Tensor) -> Any:
    """A tensor as an array; bfloat16 and float8 become dtypes of ``ml_dtypes``."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return plain.numpy()
    except TypeError:
        import ml_dtypes

        name = str(plain.dtype).removeprefix("torch.")
        bits = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
        return plain.view(bits).numpy().view(getattr(ml_dtypes, name))


def to_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """An array as a tensor of the same element type."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "V" or DType.of(array.dtype) is DType.bfloat16:
        bits = {1: np.uint8, 2: np.int16}[array.itemsize]
        return torch.from_numpy(array.view(bits).copy()).view(getattr(torch, array.dtype.name))
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype)  # with regular strides
