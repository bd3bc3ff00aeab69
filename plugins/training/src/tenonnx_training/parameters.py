"""Selection of trainable variables."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tenonnx.extend import Graph, InvalidCall, TensorType
from tenonnx.extend.formats import PARAMETERS
from tenonnx.extend.transforms import trainable_variables
from tenonnx_training.recipe import Group
from tenonnx_training.scales import scales_of
from tenonnx_training.weight_readers import aliases, paths_of, users

#: Key of the settings of a training state with the group index of each of its parameters.
GROUPED = "grouped"

#: Maximum number of names that a note lists.
_SHOWN = 8


def matching(graph: Graph, patterns: str | Sequence[str] | None, *, but: Collection[str] = ()) -> list[str]:
    """The names of the floating-point variables that ``patterns`` select, in file order; see ``Recipe``.

    Those in ``but`` are excluded. Raises ``InvalidCall`` for a pattern without a match, and where none is selected.
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
                f'trainable "{pattern}" matches no variable that gradients can change',
                available=available or "no such variable",
            )
    everything = not wanted and (given is None or bool(unwanted))
    adapted = any(map(is_adapter, floats))  # a graph with adapters trains only these by default
    trainable = trainable_variables(graph)
    usual = set(filter(is_adapter, floats)) if adapted else floats.keys() & set(trainable.parameters)
    usual = usual or floats.keys() & scales_of(graph)  # of a quantized model
    named = {n for pattern in wanted for n in _named(floats, names, pattern, trainable.buffers)}
    chosen = [n for n in floats if n in named or (everything and n in usual)]
    left = [name for name in chosen if not matches(names[name], unwanted)]
    if not left:
        raise InvalidCall(
            "no variable to train",
            given=f"trainable={patterns!r}"
            + (f", and {len(trainable.frozen)} frozen parameters" if trainable.frozen else ""),
            available=available or "no floating-point variable",
            do='name what to train: trainable="*" / --trainable "*"',
        )
    return left


def as_before(graph: Graph, patterns: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """``patterns`` of a training state, or the names of the parameters if the patterns match differently now.

    Variables may have been renamed in the meantime; the recorded names are kept up to date.
    """
    named = {} if graph.training_state is None else graph.training_state.settings
    trained = named.get(PARAMETERS)
    names = [value.name for value in graph.variables]
    if patterns is None or not isinstance(trained, list) or not trained or not all(name in names for name in trained):
        return patterns
    try:
        return patterns if set(trained) <= set(matching(graph, patterns)) else trained
    except InvalidCall:
        return trained


def groups_as_before(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """``groups`` of a training state, by name for variables that have been renamed in the meantime."""
    settings = {} if graph.training_state is None else graph.training_state.settings
    trained, places = settings.get(PARAMETERS), settings.get(GROUPED)
    if not isinstance(trained, list) or not isinstance(places, list) or len(places) != len(trained):
        return list(groups)
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType)}
    names = names_of(graph, kinds)
    matching_groups = [group for group in groups if any(matches(each, [group.pattern]) for each in names.values())]
    now = grouped(graph, matching_groups)
    known = [(name, place) for name, place in zip(trained, places, strict=True) if name in names]
    before = {name: groups[k] for name, k in known if isinstance(k, int) and 0 <= k < len(groups)}
    others = [replace(group, pattern=name) for name, group in before.items() if now.get(name) != group]
    return [*others, *matching_groups]


def _named(
    floats: Mapping[str, TensorType],
    names: Mapping[str, tuple[list[str], list[str]]],
    pattern: str,
    buffers: Collection[str],
) -> list[str]:
    """Names that a pattern selects: buffers only by their full name, or if nothing else matches."""
    found = [name for name in floats if matches(names[name], [pattern])]
    plain = [name for name in found if name not in buffers or pattern in names[name][0]]
    return plain or found


def chosen_notes(graph: Graph, parameters: Sequence[str], patterns: object, but: Collection[str] = ()) -> list[str]:
    """Notes on the variables that are trained, and on the others with the reason."""
    trainable = trainable_variables(graph)
    left = {
        "frozen": trainable.frozen,
        "buffers": trainable.buffers,
        "no weights of layers": [v.name for v in graph.variables if v.name in trainable.undeclared and v.rank],
    }
    notes = [f"trains {len(parameters)} of {len(graph.variables)} variables: {_listed(parameters)}"]
    if patterns is None and not any(map(is_adapter, parameters)):
        for why, names in left.items():
            if frozen := [name for name in names if name not in parameters and name not in but]:
                notes.append(f"not trained, being {why} (choose with trainable= / --trainable): {_listed(frozen)}")
        if rows := {name: trainable.fixed_rows[name] for name in parameters if name in trainable.fixed_rows}:
            shown = ", ".join(f"{', '.join(map(str, each))} of {name}" for name, each in rows.items())
            notes.append(f"rows that are not updated: {shown}")
    computed = [
        v.name for v in graph.variables if v.name in parameters and v.role is not None and len(v.role.made_of) > 1
    ]
    if computed:
        notes.append(
            "trains weights into which the exporter folded others (export the module with simplify=False to train "
            f"each parameter): {_listed(computed)}"
        )
    return notes


def _listed(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SHOWN], *([f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])])


def grouped(graph: Graph, groups: Sequence[Group]) -> dict[str, Group]:
    """The first of ``groups`` that each variable matches. Raises ``InvalidCall`` for a pattern that matches none."""
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType)}
    names = names_of(graph, kinds) if groups else {}
    result: dict[str, Group] = {}
    for group in groups:
        matched = [name for name in names if matches(names[name], [group.pattern])]
        if not matched:
            raise InvalidCall(f'the group "{group.pattern}" matches no variable', available=", ".join(list(names)[:50]))
        result = {**dict.fromkeys(matched, group), **result}
    return result


def not_frozen(graph: Graph) -> list[str] | None:
    """The names of all values except frozen parameters, None where nothing is frozen."""
    frozen = {v.name for v in graph.variables if v.role is not None and v.role.kind == "frozen"}
    return [v.name for v in graph.values() if v.name not in frozen] if frozen else None


def is_adapter(name: str) -> bool:
    """Whether a variable belongs to a low-rank adapter."""
    return ".lora_A." in name or ".lora_B." in name


def names_of(graph: Graph, kinds: Mapping[str, TensorType]) -> dict[str, tuple[list[str], list[str]]]:
    """For each variable its names, and the paths of the nodes that use it, see ``paths_of``.

    Scalars have no paths, since exporters store constants in them.
    """
    others, nodes = aliases(graph), users(graph)
    result = {}
    for name, kind in kinds.items():
        paths = [path for node in nodes.get(name, ()) if kind.shape for path in paths_of(node)]
        result[name] = [name, *(value.name for value in others.get(name, ()))], paths
    return result


def matches(names: tuple[list[str], list[str]], patterns: Sequence[str]) -> bool:
    """Whether one of ``patterns`` equals a name, including brackets, or matches a name or path."""
    own, paths = names
    return any(name in patterns for name in own) or any(
        fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (*own, *paths)
    )


def numbers_note(graph: Graph, parameters: Sequence[str]) -> list[str]:
    numbers = [v.name for v in graph.variables if v.name in parameters and set(v.tensor.shape or ()) == {1}]
    text = (
        f"trains single-element initializers, perhaps constants of the model (exclude with !name): {', '.join(numbers)}"
    )
    return [text] if numbers else []
