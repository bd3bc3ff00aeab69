"""Methods of graphs that higher layers implement."""

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
    """JSON data and HTML of a graph or a part of one, made by an installed package."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The contents as data for JSON; a weight is given by its type and size."""
        return lazy_import("extension")("tools.to_dict")(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        return lazy_import("html_of")(self)  # type: ignore[no-any-return]


class Methods(Shown):
    """Methods of a graph that are functions of higher layers, and of installed packages."""

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
        """A context for several edits: nodes are sorted and types are checked once, at its end.

        After an error, the graph is unchanged. Outside of such a context, each edit is checked by itself.
        """
        return lazy_import("editing")(self)  # type: ignore[no-any-return]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the graph as a function: with arrays it computes, with values of another graph it is inlined there.

        Give the inputs without defaults, in order or by name. Returns one result, or a tuple for several outputs.
        """
        return lazy_import("apply_graph")(self, inputs, named)

    def __reduce__(self) -> tuple[Any, ...]:
        return lazy_import("pickled")(self)  # type: ignore[no-any-return]

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        return lazy_import("extension")("Graph.to_dot")(self)  # type: ignore[no-any-return]

    def to_svg(self) -> str:
        """The graph as a drawing."""
        return lazy_import("extension")("Graph.to_svg")(self)  # type: ignore[no-any-return]

    def to_proto(self, **fields: Any) -> onnx.ModelProto:
        """The message that ``tenonnx.export`` would write; ``fields`` are those of ``ExportConfig``."""
        return lazy_import("extension")("Graph.to_proto")(self, **fields)  # type: ignore[no-any-return]

    def summary(self, *, nodes: int = 40) -> str:
        """Inputs, outputs, ops and the first ``nodes`` nodes, as text."""
        return lazy_import("summary")(self, nodes=nodes)  # type: ignore[no-any-return]

    def building(self, prefix: str = "") -> AbstractContextManager[None]:
        """A context in which each call of an op adds a node to this graph, also a call without inputs or with arrays.

        The names of new values begin with ``prefix``. After an error inside, all that the block added is removed.
        """
        return lazy_import("building")(self, prefix)  # type: ignore[no-any-return]

    def infer(self, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Self:
        """Infer the type of every value; ``input_shapes`` narrows the shapes of inputs. Returns the graph itself."""
        lazy_import("infer")(self, input_shapes)
        return self

    def extract(self, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Self:
        """The subgraph from ``inputs`` to ``outputs``, names of values; None stands for the inputs that it needs."""
        return lazy_import("extract")(self, inputs, outputs)  # type: ignore[no-any-return]

    def copy(self) -> Self:
        """A graph of its own with the same contents; the arrays of constants are shared."""
        return lazy_import("copy_graph")(self)  # type: ignore[no-any-return]

    def compile(self, backend: str = "auto", **options: Any) -> Program:
        """Make the graph ready to run on a backend; calling the program runs it.

        ``auto`` is the installed backend of the highest rank that accepts the graph. ``options`` are ``strict``,
        ``deadline``, ``state`` and those of the backend.
        """
        return lazy_import("extension")("Graph.compile")(self, backend, **options)  # type: ignore[no-any-return]

    def run(
        self, feeds: Mapping[str, Any], backend: str = "auto", *, outputs: Sequence[str | Named] | str | None = None
    ) -> dict[str, Any]:
        """The outputs for ``feeds``, by name. For many calls, ``compile`` once.

        ``outputs`` are other values to compute, also inner ones: inputs and nodes that they do not need are left out.
        """
        return lazy_import("extension")("Graph.run")(self, feeds, backend, outputs=outputs)  # type: ignore[no-any-return]

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, training_state: bool | None = None) -> None:
        """Write the graph at its own opsets: ``*.safetensors`` as a native file, other paths as ONNX.

        An ONNX file has the bytes that ``tenonnx.export`` without options writes. ``overwrite`` replaces a read-only
        file, too. ``training_state`` says whether to write what an optimizer needs to resume; None writes it to native
        files only.
        """
        lazy_import("save")(self, path, overwrite=overwrite, training_state=training_state)
