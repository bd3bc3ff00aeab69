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
    """Data and HTML of a graph or a part of one, as an installed package makes them."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The contents as data that JSON can hold; weights are told by type and size."""
        return lazy_import("extension")("tools.to_dict")(self)  # type: ignore[no-any-return]

    def _repr_html_(self) -> str | None:
        return lazy_import("html_of")(self)  # type: ignore[no-any-return]


class Methods(Shown):
    """Methods of a graph that are functions of higher layers, and of installed packages."""

    def __getattr__(self, name: str) -> Any:
        """A method that an installed package adds. Raises ``AttributeError`` naming the package that would."""
        if not name.startswith("_"):
            found = lazy_import("find_extension")(f"Graph.{name}")
            if found is not None:
                return MethodType(found, self)
            what, do = lazy_import("missing")(f"Graph.{name}")
            if what:
                raise AttributeError(f"{what}: {do}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def editing(self) -> AbstractContextManager[None]:
        """A scope whose edits count together: at its end nodes are put in order and types are checked.

        After an error, nothing has changed. Each of the edits below is such a scope of its own.
        """
        return lazy_import("editing")(self)  # type: ignore[no-any-return]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The graph as a function: on values of another graph it is put into that one, on arrays it is computed.

        Inputs are those that must be fed, in order or by name. One result, or a tuple where there are several outputs.
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
        """A scope in which every op that is called adds its node here, also one without inputs or on arrays.

        ``prefix`` begins the names of new values. After an error inside, there is nothing of what the block added.
        """
        return lazy_import("building")(self, prefix)  # type: ignore[no-any-return]

    def infer(self, input_shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> Self:
        """Give every value its type; ``input_shapes`` are further facts about the inputs. Returns the graph itself."""
        lazy_import("infer")(self, input_shapes)
        return self

    def extract(self, inputs: Sequence[str] | str | None, outputs: Sequence[str] | str) -> Self:
        """The part of the graph that computes ``outputs`` from ``inputs``, names of values; None for those it needs."""
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

        ``outputs`` are other values to compute, inner ones, too: what these do not need is neither fed nor run.
        """
        return lazy_import("extension")("Graph.run")(self, feeds, backend, outputs=outputs)  # type: ignore[no-any-return]

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, training_state: bool | None = None) -> None:
        """Write the graph at its own opsets: ``*.safetensors`` as a native file, other paths as ONNX.

        An ONNX file has the bytes that ``tenonnx.export`` without options writes. ``overwrite`` replaces a read-only
        file, too. ``training_state`` says whether the file has what an optimizer needs to go on; if None, a native
        file has it.
        """
        lazy_import("save")(self, path, overwrite=overwrite, training_state=training_state)
