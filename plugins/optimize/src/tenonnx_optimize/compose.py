"""Composition: joining two graphs, the second of which reads outputs of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenonnx.extend import Graph, InvalidCall, InvalidModel, Value
from tenonnx.extend.transforms import copy_graph, ensure_inferred, in_registry_of_graph, infer, unify_types
from tenonnx.tools import Operator


@in_registry_of_graph
def compose(first: Graph, second: Graph, mapping: Mapping[str, str | Sequence[str]] | None = None) -> Graph:
    """A graph that computes ``first`` and then ``second`` on its outputs.

    ``mapping`` maps names of outputs to names of inputs, one or several; by default equal names are joined, or a single
    output and a single input. The remaining inputs of ``second`` and outputs of ``first`` belong to the result. Names
    of ``second`` that ``first`` uses get a numeric suffix. The opset of each domain is the newer one. Raises
    ``InvalidCall`` for an unknown name, and for incompatible types.
    """
    whole, part = copy_graph(first), copy_graph(second)
    ensure_inferred(whole)
    outputs = {value.name: value for value in whole.outputs}
    inputs = {value.name: value for value in part.all_inputs}
    joined = _joined(outputs, inputs, mapping)
    fed = {inputs[name]: outputs[of] for name, of in joined.items()}
    for formal, value in fed.items():
        try:
            unify_types(formal.type, value.type)
        except ValueError as error:
            raise InvalidCall(
                f'input "{formal.name}" does not accept output "{value.name}"',
                given=f"{value.type} for {formal.type}",
                do="insert a graph that casts or reshapes between them",
            ) from error
    _move(part, whole, fed)
    whole.nodes += part.nodes
    whole.all_inputs += [value for value in part.all_inputs if value not in fed]
    whole.variables += [value for value in part.variables if value not in fed]
    whole.outputs = [value for value in whole.outputs if value not in fed.values()]
    whole.outputs += [fed.get(value, value) for value in part.outputs]
    whole.opsets = {**part.opsets, **{d: max(v, part.opsets.get(d, v)) for d, v in whole.opsets.items()}}
    _share_functions(part, whole)
    whole.forget_declared()
    whole.forget_names()
    try:
        infer(whole)
    except InvalidModel as error:
        raise InvalidCall(
            f"the second graph does not accept the outputs of the first: {error.what}", given=error.given
        ) from error
    return whole


def _share_functions(part: Graph, whole: Graph) -> None:
    """Merge the model-local functions into ``whole``; identical definitions become one function."""
    both = set(whole.functions) & set(part.functions)
    other = sorted(key for key in both if not _defined_alike(whole.functions[key], part.functions[key]))
    if other:
        raise InvalidCall(
            "functions of the same name differ between the two models",
            given=", ".join("::".join(filter(None, key)) for key in other),
            do="tenonnx convert --functions inline puts their bodies in their places",
        )
    shared = {part.functions[key]: whole.functions[key] for key in both}
    for node in part.walk() if shared else ():
        node._replace_fields(op=shared.get(node.op, node.op))
    whole.functions = {**part.functions, **whole.functions}


def _defined_alike(one: Operator, other: Operator) -> bool:
    proto = getattr(one, "proto", None)
    return one is other or (proto is not None and proto == getattr(other, "proto", None))


def _joined(
    outputs: Mapping[str, Value], inputs: Mapping[str, Value], mapping: Mapping[str, str | Sequence[str]] | None
) -> Mapping[str, str]:
    """The output for each input that is fed."""
    if mapping is None:
        mapping = {name: name for name in outputs if name in inputs}
        needed = [name for name, value in inputs.items() if value.data is None]
        if not mapping and len(outputs) == 1 and len(needed) == 1:
            mapping = dict(zip(outputs, needed, strict=True))
    pairs = [(name, of) for of, names in mapping.items() for name in ([names] if isinstance(names, str) else names)]
    joined = dict(pairs)
    strange = [of for of in mapping if of not in outputs] + [name for name in joined if name not in inputs]
    if strange or not joined or len(joined) < len(pairs):
        raise InvalidCall(
            "cannot join outputs of the first graph to inputs of the second, each of which takes one",
            given=", ".join(f"{of}={name}" for name, of in pairs) or "no names in common",
            available=f"outputs {', '.join(outputs)}; inputs {', '.join(inputs)}",
        )
    return joined


def _move(part: Graph, whole: Graph, fed: Mapping[Value, Value]) -> None:
    """Move values and nodes of ``part`` to ``whole``, with new names, and connect fed inputs."""
    for nested in part.nested():
        for value in list(nested.values()):
            if value not in fed:
                value._replace_fields(name=whole.unique_name(value.name))
            if nested is part:
                value.graph = whole
    for node in part.nodes:
        if node.name:
            node._replace_fields(name=whole.unique_name(node.name))
        node._replace_fields(
            inputs=tuple(None if v is None else fed.get(v, v) for v in node.inputs),
            captures=tuple(fed.get(v, v) for v in node.captures),
        )
        for subgraph in node.subgraphs:
            subgraph.parent = whole
