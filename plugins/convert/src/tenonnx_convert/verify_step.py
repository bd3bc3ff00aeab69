"""Comparison of the converted model with its source before writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tenonnx.errors import InvalidFeed, LimitExceeded, OutOfTime, TenonnxError, UnsupportedOp, VerificationFailed
from tenonnx.graph.graph import Graph
from tenonnx_convert.options import BATCH, ConvertConfig
from tenonnx_convert.output_formats import WrittenFile
from tenonnx_convert.verifying.compare_outputs import Limit
from tenonnx_convert.verifying.free_dims import compare_samples, feeds_at_other_sizes
from tenonnx_convert.verifying.generate import ADVICE, InputShapes
from tenonnx_convert.verifying.verification import Verification
from tenonnx_convert.verifying.verify import verify


def compared_with(source: str, changed_by: Sequence[str]) -> str:
    """Name of the model to compare with."""
    changed = " and ".join(f"--{name}" for name in changed_by)
    return f"{source} as {changed} left it" if changed else source


@dataclass(slots=True, kw_only=True)
class SourceComparison:
    """Comparison of the converted graph with its source, and its findings.

    ``expected`` is the reference: the output of the last transform that changes numbers on purpose, or
    ``source_graph``; ``changed_by`` names these transforms. ``as_before`` restores the original interface if that
    was changed. ``verifier`` compares a graph with the source itself. ``atol`` and ``rtol`` override the table of
    tolerances. ``file`` is the file in a format other than ONNX.
    """

    source: str
    source_graph: Graph
    expected: Graph
    changed_by: list[str]
    as_before: Callable[[Graph, Graph], Graph] | None
    verifier: Callable[..., Verification] | None
    options: ConvertConfig
    input_shapes: InputShapes
    atol: Limit
    rtol: Limit
    verification: Verification | None = None
    from_source: Verification | None = None
    notes: list[str] = field(default_factory=list)
    file: WrittenFile | None = None

    @property
    def compared_with(self) -> str:
        """Name of the reference of this comparison."""
        return compared_with(self.source, self.changed_by)

    def __call__(self, written: Graph) -> None:
        """Raise ``VerificationFailed`` if outputs differ and, with --verify, if none could be compared."""
        compared = written if self.as_before is None else self.as_before(written, self.expected)
        try:
            found = None if self.changed_by else self._compare_with_source(compared)
            if found is not None and self.file is not None:
                found.raise_if_failed()
                found = None  # the graph was compared with its source; the file is compared with the graph below
            found = found or self._verified(self.expected, compared, structure=compared is written)
        except (UnsupportedOp, InvalidFeed) as error:
            if self.options.feeds is not None:
                raise
            if self.options.verify is not None:
                raise VerificationFailed("nothing could be compared", given=str(error), do=ADVICE) from error
            self.notes.append(f"not verified: {error}")
            return
        except LimitExceeded as error:
            if not isinstance(error, OutOfTime):
                error.do += "; or write the file without a comparison (verify=False, --no-verify)"
            raise
        self.verification = found
        found.raise_if_failed()
        if self.options.verify is not None and not found.outputs:
            reasons = "\n".join(f"{name}: {why}" for name, why in found.unverified.items())
            raise VerificationFailed("nothing could be compared", given=reasons, do=ADVICE)
        self.notes += [f"note: {note}" for note in found.notes]
        if self.changed_by:
            self._measure_from_source(compared)
        if old_sizes := self._old_sizes():
            self._run_at_other_sizes(written, old_sizes)

    def _verified(self, original: Graph, compared: Graph, *, structure: bool) -> Verification:
        return verify(
            original,
            compared,
            feeds=self.options.feeds,
            input_shapes=self.input_shapes,
            seed=self.options.seed,
            atol=self.atol,
            rtol=self.rtol,
            structure=structure and self.file is None,
            exact=self.options.exact,
            file=self.file,
        )

    def _compare_with_source(self, written: Graph) -> Verification | None:
        """The comparison with the original source, if that can run with its own inputs."""
        options = self.options
        if (
            self.verifier is None
            or options.feeds is not None
            or self.input_shapes
            or options.free_dims
            or options.exact
        ):
            return None
        if isinstance(self.atol, Mapping) or isinstance(self.rtol, Mapping):
            return None
        return self.verifier(written, atol=self.atol, rtol=self.rtol)

    def _measure_from_source(self, written: Graph) -> None:
        """Measure the differences from the original model that transforms make on purpose."""
        try:
            self.from_source = self._verified(self.source_graph, written, structure=False)
        except TenonnxError as error:
            self.notes.append(f"note: not compared with {self.source} as it was read: {error}")

    def _old_sizes(self) -> dict[str, int]:
        """The original sizes of freed dims in required inputs; defaults have fixed sizes."""
        return {
            symbol: size
            for value in self.expected.inputs
            for axis, symbol in self.options.free_dims.get(value.name, {}).items()
            if isinstance(size := value.shape[axis], int)
        }

    def _run_at_other_sizes(self, written: Graph, old_sizes: Mapping[str, int]) -> None:
        """Run a graph with freed dims at other sizes. Raises ``InvalidCall`` naming the dims that fail."""
        shapes = {name: dims for name, dims in self.input_shapes.items() if name not in self.options.free_dims}
        try:
            for symbol, feeds in feeds_at_other_sizes(written, old_sizes, self.options.seed, shapes).items():
                verify(written, feeds=feeds).raise_if_failed()
                if symbol == BATCH and self.options.dynamic_batch is not None:
                    compare_samples(self.expected, written, feeds, symbol, old_sizes[symbol])
        except UnsupportedOp as error:
            self.notes.append(f"not run at other sizes: {error}")
