"""What the floors above do with a graph, as its methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from tenonnx.graph.late_bindings import html_of, late
from tenonnx.graph.parts import Named

if TYPE_CHECKING:
    import onnx

    from tenonnx.graph.program import Program


class Methods:
    """Methods of a graph that are functions of floors above."""

    def editing(self) -> AbstractContextManager[None]:
        """A scope whose edits count together: at its end nodes are put in order and types are checked.

        After an error, nothing has changed. Each of the edits below is such a scope of its own.
        """
        return late("editing")(self)  # type: ignore[no-any-return]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The graph as a function: on values of another graph it is put into that one, on arrays it is computed.

        Inputs are those that must be fed, in order or by name. One result, or a tuple where there are several outputs.
        """
        return late("apply_graph")(self, inputs, named)

    def __reduce__(self) -> tuple[Any, ...]:
        return late("pickled")(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        return late("to_dot")(self)  # type: ignore[no-any-return]

    def to_svg(self) -> str:
        """The graph as a drawing."""
        return late("to_svg")(self)  # type: ignore[no-any-return]

    def to_proto(self, **fields: Any) -> onnx.ModelProto:
        """What ``tenonnx.export`` would write, as a message; ``fields`` are those of ``ExportConfig``."""
        return late("to_proto")(self, **fields)  # type: ignore[no-any-return]

    def summary(self, *, nodes: int = 40) -> str:
        """Inputs, outputs, ops and the first ``nodes`` nodes, as text."""
        return late("summary")(self, nodes=nodes)  # type: ignore[no-any-return]

    def building(self, prefix: str = "") -> AbstractContextManager[None]:
        """A scope in which every op that is called adds its node here, also one without inputs or on arrays.

        ``prefix`` begins the names of new values. After an error inside, there is nothing of what the block added.
        """
        return late("building")(self, prefix)  # type: ignore[no-any-return]

    def infer(self, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Self:
        """Give every value its type; ``input_shapes`` are further facts about the inputs. Returns the graph itself."""
        late("infer")(self, input_shapes)
        return self

    def extract(self, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Self:
        """The part of the graph that computes ``outputs`` from ``inputs``, names of values; None for those it needs."""
        return late("extract")(self, inputs, outputs)  # type: ignore[no-any-return]

    def copy(self) -> Self:
        """A graph of its own with the same contents; the arrays of constants are shared."""
        return late("copy_graph")(self)  # type: ignore[no-any-return]

    def compile(self, backend: str = "auto", **options: Any) -> Program:
        """The graph made ready to run, see ``tenonnx.backend.compiling.compile_graph``."""
        return late("compile_graph")(self, backend, **options)  # type: ignore[no-any-return]

    def run(
        self, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Named] | str | None = None
    ) -> dict[str, Any]:
        """The outputs for ``feeds``, by name. For many calls, ``compile`` once.

        ``outputs`` are other values to compute, inner ones, too: what these do not need is neither fed nor run.
        """
        return late("run")(self, feeds, backend, outputs=outputs)  # type: ignore[no-any-return]

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, training_state: bool = True) -> None:
        """Write the graph as a native file ``*.safetensors``; ``overwrite`` replaces a read-only file, too.

        ``training_state`` False leaves out what an optimizer needs to go on.
        """
        late("save")(self, path, overwrite=overwrite, training_state=training_state)
