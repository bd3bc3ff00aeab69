"""Options of a comparison, shared by ``verify`` and ``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx_cli.deadline import within
from tenonnx_cli.options import (
    InputShapes,
    common_sizes,
    exact_option,
    gathered,
    in_order,
    input_options,
    seed_option,
    shapes_option,
    timeout_option,
    tolerance_options,
)
from tenonnx_cli.output import interruptible, working
from tenonnx_cli.quantiles import quantiles
from tenonnx_cli.verifications import said_of_inputs

if TYPE_CHECKING:
    from tenonnx import Graph, Verification


@dataclass(frozen=True)
class ComparisonOptions:
    """The command-line options of a comparison of two models."""

    inputs: Sequence[str]
    archive: str | None
    input_shapes: InputShapes
    seed: int
    atol: float | Mapping[str, float] | None
    rtol: float | Mapping[str, float] | None
    exact: bool
    timeout: float

    @property
    def inputs_description(self) -> str:
        """Description of the inputs' source."""
        return said_of_inputs(bool(self.inputs or self.archive), self.seed)

    def run(self, one: Graph, other: Graph | None, doing: str, **more: Any) -> Verification:
        """Compare two models, or one model across backends.

        ``doing`` is shown on a terminal in the meantime; ``more`` are further arguments of ``verify``.
        """
        from tenonnx import verify
        from tenonnx_cli.arrays import read_feeds

        feeds = read_feeds(one, self.inputs, self.archive) or None
        shapes = {**common_sizes(one, one if other is None else other), **self.input_shapes}
        with working(doing), interruptible(), within(self.timeout):
            return verify(
                one,
                other,
                feeds=feeds,
                input_shapes=shapes,
                seed=self.seed,
                atol=self.atol,
                rtol=self.rtol,
                exact=self.exact,
                **more,
            )

    def quantiles(self, one: Graph, other: Graph) -> dict[str, dict[str, float]]:
        """Quantiles of the differences between two models on numpy."""
        from tenonnx.tools import compile_graph

        feeds, expected = self._complete(one, other)
        taken = {value.name: feeds[value.name] for value in other.inputs if value.name in feeds}
        return quantiles(compile_graph(other, "numpy")(taken), expected)

    def run_saved(
        self, graph: Graph, saved: Mapping[str, Any], source: str, doing: str
    ) -> tuple[Verification, dict[str, Any]]:
        """Compare a model with saved outputs; also returns its outputs on numpy."""
        from tenonnx.tools import verify_outputs

        with working(doing), interruptible(), within(self.timeout):
            feeds, actual = self._complete(graph, graph)
            result = verify_outputs(graph, feeds, saved, source, atol=self.atol, rtol=self.rtol, exact=self.exact)
        return result, actual

    def _complete(self, one: Graph, other: Graph) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs for both models, and outputs of the first on numpy."""
        from tenonnx.tools import compile_graph
        from tenonnx_cli.arrays import read_feeds
        from tenonnx_cli.random_inputs import complete

        given = read_feeds(one, self.inputs, self.archive)
        shapes = {**common_sizes(one, other), **self.input_shapes}
        return complete(one, compile_graph(one, "numpy"), given, self.seed, shapes)


#: Options of a command that compares two models, passed as ``comparison``.
comparison_options = in_order(
    input_options,
    shapes_option,
    seed_option,
    tolerance_options,
    exact_option,
    timeout_option,
    gathered("comparison", ComparisonOptions),
)
