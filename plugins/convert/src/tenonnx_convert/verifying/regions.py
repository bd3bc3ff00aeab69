"""Coverage of branches and loop bodies ("regions") of a graph by runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tenonnx.errors import TenonnxError, UnsupportedOp
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph, Node, Value
from tenonnx.graph.types import TensorType
from tenonnx.op.graph_inference import infer
from tenonnx.op.op import primitive
from tenonnx.transforms.decompose import inline_functions
from tenonnx.transforms.rewrite import copy_graph
from tenonnx_convert.verifying.value_map import corresponding
from tenonnx_run.compiling import compile_graph

#: Path of a region: the position of each node on the way and the attribute.
Path = tuple[tuple[int, str], ...]

#: Number of leading inputs that determine how often regions are entered; for other ops all inputs do.
_DECIDING = {"If": 1, "Loop": 2}

#: Trip count that is reported as "several".
SEVERAL = 3

_DOMAIN = "tenonnx.verifying"


class NodeRegion(NamedTuple):
    """A subgraph of ``node`` in its ``attribute``."""

    path: Path
    node: Node
    attribute: str
    graph: Graph

    @property
    def title(self) -> str:
        return f"{self.attribute} of {self.node.title}"

    @property
    def is_branch(self) -> bool:
        """Whether the region has only captures as inputs, so that it runs at most once."""
        return not self.graph.all_inputs

    @property
    def deciding(self) -> Sequence[Value]:
        """The inputs that determine how often the region is entered."""
        return [value for value in self.node.inputs[: _DECIDING.get(self.node.op_type)] if value is not None]

    @property
    def is_decided(self) -> bool:
        """Whether constants determine how often the region is entered."""
        return all(value.data is not None for value in self.deciding)


def regions_of(graph: Graph, path: Path = ()) -> Iterator[NodeRegion]:
    """All regions, outer ones first."""
    for place, node in enumerate(graph.nodes):
        for attribute, subgraph in node.attributes.items():
            if isinstance(subgraph, Graph):
                here = (*path, (place, attribute))
                yield NodeRegion(here, node, attribute, subgraph)
                yield from regions_of(subgraph, here)


def paired_regions(graph: Graph, other: Graph) -> dict[Path, NodeRegion]:
    """The regions of ``other`` by the path of the corresponding region of ``graph``."""
    if graph is other:
        return {region.path: region for region in regions_of(graph)}
    return dict(_paired(graph, other, (), ()))


def _paired(graph: Graph, other: Graph, path: Path, other_path: Path) -> Iterator[tuple[Path, NodeRegion]]:
    same = corresponding(graph, other)
    producers = {v.name: (k, node) for k, node in enumerate(graph.nodes) for v in node.outputs if v is not None}
    for place, node in enumerate(other.nodes):
        if not node.subgraphs:
            continue
        names = [same.get(value.name, "") for value in node.outputs if value is not None]
        ours, twin = next((producers[name] for name in names if name in producers), (0, None))
        if twin is None or (twin.domain, twin.op_type) != (node.domain, node.op_type):
            continue
        for attribute, subgraph in node.attributes.items():
            mine = twin.attributes.get(attribute)
            if isinstance(subgraph, Graph) and isinstance(mine, Graph):
                here, there = (*path, (ours, attribute)), (*other_path, (place, attribute))
                yield here, NodeRegion(there, node, attribute, subgraph)
                yield from _paired(mine, subgraph, here, there)


def inputs_that_decide(graph: Graph, region: NodeRegion) -> set[Value]:
    """The graph inputs on which entering a region depends."""
    above: dict[Value, Sequence[Value]] = {}
    for each in graph.nested():
        for node in each.nodes:
            above.update({value: node.uses for value in node.outputs if value is not None})
            for subgraph in node.subgraphs:
                above.update({inner: [outer] for inner, outer in zip(subgraph.captures, node.captures, strict=True)})
                above.update(dict.fromkeys(subgraph.all_inputs, node.uses))
    reached = dict.fromkeys(region.deciding)
    waiting = list(reached)
    while waiting:
        further = [value for value in above.get(waiting.pop(), ()) if value not in reached]
        reached.update(dict.fromkeys(further))
        waiting += further
    return reached.keys() & set(graph.inputs)


# ----- observation ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Entries:
    """Trip counts of each region, one per execution of its node, and captured contents of the first execution."""

    trips: dict[Path, set[int]] = field(default_factory=dict)
    captured: dict[Path, Sequence[Any]] = field(default_factory=dict)

    def add(self, other: Entries, under: Path = ()) -> None:
        """Merge the entries of another run, of the whole graph or of the region at ``under``."""
        for path, counts in other.trips.items():
            self.trips.setdefault((*under, *path), set()).update(counts)
        for path, contents in other.captured.items():
            self.captured.setdefault((*under, *path), contents)


class _Recorder:
    """Receives events of probes; ``paths`` maps their numbers to paths."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.paths, self.recorded = places, Entries()
        self._open: dict[Path, int] = {}

    def node_runs(self, place: int, captured: Sequence[Any]) -> None:
        path = self.paths[place]
        self._close(path)
        self._open[path] = 0
        self.recorded.captured.setdefault(path, captured)  # the backend does not reuse referenced buffers

    def region_runs(self, place: int) -> None:
        path = self.paths[place]
        self._open[path] = self._open.get(path, 0) + 1

    def _close(self, path: Path) -> None:
        if path in self._open:
            self.recorded.trips.setdefault(path, set()).add(self._open.pop(path))

    def entries(self) -> Entries:
        for path in list(self._open):
            self._close(path)
        return self.recorded


_recorder: ContextVar[_Recorder | None] = ContextVar("tenonnx_entered_regions", default=None)


@primitive("NodeRuns", domain=_DOMAIN, since=1, pure=False, type=lambda value, *captured, place: value.type)
def node_runs(value, *captured, place: int):  # type: ignore[no-untyped-def]
    """Identity that reports to the recorder that the node of the region at ``place`` runs."""


@node_runs.numpy
def node_runs_numpy(value: Any, *captured: Any, place: int) -> Any:
    if (recorder := _recorder.get()) is not None:
        recorder.node_runs(place, captured)
    return value


@primitive("RegionRuns", domain=_DOMAIN, since=1, pure=False, type=lambda value, *, place: value.type)
def region_runs(value, *, place: int):  # type: ignore[no-untyped-def]
    """Identity that reports to the recorder that the region at ``place`` runs."""


@region_runs.numpy
def region_runs_numpy(value: Any, *, place: int) -> Any:
    if (recorder := _recorder.get()) is not None:
        recorder.region_runs(place)
    return value


class Observer:
    """A graph with probes on numpy, which records the regions that a run enters."""

    def __init__(self, graph: Graph) -> None:
        self._paths: list[Path] = []
        copy = copy_graph(graph)
        for each in copy.nested():
            each.opsets = {**each.opsets, _DOMAIN: 1}
        self._add_probes(copy, ())
        copy.forget_names()
        self._program = compile_graph(copy, "numpy")

    def __call__(self, feeds: Mapping[str, Any]) -> Entries:
        recorder = _Recorder(self._paths)
        token = _recorder.set(recorder)
        try:
            self._program(feeds)
        finally:
            _recorder.reset(token)
        return recorder.entries()

    def _add_probes(self, graph: Graph, path: Path) -> None:
        nodes, graph.nodes = graph.nodes, []
        for place, node in enumerate(nodes):
            for attribute, subgraph in node.attributes.items():
                if isinstance(subgraph, Graph):
                    self._probe(graph, node, subgraph, (*path, (place, attribute)))
            graph.append(node)

    def _probe(self, graph: Graph, node: Node, subgraph: Graph, path: Path) -> None:
        place = len(self._paths)
        self._paths.append(path)
        first = next((k for k, value in enumerate(node.inputs) if value is not None), None)
        if first is None or not subgraph.outputs:
            return
        inputs = list(node.inputs)
        inputs[first] = self._probed(graph, node_runs, place, inputs[first], node.captures)
        node._replace_fields(inputs=inputs)
        self._add_probes(subgraph, path)
        subgraph.outputs[-1] = self._probed(subgraph, region_runs, place, subgraph.outputs[-1], ())

    def _probed(self, graph: Graph, op: Any, place: int, value: Value | None, captured: Sequence[Value]) -> Value:
        assert value is not None
        probed = Value(f"{op.name} {place}", value.type, graph=graph)
        graph.append(Node(op, 1, [value, *captured], {"place": place}, [probed]))
        return probed


class RegionCoverage:
    """The regions of a graph and the ones entered so far. ``problem`` is the reason why entries cannot be observed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = inline_functions(graph) if graph.functions else copy_graph(graph)
        infer(self.graph, strict=False)
        self.regions = list(regions_of(self.graph))
        self.entries, self.problem = Entries(), ""
        self._observer: Observer | None = None
        if any(not region.is_decided for region in self.regions):
            try:
                self._observer = Observer(self.graph)
            except TenonnxError as error:
                self.problem = error.what
        if self._observer is None:
            self.regions = []
        self._decided = [region for region in self.regions if region.is_decided]

    def observe(self, feeds: Mapping[str, Any]) -> tuple[Entries, list[str]]:
        """Run the graph; returns the entries, and the regions that no earlier run entered, as text."""
        if self._observer is None:
            return Entries(), []
        entries = self._observer(feeds)
        return entries, self.enter(entries)

    def enter(self, entries: Entries, under: Path = ()) -> list[str]:
        """Merge the entries of a run, of the whole graph or of the region at ``under``; returns new regions as text."""
        before = {path: set(counts) for path, counts in self.entries.trips.items()}
        self.entries.add(entries, under)
        result = []
        for region in self.regions:
            known = before.get(region.path, set())
            new = self.entries.trips.get(region.path, set()) - known
            if not region.is_branch:
                result += [f"{region.title} with {n} {'trip' if n == 1 else 'trips'}" for n in sorted(new)]
            elif new - {0} and not known - {0}:
                result.append(region.title)
        return result

    def missing(self, region: NodeRegion) -> set[int]:
        """The trip counts among 0, 1 and several (1 for a branch) that never occurred; empty if constants decide."""
        counts = self.entries.trips.get(region.path, set())
        if region.is_decided or any(region.path[: len(path)] == path for path in self._dead):
            return set()
        if region.is_branch:
            return set() if counts - {0} else {1}
        return {0, 1, SEVERAL} - {n if n < 2 else SEVERAL for n in counts}

    @property
    def _dead(self) -> list[Path]:
        """Regions that never run, since a constant decides so."""
        trips, ran = self.entries.trips, self.entries.captured.keys()
        return [each.path for each in self._decided if each.path in ran and not trips.get(each.path, set()) - {0}]

    def never_entered(self) -> list[NodeRegion]:
        """The regions that no run entered, although they depend on inputs."""
        entered = {path for path, counts in self.entries.trips.items() if counts - {0}}
        return [each for each in self.regions if each.path not in entered and self.missing(each)]


# ----- separate runs of regions ---------------------------------------------------------------------------------------


def by_itself(
    region: NodeRegion, root: Graph, captured: Sequence[Any], like: NodeRegion | None = None
) -> tuple[Graph, dict[str, Any]]:
    """A region as a separate graph whose inputs are its captures, with their contents.

    Outputs get the names of the corresponding region ``like``. Raises ``UnsupportedOp`` if the type of contents is
    unknown.
    """
    names = [value.name for value in (like or region).graph.outputs]
    graph = copy_graph(region.graph)
    graph.origin = None
    if len(set(graph.outputs)) != len(graph.outputs):
        raise UnsupportedOp("cannot compare a region that returns one value twice")
    _name_outputs(graph, names)
    graph.opsets, graph.functions = dict(root.opsets), dict(root.functions)
    graph.registry, graph.ir_version = root.registry, root.ir_version
    feeds: dict[str, Any] = {}
    for value, outer, contents in zip(graph.captures, region.node.captures, captured, strict=True):
        constant = value.data if value.data is not None else outer.data
        if constant is not None:
            value._replace_fields(data=constant, type=constant.type)
            graph.variables.append(value)
            continue
        value._replace_fields(type=_type_of(value, contents))
        graph.all_inputs.append(value)
        feeds[value.name] = contents
    graph.captures = []
    return graph, feeds


def _name_outputs(graph: Graph, names: Sequence[str]) -> None:
    """Rename the outputs of a copied graph; inner values with these names are renamed."""
    taken = {value.name: value for each in graph.nested() for value in each.values()}
    for value, name in zip(graph.outputs, names, strict=True):
        if value.name != name:
            if name in taken:
                graph.rename(taken[name], graph.unique_name(name))
            graph.rename(value, name)


def _type_of(value: Value, contents: Any) -> Any:
    if isinstance(contents, np.ndarray):
        return TensorType(DType.of(contents.dtype), contents.shape)
    if value.type is None or contents is None:
        raise UnsupportedOp(f'the type of "{value.name}", which a region captures, is unknown')
    return value.type
