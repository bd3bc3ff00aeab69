"""The interpreter: evaluates nodes of TensorFlow in topological order, as calls of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenonnx.extend import InvalidModel, NotRepresentable, TenonnxError, counted
from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.graphs import REPORTS, Function, Library, Node, Reference
from tenonnx_tensorflow.rules import RULES
from tenonnx_tensorflow.rules.complexes import OF_COMPLEX
from tenonnx_tensorflow.rules.old_control import DEFERRED
from tenonnx_tensorflow.state import State
from tenonnx_tensorflow.tracked_values import Complex, Held, Table, Variable


class Interpreter:
    """Evaluates nodes on values of the graph under construction; ``state`` has the contents of variables."""

    def __init__(self, library: Library, state: State) -> None:
        self.library, self.state = library, state

    def evaluate(
        self, wanted: Sequence[Reference], fed: Mapping[str, Sequence[Held]], controls: Sequence[str] = ()
    ) -> list[Held]:
        """Evaluate outputs of the graph, given the outputs of the nodes in ``fed``."""
        return self._evaluate(self.library.nodes, wanted, fed, controls)

    def call(self, name: str, values: Sequence[Held]) -> list[Held]:
        """Results of a function of the library. Raises ``LimitExceeded`` for too deep or recursive calls."""
        function = self.function(name)
        if len(values) != len(function.inputs):
            raise InvalidModel(
                f'function "{name}" is not called with {len(function.inputs)} values', given=str(len(values))
            )
        fed = {argument: [value] for argument, value in zip(function.inputs, values, strict=True)}
        with self.state.calling(f'function "{name}"'):
            return self._evaluate(function.nodes, function.results, fed, function.controls)

    def function(self, name: str) -> Function:
        if name not in self.library.functions:
            raise InvalidModel(f'the graph has no function "{name}"', given=f"{len(self.library.functions)} others")
        return self.library.functions[name]

    def _evaluate(
        self,
        nodes: Mapping[str, Node],
        wanted: Sequence[Reference],
        fed: Mapping[str, Sequence[Held]],
        controls: Sequence[str],
    ) -> list[Held]:
        scope = Scope(self, nodes, dict(fed))
        for name in controls:
            scope.compute(name)
        return [scope.read(reference) for reference in wanted]

    def offset(self, node: Node | None, output: str | None) -> int:
        """Index of the first output with this name in a function."""
        if node is None or output is None:
            return 0
        if node.op in self.library.functions:
            return list(self.library.functions[node.op].outputs).index(output)
        names = RULES[node.op].outputs if node.op in RULES else ()
        return list(names).index(output) if output in names else 0

    def apply(self, node: Node, values: Sequence[Held]) -> Sequence[Held]:
        """Evaluate the outputs of a node."""
        try:
            found = self._applied(node, values)
        except TenonnxError as error:
            if not any(node.title in note for note in getattr(error, "__notes__", ())):
                error.add_note(f"from node {node.title}")
            raise
        return list(found) if isinstance(found, list) else [found]

    def _applied(self, node: Node, values: Sequence[Held]) -> Any:
        for form in self.state.forms.of(node.op, node.name):
            given = form(node, *values)
            if given is not None:
                return list(given) if isinstance(given, tuple) and not isinstance(given, Complex) else given
        if node.op in self.library.functions:
            return self.call(node.op, values)
        with self.state.applying(node.title):
            return self._by_rule(node, values)

    def _by_rule(self, node: Node, values: Sequence[Held]) -> Any:
        found = RULES.get(node.op)
        if any(isinstance(value, Complex) for value in values):
            if node.op in OF_COMPLEX:
                return OF_COMPLEX[node.op](node, *values)
            if found is None or not (found.takes_interpreter or node.op in ("IdentityN", "TensorListReserve")):
                raise NotRepresentable("an op of complex numbers has no rule", given=node.title)
        if found is None:
            raise NotRepresentable("an op has no rule", given=node.title)
        if found.takes_interpreter:
            return found.function(self, node, *values)
        for value in values:
            if isinstance(value, Variable | Table):
                raise NotRepresentable("no rule exists for an op that takes a variable or a table", given=node.title)
        return found.function(node, *values)


class Scope:
    """The nodes of a graph or function, and their outputs computed so far."""

    def __init__(self, interpreter: Interpreter, nodes: Mapping[str, Node], held: dict[str, Sequence[Held]]) -> None:
        self.interpreter, self.nodes, self.outputs = interpreter, nodes, held
        self.loops: dict[str, dict[str, Held]] = {}

    def nested(self, more: Mapping[str, Sequence[Held]]) -> Scope:
        """A scope with other outputs of some nodes, whose results are not kept in this one."""
        return Scope(self.interpreter, self.nodes, {**self.outputs, **more})

    def within(self, more: Mapping[str, Sequence[Held]], reference: Reference) -> Held:
        return self.nested(more).read(reference)

    def inside(self, reference: Reference) -> Held:
        """Value of an output, computed within a subgraph."""
        return self.nested({}).read(reference)

    def read(self, reference: Reference) -> Held:
        self.compute(reference.node)
        outputs = self.outputs[reference.node]
        position = reference.position + self.interpreter.offset(self.nodes.get(reference.node), reference.output)
        if position >= len(outputs):
            raise InvalidModel(
                f'node "{reference.node}" has no output {position}', given=counted(len(outputs), "output")
            )
        return outputs[position]

    def compute(self, wanted: str) -> None:
        """Compute a node, after all nodes on which it depends."""
        pending, entered = [wanted], set()
        while pending:
            name = pending[-1]
            if name in self.outputs:
                pending.pop()
                continue
            node = _node(self.nodes, name)
            if node.op in DEFERRED:
                pending.pop()
                self.outputs[name] = DEFERRED[node.op](self, node)
                continue
            missing = [each for each in node.needs if each not in self.outputs]
            if missing and name in entered:
                raise NotRepresentable(
                    "the graph has a cycle of nodes that is not a loop of TensorFlow",
                    given=f"{node.title} needs itself",
                )
            entered.add(name)
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            given = [] if node.op in REPORTS else [self.read(reference) for reference in node.inputs]
            self.outputs[name] = self.interpreter.apply(node, given)


def _node(nodes: Mapping[str, Node], name: str) -> Node:
    if name not in nodes:
        raise InvalidModel(f'the graph has no node "{name}"', given=f"{len(nodes)} others")
    return nodes[name]


#: Advice for ops on types other than tensors, by prefix of their names.
_ADVICE = {
    "Ragged": "give and compute dense tensors: .to_tensor() of a ragged one before the model, with a mask or lengths",
    "Sparse": "give and compute dense tensors: tf.sparse.to_dense() before the model",
}


def check_ops(
    library: Library, wanted: Sequence[str], line_of: Callable[[str], str] | None = None, forms: Forms | None = None
) -> None:
    """Raise ``NotRepresentable`` naming every op without a rule, with its nodes and the user's line of the first."""
    missing: dict[str, list[str]] = {}
    forms, nodes = forms or Forms(), library.all_nodes(wanted)
    formed = {node.name for node in nodes if list(forms.of(node.op, node.name))}
    forms.check_used([node.op for node in nodes])
    for node in nodes:
        known = node.op in RULES or node.op in OF_COMPLEX or node.op in library.functions
        if node.name not in formed and not known:
            missing.setdefault(node.op, []).append(node.name)
    if not missing:
        return
    messages = []
    for op, names in sorted(missing.items()):
        line = next(filter(None, map(line_of, names)), "") if line_of is not None else ""
        listed = f"{op} ({len(names)} node{'s' * (len(names) > 1)}): {', '.join(names[:3])}"
        messages.append(f"{listed}, {line}" if line else listed)
    advice = [text for start, text in _ADVICE.items() if any(op.startswith(start) for op in missing)]
    raise NotRepresentable(
        "the graph has ops without a rule",
        given="\n".join(messages),
        do="; ".join(advice)
        or 'compute it with other ops, or give it a form, forms={"NAME": function}, or a rule: '
        '@tenonnx_tensorflow.rule("NAME"), in a module that is imported before, or in a package (entry points '
        "tenonnx.tensorflow_ops)",
    )
