"""Exporting graphs through ``torch.export``: example inputs, dynamic dims, and relations of dims."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import keyword
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from tenonnx.extend import Graph, InvalidFeed, NotRepresentable, TenonnxError, TensorType
from tenonnx.extend.backends import generate_feeds
from tenonnx.extend.checks import feasible_feeds
from tenonnx_torch.network import Network, module
from tenonnx_torch.values import NATIVE, to_contents


def exported(graph: Graph) -> tuple[ExportedProgram, list[str]]:
    """Export a graph as a program with one placeholder for each input; returns it and the relations of dims that it
    requires.

    Raises ``NotRepresentable`` for element types that PyTorch lacks, for dims that it cannot keep dynamic, and for
    nodes without a PyTorch implementation.
    """
    _check(graph)
    network = module(graph).eval()
    examples = _examples(graph, network)
    _name_inputs(network, graph)
    named = {name: Dim(name) for name in _symbols(graph)}
    try:
        try:
            program = _traced(network, examples, _dims(graph, named))
        except torch._dynamo.exc.UserError:  # a dim depends on others
            program = _traced(network, examples, _dims(graph, {}))
    except TenonnxError:
        raise
    except Exception as error:  # the tracer raises many kinds
        if isinstance(cause := _cause(error), TenonnxError):
            raise cause from error
        given = " ".join(str(error).split())[:300]
        raise NotRepresentable(
            "PyTorch cannot export the model", given=given, do="give its sizes (--fix-shapes)"
        ) from error
    return program, _limits(program, graph)


def _traced(network: Network, examples: tuple[torch.Tensor, ...], dims: Any) -> ExportedProgram:
    with warnings.catch_warnings(action="ignore"), torch.no_grad(), _quiet():
        return torch.export.export(
            network, examples, dynamic_shapes=dims, strict=False, prefer_deferred_runtime_asserts_over_guards=True
        )


def _dims(graph: Graph, named: Mapping[str, Any]) -> tuple[dict[int, Any], ...]:
    """Dynamic axes of each input; axes with a name in ``named`` share that dim."""
    return tuple(
        {
            axis: named.get(str(size), Dim.AUTO)
            for axis, size in enumerate(value.tensor.shape or ())
            if not isinstance(size, int)
        }
        for value in graph.inputs
    )


def _check(graph: Graph) -> None:
    """Raise ``NotRepresentable`` for inputs and outputs that PyTorch cannot represent as tensors."""
    values = (*graph.inputs, *graph.outputs)
    wrong = [v for v in values if not isinstance(v.type, TensorType) or v.type.dtype not in NATIVE]
    if wrong:
        given = ", ".join(f"{v.name}: {v.type}" for v in wrong)
        raise NotRepresentable("PyTorch has no tensors of these types", given=given)
    for value in graph.inputs:
        if value.tensor.shape is None:
            raise NotRepresentable(f'the rank of input "{value.name}" is unknown', do="give its shape (--fix-shapes)")


def _examples(graph: Graph, network: Network) -> tuple[torch.Tensor, ...]:
    """Inputs at which the model runs, with sizes that are distinct if possible: the program keeps equalities of sizes.

    If none work, because the model rejects random contents, default sizes are used.
    """
    varying = [
        (v.name, axis) for v in graph.inputs for axis, n in enumerate(v.tensor.shape or ()) if not isinstance(n, int)
    ]

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        if any(feeds[name].shape[axis] == 1 for name, axis in varying):
            raise InvalidFeed("PyTorch treats a dim of 1 as fixed")
        with torch.no_grad():
            network(*(to_contents(feeds[name]) for name in network.input_names))
        return {}

    try:
        feeds, _, _ = feasible_feeds(graph, run)
    except InvalidFeed:
        feeds = generate_feeds(graph)
    return tuple(to_contents(feeds[value.name]) for value in graph.inputs)


def _symbols(graph: Graph) -> list[str]:
    """Names of dims, except expressions of several."""
    sizes = [size for v in graph.inputs for size in v.tensor.shape or () if size is not None]
    return list(dict.fromkeys(str(size) for size in sizes if str(size).isidentifier()))


def _name_inputs(network: Network, graph: Graph) -> None:
    """Name the parameters of ``forward`` like the inputs: ``torch.export`` names its placeholders after them."""
    forward = network.forward

    def named(*inputs: Any) -> Any:
        return forward(*inputs)

    names: list[str] = []
    for value in graph.inputs:
        name = re.sub(r"\W", "_", value.name)
        name = name if name.isidentifier() and not keyword.iskeyword(name) else f"input_{name}"
        while name in names:
            name += "_"
        names.append(name)
    kinds = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    named.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
    network.__dict__["forward"] = named


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log messages of the tracer for its developers."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _cause(error: BaseException | None) -> BaseException | None:
    while error is not None and not isinstance(error, TenonnxError):
        error = error.__cause__ or error.__context__
    return error


def _limits(program: ExportedProgram, graph: Graph) -> list[str]:
    """Relations that a program checks at run time, such as ``total == past + length``, unless they always hold.

    Raises ``NotRepresentable`` for a dynamic dim whose size the program fixes.
    """
    names: dict[str, str] = {}
    derived: list[str] = []
    placed = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for value, placeholder in zip(graph.inputs, program.graph_signature.user_inputs, strict=True):
        example = placed[str(placeholder)]
        for axis, (size, found) in enumerate(zip(value.tensor.shape or (), example.shape, strict=True)):
            if isinstance(size, int):
                continue
            if isinstance(found, int):
                raise NotRepresentable(
                    "PyTorch needs a fixed size for a dynamic dim",
                    given=f'axis {axis} of input "{value.name}" ({"?" if size is None else size}) became {found}',
                    do="give its size (--fix-shapes)",
                )
            name = f"{value.name}_{axis}" if size is None else str(size)
            if found.node.expr.is_Symbol:
                names.setdefault(str(found.node.expr), name)
            else:
                derived.append(f"{name} == {found.node.expr}")
    conditions = [node.args[0] for node in program.graph.nodes if node.target is torch.ops.aten._assert_scalar.default]
    relations = [c.meta["val"].node.expr for c in conditions if isinstance(c, torch.fx.Node)]
    for symbol, sizes in program.range_constraints.items():
        relations += [symbol >= sizes.lower] if 2 < sizes.lower < _FAR else []
        relations += [symbol <= sizes.upper] if sizes.upper < _FAR else []
    shown = derived + [_shown(relation) for relation in relations if not _always_holds(relation)]
    return list(dict.fromkeys(re.sub(r"\w+", lambda word: names.get(word[0], word[0]), each) for each in shown))


#: Upper bound of dims: PyTorch writes larger ones for unknown bounds.
_FAR = 2**40


def _always_holds(relation: Any) -> bool:
    """Whether a relation is true at all combinations of some sample sizes."""
    symbols = sorted(relation.free_symbols, key=str)
    if len(symbols) > 4:
        return False
    choices = itertools.product((1, 2, 3, 5), repeat=len(symbols))
    return all(bool(relation.subs(dict(zip(symbols, choice, strict=True)))) for choice in choices)


def _shown(relation: Any) -> str:
    return f"{relation.lhs} {relation.rel_op} {relation.rhs}" if relation.is_Relational else str(relation)
