"""Models that violate ONNX rules, repaired just enough to be drawn, with the faults noted at their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tenonnx import Graph, Node, TenonnxError, load
from tenonnx_cli.tools import op_name

#: Domain for nodes that their ops reject; nothing is checked there.
REFUSED = "refused"

#: Metadata keys of a node: its faults, values that it reads in a cycle, and its original domain.
_FAULT, _CUT, _DOMAIN = "tenonnx.serve.fault", "tenonnx.serve.cut", "tenonnx.serve.domain"

#: Maximum number of nodes of a cycle in a message.
_NAMED = 6


@dataclass(slots=True)
class Repaired:
    """``graph`` with ``faults`` of inputs and outputs by name, and for ``missing`` weights the reasons."""

    graph: Graph
    faults: dict[str, str]
    missing: dict[str, str]


def repair(source: str, error: TenonnxError) -> Repaired:
    """Repair the model of a file that was rejected with ``error``. Raises ``error`` if it cannot be drawn."""
    path = Path(source)
    try:
        message = onnx.load(path, load_external_data=False) if path.suffix.lower() == ".onnx" else onnx.ModelProto()
    except Exception:  # of protobuf and of the file system
        raise error from None
    if not message.graph.node:
        raise error
    work = _Repair(message, path.parent)
    work.mend()
    try:
        return work.read()
    except TenonnxError:
        work.set_aside()
    try:
        return work.read()
    except TenonnxError:
        raise error from None


def faults_of(node: Node) -> list[str]:
    """The faults noted at a node."""
    return _noted(node, _FAULT)


def cut_values(node: Node) -> list[str]:
    """The names of values that a node reads in a cycle."""
    return _noted(node, _CUT)


def is_refused(node: Node) -> bool:
    """Whether the op of a node rejected it, so that it was read without its op."""
    return node.domain == REFUSED and bool(_noted(node, _DOMAIN))


def named_op(node: Node) -> str:
    """The op of a node as named in its file."""
    if not is_refused(node):
        return op_name(node)
    domain = _noted(node, _DOMAIN)[0]
    return node.op_type if domain == "ai.onnx" else f"{domain}::{node.op_type}"


def _noted(node: Node, key: str) -> list[str]:
    return [each.value for each in getattr(node.origin, "metadata_props", ()) if each.key == key]


def _note(node: onnx.NodeProto, key: str, text: str) -> None:
    node.metadata_props.add(key=key, value=text)


@dataclass(slots=True)
class _Repair:
    message: onnx.ModelProto
    folder: Path
    faults: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    _weights: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def mend(self) -> None:
        """Give every value one name and one producer, and sort the nodes."""
        graph = self.message.graph
        self._repair_graph(graph, set())
        names = {each.name for each in graph.input}
        for name in (*self._weights, *self.faults):
            if name and name not in names:
                names.add(name)
                graph.input.append(_untyped(name, self._weights.get(name)))

    def read(self) -> Repaired:
        """Read the repaired message; weights without their file use no memory."""
        graph = load(self.message, base_dir=self.folder)
        for name, tensor in self._weights.items():
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            value = graph.find(name)
            contents = np.broadcast_to(np.zeros((), dtype), tuple(tensor.dims))
            weight = graph.variable(f"{name} (missing)", contents)
            graph.replace(value, weight)
            graph.remove(value)
            graph.rename(weight, name)
        return Repaired(graph, self.faults, self.missing)

    def set_aside(self) -> None:
        """Move nodes that their ops reject to the domain without rules, and note the errors."""
        opsets = {each.domain or "ai.onnx": each for each in self.message.opset_import}
        for node in list(_walk(self.message.graph)):
            error = self._refusal(node)
            if error is None:
                continue
            _note(node, _FAULT, str(error.what) + (f": {error.given}" if error.given else ""))
            _note(node, _DOMAIN, node.domain or "ai.onnx")
            node.domain = REFUSED
            if REFUSED not in opsets:
                opsets[REFUSED] = self.message.opset_import.add(domain=REFUSED, version=1)
            if self._refusal(node) is not None:
                del node.attribute[:]

    def _refusal(self, node: onnx.NodeProto) -> TenonnxError | None:
        """The error of a model with only this node."""
        alone = onnx.ModelProto(ir_version=self.message.ir_version)
        alone.opset_import.extend(self.message.opset_import)
        alone.functions.extend(self.message.functions)
        alone.graph.name = "alone"
        alone.graph.node.append(node)
        alone.graph.input.extend(_untyped(name) for name in dict.fromkeys(_names_read(node)))
        alone.graph.output.extend(_untyped(name) for name in node.output if name)
        try:
            load(alone, base_dir=self.folder)
        except TenonnxError as error:
            return error
        return None

    # ----- one graph --------------------------------------------------------------------------------------------------

    def _repair_graph(self, graph: onnx.GraphProto, outer: set[str]) -> None:
        """Repair a graph that can read the ``outer`` names."""
        _drop_repeated(graph.input, self.faults, "is given twice as an input")
        self._take_out_missing(graph)
        _drop_repeated(graph.initializer, self.faults, "is given twice as an initializer")
        makers: dict[str, onnx.NodeProto | None] = dict.fromkeys(_given(graph))
        for node in graph.node:
            for place, name in enumerate(node.output):
                if name and name in makers:
                    other = makers[name]
                    what = f"node {_label(other)}" if other is not None else "an input or initializer"
                    _note(node, _FAULT, f'computes "{name}", which {what} gives, too')
                    if other is not None:
                        _note(other, _FAULT, f'computes "{name}", which node {_label(node)} gives, too')
                    node.output[place] = name = _other_name(name, makers)
                if name:
                    makers[name] = node
        known = outer | set(makers) | set(self._weights)
        for node in graph.node:
            for inner in _subgraphs(node):
                self._repair_graph(inner, known)
            for name in node.input:
                if name and name in self.missing:
                    _note(node, _FAULT, f'weight "{name}" is missing: {self.missing[name]}')
                elif name and name not in known:
                    self.faults.setdefault(name, "comes from nowhere: no input, initializer or node has this name")
                    _note(node, _FAULT, f'reads "{name}", which is not an input, an initializer or an output of a node')
        for output in graph.output:
            if output.name not in known:
                self.faults.setdefault(output.name, "comes from nowhere: no node computes this output")
        self._order(graph, makers)

    def _take_out_missing(self, graph: onnx.GraphProto) -> None:
        """Remove weights whose data file is missing or too short."""
        for tensor in list(graph.initializer):
            if (why := self._absence(tensor)) is not None:
                self.missing[tensor.name] = why
                self._weights[tensor.name] = onnx.TensorProto(
                    name=tensor.name, dims=tensor.dims, data_type=tensor.data_type
                )
                graph.initializer.remove(tensor)
                for each in [each for each in graph.input if each.name == tensor.name]:
                    graph.input.remove(each)

    def _absence(self, tensor: onnx.TensorProto) -> str | None:
        """Reason why the external data of a tensor cannot be read."""
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return None
        where = {each.key: each.value for each in tensor.external_data}
        name = where.get("location", "")
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            return f'"{name}" is outside the folder of the model'
        if not path.is_file():
            return f'there is no file "{name}"'
        numbers = [where.get(key, "0") for key in ("offset", "length")]
        if all(each.isdecimal() for each in numbers) and sum(map(int, numbers)) > path.stat().st_size:
            return f'file "{name}" is too short'
        return None

    def _order(self, graph: onnx.GraphProto, makers: dict[str, onnx.NodeProto | None]) -> None:
        """Sort nodes topologically; cycles are broken by reading from an added input."""
        nodes = list(graph.node)
        place = {id(node): number for number, node in enumerate(nodes)}
        number_of = {name: place[id(node)] for name, node in makers.items() if node is not None}
        ordered: list[int] = []
        state = dict.fromkeys(range(len(nodes)), "new")
        for start in range(len(nodes)):
            if state[start] != "new":
                continue
            state[start] = "open"
            stack = [(start, iter(list(_names_read(nodes[start]))))]
            while stack:
                number, names = stack[-1]
                for name in names:
                    before = number_of.get(name)
                    if before is None or state[before] == "done":
                        continue
                    if state[before] == "open":
                        around = [at for at, _ in stack]
                        self._cut([nodes[at] for at in around[around.index(before) :]], name)
                        continue
                    state[before] = "open"
                    stack.append((before, iter(list(_names_read(nodes[before])))))
                    break
                else:
                    state[number] = "done"
                    ordered.append(number)
                    stack.pop()
        copies = []
        for number in ordered:
            copy = onnx.NodeProto()
            copy.CopyFrom(nodes[number])
            copies.append(copy)
        del graph.node[:]
        graph.node.extend(copies)

    def _cut(self, cycle: list[onnx.NodeProto], name: str) -> None:
        """Break a cycle of nodes, each of which reads the next: its last node reads ``name`` from an input."""
        names = [_label(node) for node in reversed(cycle)]
        way = " → ".join([*names[:_NAMED], "…"] if len(names) > _NAMED else [*names, names[0]])
        for node in cycle:
            _note(node, _FAULT, f"is part of a cycle: {way}")
        renamed = f"{name} (cycle)"
        self.faults[renamed] = "depends on the node that reads it: a cycle"
        _note(cycle[-1], _CUT, name)
        _rename(cycle[-1], name, renamed)


def _untyped(name: str, tensor: onnx.TensorProto | None = None) -> onnx.ValueInfoProto:
    if tensor is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))


def _given(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (each.name for each in graph.input)
    yield from (each.name for each in graph.initializer)
    yield from (each.values.name for each in graph.sparse_initializer)


def _drop_repeated(entries: object, faults: dict[str, str], what: str) -> None:
    seen: set[str] = set()
    for entry in list(entries):  # type: ignore[call-overload]
        if entry.name in seen:
            faults[entry.name] = what
            entries.remove(entry)  # type: ignore[attr-defined]
        seen.add(entry.name)


def _label(node: onnx.NodeProto) -> str:
    return f'"{node.name or next(iter(node.output), node.op_type)}"'


def _other_name(name: str, taken: Iterable[str]) -> str:
    count = 2
    while f"{name} ({count})" in taken:
        count += 1
    return f"{name} ({count})"


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _walk(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        for inner in _subgraphs(node):
            yield from _walk(inner)
        yield node


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, including those captured by its subgraphs."""
    yield from filter(None, node.input)
    for inner in _subgraphs(node):
        own = {*_given(inner), *(name for each in inner.node for name in each.output)}
        reads = [name for each in inner.node for name in _names_read(each)]
        yield from (name for name in (*reads, *(each.name for each in inner.output)) if name not in own)


def _rename(node: onnx.NodeProto, old: str, new: str) -> None:
    """Make a node and its subgraphs read ``new`` instead of ``old``."""
    for place, name in enumerate(node.input):
        if name == old:
            node.input[place] = new
    for inner in _subgraphs(node):
        for each in inner.node:
            _rename(each, old, new)
