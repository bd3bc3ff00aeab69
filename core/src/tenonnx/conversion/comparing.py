"""The file to be against the model as it was read, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tenonnx.checks.generate import InputShapes
from tenonnx.checks.verification import Verification
from tenonnx.checks.verify import verify
from tenonnx.conversion.options import ConvertConfig
from tenonnx.errors import InvalidCall, InvalidFeed, TenonnxError, UnsupportedOp
from tenonnx.graph.graph import Graph


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What the file to be is compared with, and what was found.

    ``expected`` is what it is to compute: the graph that the last of those transforms left which were meant to change
    what the graph that was ``read`` computes, whose names are ``changed_by``. ``as_before`` makes of the file to be a
    graph that takes and gives what that did, where this was to change. ``verifier`` compares a graph with the source
    itself. ``absolute`` and ``relative`` are the differences that are allowed in place of the table's.
    """

    source: str
    read: Graph
    expected: Graph
    changed_by: list[str]
    as_before: Callable[[Graph, Graph], Graph] | None
    verifier: Callable[..., Verification] | None
    options: ConvertConfig
    input_shapes: InputShapes
    absolute: float | None
    relative: float | None
    found: Verification | None = None
    from_source: Verification | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def compared_with(self) -> str:
        """What the file was held to, in words."""
        changed = " and ".join(f"--{name}" for name in self.changed_by)
        return f"{self.source} as {changed} left it" if changed else self.source

    def __call__(self, written: Graph) -> None:
        """Raise ``VerificationFailed`` where numbers differ; where a graph cannot run, that too if ``required``."""
        compared = written if self.as_before is None else self.as_before(written, self.expected)
        try:
            found = None if self.changed_by else self._with_the_source(compared)
            found = found or self._verified(self.expected, compared, structure=compared is written)
        except (UnsupportedOp, InvalidFeed) as error:
            if self.options.verify is not None or self.options.feeds is not None:
                raise
            self.notes.append(f"not verified: {error}")
            return
        self.found = found
        found.raise_if_failed()
        self.notes += [f"note: {note}" for note in found.notes]
        if self.changed_by:
            self._look_at_the_source(compared)
        if old_sizes := self._old_sizes():
            self._run_at_other_sizes(written, old_sizes)

    def _verified(self, original: Graph, compared: Graph, *, structure: bool) -> Verification:
        return verify(
            original, compared, feeds=self.options.feeds, input_shapes=self.input_shapes, seed=self.options.seed,
            absolute=self.absolute, relative=self.relative, structure=structure, exact=self.options.exact,
        )  # fmt: skip

    def _with_the_source(self, written: Graph) -> Verification | None:
        """The comparison with what the model was read from, where that can be run on inputs of its own."""
        asked = self.options
        if self.verifier is None or asked.feeds is not None or self.input_shapes or asked.free_dims or asked.exact:
            return None
        return self.verifier(written, atol=self.absolute, rtol=self.relative)

    def _look_at_the_source(self, written: Graph) -> None:
        """How far numbers are from the model as it was read, which a transform was meant to change."""
        try:
            self.from_source = self._verified(self.read, written, structure=False)
        except TenonnxError as error:
            self.notes.append(f"note: not compared with {self.source} as it was read: {error}")

    def _old_sizes(self) -> dict[str, int]:
        """The sizes that freed dims had, of inputs that must be fed: a default has the sizes that it has."""
        return {
            symbol: size
            for value in self.expected.inputs
            for axis, symbol in self.options.free_dims.get(value.name, {}).items()
            if isinstance(size := value.shape[axis], int)
        }

    def _run_at_other_sizes(self, written: Graph, old_sizes: Mapping[str, int]) -> None:
        """Run a graph with freed dims where these have other sizes. Raises ``InvalidCall`` naming what cannot."""
        shapes = {name: dims for name, dims in self.input_shapes.items() if name not in self.options.free_dims}
        try:
            verify(written, input_shapes=shapes, seed=self.options.seed, unlike=old_sizes).raise_if_failed()
        except UnsupportedOp as error:
            self.notes.append(f"not run at other sizes: {error}")
        except InvalidFeed as error:
            raise InvalidCall(
                "dims can be made dynamic only where the model runs at other sizes",
                given=error.given,
                do="leave the number",
            ) from error
