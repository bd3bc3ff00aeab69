"""Graphs and functions of TensorFlow: nodes by name, and references between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tenonnx.extend import InvalidModel
from tenonnx_tensorflow.attributes import content_of


@dataclass(frozen=True)
class Reference:
    """An output of a node: by index, or in functions by the name of an output and the index within it."""

    node: str
    position: int = 0
    output: str | None = None

    @classmethod
    def of(cls, text: str, in_function: bool = False) -> Reference:
        """Parse ``NODE``, ``NODE:INDEX`` or, in functions, ``NODE:OUTPUT:INDEX``. Raises ``InvalidModel``."""
        name, *rest = text.split(":")
        if rest and not re.fullmatch("[0-9]{1,9}", rest[-1]):
            raise InvalidModel(f'the reference "{text}" does not end in the index of an output')
        position = int(rest[-1]) if rest else 0
        return cls(name, position, rest[0]) if in_function and len(rest) == 2 else cls(name, position)


#: Ops that only check or print.
REPORTS = frozenset({"Assert", "PrintV2"})


class Node:
    """A node: ``node["T"]`` is an attribute, ``node.get("axis", 0)`` an optional one."""

    def __init__(self, message: Any, in_function: bool = False) -> None:
        self.name: str = message.name
        self.op: str = message.op
        self._message = message
        self._in_function = in_function

    @cached_property
    def inputs(self) -> list[Reference]:
        return [Reference.of(text, self._in_function) for text in self._message.input if not text.startswith("^")]

    @cached_property
    def controls(self) -> list[str]:
        """Names of the control inputs."""
        return [text[1:] for text in self._message.input if text.startswith("^")]

    @property
    def needs(self) -> list[str]:
        """Names of the nodes that must run before this one; none for ops that only check or print."""
        return [] if self.op in REPORTS else [*(reference.node for reference in self.inputs), *self.controls]

    @cached_property
    def _attributes(self) -> Mapping[str, Any]:
        return {entry.key: entry.value for entry in self._message.attr}

    def __contains__(self, name: str) -> bool:
        return name in self._attributes

    def __getitem__(self, name: str) -> Any:
        if name not in self._attributes:
            raise InvalidModel(f'node "{self.name}" ({self.op}) has no attribute {name}')
        return content_of(self._attributes[name], self.name)

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self._attributes:
            return default
        return self[name]

    @property
    def title(self) -> str:
        return f'{self.op} "{self.name}"'


@dataclass(frozen=True)
class Function:
    """A function of a library: its inputs, outputs and nodes."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    results: Sequence[Reference]
    controls: Sequence[str]
    nodes: Mapping[str, Node]

    @classmethod
    def of(cls, message: Any) -> Function:
        returned = {entry.key: entry.value for entry in message.ret}
        outputs = [argument.name for argument in message.signature.output_arg]
        missing = [name for name in outputs if name not in returned]
        if missing:
            raise InvalidModel(
                f'function "{message.signature.name}" does not return {missing[0]}', given=", ".join(sorted(returned))
            )
        return cls(
            message.signature.name,
            [argument.name for argument in message.signature.input_arg],
            outputs,
            [Reference.of(returned[name], in_function=True) for name in outputs],
            [entry.value for entry in message.control_ret],
            {node.name: Node(node, in_function=True) for node in message.node_def},
        )


@dataclass(frozen=True)
class Library:
    """The nodes of a graph, and the functions that they call."""

    nodes: Mapping[str, Node]
    functions: Mapping[str, Function] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Any) -> Library:
        """Read the graph in a ``GraphDef``."""
        functions = {f.signature.name: Function.of(f) for f in message.library.function}
        return cls({node.name: Node(node) for node in message.node}, functions)

    @property
    def size(self) -> int:
        """Number of nodes, including those of functions."""
        return len(self.nodes) + sum(len(function.nodes) for function in self.functions.values())

    def all_nodes(self, wanted: Sequence[str]) -> list[Node]:
        """All nodes on which the named ones depend, including those of called functions."""
        found: dict[int, Node] = {}
        entered: set[str] = set()
        pending = [self.nodes[name] for name in wanted if name in self.nodes]
        scopes: list[tuple[Mapping[str, Node], list[Node]]] = [(self.nodes, pending)]
        while scopes:
            nodes, waiting = scopes.pop()
            while waiting:
                node = waiting.pop()
                if id(node) in found:
                    continue
                found[id(node)] = node
                names = node.needs
                waiting += [nodes[name] for name in names if name in nodes]
                for name in self._called(node):
                    if name not in entered and name in self.functions:
                        entered.add(name)
                        function = self.functions[name]
                        ends = [*(reference.node for reference in function.results), *function.controls]
                        scopes.append((function.nodes, [function.nodes[e] for e in ends if e in function.nodes]))
        return list(found.values())

    def _called(self, node: Node) -> list[str]:
        named = [node.get(name) for name in ("f", "cond", "body", "then_branch", "else_branch")]
        named += list(node.get("branches", []))
        return [name for name in [*named, node.op] if isinstance(name, str)]
