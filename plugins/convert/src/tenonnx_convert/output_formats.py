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
from tenonnx.registry.discovery import Plugin, cure, plugins
from tenonnx.registry.hints import provider

#: Plugins of this group are named by the suffix of their files, such as ``xml``.
GROUP = "tenonnx.formats"

#: Suffixes that need no plugin.
BUILT_IN = (".onnx", ".safetensors")

#: What runs a model: outputs by name, of inputs by name.
Run = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class WrittenFile:
    """A file as its runtime runs it; ``limits`` are relations of dynamic dims that it needs.

    ``unrounded`` is the model without the roundings that the runtime does in another way.
    """

    name: str
    run: Run
    limits: Sequence[str] = ()
    unrounded: Graph | None = None

    def limit(self, sizes: str) -> str:
        """The relation that a run at other sizes, such as ``batch=3``, may not keep; empty where there is none."""
        changed = set(re.findall(r"(\w+)=", sizes))
        return next((each for each in self.limits if changed.intersection(re.findall(r"\w+", each))), "")


class OutputFormat(Protocol):
    """Interface of a plugin of the group ``tenonnx.formats``: a module or an object.

    Importing it must not import the runtime of the format. It may also have a function ``unrounded`` of a graph, which
    returns the graph without roundings to quantized values that the runtime does in another way, None where there are
    none. The file may then differ by as much as these roundings change outputs. A function ``annotate`` of the path of
    the file and a text puts the verdict of the comparison into the file.
    """

    #: The format in words, such as ``StableHLO``.
    title: str

    #: The Python module of the runtime that runs the files.
    runtime: str

    def write(self, graph: Graph, path: Path) -> Sequence[str]:
        """Write ``graph`` to a path, and further files beside it, in a folder that holds nothing else.

        Returns relations of dynamic dims that the file needs, but not the graph, such as ``total >= new``. Raises
        ``UnsupportedOp``, ``NotRepresentable`` or ``InvalidCall`` for what the format cannot hold.
        """
        ...

    def open(self, path: Path, graph: Graph) -> Run:
        """The written file in the format's own runtime; ``graph`` is what was written, and says the names."""
        ...


def output_suffixes() -> list[str]:
    """The suffixes that can be written with the packages that are installed."""
    return [*BUILT_IN, *(f".{plugin.name}" for plugin in plugins(GROUP))]


class InstalledFormat(NamedTuple):
    """A format, and the plugin that provides it."""

    form: OutputFormat
    plugin: Plugin


def output_format(path: str | os.PathLike[str]) -> InstalledFormat | None:
    """The format of a path by its suffix; None for ONNX and native files.

    Raises ``InvalidCall`` where its package is not installed, ``PluginError`` where that cannot be imported.
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
    """Write a model in another format: the files take their places at the end of the block, the model last.

    Until then they are in a temporary folder. Raises ``InvalidCall`` as ``AtomicWriter`` does, and
    ``NotRepresentable`` for a graph that the format cannot hold.
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
        """Write a graph. Raises ``PluginError`` where the package fails."""
        try:
            with self._plugin.running("cannot write the model"):
                self._limits = self.form.write(graph, self.file)
        except UnsupportedOp as error:
            raise NotRepresentable(
                f"the model has no {self.form.title} form: {error.what}",
                given=error.given,
                available=error.available,
                do=error.do,
            ) from error

    def opened(self, graph: Graph) -> WrittenFile:
        """The file of ``graph``, whose calls raise ``VerificationFailed`` for whatever the runtime raises.

        ``UnsupportedOp`` is passed on, for inputs that the format cannot hold, such as empty tensors.
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
        """Put the verdict of the comparison into the file, where the format has a place for it."""
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
    """List the formats: each suffix with its package, and whether its runtime is installed."""
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
