"""Reading a file of ``torch.export`` as a PyTorch program."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from tenonnx import limits
from tenonnx.extend import InvalidModel, TenonnxError
from tenonnx_torch.pt2.archive import Archive
from tenonnx_torch.pt2.checked import checked, resolved


def program_of_file(path: str | os.PathLike[str]) -> Any:
    """The program of a ``.pt2`` file, with random example inputs of the sizes in the file.

    PyTorch builds the graph from the validated JSON, with weights from raw bytes. Raises ``InvalidModel`` for a broken
    file, ``InvalidCall`` for one that cannot be read without executing its code, and ``LimitExceeded``.
    """
    with Archive(path) as archive:
        name, listed = archive.program()
        program = checked(listed)
        for node in _nodes(program):
            resolved(node["target"])
        state = archive.tensors("weights", f"{name}_weights_config.json")
        constants = archive.tensors("constants", f"{name}_constants_config.json")
    try:
        built = _built(program, state, constants)
        built.example_inputs = _examples(built)
    except TenonnxError:
        raise
    except Exception as error:  # PyTorch's reader raises many kinds
        given = " ".join(str(error).split())[-300:] or type(error).__name__
        raise InvalidModel(f'PyTorch {torch.__version__} cannot read "{path}"', given=given) from error
    _check_sizes(built)
    return built


def _nodes(program: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Nodes of a program and its subgraphs."""
    result: list[Mapping[str, Any]] = []
    pending: list[Any] = [program]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, Mapping):
            pending += each.values()
            if isinstance(each.get("target"), str) and "inputs" in each:
                result.append(each)
    return result


def _built(program: Mapping[str, Any], state: Mapping[str, Any], constants: Mapping[str, Any]) -> Any:
    serialize = importlib.import_module("torch._export.serde.serialize")
    schema = importlib.import_module("torch._export.serde.schema")
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            exported = serialize._dict_to_dataclass(schema.ExportedProgram, program)
            return serialize.ExportedProgramDeserializer().deserialize(exported, dict(state), dict(constants), None)
    finally:
        logging.disable(disabled)


def _examples(program: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Random arguments of the sizes with which the program was exported, or of small ones."""
    generator = torch.Generator().manual_seed(0)
    placeholders = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    leaves = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            leaves.append(_example(placeholders.get(spec.arg.name, getattr(spec.arg, "value", None)), generator))
    arguments, keywords = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return tuple(arguments), dict(keywords)


def _example(value: Any, generator: torch.Generator) -> Any:
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes = [size if isinstance(size, int) else _hint(size) for size in value.shape]
    limits.check_elements(sizes, "an input of the program")
    if value.dtype is torch.bool:
        return torch.ones(sizes, dtype=torch.bool)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return torch.randn(sizes, generator=generator).to(value.dtype)
    return torch.randint(0, 2, sizes, generator=generator, dtype=torch.int64).to(value.dtype)


def _hint(size: Any) -> int:
    result = size.node.hint
    return result if isinstance(result, int) and result > 0 else 2


def _check_sizes(program: Any) -> None:
    """Raise ``LimitExceeded`` where a value of the program exceeds the memory limit, before computing any."""

    class Sized(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            for each in pytree.tree_leaves(result):
                if isinstance(each, torch.Tensor):
                    limits.check_elements([s for s in each.shape if isinstance(s, int)], f'value "{node.name}"')
            return result

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    module = program.module(check_guards=False)
    arguments, keywords = program.example_inputs
    leaves = pytree.tree_leaves((arguments, keywords))
    fake = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in leaves]
    try:
        with mode, torch.no_grad():
            Sized(module).run(*fake, enable_io_processing=False)
    except TenonnxError:
        raise
    except Exception:  # noqa: S110 - what depends on contents is refused, if at all, when the program is traced
        pass
