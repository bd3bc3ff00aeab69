"""Tied parameters: exporters merge equal initializers, and give one of them further names by Identity nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tenonnx.extend import Graph, Node, Value


def source_of(value: Value) -> Value:
    """The value that ``value`` is another name of, by way of Identity nodes."""
    while value.producer is not None and _is_identity(value.producer):
        (value,) = value.producer.uses
    return value


def name_of(value: Value | None) -> str:
    """The name of the variable that is read as ``value``, empty where none is."""
    return "" if value is None else source_of(value).name


def aliases(graph: Graph) -> dict[str, list[Value]]:
    """Of each variable that has other names, the values that are these names; graph outputs are no names."""
    held, shown = set(graph.variables), set(graph.outputs)
    found: dict[str, list[Value]] = {}
    for node in filter(_is_identity, graph.nodes):
        for value in node.outputs:
            if value is not None and value not in shown and source_of(value) in held:
                found.setdefault(name_of(value), []).append(value)
    return found


def users(graph: Graph) -> dict[str, list[Node]]:
    """The nodes that use each variable, under whatever name."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for value in () if _is_identity(node) else node.uses:
            found.setdefault(name_of(value), []).append(node)
    return found


def untie(graph: Graph, names: Collection[str] | None = None) -> list[str]:
    """Give ``graph`` a variable of its own for each further name of a variable (of ``names``, by default of all).

    Returns the names of the new variables. The contents are the same, and shared until they are assigned.
    """
    made = []
    for name, values in aliases(graph).items():
        if names is not None and name not in names:
            continue
        for value in values:
            source, node = source_of(value), value.producer
            value.become(type=source.type, data=source.data)
            value.symbolic_contents = None
            value.producer = None
            graph.nodes.remove(node)  # type: ignore[arg-type]
            graph.variables.append(value)
            made.append(value.name)
    return made


def note(graph: Graph, parameters: Iterable[str]) -> list[str]:
    """What a reader should know of trained variables that have several names."""
    other = aliases(graph)
    tied = [f"{name} is also {', '.join(v.name for v in other[name])}" for name in parameters if name in other]
    text = "tied weights, trained as one (separate them with untie=True / --untie): "
    return [text + "; ".join(tied)] if tied else []


def _is_identity(node: Node) -> bool:
    return (node.domain, node.op_type) == ("ai.onnx", "Identity")
