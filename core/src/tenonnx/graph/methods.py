"""Methods of graphs implemented in higher layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

from tenonnx.graph.containers import Named
from tenonnx.graph.lazy_methods import lazy_import

if TYPE_CHECKING:
    import onnx

    from tenonnx.graph.program import Program


class Shown:
    """JSON data and HTML of a graph or its parts, rendered by an installed package."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The contents as data for JSON; weights as type and size only."""
        return lazy_import("extension")("tools.to_dict")(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        return lazy_import("html_of")(self)  # type: ignore[no-any-return]


class Methods(Shown):
    """Methods of a graph implemented in higher layers and installed packages."""

    def __getattr__(self, name: str) -> Any:
        """A method that an installed package adds. Raises ``AttributeError`` naming the package to install."""
        if not name.startswith("_"):
            found = lazy_import("find_extension")(f"Graph.{name}")
            if found is not None:
                return MethodType(found, self)
            what, do = lazy_import("missing")(f"Graph.{name}")
            if what:
                raise AttributeError(f"{what}: {do}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def editing(self) -> AbstractContextManager[None]:
        """A context for several edits: nodes are sorted and types checked once, at its end.

        An error leaves the graph unchanged. Outside of such a context, each edit is checked separately.
        """
        return lazy_import("editing")(self)  # type: ignore[no-any-return]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the graph as a function: with arrays it computes, with values of another graph it is inlined there.

        Arguments are the inputs without defaults, in order or by name. Returns one result, or a tuple for several
        outputs.
        """
        return lazy_import("apply_graph")(self, inputs, named)

    def __reduce__(self) -> tuple[Any, ...]:
        return lazy_import("pickled")(self)  # type: ignore[no-any-return]

    def to_dot(self) -> str:
        """The graph in the DOT language of Graphviz."""
        return lazy_import("extension")("Graph.to_dot")(self)  # type: ignore[no-any-return]

    def to_svg(self) -> str:
        """The graph as a drawing."""
        return lazy_import("extension")("Graph.to_svg")(self)  # type: ignore[no-any-return]

    def to_proto(self, **fields: Any) -> onnx.ModelProto:
        """The ``ModelProto`` that ``tenonnx.export`` would write; ``fields`` are those of ``ExportConfig``."""
        return lazy_import("extension")("Graph.to_proto")(self, **fields)  # type: ignore[no-any-return]

    def summary(self, *, nodes: int = 40) -> str:
        """Inputs, outputs, ops and the first ``nodes`` nodes, as text."""
        return lazy_import("summary")(self, nodes=nodes)  # type: ignore[no-any-return]

    def building(self, prefix: str = "") -> AbstractContextManager[None]:
        """A context in which each call of an op adds a node to this graph, even without inputs or with arrays.

        Names of new values begin with ``prefix``. An error in the block removes everything that it added.
        """
        return lazy_import("building")(self, prefix)  # type: ignore[no-any-return]

    def infer(self, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Self:
        """Infer the types of all values; ``input_shapes`` narrows the shapes of inputs. Returns the graph itself."""
        lazy_import("infer")(self, input_shapes)
        return self

    def extract(self, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Self:
        """The subgraph from ``inputs`` to ``outputs``, names of values; None means the graph inputs that it needs."""
        return lazy_import("extract")(self, inputs, outputs)  # type: ignore[no-any-return]

    def copy(self) -> Self:
        """A copy of the graph; it shares the arrays of constants."""
        return lazy_import("copy_graph")(self)  # type: ignore[no-any-return]

    def compile(self, backend: str = "auto", **options: Any) -> Program:
        """Compile the graph for a backend; calling the program runs it.

        ``auto`` is the highest-ranked installed backend that accepts the graph. ``options`` are ``strict``,
        ``deadline``, ``state`` and those of the backend.
        """
        return lazy_import("extension")("Graph.compile")(self, backend, **options)  # type: ignore[no-any-return]

    def run(
        self, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Named] | str | None = None
    ) -> dict[str, Any]:
        """The outputs for ``feeds``, by name. For repeated calls, ``compile`` once.

        ``outputs`` selects other values, including inner ones; inputs and nodes that these do not need are left out.
        """
        return lazy_import("extension")("Graph.run")(self, feeds, backend, outputs=outputs)  # type: ignore[no-any-return]

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, training_state: bool | None = None) -> None:
        """Write the graph at its own opsets: ``*.safetensors`` as a native file, other paths as ONNX.

        An ONNX file is identical to that of ``tenonnx.export`` without options. ``overwrite`` also replaces a read-only
        file. ``training_state`` selects whether the optimizer state is written; None writes it to native files only.
        """
        lazy_import("save")(self, path, overwrite=overwrite, training_state=training_state)
