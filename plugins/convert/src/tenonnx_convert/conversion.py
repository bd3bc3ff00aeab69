"""Running the steps of a conversion, and the state between them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from tenonnx.errors import InvalidCall
from tenonnx.graph.definitions import defined_by
from tenonnx.graph.graph import Graph
from tenonnx.transforms.report import Change
from tenonnx.transforms.target import Target
from tenonnx_convert.options import FUNCTIONS, ConvertConfig
from tenonnx_convert.output_formats import FormatWriter, InstalledFormat, output_format
from tenonnx_convert.plugin_steps import Placed, placed
from tenonnx_convert.report import Report
from tenonnx_convert.verify_step import SourceComparison, compared_with
from tenonnx_convert.verifying.default_session import start_default_sessions
from tenonnx_convert.verifying.verify import default_backends

if TYPE_CHECKING:
    import onnx

    from tenonnx.formats.files import AtomicWriter
    from tenonnx.formats.onnx.tensors import Initializers
    from tenonnx_convert.verifying.verification import Verification

#: A path, or a binary stream.
Place = str | os.PathLike[str] | BinaryIO

#: Placeholder for a field of the state that a later step sets.
_LATER: Any = None


class StepResult(NamedTuple):
    """Result of a package's step: a graph, the outcomes of its nodes, and findings.

    ``findings`` are added to the report by name; each has ``to_dict`` and, for the command line, ``__str__``.
    ``absolute`` and ``relative`` are additional tolerances of verification. ``as_before(written, expected)`` converts
    the written graph to the original interface for comparison. ``path`` redirects the output file.
    """

    graph: Graph
    changes: Sequence[Change] = ()
    findings: Mapping[str, Any] = {}
    absolute: float | None = None
    relative: float | None = None
    as_before: Callable[[Graph, Graph], Graph] | None = None
    path: Place | None = None


@dataclass(frozen=True)
class ConversionRequest:
    """Arguments of a conversion.

    ``source`` is a graph, or an argument of ``load``, with ``examples`` and its options ``reading``. Without ``refuse``
    the conversion continues past unsupported nodes, to list all of them. With ``automatic``, transforms decide whether
    they are useful; without it, only requested ones run.
    """

    source: Any
    options: ConvertConfig
    examples: Sequence[Any] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    name: str = "the original"
    refuse: bool = True
    automatic: bool = True


@dataclass(frozen=True)
class ConversionState:
    """State of a running conversion; each step returns the next state.

    ``source_graph`` is the original graph, ``expected`` the graph whose outputs the result must reproduce,
    ``start_graph`` the graph after the step ``dims``. ``verifier`` compares a graph with its source. ``format`` is
    None for ONNX and native files. ``path_is_final`` is False if a step after verification chooses another path;
    otherwise ``writer`` holds the file under a temporary name from verification on.
    """

    request: ConversionRequest
    path: Place | None
    verifier: Callable[..., Verification] | None = None
    graph: Graph = _LATER
    source_graph: Graph = _LATER
    expected: Graph = _LATER
    start_graph: Graph = _LATER
    changes: Sequence[Change] = ()
    changed_by: Sequence[str] = ()
    target: Target = _LATER
    packages: Mapping[str, str] = field(default_factory=dict)
    model: onnx.ModelProto = _LATER
    initializers: Initializers = _LATER
    left_out: Mapping[str, int] = field(default_factory=dict)
    comparison: SourceComparison | None = None
    findings: Mapping[str, Any] = field(default_factory=dict)
    absolute: float | None = None
    relative: float | None = None
    as_before: Callable[[Graph, Graph], Graph] | None = None
    notes: Sequence[str] = ()
    path_is_final: bool = False
    format: InstalledFormat | None = None
    writer: AtomicWriter | FormatWriter | None = None

    @property
    def options(self) -> ConvertConfig:
        return self.request.options

    @property
    def is_refused(self) -> bool:
        """Whether a node cannot be expressed in the target."""
        return any(change.action == "refused" for change in self.changes)

    @property
    def input_shapes(self) -> Mapping[str, Sequence[int | str | None]]:
        """The dims of inputs for random feeds."""
        return {**self.options.fix_shapes, **self.options.input_shapes}

    def format_writer(self) -> FormatWriter:
        """Writer for a format other than ONNX."""
        assert self.format is not None
        assert isinstance(self.path, str | os.PathLike)
        return FormatWriter(self.format, self.path, overwrite=self.options.overwrite)

    @property
    def compared_with(self) -> str:
        """Name of the model to compare with."""
        return compared_with(self.request.name, self.changed_by)

    def after(self, each: Placed) -> ConversionState:
        """The state after a package's step."""
        found = StepResult(*each.step(self.graph, self))
        known = {name: value for name, value in found._asdict().items() if value is not None}
        known |= {"changes": [*self.changes, *found.changes], "findings": {**self.findings, **found.findings}}
        if each.marks.changes is not None:
            known |= {"expected": found.graph, "changed_by": [*self.changed_by, each.name]}
        return replace(self, **known)

    @property
    def report(self) -> Report:
        """Report of the conversion."""
        found = self.comparison
        report = Report(dict(self.graph.opsets), self.model.ir_version, list(self.changes), dict(self.left_out))
        report.findings, report.notes = dict(self.findings), list(self.notes)
        if found is not None:
            report.verification, report.from_source = found.verification, found.from_source
            report.notes += found.notes
            report.compared_with = found.compared_with
        return report


#: Function from one state to the next.
Step = Callable[[ConversionState], ConversionState]


class Conversion:
    """A run of ``steps`` from ``first`` on, with those of packages. Keywords are fields of ``ConversionRequest``."""

    def __init__(
        self,
        source: Any,
        path: Place | None,
        options: ConvertConfig,
        steps: Mapping[str, Step],
        *,
        verifier: Callable[..., Verification] | None = None,
        first: str = "read",
        **request: Any,
    ) -> None:
        if path is not None and not isinstance(path, str | os.PathLike) and not hasattr(path, "write"):
            raise InvalidCall("the output is neither a path nor a binary stream", given=type(path).__name__)
        _check(options)
        if options.post_export_hooks:
            from tenonnx_convert.hooks import hooks_of

            options = replace(options, post_export_hooks=hooks_of(options.post_export_hooks))
        form = output_format(path) if isinstance(path, str | os.PathLike) else None
        if form is not None and options.post_export_hooks:
            raise InvalidCall("hooks were given for an output file that is not ONNX", given=str(path))
        self.state = ConversionState(ConversionRequest(source, options, **request), path, verifier, format=form)
        if isinstance(source, Graph):
            self.state = replace(self.state, graph=source, source_graph=source, expected=source, start_graph=source)
        names = list(steps)
        self._steps, self._waiting = steps, names[names.index(first) :]
        self._placed: Sequence[Placed] | None = None

    def run(self, until: str = "") -> Conversion:
        """Run the remaining steps, up to but excluding ``until``."""
        if self.state.options.verify is not False and self._waiting != ["write"]:
            start_default_sessions(default_backends())
        while self._waiting and self._waiting[0] != until:
            step = self._waiting.pop(0)
            if step == "verify":
                chosen = any(each.marks.after == step for each in self._placed or ())
                self.state = replace(self.state, path_is_final=not chosen)
            with defined_by(self.state.graph.registry if self.state.graph is not None else None):
                self.state = self._steps[step](self.state)
                if self._placed is None:
                    self._placed = placed(self.state.options, self._steps, self.state)
                for each in self._placed:
                    if each.marks.after == step:
                        self.state = self.state.after(each)
            if step == "dims":
                self.state = replace(self.state, start_graph=self.state.graph)
        return self

    def close(self) -> None:
        """Remove the temporary file of an unfinished conversion."""
        if self.state.writer is not None:
            abandon(self.state.writer, InvalidCall("the conversion was not finished"))

    @property
    def report(self) -> Report:
        return self.state.report


def abandon(writer: AtomicWriter | FormatWriter, error: BaseException) -> None:
    """Remove the temporary files of a model. Raises ``TenonnxError`` if the disk was full."""
    writer.__exit__(type(error), error, None)


def _check(options: ConvertConfig) -> None:
    if options.functions not in FUNCTIONS:
        raise InvalidCall(
            "functions is not one of keep, inline and vendor",
            given=options.functions,
            available=", ".join(FUNCTIONS),
        )
    if not isinstance(options.external_data_threshold, int | None):
        given = repr(options.external_data_threshold)[:80]
        raise InvalidCall("external_data_threshold is neither a number of bytes nor None", given=given)
    wanted = options.verify
    number = isinstance(wanted, bool | float | int) and 0 <= wanted < math.inf
    if wanted is not None and not callable(wanted) and not number:
        raise InvalidCall(
            "verify is neither True, an absolute tolerance nor a function of the graph that was written",
            given=repr(wanted)[:80],
        )
