"""Side effects of ops: whether TensorFlow may run a graph for verification.

TensorFlow runs a graph only if all of its ops are in ``effectless_ops.txt``. Checks use TensorFlow's own message
classes, so that exactly the checked content runs. Ops that read a file are allowed for files that the caller names: the
checkpoint of a SavedModel, or an asset of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

#: Ops that read a file, with the input that names it.
READERS: Mapping[str, int] = {
    "InitializeTableFromTextFile": 1,
    "InitializeTableFromTextFileV2": 1,
    "Restore": 0,
    "RestoreSlice": 0,
    "RestoreV2": 0,
}

#: Ops that write checkpoints. Every SavedModel contains them for saving again; they are never run.
SAVERS = frozenset({"MergeV2Checkpoints", "Save", "SaveSlices", "SaveV2", "ShardedFilename", "ShardedFilespec"})

#: Streams to which ``PrintV2`` may print; any other is a file.
_STREAMS = frozenset({b"stderr", b"stdout", b"log(info)", b"log(warning)", b"log(error)"})

#: Ops that call the function ``f`` with their own inputs.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


@cache
def effectless_ops() -> frozenset[str]:
    text = files("tenonnx_tensorflow").joinpath("effectless_ops.txt").read_text()
    return frozenset(name for line in text.splitlines() if not line.startswith("#") for name in line.split())


def effects_of(graph: Any, known: frozenset[str] = frozenset()) -> list[str]:
    """The ops of a ``GraphDef`` that may have side effects, including dead branches and unused functions."""
    functions = {function.signature.name for function in graph.library.function}
    known = known | functions | READERS.keys() | SAVERS
    found = [f'{node.op} (node "{node.name}")' for node in graph.node if _has_effect(node, known)]
    for function in graph.library.function:
        name = function.signature.name
        kind = "initializer" if "initializer" in name else "function"
        found += [f'{node.op} ({kind} "{name}")' for node in function.node_def if _has_effect(node, known)]
    return list(dict.fromkeys(found))


def _has_effect(node: Any, known: frozenset[str]) -> bool:
    if node.op == "PrintV2":
        return "output_stream" in node.attr and node.attr["output_stream"].s not in _STREAMS
    return node.op not in known and node.op not in effectless_ops()


def needed_part(graph: Any, ends: Iterable[str]) -> Any:
    """The nodes of a ``GraphDef`` on which the named ones depend, with all functions that their attributes name."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    pending, kept = [_node_of(name) for name in ends], dict[str, None]()
    while pending:
        name = pending.pop()
        if name not in kept and name in nodes:
            kept[name] = None
            pending += [_node_of(text) for text in nodes[name].input]
    calling, called = [nodes[name] for name in kept], dict[str, None]()
    while calling:
        for name in _names_in(calling.pop()):
            if name in functions and name not in called:
                called[name] = None
                calling += functions[name].node_def
    part = type(graph)()
    part.versions.CopyFrom(graph.versions)
    part.node.extend(node for node in graph.node if node.name in kept)
    part.library.function.extend(f for f in graph.library.function if f.signature.name in called)
    return part


def _node_of(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]


def _names_in(node: Any) -> Iterator[str]:
    """The names in a node that may refer to functions."""
    yield node.op
    for value in node.attr.values():
        yield from (value.func.name, value.s.decode("utf-8", "replace"))
        yield from (function.name for function in value.list.func)
        yield from (text.decode("utf-8", "replace") for text in value.list.s)


@dataclass(frozen=True)
class RunnablePart:
    """A part of a graph to run, and the nodes that produce names of files that it may read."""

    graph: Any
    file_names: frozenset[str]

    def problems(self) -> list[str]:
        """Reasons why the part must not run; empty if all of its ops are free of side effects."""
        found = effects_of(self.graph)
        for scope, nodes in self._scopes():
            found += [f'{n.op} (node "{n.name}"{scope and f" of {scope}"})' for n in nodes if n.op in SAVERS]
        return found or self._readers()

    def _scopes(self) -> list[tuple[str, Sequence[Any]]]:
        functions = self.graph.library.function
        return [("", self.graph.node), *((function.signature.name, function.node_def) for function in functions)]

    def _readers(self) -> list[str]:
        """Ops that read a file whose name does not come from ``file_names``."""
        arguments = {f.signature.name: [a.name for a in f.signature.input_arg] for f in self.graph.library.function}
        wanted: dict[str, set[int]] = {}
        while True:
            before = {name: set(places) for name, places in wanted.items()}
            found = []
            for scope, nodes in self._scopes():
                by_name = {node.name: node for node in nodes}
                for node in nodes:
                    for place in self._file_names_of(node, wanted):
                        origin = _origin(node, place, by_name)
                        if not scope and origin in by_name and by_name[origin].op == "ReadVariableOp":
                            origin = self._assigned(by_name[origin], by_name)
                        if scope and origin in arguments[scope] and origin not in by_name:
                            wanted.setdefault(scope, set()).add(arguments[scope].index(origin))
                        elif scope or origin not in self.file_names:
                            found.append(f'{node.op} (node "{node.name}", which names a file itself)')
            if wanted == before:
                return found + [f'a reader of files in "{name}"' for name in self._called_otherwise(wanted)]

    def _assigned(self, read: Any, nodes: Mapping[str, Any]) -> str:
        """The node with the only value that the variable of ``read`` can have; empty if unknown.

        A SavedModel stores the path of an asset in a variable.
        """
        handle = _node_of(read.input[0])
        if handle not in nodes or nodes[handle].op != "VarHandleOp":
            return ""
        readers = [node for node in self.graph.node if handle in map(_node_of, node.input)]
        assigning = [node for node in readers if node.op == "AssignVariableOp" and _node_of(node.input[0]) == handle]
        others = [n for n in readers if n.op not in ("AssignVariableOp", "ReadVariableOp", "VarIsInitializedOp")]
        handles = [n for _, nodes in self._scopes() for n in nodes if n.op == "VarHandleOp"]
        same = [n for n in handles if _key_of(n) == _key_of(nodes[handle])]
        return _origin(assigning[0], 1, nodes) if len(assigning) == len(same) == 1 and not others else ""

    def _file_names_of(self, node: Any, wanted: Mapping[str, set[int]]) -> list[int]:
        """The inputs of a node that are file names, considering known arguments of functions."""
        if node.op in READERS:
            return [READERS[node.op]]
        called = node.attr["f"].func.name if node.op in _CALLS and "f" in node.attr else node.op
        return sorted(wanted.get(called, ()))

    def _called_otherwise(self, wanted: Mapping[str, set[int]]) -> list[str]:
        """Functions that read files and are referenced where their arguments are unknown."""
        result = []
        for _, nodes in self._scopes():
            for node in nodes:
                direct = {node.op, node.attr["f"].func.name if node.op in _CALLS and "f" in node.attr else node.op}
                names = list(_names_in(node))
                result += [name for name in wanted if name in names and (name not in direct or names.count(name) > 1)]
        return result


def _key_of(handle: Any) -> tuple[bytes, bytes]:
    """Session key of the variable of a handle."""
    shared = handle.attr["shared_name"].s if "shared_name" in handle.attr else b""
    return handle.attr["container"].s if "container" in handle.attr else b"", shared or handle.name.encode()


def _origin(node: Any, place: int, nodes: Mapping[str, Any]) -> str:
    """Name of the node or argument behind an input, through copies; empty if there is none."""
    for _ in range(len(nodes) + 1):
        inputs = [text for text in node.input if not text.startswith("^")]
        name = _node_of(inputs[place]) if place < len(inputs) else ""
        if name not in nodes or nodes[name].op != "Identity":
            return name
        node, place = nodes[name], 0
    return ""
