"""Removal of doc strings, stack traces and local paths from a message."""

from __future__ import annotations

import copy
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import onnx
from google.protobuf.message import Message

from tenonnx.formats.onnx.tensors import Initializers, TensorContents
from tenonnx.graph.constants import Constant

#: Top-level folders of homes, temporary files and installed code; a path below them is specific to a machine.
_ROOTS = "home|Users|root|tmp|var|private|opt|usr|srv|mnt|media|data|work|workspace|workspaces|content|app|builds?"

#: A path below such a folder, on a Windows drive or host, or in a file URL, including the rest of a stack-trace line.
_PATH = re.compile(
    rf"(?:file:/*|(?<![\w.:/\\])(?=/(?:{_ROOTS})/)|(?<!\w)[A-Za-z]:(?=[\\/]\w)|(?<!\\)\\\\(?=\w))[^\s\"'<>|,;:]*"
)


def strip(model: onnx.ModelProto, initializers: Initializers) -> Initializers:
    """Strip ``model`` in place; returns the initializers, copied if they are stripped.

    Removes doc strings, stack traces and metadata entries that contain a path; module scopes are kept. In names of
    graphs, nodes and producers a path is shortened to its file name. Names of values and attributes are unchanged.
    """
    here = _folders()
    _strip(model, here)
    return [(name, _stripped(contents, here)) for name, contents in initializers]


def _folders() -> list[str]:
    """Folders of this machine, longest first, which are local paths whatever their names."""
    found = {str(each) for each in (Path.home(), Path.cwd(), sys.prefix, tempfile.gettempdir())}
    return sorted((each for each in found if len(each) > 1), key=len, reverse=True)


def holds_path(text: str, folders: Iterable[str] = ()) -> bool:
    """Whether a text contains a local path, such as one in ``folders``."""
    return _PATH.search(text) is not None or any(each in text for each in folders)


def _strip(message: Message, here: list[str]) -> None:
    for field, value in message.ListFields():
        if field.name == "doc_string":
            message.ClearField("doc_string")
        elif field.name == "metadata_props":
            kept = [each for each in value if not (each.key.endswith("stack_trace") or holds_path(each.value, here))]
            if len(kept) < len(value):
                kept = copy.deepcopy(kept)
                del value[:]
                value.extend(kept)
        elif isinstance(value, Message):
            _strip(value, here)
        elif isinstance(value, str):
            if field.name in ("producer_name", "producer_version") or _is_free_name(message, field.name):
                _shorten(message, field.name, here)
        elif field.message_type is not None:
            for each in value:
                _strip(each, here)


def _is_free_name(message: Message, field: str) -> bool:
    """Whether a field is a name that nothing refers to."""
    return field == "name" and isinstance(message, onnx.NodeProto | onnx.GraphProto)


def _shorten(message: Message, field: str, here: list[str]) -> None:
    text = getattr(message, field)
    if holds_path(text, here):
        for folder in here:
            text = text.replace(folder, "")
        setattr(message, field, _PATH.sub(lambda found: re.split(r"[\\/]", found[0])[-1], text))


def _stripped(contents: Constant, here: list[str]) -> Constant:
    """The contents, copied without notes if their message has any."""
    if not isinstance(contents, TensorContents):
        return contents
    proto = contents.proto
    if not proto.doc_string and not proto.metadata_props:
        return contents
    copied = copy.copy(contents)
    copied.proto = onnx.TensorProto()
    copied.proto.CopyFrom(proto)
    _strip(copied.proto, here)
    return copied
