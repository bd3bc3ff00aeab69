"""Post-export hooks: callbacks that post-process the ModelProto."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto
from onnx.external_data_helper import ExternalDataInfo

from tenonnx.errors import InvalidCall, InvalidModel, PluginError, TenonnxError, did_you_mean
from tenonnx.formats.external import ExternalDataWriter, ExternalFiles, Region
from tenonnx.formats.onnx.reader import read_parts
from tenonnx.formats.onnx.streaming import packed_source, without_contents
from tenonnx.formats.onnx.tensors import Initializers, TensorContents, to_inline_proto
from tenonnx.graph.constants import Constant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.registry.discovery import plugins

#: Entry-point group of hooks, which are requested by name.
GROUP = "tenonnx.hooks"

#: Maximum total size of tensors for which hooks get all inline, and the size below which single ones are inline
#: otherwise.
_INLINE, _SMALL = 64 << 20, 1 << 16


class Hook:
    """A hook: a function of a ModelProto and optionally the exported graph, or an object with ``post_process``."""

    def __init__(self, given: Any, name: str = "") -> None:
        value = _made(given) if inspect.isclass(given) and hasattr(given, "post_process") else given
        function = getattr(value, "post_process", value)
        if not callable(function):
            raise InvalidCall(
                "post_export_hooks are not functions of a model, in a list",
                given=repr(given)[:80],
                available="objects with post_process, and names of tenonnx.hooks, too",
            )
        own = value if hasattr(value, "__qualname__") else type(value)
        self.name = name or str(own.__qualname__)
        self.function: Callable[..., Any] = function
        self._also = _with_graph(function)

    def __call__(self, model: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
        """Run the hook and return the ModelProto. Raises ``PluginError`` naming the hook for any error in it."""
        try:
            left = self._also(self.function, model, graph)
        except TenonnxError as error:
            raise PluginError(
                f"the hook {self.name} failed: {error.what}",
                given=error.given,
                available=error.available,
                do=error.do,
                also=error.also,
            ) from error
        except (Exception, SystemExit) as error:
            raise PluginError(f"the hook {self.name} failed", given=f"{type(error).__name__}: {error}") from error
        if left is None:
            return model
        if not isinstance(left, onnx.ModelProto):
            raise InvalidModel(
                f"the hook {self.name} returned neither a ModelProto nor None", given=type(left).__name__
            )
        return left


def hooks_of(given: Any) -> tuple[Hook, ...]:
    """The hooks of an export: functions, objects with ``post_process``, and names of installed hooks."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidCall("post_export_hooks are not functions of a model, in a list", given=repr(given)[:80])
    return tuple(_hook(each) for each in given)


def _hook(given: Any) -> Hook:
    if isinstance(given, Hook):
        return given
    return installed_hook(given) if isinstance(given, str) else Hook(given)


def installed_hook(name: str) -> Hook:
    """The installed hook of that name."""
    known = {plugin.name: plugin for plugin in plugins(GROUP)}
    if name not in known:
        raise InvalidCall(
            f'no installed package offers the hook "{name}"',
            available=", ".join(known) or "no hook",
            do=did_you_mean(name, known) or "give the function itself; on the command line FILE.py:FUNCTION",
        )
    return Hook(known[name].load(), f"{name} of {known[name].source}")


def _made(kind: type) -> Any:
    try:
        return kind()
    except Exception as error:
        what = f"cannot make a hook of the class {kind.__qualname__} without arguments"
        raise InvalidCall(what, given=f"{type(error).__name__}: {error}", do="give an object of it") from error


def _with_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a hook to be called with the message and, if it has a parameter for it, the graph."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # functions written in C may have no signature
        return lambda call, model, graph: call(model)
    places = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    if rest or (len(places) > 1 and (places[1].default is inspect.Parameter.empty or places[1].name == "graph")):
        return lambda call, model, graph: call(model, graph)
    named = "graph" in parameters and parameters["graph"].kind is inspect.Parameter.KEYWORD_ONLY
    return lambda call, model, graph: call(model, graph=graph) if named else call(model)


def run_hooks(
    hooks: Sequence[Hook], model: onnx.ModelProto, initializers: Initializers, graph: Graph, registry: Any
) -> tuple[onnx.ModelProto, Initializers]:
    """Run hooks on a message; returns the message without initializers, and the initializers.

    A hook sees all initializers in the message. If their total size is large, the larger ones are external data in the
    folder of the entry ``basepath``; unchanged ones are not copied. Raises ``InvalidModel`` naming the hook whose
    message cannot be read.
    """
    outputs = len(model.graph.output)
    with _Placed.of(initializers) as placed:
        for hook in hooks:
            model.graph.initializer.extend(placed.messages())
            model = hook(model, graph)
            if outputs and not model.graph.output:
                raise InvalidModel(f"the hook {hook.name} left a model without its outputs", given=f"none of {outputs}")
            try:
                placed.take(model.graph.initializer)
                del model.graph.initializer[:]
                read_parts(model, placed.initializers, registry)
            except TenonnxError as error:
                what = f"the hook {hook.name} left a model that cannot be read"
                raise InvalidModel(what, given=str(error)) from error
        return model, placed.initializers


class _Placed:
    """Initializers, with the TensorProto that hooks see for each."""

    def __init__(self, initializers: Initializers, folder: Path) -> None:
        self.initializers = initializers
        self._folder = folder
        self._inline = sum(contents.nbytes for _, contents in initializers) <= _INLINE
        self._references: dict[bytes, Constant] = {}  # by location
        self._spooled: dict[int, TensorProto] = {}  # by identity of the contents, which the list keeps alive

    @classmethod
    @contextmanager
    def of(cls, initializers: Initializers) -> Iterator[_Placed]:
        with tempfile.TemporaryDirectory(prefix="tenonnx-hooks-", ignore_cleanup_errors=True) as folder:
            yield cls(initializers, Path(folder))

    def messages(self) -> Iterator[TensorProto]:
        for name, contents in self.initializers:
            yield self._message(name, contents)

    def _message(self, name: str, contents: Constant) -> TensorProto:
        if self._inline or contents.nbytes < _SMALL or contents.type.dtype is DType.string:
            return to_inline_proto(contents, name)
        message = without_contents(name, contents)
        message.data_location = TensorProto.EXTERNAL
        place = self._spooled.get(id(contents)) or self._place(contents, name)
        self._spooled[id(contents)] = place
        message.external_data.extend(place.external_data)
        self._references[_place_of(message)] = contents
        return message

    def _place(self, contents: Constant, name: str) -> TensorProto:
        """A TensorProto with the location of contents: their original file, or a temporary one."""
        source = packed_source(contents, name)
        if isinstance(source, Region) and _is_unchanged(source):
            path, offset, length = source.path, source.offset, source.length
        else:
            path = str(self._folder / str(len(self._spooled)))
            with Path(path).open("xb") as file, ExternalDataWriter(file) as writer:
                offset, length = writer.append(source)
        folder, location = os.path.split(path)
        place = TensorProto()
        for key, value in (("location", location), ("offset", offset), ("length", length), ("basepath", folder)):
            place.external_data.add(key=key, value=str(value))
        return place

    def take(self, messages: Iterable[TensorProto]) -> None:
        """Replace the initializers by ``messages``; those left unchanged by hooks keep their contents."""
        before = dict(self.initializers)
        files: dict[str, ExternalFiles] = {}
        found: Initializers = []
        for message in messages:
            earlier = before.get(message.name)
            if message.data_location == TensorProto.EXTERNAL:
                found.append((message.name, self._referred(message, files)))
            elif earlier is not None and self._is_inline(earlier) and message == to_inline_proto(earlier, message.name):
                found.append((message.name, earlier))
            else:
                own = TensorProto()
                own.CopyFrom(message)
                found.append((message.name, TensorContents(own)))
                found[-1][1].array()  # raises if the message is not a tensor
        self.initializers = found

    def _is_inline(self, contents: Constant) -> bool:
        return self._inline or contents.nbytes < _SMALL or contents.type.dtype is DType.string

    def _referred(self, message: TensorProto, files: dict[str, ExternalFiles]) -> Constant:
        """The contents of an external reference: one of ours, or one written by the hook."""
        references = self._references.get(_place_of(message))
        if references is not None and without_contents("", references) == _bare(message):
            return references
        folder = ExternalDataInfo(message).basepath
        own = TensorProto()
        own.CopyFrom(message)
        return TensorContents(own, files.setdefault(folder, ExternalFiles(folder or None)))


def _place_of(message: TensorProto) -> bytes:
    entries = {entry.key: entry.value for entry in message.external_data}
    return repr(sorted(entries.items())).encode()


def _bare(message: TensorProto) -> TensorProto:
    bare = TensorProto()
    bare.CopyFrom(message)
    for field in ("name", "data_location", "external_data"):
        bare.ClearField(field)
    bare.name = ""
    return bare


def _is_unchanged(region: Region) -> bool:
    """Whether the path of a region still refers to the same file."""
    try:
        status = Path(region.path).stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == region.file.identity
