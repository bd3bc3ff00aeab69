"""A model between the steps of a conversion."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from tenonnx.conversion.comparing import Comparison
from tenonnx.conversion.of_packages import Placed, has_more_ops, placed
from tenonnx.conversion.options import FUNCTIONS, ConvertConfig
from tenonnx.conversion.report import Report
from tenonnx.errors import InvalidCall
from tenonnx.graph.definitions import defined_by
from tenonnx.graph.graph import Graph
from tenonnx.transforms.report import Change
from tenonnx.transforms.target import Target

if TYPE_CHECKING:
    import onnx

    from tenonnx.checks.verification import Verification
    from tenonnx.formats.onnx.hooks import Hook
    from tenonnx.formats.onnx.tensors import Initializers

#: A path, or a binary stream.
Place = str | os.PathLike[str] | BinaryIO


#: A graph, and what became of its nodes since the step before.
Left = tuple[Graph, Iterable[Change]]

Step = Callable[[Graph, "Conversion"], Left]


class Conversion:
    """A model on its way: the graph so far, and what steps tell those behind them.

    ``source`` is what ``load`` takes, with ``examples`` and its options ``reading``, or a graph, which ``verifier`` may
    compare with what it is of. Without ``refuse`` it goes on behind what cannot be expressed in
    the target, to tell it all. It takes ``steps`` from ``first`` on.
    """

    graph: Graph
    #: The graph as it was read, that which the result is held to, and that which the tail of the table is given.
    read: Graph
    expected: Graph
    given: Graph
    target: Target
    model: onnx.ModelProto
    initializers: Initializers

    def __init__(
        self,
        source: Any,
        path: Place | None,
        options: ConvertConfig,
        steps: Mapping[str, Step],
        *,
        examples: Sequence[Any] = (),
        reading: Mapping[str, Any] | None = None,
        verifier: Callable[..., Verification] | None = None,
        name: str = "the original",
        refuse: bool = True,
        first: str = "read",
    ) -> None:
        if path is not None and not isinstance(path, str | os.PathLike) and not hasattr(path, "write"):
            raise InvalidCall("a model must be written to a path or a binary stream", given=type(path).__name__)
        _check(options)
        self.source, self.path, self.options = source, path, options
        self.examples, self.reading, self.verifier = examples, reading or {}, verifier
        self.name, self.refuse = name, refuse
        self.hooks: Sequence[Hook] = ()
        if options.post_export_hooks:
            from tenonnx.formats.onnx.hooks import hooks_of

            self.hooks = hooks_of(options.post_export_hooks)
        if isinstance(source, Graph):
            self.graph = self.read = self.expected = self.given = source
        self.changes: list[Change] = []
        self.changed_by: list[str] = []
        self.packages: Mapping[str, str] = {}
        self.left_out: dict[str, int] = {}
        self.comparison: Comparison | None = None
        #: What steps of packages tell: findings for the report, the differences that they allow, and what makes of the
        #: file to be a graph that takes and gives what the original does.
        self.findings: dict[str, Any] = {}
        self.absolute: float | None = None
        self.relative: float | None = None
        self.as_before: Callable[[Graph, Graph], Graph] | None = None
        names = list(steps)
        self._steps, self._waiting = steps, names[names.index(first) :]
        self._placed: Sequence[Placed] | None = None

    @property
    def is_refused(self) -> bool:
        """Whether a node cannot be expressed in the target."""
        return any(change.action == "refused" for change in self.changes)

    @property
    def input_shapes(self) -> Mapping[str, Sequence[int | str | None]]:
        """The dims that inputs have, where these are made up."""
        return {**self.options.fix_shapes, **self.options.input_shapes}

    def run(self, until: str = "") -> Conversion:
        """Take the steps that are left, each followed by those of packages, to that before ``until``."""
        while self._waiting and self._waiting[0] != until:
            step = self._waiting.pop(0)
            graph = getattr(self, "graph", self.source)
            with defined_by(graph.registry if isinstance(graph, Graph) else None):
                self._take(self._steps[step], graph)
                for each in self._of_packages(step):
                    before = self.graph
                    self._take(each.step, before)
                    if each.marks.changes is not None:
                        self.expected = self.graph
                        self.changed_by.append(each.name)
            if step == "dims":
                self.given = self.graph
        return self

    def _take(self, step: Step, graph: Any) -> None:
        self.graph, changes = step(graph, self)
        self.changes = [*self.changes, *changes]

    def _of_packages(self, step: str) -> list[Placed]:
        """The transforms of packages that are asked for, and come behind a step."""
        if self._placed is None:
            if self.options.fuse is None:
                more = has_more_ops(self.graph, self.options.opset_version, self.options.domains)
                self.options = replace(self.options, fuse=more or bool(self.options.fuse_also))
            self._placed = placed(self.options, self._steps)
        return [each for each in self._placed if each.marks.behind == step]

    @property
    def report(self) -> Report:
        """What was done."""
        found = self.comparison
        report = Report(dict(self.graph.opsets), self.model.ir_version, self.changes, self.left_out)
        report.findings = self.findings
        if found is not None:
            report.verification, report.from_source, report.notes = found.found, found.from_source, found.notes
            report.compared_with = found.compared_with
        return report


def _check(options: ConvertConfig) -> None:
    if options.functions not in FUNCTIONS:
        raise InvalidCall(
            "functions must be keep, inline or vendor",
            given=options.functions,
            available=", ".join(FUNCTIONS),
        )
    if not isinstance(options.external_data_threshold, int | None):
        given = repr(options.external_data_threshold)[:80]
        raise InvalidCall("external_data_threshold must be a number of bytes, or None", given=given)
    wanted = options.verify
    number = isinstance(wanted, bool | float | int) and 0 <= wanted < math.inf
    if wanted is not None and not callable(wanted) and not number:
        raise InvalidCall(
            "verify must be True, an absolute difference that is allowed, or a function of the graph that was written",
            given=repr(wanted)[:80],
        )
