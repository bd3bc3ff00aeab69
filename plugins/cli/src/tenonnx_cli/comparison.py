"""What ``verify`` and ``compare`` share: the options of a comparison, and how it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx_cli.deadline import timeout_option, within
from tenonnx_cli.options import (
    InputShapes,
    common_sizes,
    exact_option,
    gathered,
    in_order,
    input_options,
    seed_option,
    shapes_option,
    tolerance_options,
)
from tenonnx_cli.output import interruptible, working
from tenonnx_cli.verifications import said_of_inputs

if TYPE_CHECKING:
    from tenonnx import Graph, Verification


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of a comparison of two models, as the command line gives them."""

    inputs: Sequence[str]
    archive: str | None
    input_shapes: InputShapes
    seed: int
    absolute: float | None
    relative: float | None
    exact: bool
    timeout: float

    @property
    def given(self) -> str:
        """What the models are run on, in words."""
        return said_of_inputs(bool(self.inputs or self.archive), self.seed)

    def run(self, one: Graph, other: Graph, doing: str, **more: Any) -> Verification:
        """``verify`` of both; ``doing`` says on a terminal what takes so long, ``more`` are further arguments."""
        from tenonnx import verify
        from tenonnx_cli.arrays import read_feeds

        feeds = read_feeds(one, self.inputs, self.archive) or None
        shapes = {**common_sizes(one, other), **self.input_shapes}
        with working(doing), interruptible(), within(self.timeout):
            return verify(
                one, other, feeds=feeds, input_shapes=shapes, seed=self.seed, absolute=self.absolute,
                relative=self.relative, exact=self.exact, **more,
            )  # fmt: skip


#: The options of a command that compares two models, which gets them as ``comparison``.
comparison_options = in_order(
    input_options, shapes_option, seed_option, tolerance_options, exact_option, timeout_option,
    gathered("comparison", ComparisonOptions),
)  # fmt: skip
