"""Configs of Keras models: classes and functions that they name are checked before Keras reads them.

Keras imports and calls objects that a config names. So a config may only name objects in ``keras_objects.txt``, and
classes and functions that the user's own code has registered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

#: Keras modules of layers, operations and their components.
_MODULES = re.compile(
    r"builtins|keras(\.(src|api|engine|legacy))*(\.(layers|models|ops|activations|initializers|regularizers|constraints"
    r"|losses|dtype_policies|quantizers|random|functional|sequential|training)(\.(?!\w*_test\b)[a-z0-9_]+)*)?"
)

#: Data in a config that resembles an object.
_DATA = frozenset(
    {
        "__keras_tensor__",
        "__tensor__",
        "__numpy__",
        "__bytes__",
        "__ellipsis__",
        "__slice__",
        "__tuple__",
        "TensorShape",
    }
)

#: Keys of file paths.
_PATHS = ("vocabulary", "filepath", "weights")


@cache
def _listed() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in files("tenonnx_tensorflow").joinpath("keras_objects.txt").read_text().splitlines():
        if line.startswith("["):
            names = found.setdefault(line.strip("[]"), set())
        elif not line.startswith("#"):
            names.update(line.split())
    return {section: frozenset(names) for section, names in found.items()}


def refused_objects(config: Any, registered: Callable[[str], Any] = lambda name: None) -> list[str]:
    """Objects that a config must not name, each with its layer; ``registered`` looks up the user's own."""
    found = []
    for layer, each in _objects_in(config):
        reason = _refusal(each, registered)
        if reason:
            found.append(f'{reason} (layer "{layer}")' if layer else reason)
    return list(dict.fromkeys(found))


def texts_in(config: Any) -> Iterator[str]:
    """All strings in a config, other than keys."""
    for _, each in _objects_in(config):
        for value in each.values():
            yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def layers_of(config: Any) -> list[str]:
    """The layers of a config, by name and class, for messages."""
    result = []
    for _, each in _objects_in(config):
        inner = each.get("config")
        name = each.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
        if isinstance(name, str) and isinstance(each.get("class_name"), str):
            result.append(f"{name} ({each['class_name']})")
    return result


def _objects_in(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All mappings in a config at any depth, with the name of the enclosing layer."""
    pending: list[tuple[str, Any]] = [("", config)]
    while pending:
        layer, each = pending.pop()
        if isinstance(each, Mapping):
            name = each.get("name")
            layer = name if isinstance(name, str) and "class_name" in each else layer
            yield layer, each
            pending += [(layer, value) for value in reversed(list(each.values()))]
        elif isinstance(each, list):
            pending += [(layer, value) for value in reversed(each)]


def _refusal(each: Mapping[str, Any], registered: Callable[[str], Any]) -> str:
    for place in _PATHS:
        if isinstance(each.get(place), str):
            return f'the path {place}="{each[place][:80]}"'
    if "class_name" not in each:
        return "" if "spec_name" not in each else "a type of TensorFlow by name"
    kind, module, key = each["class_name"], each.get("module"), each.get("registered_name")
    is_function = kind == "function"
    name = each.get("config") if is_function else kind
    if not isinstance(name, str) or not isinstance(module, str | None) or not isinstance(key, str | None):
        return "an object without a name"
    own = name if is_function else key or name
    if registered(own) is not None:
        return ""
    shown = f"{module}.{name}" if module else name
    if name in _DATA and not is_function:
        return ""
    if key is not None and key != name and registered(key) is None and not is_function:
        return f'{shown}, registered as "{key[:80]}"'
    if module is not None and not _MODULES.fullmatch(module):
        return shown
    listed = _listed()
    if is_function:
        return "" if name in listed["functions"] else f"the function {shown}"
    is_known = name in listed["layers"] or name in listed["objects"] or name in listed["functions"]
    is_operation = name in listed["operations"] and module is not None and ".ops" in module
    return "" if is_known or is_operation else shown
