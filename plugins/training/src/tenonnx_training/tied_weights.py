"""Tied weights: initializers that several modules read, and separating those that an exporter merged.

PyTorch's exporters store equal initializers once. An initializer belongs to the module that reads it. Files of the
dynamo exporter have the module path in the metadata of a node; the TorchScript exporter adds names of merged
initializers by Identity nodes. Readers with equal paths share a weight. Readers with different paths get separate
weights where the exporter is known to merge such tensors: vectors, the small matrices of copied layers (``layers.0``,
``layers.1``), and in files of the TorchScript exporter all weights that ops of one kind read. Embedding tables stay
shared, also with a language model head.

Where the metadata have the traced call of each node, the names of its arguments decide instead: the tracer has one name
for each weight of the module, wherever it is used or tied. In this case, biases that were removed because they are zero
are restored, and transposed copies become one weight again.

Nodes in control-flow bodies have no path. Each body gets its own weight where the exporter merges such tensors;
repeated uses in one body stay shared, with a note. Inputs of one call of a model-local function are different weights,
and so are scale and bias of one normalization.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import tenonnx_standard as ops
from tenonnx.extend import Graph, InvalidCall, Node, Value
from tenonnx.extend.transforms import trainable_variables
from tenonnx_training.exporter_notes import traced_name
from tenonnx_training.restored_weights import restore_biases, retie_copies
from tenonnx_training.weight_readers import Level, Reader, is_op, readers

#: Size of the largest vector that PyTorch's dynamo exporter merges with equal ones, in elements (torch 2.13).
LARGEST_MERGED = 1024

#: Maximum number of names that a note lists.
_SHOWN = 6

#: Tables of Gather stay shared: language model heads and shared embeddings are tied on purpose.
_TABLE = "Gather"


@dataclass
class Separated:
    """Result of a separation: ``new_variables`` by the original one, and the nodes that read each ``shared`` variable.

    ``biases`` are restored zero biases; ``copies`` are transposed copies that were replaced by their weights.
    """

    new_variables: dict[str, list[str]] = field(default_factory=dict)
    shared: dict[str, list[Reader]] = field(default_factory=dict)
    biases: list[str] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Notes for the user, with how to choose otherwise."""
        result = []
        if self.new_variables:
            names = [f"{', '.join(copies)} from {name}" for name, copies in self.new_variables.items()]
            result.append(
                f"separated weights that the exporter stored once, as they were equal (untie=False / --no-untie keeps "
                f"them tied): {_listed(names, '; ')}"
            )
        if self.biases:
            result.append(
                "restored biases that the exporter removed, as they were zero (untie=False / --no-untie leaves them "
                f"out): {_listed(self.biases, ', ')}"
            )
        if self.copies:
            names = [f"{copy} is {name}" for copy, name in self.copies.items()]
            result.append(
                "weights that the exporter stored again, transposed, trained as one (train them apart with "
                f"untie=True / --untie): {_listed(names, '; ')}"
            )
        if self.shared:
            shared = [f"{name}: shared by {_counted(readers)}" for name, readers in self.shared.items()]
            result.append(
                f"tied weights, trained as one (separate them with untie=True / --untie): {_listed(shared, '; ')}"
            )
        return result


def separate(graph: Graph, untie: bool | str | Sequence[str] | None = None) -> Separated:
    """Separate merged variables of ``graph``, in place: one for each module that reads them.

    By default (None), variables that an exporter is known to merge are separated. True separates all variables of
    different modules, or of different nodes where modules are unknown; patterns of names do so for matching variables;
    False separates only running statistics. Weights with a role in the file were tied on purpose and stay so by
    default.
    Raises ``InvalidCall`` for a pattern that matches no shared weight.
    """
    result = Separated()
    if untie is not False:
        result.biases = restore_biases(graph)
    if untie is not True:
        result.copies = retie_copies(graph)
    trainable = trainable_variables(graph)
    candidates = {*trainable.parameters, *trainable.buffers, *trainable.frozen}
    shared = {}
    for name, each in readers(graph).items():
        value = graph[name]
        if name in candidates and value.rank and len(each) > 1:
            shared[name] = each
    _check_patterns(untie, shared)
    groups = {name: _groups(graph[name], each, untie) for name, each in shared.items()}
    result.shared = {name: first for name, (first, *_) in groups.items() if _is_tied(first)}
    if any(len(each) > 1 for each in groups.values()):
        with graph.editing():
            for name, (_, *others) in groups.items():
                _give_variables(graph, graph[name], others, result)
    return result


def _groups(value: Value, each: Sequence[Reader], untie: bool | str | Sequence[str] | None) -> list[list[Reader]]:
    """Groups of readers that share a variable; the first group keeps the existing one."""
    wanted = _is_wanted(value.name, untie)
    exact = all(reader.parameter for reader in each)
    merged = value.role is None and (any(reader.statistic for reader in each) or exact or _is_merged(value, each))
    apart = merged if wanted is None else wanted or (merged and any(reader.statistic for reader in each))
    groups: dict[object, list[Reader]] = {}
    for reader in each:
        if not apart:
            owner: object = ""
        elif exact:
            owner = (reader.parameter, wanted and reader.module)
        elif reader.unknown and not wanted:
            owner = id(reader.within[-1][1])
        elif wanted and (reader.unknown or not any(other.path or other.name for other in each)):
            owner = id(reader.node)
        else:
            owner = reader.module
        slot = reader.own_slot if apart and not exact and wanted is not False else -1
        groups.setdefault((reader.statistic and reader.slot, owner, slot), []).append(reader)
    prefix = value.name.rpartition(".")[0]
    own = [any(r.parameter[2:] == traced_name(value.name) for r in group) for group in groups.values()]
    near = [any(not r.within and r.module in (prefix, value.name) for r in group) for group in groups.values()]
    keeps = own if any(own) else near
    first = keeps.index(True) if True in keeps else 0
    ordered = list(groups.values())
    return [ordered[first], *ordered[:first], *ordered[first + 1 :]]


def _is_wanted(name: str, untie: bool | str | Sequence[str] | None) -> bool | None:
    """Whether the caller wants the readers of a variable separated; None leaves it to the defaults."""
    if untie is None or isinstance(untie, bool):
        return untie
    patterns = [untie] if isinstance(untie, str) else untie
    return True if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) else None


def _is_merged(value: Value, each: Sequence[Reader]) -> bool:
    """Whether an exporter may have merged these weights because they were equal."""
    kinds = {(domain, kind) for reader in each for domain, kind, _ in reader.inner}
    alike = len(kinds) == 1 and ("ai.onnx", _TABLE) not in kinds
    if math.prod(dim for dim in value.shape if isinstance(dim, int)) <= LARGEST_MERGED:
        copies = {re.sub(r"[0-9]+", "*", reader.path) for reader in each}
        if value.rank == 1 or (alike and len(copies) == 1 and "*" in "".join(copies)):
            return True
    return alike and any(reader.name for reader in each)


def _is_tied(group: Sequence[Reader]) -> bool:
    """Whether several nodes of a group use a weight in the same role, unlike two uses in one module's formula."""
    ways = {(reader.node, reader.node.op_type, reader.slot) for reader in group}
    return len({reader.module for reader in group}) > 1 or len({way[1:] for way in ways}) < len(ways)


def _give_variables(graph: Graph, value: Value, groups: Sequence[Sequence[Reader]], found: Separated) -> None:
    for group in groups:
        renamed = [view.outputs[0] for view in group[0].views if is_op(view, "Identity")] if group[0].name else []
        if renamed:  # the new variable takes its name
            graph.rename(renamed[-1], _free(graph, f"{group[0].name}_alias"))  # type: ignore[arg-type]
        new_variable = graph.variable(_new_name(graph, value, group[0]), value.data)  # type: ignore[arg-type]
        new_variable.role = value.role
        for reader in group:
            _read_instead(reader, new_variable)
        _drop_unread(graph, [view for reader in group for view in reversed(reader.views)])
        found.new_variables.setdefault(value.name, []).append(new_variable.name)
        if _is_tied(group):
            found.shared[new_variable.name] = list(group)


def _new_name(graph: Graph, value: Value, reader: Reader) -> str:
    """Name of the weight in its module: its name in the file, or from the path of the module."""
    leaf = value.name.rpartition(".")[2]
    if is_op(reader.node, "BatchNormalization"):
        leaf = ("", "weight", "bias", "running_mean", "running_var")[reader.slot]
    if known := _name_of_parameter(reader, leaf):
        return _free(graph, known)
    named = f"{reader.path}.{leaf}" if reader.path else f"{value.name}.{reader.node.label}"
    return _free(graph, reader.name or named)


def _name_of_parameter(reader: Reader, leaf: str) -> str:
    """Name of a parameter in its module, from the tracer's name, where dots are underscores."""
    around, name = traced_name(reader.path), reader.parameter[2:]
    rest = name.removeprefix(f"{around}_") if reader.path else name
    if not name or (reader.path and rest == name):
        return ""
    parent = rest.removesuffix(f"_{leaf}")
    if parent not in (rest, "in_proj"):  # names of weights of MultiheadAttention contain underscores
        rest = f"{parent}.{leaf}"
    return f"{reader.path}.{rest}" if reader.path else rest


def _free(graph: Graph, wanted: str) -> str:
    """``wanted``, with a number appended where the name is taken."""
    taken, name, count = {each.name for each in graph.values()}, wanted, 1
    while name in taken:
        count, name = count + 1, f"{wanted}_{count + 1}"
    return name


def _read_instead(reader: Reader, replacement: Value) -> None:
    """Make a node read another variable, through copies of its views unless these are no-ops."""
    value = _captured(replacement, reader.within)
    for view in reader.views:
        if is_op(view, "Transpose"):
            value = ops.transpose(value, **view.attributes)
        elif is_op(view, "Reshape"):
            value = ops.reshape(value, view.inputs[1], **view.attributes)
    reader.node.inputs = [value if slot == reader.slot else each for slot, each in enumerate(reader.node.inputs)]


def _captured(value: Value, within: Sequence[Level]) -> Value:
    """``value`` captured into the innermost of these subgraphs."""
    for node, subgraph in within:
        if value not in node.captures:
            for each in node.subgraphs:
                each.captures.append(Value(_free(each, value.name), value.type, data=value.data, graph=each))
            node._replace_fields(captures=(*node.captures, value))
        value = subgraph.captures[node.captures.index(value)]
    return value


def _drop_unread(graph: Graph, views: Iterable[Node]) -> None:
    """Remove unused views of a weight."""
    for where in graph.nested():
        for node in [node for node in dict.fromkeys(views) if node in where.nodes]:
            (output,) = node.outputs
            if output not in where.outputs and not where.uses().get(output):  # type: ignore[arg-type]
                where.nodes.remove(node)


def _check_patterns(untie: bool | str | Sequence[str] | None, shared: Mapping[str, object]) -> None:
    patterns = [untie] if isinstance(untie, str) else untie if isinstance(untie, list | tuple) else []
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in shared):
            raise InvalidCall(
                f'untie "{pattern}" matches no shared weight',
                available=", ".join(shared) or "no weight that several nodes read",
            )


def _counted(group: Iterable[Reader]) -> str:
    nodes = dict.fromkeys(reader.node for reader in group)
    kinds: dict[str, int] = {}
    for node in nodes:
        kinds[node.op_type] = kinds.get(node.op_type, 0) + 1
    return " and ".join(f"{count} {kind} node{'s' * (count > 1)}" for kind, count in kinds.items())


def _listed(names: Collection[str], separator: str) -> str:
    shown = separator.join(list(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}{separator}and {len(names) - _SHOWN} more"
