"""Which variables of a graph are trained."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence

from tenonnx.extend import Graph, InvalidCall, TensorType
from tenonnx_training.recipe import Group
from tenonnx_training.ties import aliases, name_of, users


def matching(graph: Graph, patterns: str | Sequence[str] | None, *, but: Collection[str] = ()) -> list[str]:
    """The names of the floating-point variables that ``patterns`` choose, in file order; see ``Recipe``.

    Those of ``but`` are never chosen. Raises ``InvalidCall`` for a pattern that matches none, and if none is left.
    """
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float}
    floats = {name: kind for name, kind in kinds.items() if name not in but}
    names = names_of(graph, kinds)
    available = ", ".join([n for name in floats for n in names[name][0]][:50])
    given = [patterns] if isinstance(patterns, str) else patterns
    wanted, unwanted = [p for p in given or () if p[:1] != "!"], [p[1:] for p in given or () if p[:1] == "!"]
    for pattern, among in [*((p, floats) for p in wanted), *((p, kinds) for p in unwanted)]:
        if not any(matches(names[name], [pattern]) for name in among):
            raise InvalidCall(
                f'trainable "{pattern}" must match a variable that gradients can change, or a node that uses one',
                available=available or "no such variable",
            )
    everything = not wanted and (given is None or bool(unwanted))
    adapted = any(map(is_adapter, floats))  # adapters are there to be trained alone
    usual = {n for n, kind in floats.items() if kind.shape and (is_adapter(n) or not adapted)} - _scales(graph)
    chosen = [n for n in floats if matches(names[n], wanted) or (everything and n in usual)]
    left = [name for name in chosen if not matches(names[name], unwanted)]
    if not left:
        raise InvalidCall(
            "there must be a variable to train",
            given=f"trainable={patterns!r}",
            available=available or "no floating-point variable",
        )
    return left


def grouped(graph: Graph, groups: Sequence[Group]) -> dict[str, Group]:
    """The first of ``groups`` that each variable matches. Raises ``InvalidCall`` for a pattern that matches none."""
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType)}
    names = names_of(graph, kinds) if groups else {}
    found: dict[str, Group] = {}
    for group in groups:
        matched = [name for name in names if matches(names[name], [group.pattern])]
        if not matched:
            raise InvalidCall(
                f'the group "{group.pattern}" must match a variable', available=", ".join(list(names)[:50])
            )
        found = {**dict.fromkeys(matched, group), **found}
    return found


def is_adapter(name: str) -> bool:
    """Whether a variable is one of a pair of low-rank adapters."""
    return ".lora_A." in name or ".lora_B." in name


def _scales(graph: Graph) -> set[str]:
    """The scales of codes: at the rate of weights a few steps would ruin them, so they are trained by name alone."""
    return {name_of(n.inputs[1]) for n in graph.walk() if n.op_type in ("QuantizeLinear", "DequantizeLinear")}


def names_of(graph: Graph, kinds: Mapping[str, TensorType]) -> dict[str, tuple[list[str], list[str]]]:
    """Of each variable all its names, and the paths of the nodes that use it: ``/head/Gemm``, and ``head.Gemm``.

    Variables without axes, in which exporters keep constants, do not go by the path of a node.
    """
    others, nodes = aliases(graph), users(graph)
    found = {}
    for name, kind in kinds.items():
        paths = [node.name for node in nodes.get(name, ()) if kind.shape]
        dotted = [path.strip("/").replace("/", ".") for path in paths if "/" in path]
        found[name] = [name, *(value.name for value in others.get(name, ()))], [*paths, *dotted]
    return found


def matches(names: tuple[list[str], list[str]], patterns: Sequence[str]) -> bool:
    """Whether one of ``patterns`` is a name, brackets and all, or a pattern of a name or path."""
    own, paths = names
    return any(name in patterns for name in own) or any(
        fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (*own, *paths)
    )


def numbers_note(graph: Graph, parameters: Sequence[str]) -> list[str]:
    numbers = [v.name for v in graph.variables if v.name in parameters and set(v.tensor.shape or ()) == {1}]
    text = f"trains single numbers, which may be constants of the model (leave out by !name): {', '.join(numbers)}"
    return [text] if numbers else []
