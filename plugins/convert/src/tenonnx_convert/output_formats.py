"""File formats other than ONNX and the native one, registered by packages."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from tenonnx.errors import InvalidCall, NotRepresentable, OutOfTime, UnsupportedOp, VerificationFailed
from tenonnx.formats.files import AtomicWriter
from tenonnx.graph.graph import Graph
from tenonnx.op.graph_inference import infer
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider
from tenonnx.transforms.rewrite import copy_graph

#: Entry-point group of file formats, named by the suffix of their files, such as ``xml``.
GROUP = "tenonnx.formats"

#: Suffixes that need no plugin.
BUILT_IN = (".onnx", ".safetensors")

#: Function that runs a model: inputs by name to outputs by name.
Run = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class WrittenFile:
    """A written file opened in its runtime; ``limits`` are relations of dynamic dims that it requires.

    ``unrounded`` is the graph without the quantization roundings in which the runtime differs.
    """

    name: str
    run: Run
    limits: Sequence[str] = ()
    unrounded: Graph | None = None

    def limit(self, sizes: str) -> str:
        """The relation that a run at other sizes, such as ``batch=3``, may violate; empty if there is none."""
        changed = set(re.findall(r"(\w+)=", sizes))
        return next((each for each in self.limits if changed.intersection(re.findall(r"\w+", each))), "")


class OutputFormat(Protocol):
    """Interface of a plugin of the group ``tenonnx.formats``: a module or an object.

    Importing it must not import the runtime of the format. Optional functions: ``unrounded(graph)`` returns the graph
    without the quantization roundings in which the runtime differs, None if there are none; outputs may then differ by
    the effect of these roundings. ``annotate(path, text)`` adds the verdict of the comparison to the file.
    """

    #: Display name of the format, such as ``StableHLO``.
    title: str

    #: Python module of the runtime for the files.
    runtime: str

    def write(self, graph: Graph, path: Path) -> Sequence[str]:
        """Write ``graph`` to a path, and any further files next to it, in an otherwise empty folder.

        Returns the relations of dynamic dims that the file requires in addition to the graph's, such as ``total >=
        new``. Raises ``UnsupportedOp``, ``NotRepresentable`` or ``InvalidCall`` if the format cannot represent the
        graph.
        """
        ...

    def open(self, path: Path, graph: Graph) -> Run:
        """Open the written file in the format's own runtime; ``graph`` is the one that was written, for names."""
        ...


def output_suffixes() -> list[str]:
    """The suffixes that can be written with the installed packages."""
    return [*BUILT_IN, *(f".{plugin.name}" for plugin in plugins(GROUP))]


class InstalledFormat(NamedTuple):
    """A format with the plugin that provides it."""

    form: OutputFormat
    plugin: Plugin


def output_format(path: str | os.PathLike[str]) -> InstalledFormat | None:
    """The format of a path by its suffix; None for ONNX and native files.

    Raises ``InvalidCall`` if its package is not installed, ``PluginError`` if it cannot be imported.
    """
    name = Path(path).suffix.lower().removeprefix(".")
    for plugin in plugins(GROUP, name):
        return InstalledFormat(plugin.load(), plugin)
    if name and (package := provider(GROUP, name)):
        raise InvalidCall(
            f"no package that writes .{name} files is installed",
            given=os.fspath(path),
            available=", ".join(output_suffixes()),
            do=cure([package]),
        )
    return None


class FormatWriter:
    """Writes a model in another format: files are moved to their places at the end of the block, the model last.

    Until then they are in a temporary folder. Raises ``InvalidCall`` as ``AtomicWriter`` does, and ``NotRepresentable``
    for a graph that the format cannot represent.
    """

    def __init__(self, chosen: InstalledFormat, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.form, self._plugin = chosen
        self._model = AtomicWriter(path, overwrite=overwrite)
        self._stack = ExitStack()
        self._limits: Sequence[str] = ()
        self.file = Path(path)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._model)
            self.file = Path(stack.enter_context(TemporaryDirectory(prefix="tenonnx-")), self._model.name)
            self._stack = stack.pop_all()
        return self

    def write(self, graph: Graph) -> None:
        """Write a graph. Raises ``InvalidModel`` for an invalid node, and ``PluginError`` if the package fails."""
        try:
            with self._plugin.running("cannot write the model"):
                self._limits = self.form.write(graph, self.file)
        except (NotRepresentable, UnsupportedOp) as error:
            infer(copy_graph(graph))  # an invalid node is named first
            if isinstance(error, NotRepresentable):
                raise
            raise NotRepresentable(
                f"the model has no {self.form.title} form: {error.what}",
                given=error.given,
                available=error.available,
                do=error.do,
            ) from error

    def opened(self, graph: Graph) -> WrittenFile:
        """Open the file of ``graph``; calls raise ``VerificationFailed`` for any error of the runtime.

        ``UnsupportedOp`` is not converted; it is raised for inputs that the format does not support, such as empty
        tensors.
        """
        name = f"{self.form.title} in {self.form.runtime}"
        try:
            with self._plugin.running("cannot open the file that it wrote"):
                program = self.form.open(self.file, graph)
        except UnsupportedOp as error:
            raise VerificationFailed(f"the file does not load: {error.what}", given=error.given) from error

        def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
            try:
                return program(feeds)
            except (OutOfTime, UnsupportedOp):
                raise
            except Exception as error:
                raise VerificationFailed(f"the file does not run: {name}", given=str(error)) from error

        unrounded: Graph | None = None
        if (make := getattr(self.form, "unrounded", None)) is not None:
            with self._plugin.running("cannot leave out the roundings of the model"):
                unrounded = make(graph)
        return WrittenFile(name, run, self._limits, unrounded)

    def annotate(self, verdict: str) -> None:
        """Add the verdict of the comparison to the file, if the format supports it."""
        if (annotate := getattr(self.form, "annotate", None)) is not None:
            with self._plugin.running("cannot annotate the file that it wrote"):
                annotate(self.file, verdict)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._place_files()
        except BaseException as failure:
            self._stack.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def _place_files(self) -> None:
        for each in sorted(self.file.parent.iterdir()):
            if each != self.file:
                shutil.move(each, self._model.folder / each.name)
        with self.file.open("rb") as source:
            shutil.copyfileobj(source, self._model.open())


def output_formats() -> list[dict[str, Any]]:
    """The formats: each suffix with its package, and whether its runtime is installed."""
    from importlib.util import find_spec

    found: list[dict[str, Any]] = [
        {"suffix": ".onnx", "title": "ONNX", "package": "tenonnx-core", "runtime": "onnxruntime"},
        {"suffix": ".safetensors", "title": "the native format", "package": "tenonnx-core", "runtime": "tenonnx"},
    ]
    for plugin in plugins(GROUP):
        form = plugin.load()
        found.append(
            {
                "suffix": f".{plugin.name}",
                "title": form.title,
                "package": plugin.distribution,
                "runtime": form.runtime,
            }
        )
    return [{**each, "installed": find_spec(each["runtime"]) is not None} for each in found]
