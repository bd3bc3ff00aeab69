"""What ``convert`` does to a model beside its opset: dims of inputs, and half precision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import Command, InputShapes, parse_shapes

if TYPE_CHECKING:
    from tenonnx.checks.verify import Verification
    from tenonnx.graph.graph import Graph
    from tenonnx.transforms.precision import Lowered

FreeDims = dict[str, dict[int, str]]

#: The share of the largest number of an output by which half precision may change it.
BUDGET = 0.01

_AXIS = re.compile(r"\s*-?[0-9]{1,9}\s*")


def _free_dims(ctx: click.Context, option: click.Parameter, values: Sequence[str]) -> FreeDims:
    """``image:0=batch,2=height`` as symbols by input and axis."""
    found: FreeDims = {}
    for text in values:
        name, colon, dims = text.rpartition(":")
        for part in dims.split(","):
            axis, _, symbol = part.partition("=")
            if not name or not colon or not _AXIS.fullmatch(axis) or not symbol.strip():
                raise click.BadParameter(f"{text!r} is none such as image:0=batch", ctx, option)
            found.setdefault(name, {})[int(axis)] = symbol.strip()
    return found


@dataclass(frozen=True, slots=True)
class Shaping:
    """What was asked of the dims and the precision of a model."""

    fixed: InputShapes
    freed: FreeDims
    float16: bool
    bfloat16: bool
    half_interface: bool
    budget: float

    def __post_init__(self) -> None:
        from tenonnx.errors import InvalidCall

        if self.float16 and self.bfloat16:
            raise InvalidCall("a model is written in one half precision", given="--float16 --bfloat16")
        if self.half_interface and self.half is None:
            raise InvalidCall("--half-interface says what --float16 or --bfloat16 changes, too", do="add one of them")

    @property
    def half(self) -> str | None:
        return "float16" if self.float16 else "bfloat16" if self.bfloat16 else None

    @property
    def changes_interface(self) -> bool:
        return self.half is not None and self.half_interface

    def dims(self, graph: Graph) -> Graph:
        """The graph with its dims as asked."""
        from tenonnx.transforms.dims import fix_shapes, free_dims

        if self.fixed:
            graph = fix_shapes(graph, self.fixed)
        return free_dims(graph, self.freed) if self.freed else graph

    def old_sizes(self, graph: Graph) -> dict[str, int]:
        """The sizes that freed dims had, of inputs that must be fed: a default has the sizes that it has."""
        return {
            symbol: size
            for value in graph.inputs
            for axis, symbol in self.freed.get(value.name, {}).items()
            if isinstance(size := value.shape[axis], int)
        }

    def precision(
        self, graph: Graph, feeds: Mapping[str, Any] | None, input_shapes: InputShapes, seed: int
    ) -> Lowered | None:
        """The graph in half precision within the budget; None where that was not asked."""
        from tenonnx.checks.half import lower_within

        if self.half is None:
            return None
        return lower_within(
            graph, self.half, self.budget, feeds=feeds, input_shapes=input_shapes, seed=seed,
            convert_interface=self.half_interface,
        )  # fmt: skip


@dataclass(slots=True)
class Comparison:
    """Called with the graph as it will be read back: compares its numbers with those of the original."""

    original: Graph
    shaping: Shaping
    feeds: Mapping[str, Any] | None
    input_shapes: InputShapes
    seed: int
    absolute: float | None
    relative: float | None
    lowered: Lowered | None
    required: bool = field(kw_only=True)
    found: Verification | None = None
    notes: list[str] = field(default_factory=list)

    def __call__(self, written: Graph) -> None:
        """Raise ``VerificationFailed`` where numbers differ; where a graph cannot run, that too if ``required``."""
        from tenonnx.checks.half import with_float_interface
        from tenonnx.checks.verify import verify
        from tenonnx.errors import InvalidFeed, UnsupportedOp

        absolute, relative = self.absolute, self.relative
        if self.lowered is not None:
            budget = self.shaping.budget
            absolute = budget * max(1.0, self.lowered.largest) if absolute is None else absolute
            relative = budget if relative is None else relative
        compared = with_float_interface(written, self.original) if self.shaping.changes_interface else written
        try:
            found = verify(
                self.original, compared, feeds=self.feeds, input_shapes=self.input_shapes, seed=self.seed,
                absolute=absolute, relative=relative, structure=compared is written,
            )  # fmt: skip
        except (UnsupportedOp, InvalidFeed) as error:
            if self.required or self.feeds is not None:
                raise
            self.notes.append(f"not verified: {error}")
            return
        self.found = found.raise_if_failed()
        self.notes += [f"note: {note}" for note in found.notes]
        if old_sizes := self.shaping.old_sizes(self.original):
            self._run_at_other_sizes(written, old_sizes)

    def _run_at_other_sizes(self, written: Graph, old_sizes: Mapping[str, int]) -> None:
        """Run a graph with freed dims where these have other sizes. Raises ``InvalidCall`` naming what cannot."""
        from tenonnx.checks.verify import verify
        from tenonnx.errors import InvalidCall, InvalidFeed, UnsupportedOp

        shapes = {name: dims for name, dims in self.input_shapes.items() if name not in self.shaping.freed}
        try:
            verify(written, input_shapes=shapes, seed=self.seed, unlike=old_sizes).raise_if_failed()
        except UnsupportedOp as error:
            self.notes.append(f"not run at other sizes: {error}")
        except InvalidFeed as error:
            raise InvalidCall(
                "dims can be free where the model runs at other sizes", given=error.given, do="leave the number"
            ) from error


def shaping_options(command: Command) -> Command:
    """``--fix-shapes``, ``--free-dims``, ``--float16``, ``--bfloat16`` and what belongs to them, as ``shaping``."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--fix-shapes", "fixed", multiple=True, callback=parse_shapes, metavar="NAME:DIMS",
            help="Write an input with these dims, such as image:1,3,224,224. Repeatable.",
        ),
        click.option(
            "--free-dims", "freed", multiple=True, callback=_free_dims, metavar="NAME:AXIS=SYMBOL",
            help="Write dims of an input as symbols, such as image:0=batch,2=height. Repeatable.",
        ),
        click.option(
            "--float16", is_flag=True,
            help="Write float32 as float16. Inputs and outputs stay, and so does what needs float32.",
        ),
        click.option("--bfloat16", is_flag=True, help="Likewise as bfloat16."),
        click.option("--half-interface", is_flag=True, help="With --float16: inputs and outputs, too."),
        click.option(
            "--budget", type=click.FloatRange(min=0, min_open=True), default=BUDGET, show_default=True,
            help="With --float16: leave nodes in float32 while an output differs by more than this share of its "
            "largest number.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command
