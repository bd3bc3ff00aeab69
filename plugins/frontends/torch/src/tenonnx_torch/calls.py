"""Non-tensor arguments, and dynamic dims as JSON or ``dynamic_axes``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tenonnx.extend import InvalidCall
from tenonnx_frontends import Dims, read_dims
from tenonnx_torch.examples import Examples
from tenonnx_torch.programs import arguments_of, free_dims, program_of

#: Types of ``input_shape``: one shape, several in order, or shapes by name.
Shapes = Sequence[Any] | Mapping[str, Sequence[Any]]


def examples_of(
    module: torch.nn.Module,
    arguments: Sequence[Any],
    *,
    keywords: Mapping[str, Any] | None = None,
    dims: Dims | str | os.PathLike[str] | None = None,
    dynamic_axes: Dims | str | os.PathLike[str] | None = None,
    dynamic_batch: bool = False,
    input_shape: Shapes | None = None,
    height: int | None = None,
    width: int | None = None,
    input_names: Sequence[str] | None = None,
) -> Examples:
    """The examples of a call, from tensors or shapes. Raises ``InvalidCall`` where both or neither are given."""
    program = program_of(module)
    if program is not None and not (input_shape or height or arguments or keywords):
        arguments, keywords = arguments_of(program)
    if (height is None) != (width is None):
        raise InvalidCall("only one of the height and the width of an image was given")
    if height is not None:
        if input_shape is not None:
            raise InvalidCall("both input_shape and height and width were given", given="both")
        input_shape = (1, _channels(module), height, width)
    named = read_dims(dims, dynamic_axes)
    if input_shape is not None:
        if arguments or keywords:
            raise InvalidCall("both examples and shapes were given", given="both")
        arguments, keywords, symbols = made_up(module, input_shape)
        named = {**symbols, **named}
    given = Examples.of(module, arguments, keywords, named, input_names)
    if dynamic_batch:
        named = dict(given.of_outputs.items())
        named.update((name, {0: "batch", **given.dims.get(name, {})}) for name, t in given.tensors.items() if t.ndim)
        given = Examples.of(module, arguments, keywords, named)
    return given if program is None else replace(given, dims=free_dims(program, given))


def _channels(module: torch.nn.Module) -> int:
    """Input channels of the first convolution, by default those of a color image."""
    found = (each.in_channels for each in module.modules() if isinstance(each, torch.nn.Conv2d))
    return next(found, 3)


def made_up(
    module: torch.nn.Module, shapes: Shapes
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str | int, dict[int, str]]]:
    """Random arguments of these shapes, positional and by name, and the axes whose sizes are symbols."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point())
    dtype, generator = next(kinds, torch.get_default_dtype()), torch.Generator().manual_seed(0)
    symbols: dict[str | int, dict[int, str]] = {}

    def tensor(key: str | int, shape: Any) -> torch.Tensor:
        sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else [None]
        if not all(isinstance(size, str) or (type(size) is int and size >= 0) for size in sizes):
            raise InvalidCall("a shape is not made of sizes and names of dynamic dims", given=repr(shape)[:200])
        varying = {axis: size for axis, size in enumerate(sizes) if isinstance(size, str)}
        symbols.update({key: varying} if varying else {})
        numbers = [2 if isinstance(size, str) else size for size in sizes]
        return torch.randn(numbers, generator=generator, dtype=torch.float32).to(dtype)

    if isinstance(shapes, Mapping):
        return (), {name: tensor(name, shape) for name, shape in shapes.items()}, symbols
    if not isinstance(shapes, Sequence) or isinstance(shapes, str):
        raise InvalidCall(
            "input_shape is neither a shape such as (1, 3, 224, 224) nor several", given=repr(shapes)[:200]
        )
    several = shapes and all(isinstance(each, list | tuple) for each in shapes)
    return tuple(tensor(k, shape) for k, shape in enumerate(shapes if several else [shapes])), {}, symbols
