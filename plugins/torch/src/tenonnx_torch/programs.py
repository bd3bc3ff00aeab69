"""``torch.export.ExportedProgram`` as a source: it is taken as it is, with the dims that it leaves free."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tenonnx.extend import InvalidCall, NotRepresentable
from tenonnx_torch.examples import Examples

_PROGRAMS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def as_module(source: Any, examples: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """A module, or that of a program, which a scripted module becomes by its examples.

    Raises ``InvalidCall`` for what is none of these, and ``NotRepresentable`` where a scripted one becomes no program.
    """
    if isinstance(source, torch.jit.ScriptModule):
        source = _program_of_script(source, tuple(examples), dict(keywords or {}))
    if isinstance(source, torch.export.ExportedProgram):
        module = source.module()
        _PROGRAMS[module] = source
        return module
    if not isinstance(source, torch.nn.Module):
        raise InvalidCall(
            "a model of PyTorch must be a torch.nn.Module or a torch.export.ExportedProgram",
            given=type(source).__qualname__,
        )
    return source


def _program_of_script(module: Any, examples: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """What a scripted module computes, as a program that gives the same for its examples."""
    if not examples and not keywords:
        raise InvalidCall("a scripted module must be given examples", do="tx.load(module, *examples)")
    try:
        converter = importlib.import_module("torch._export.converter").TS2EPConverter(module, examples, keywords)
        with torch.no_grad():
            program = converter.convert()
            found, wanted = program.module()(*examples, **keywords), module(*examples, **keywords)
        torch.testing.assert_close(found, wanted)
    except Exception as error:
        raise NotRepresentable(
            "a scripted module must be one that torch.export can read",
            given=f"{type(error).__name__}: {error}"[:400],
            do="export the torch.nn.Module that it was scripted from",
        ) from error
    return program


def program_of(module: torch.nn.Module) -> Any:
    """The program that a module was made of; None for others."""
    return _PROGRAMS.get(module)


def arguments_of(program: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Those that a program was exported with. Raises ``InvalidCall`` where it holds none."""
    if not program.example_inputs:
        raise InvalidCall("a program must hold its examples, or be given some", do="tx.load(program, *examples)")
    arguments, keywords = program.example_inputs
    return tuple(arguments), dict(keywords)


def shapes_of(program: Any) -> list[tuple[Any, ...]]:
    """The dims of every tensor input in order: ints, and symbols of the tracer."""
    held = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [held[name].meta.get("val") for name in program.graph_signature.user_inputs if name in held]
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


def free_dims(program: Any, examples: Examples) -> dict[str, Mapping[int, str]]:
    """The axes that a program leaves free, by the names given for them, or else by its own.

    Raises ``InvalidCall`` for a name of an axis that the program fixes.
    """
    shapes = dict(zip(examples.tensors, shapes_of(program), strict=True))
    names: dict[str, str] = {}
    for name, axes in examples.dims.items():
        for axis, dim in axes.items():
            size = shapes[name][axis]
            if isinstance(size, int):
                raise InvalidCall(
                    f'axis {axis} of input "{name}" must be one that the program leaves free',
                    given=f'"{dim}" for {size}',
                    do="export the program with dynamic_shapes that have it",
                )
            names.setdefault(str(size), dim if isinstance(dim, str) else dim.__name__)
    free = {name: {axis: str(size) for axis, size in enumerate(shape)} for name, shape in shapes.items()}
    return {
        name: {axis: names.get(size, size) for axis, size in axes.items() if size.isidentifier()}
        for name, axes in free.items()
    }
