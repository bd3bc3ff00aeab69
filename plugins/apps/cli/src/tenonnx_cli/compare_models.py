"""Result of a comparison of two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx import Graph, InvalidCall, Verification, load, verify
from tenonnx.extend import html_of
from tenonnx.extend.checks import corresponding
from tenonnx.tools import plot_axes
from tenonnx_cli.describe import op_name
from tenonnx_cli.node_pairs import attribute_differences, paired_nodes, weight_differences
from tenonnx_cli.output import plural

if TYPE_CHECKING:
    import os


@dataclass(slots=True)
class Comparison:
    """Comparison of two models.

    ``structure`` lists differences by kind, each with ``name``, ``first`` and ``second``. ``paired`` of the ``values``
    computed values of the second model correspond to one of the first. ``verification`` compares the outputs.
    """

    structure: dict[str, list[dict[str, Any]]]
    paired: int
    values: int
    verification: Verification

    @property
    def equal(self) -> bool:
        """Whether inputs, outputs and their numbers are equal; the structure may differ."""
        return self.verification.equal

    def to_dict(self) -> dict[str, Any]:
        """The comparison as data for JSON."""
        report = {"structure": self.structure, "paired": self.paired, "values": self.values}
        return {**report, **self.verification.to_dict()}

    def summary(self) -> str:
        """The differences of structure and of every output, as text."""
        lines = []
        for kind, rows in self.structure.items():
            lines.append(f"{kind.replace('_', ' ')}: {plural(len(rows), 'difference')}")
            lines += [f"  {row['name']}: {row['first']}, {row['second']}" for row in rows]
        lines.append(f"{self.paired:,} of {plural(self.values, 'computed value')} paired")
        return "\n".join([*lines, f"numbers: {self.verification.summary()}"])

    def plot(self, axes: Any = None) -> Any:
        """Plot the largest absolute difference of each output by backend as bars; returns the axes of matplotlib."""
        axes = plot_axes(axes)
        outputs = self.verification.outputs
        names = list(dict.fromkeys(output.name for output in outputs))
        backends = list(dict.fromkeys(output.backend for output in outputs))
        for place, backend in enumerate(backends):
            of = {output.name: output.difference.absolute for output in outputs if output.backend == backend}
            at = [k + (place - (len(backends) - 1) / 2) * 0.8 / len(backends) for k in range(len(names))]
            axes.bar(at, [of.get(name, 0.0) for name in names], 0.8 / len(backends), label=backend)
        if any(output.difference.absolute > 0 for output in outputs):
            axes.set_yscale("log")
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("output")
        axes.set_ylabel("largest absolute difference")
        axes.set_title(self.verification.verdict)
        if backends:
            axes.legend(title="backend")
        return axes

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __str__(self) -> str:
        count = sum(map(len, self.structure.values()))
        structure = "equal" if not count else plural(count, "difference")
        return f"structure: {structure}; numbers: {self.verification}"

    def __repr__(self) -> str:
        return f"Comparison({self})"


def compare(
    first: Graph | str | os.PathLike[str],
    second: Graph | str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """Compare two models: their structure, their numbers, and the first node that diverges.

    ``mapping`` pairs names of inputs and outputs of ``first`` with those of ``second``. ``options`` are those of
    ``verify``, such as ``feeds`` and ``seed``. The graphs are not modified. Raises ``InvalidCall`` for an unknown name
    in ``mapping``, and the errors of ``verify``.
    """
    one = first if isinstance(first, Graph) else load(first)
    other = second.copy() if isinstance(second, Graph) else load(second)
    call_alike(one, other, mapping or {})
    return compared(one, other, verify(one, other, structure=False, **options))


def compared(one: Graph, other: Graph, verification: Verification) -> Comparison:
    """The comparison of two graphs, given that of their outputs."""
    paired = len(corresponding(one, other))
    return Comparison(structural_differences(one, other), paired, computed(other), verification)


def computed(graph: Graph) -> int:
    """The number of values computed by nodes of the main graph."""
    return sum(value is not None for node in graph.nodes for value in node.outputs)


def call_alike(one: Graph, other: Graph, mapping: Mapping[str, str]) -> None:
    """Rename inputs and outputs of the second model to the names in the first."""
    from tenonnx_cli.parts import rename_all

    for graph, names in ((one, mapping.keys()), (other, mapping.values())):
        known = [value.name for value in (*graph.all_inputs, *graph.outputs)]
        strange = [name for name in names if name not in known]
        if strange:
            what = "--map names a value that is neither an input nor an output of the model"
            raise InvalidCall(what, given=", ".join(strange), available=", ".join(known))
    rename_all(other, {theirs: ours for ours, theirs in mapping.items()})


def structural_differences(one: Graph, other: Graph) -> dict[str, list[dict[str, Any]]]:
    """Structural differences by kind: inputs, outputs, opsets, op counts, variables, attributes and weights."""
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "inputs": (_types(one.inputs), _types(other.inputs)),
        "outputs": (_types(one.outputs), _types(other.outputs)),
        "opsets": (one.opsets, other.opsets),
        "nodes_by_op": (_ops(one), _ops(other)),
        "variables": (_types(one.variables), _types(other.variables)),
    }
    pairs, _ = paired_nodes(one, other)
    inside = {"attributes": attribute_differences(pairs), "weights": weight_differences(pairs)}
    return {
        kind: [
            {"name": name, "first": str(ours.get(name, "-")), "second": str(theirs.get(name, "-"))}
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        ]
        for kind, (ours, theirs) in kinds.items()
        if ours != theirs
    } | {kind: rows for kind, rows in inside.items() if rows}


def _types(values: Sequence[Any]) -> dict[str, Any]:
    return {value.name: value.type for value in values}


def _ops(graph: Graph) -> Counter[str]:
    return Counter(map(op_name, graph.walk()))
