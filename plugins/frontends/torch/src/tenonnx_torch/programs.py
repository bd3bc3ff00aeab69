"""``torch.export.ExportedProgram`` as a source: used as it is, with its dynamic dims."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree

from tenonnx.extend import InvalidCall, NotRepresentable
from tenonnx_torch.examples import Examples

_PROGRAMS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

#: Functions to call instead of modules that must not run in this process.
_CALLED: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()


def as_module(source: Any, examples: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """The module itself, or the module of a program; a scripted module is exported with its examples first.

    Raises ``InvalidCall`` for anything else, and ``NotRepresentable`` where a scripted module cannot be exported.
    """
    if isinstance(source, torch.jit.ScriptModule):
        source = _program_of_script(source, tuple(examples), dict(keywords or {}))
    if isinstance(source, torch.export.ExportedProgram):
        module = source.module()
        _PROGRAMS[module] = source
        return module
    if not isinstance(source, torch.nn.Module):
        raise InvalidCall(
            "a model of PyTorch is neither a torch.nn.Module nor a torch.export.ExportedProgram",
            given=type(source).__qualname__,
        )
    return source


def _program_of_script(module: Any, examples: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A scripted module as an exported program that returns the same results for its examples."""
    if not examples and not keywords:
        raise InvalidCall(
            "cannot load a scripted module without examples",
            do="give tx.load examples, or input_shape=[2, 3] (--load input_shape=[2,3])",
        )
    try:
        converter = importlib.import_module("torch._export.converter").TS2EPConverter(module, examples, keywords)
        with torch.no_grad():
            program = converter.convert()
            found, wanted = program.module()(*examples, **keywords), module(*examples, **keywords)
        torch.testing.assert_close(found, wanted)
    except Exception as error:
        raise NotRepresentable(
            "torch.export cannot read the scripted module",
            given=f"{type(error).__name__}: {error}"[:400],
            do="export the torch.nn.Module that it was scripted from",
        ) from error
    return program


def module_called_by(program: Any, call: Callable[..., Any]) -> torch.nn.Module:
    """The module of a program, to be run by ``call``, which takes arguments, keywords and a seed."""
    module = as_module(program)
    _CALLED[module] = call
    return module


def call_of(module: torch.nn.Module) -> Callable[..., Any] | None:
    """Function to call instead of a module; None for a module that is called directly."""
    return _CALLED.get(module)


def returned_by(program: Any) -> Any:
    """The declared result of a program, with fake tensors."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    specs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    leaves = [values.get(arg.name) if hasattr(arg, "name") else arg.value for arg in specs]
    return pytree.tree_unflatten(leaves, program.call_spec.out_spec)


def program_of(module: torch.nn.Module) -> Any:
    """The program of a module from ``as_module``; None for other modules."""
    return _PROGRAMS.get(module)


def arguments_of(program: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments with which a program was exported. Raises ``InvalidCall`` if it has none."""
    if not program.example_inputs:
        raise InvalidCall("a program holds no examples, and was given none", do="tx.load(program, *examples)")
    arguments, keywords = program.example_inputs
    return tuple(arguments), dict(keywords)


def shapes_of(program: Any) -> list[tuple[Any, ...]]:
    """The dims of all tensor inputs in order: ints, and symbols of the tracer."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values = [
        placeholders[name].meta.get("val") for name in program.graph_signature.user_inputs if name in placeholders
    ]
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


#: Larger dims are not tried: such a tensor may not fit into memory.
_LONGEST = 4096


def borders(program: Any, names: Mapping[str, str]) -> list[dict[str, int]]:
    """Sizes just outside of the ranges of a program's dims, by their names; dims without a range are omitted.

    The tracer follows one side of a branch on a size, and records the range of sizes on that side.
    """
    result = []
    for symbol, bounds in program.range_constraints.items():
        name = names.get(str(symbol))
        outside = [
            int(bounds.lower) - 1 if bounds.lower > 2 else 1,
            int(bounds.upper) + 1 if bounds.upper < _LONGEST else 1,
        ]
        result += [{name: size} for size in outside if name is not None and size > 1]
    return result


def free_dims(program: Any, examples: Examples) -> dict[str, Mapping[int, str]]:
    """The dynamic axes of a program, with the given names, or else its own.

    Raises ``InvalidCall`` for a name of an axis that is static in the program.
    """
    shapes = dict(zip(examples.tensors, shapes_of(program), strict=True))
    names: dict[str, str] = {}
    for name, axes in examples.dims.items():
        for axis, dim in axes.items():
            size = shapes[name][axis]
            if isinstance(size, int):
                raise InvalidCall(
                    f'axis {axis} of input "{name}" is not one that the program leaves free',
                    given=f'"{dim}" for {size}',
                    do="export the program with dynamic_shapes that have it",
                )
            names.setdefault(str(size), dim if isinstance(dim, str) else dim.__name__)
    free = {name: {axis: str(size) for axis, size in enumerate(shape)} for name, shape in shapes.items()}
    return {
        name: {axis: names.get(size, size) for axis, size in axes.items() if size.isidentifier()}
        for name, axes in free.items()
    }
