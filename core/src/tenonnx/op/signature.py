"""Inputs and attributes of an operator, read from the Python signature of its function.

Positional parameters are the ONNX inputs, keyword-only parameters are the ONNX attributes with their defaults.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from tenonnx.errors import InvalidCall, Titled, counted, did_you_mean
from tenonnx.graph.constants import ArrayConstant
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import Type

#: Default of a required attribute.
REQUIRED: Final = inspect.Parameter.empty

#: Annotation of an input that holds positions, sizes or axes: a Python int becomes an int64 tensor.
Index = Annotated[Any, "index"]


def _as_stored(value: Any) -> Any:
    """An attribute value with the precision of a file: floats are float32."""
    if isinstance(value, float):
        return ctypes.c_float(value).value
    if isinstance(value, list | tuple) and kind_of(value) == "floats":
        stored = array("f", value).tolist()
        return value if stored == value else stored  # keep the object itself if a file can hold it
    return value


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    optional: bool = False
    variadic: bool = False
    index: bool = False


class Signature(NamedTuple):
    """Inputs in order, and attributes with their defaults (``REQUIRED`` for none; None for an optional attribute).

    ``attribute_types`` are the types of attributes (``int``, ``floats``, ...) that a default or annotation determines.
    ``counts_outputs``: the function takes ``_outputs``, the number of outputs that the node declares. ``reads_graph``:
    the body takes ``_graph``, the graph that holds the node, for an op whose meaning depends on it.
    """

    inputs: tuple[Input, ...]
    attributes: Mapping[str, Any]
    counts_outputs: bool = False
    attribute_types: Mapping[str, str] = MappingProxyType({})
    reads_graph: bool = False

    @property
    def floats(self) -> frozenset[str]:
        """The attributes that hold floats."""
        return frozenset(name for name, kind in self.attribute_types.items() if kind in ("float", "floats"))

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Signature:
        inputs: list[Input] = []
        attributes: dict[str, Any] = {}
        attribute_types: dict[str, str] = {}
        names = getattr(function, "__globals__", {})
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            if parameter.kind is not parameter.KEYWORD_ONLY:
                variadic = parameter.kind is parameter.VAR_POSITIONAL
                optional = variadic or parameter.default is not REQUIRED
                inputs.append(Input(name, optional, variadic, _marks_index(parameter.annotation, names)))
            elif name not in ("_outputs", "_graph"):
                attributes[name] = parameter.default
                attribute_types[name] = _declared_kind(parameter)
        return cls(tuple(inputs), attributes, "_outputs" in parameters, attribute_types, "_graph" in parameters)

    @property
    def variadic(self) -> bool:
        return bool(self.inputs) and self.inputs[-1].variadic

    def input_at(self, position: int) -> Input:
        """The parameter that the input at ``position`` belongs to."""
        return self.inputs[min(position, len(self.inputs) - 1)]

    def arrange(self, of: Titled, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Sort call arguments into inputs and attributes, with defaults applied.

        Raises ``InvalidCall`` for an unknown, missing or repeated argument.
        """
        inputs = list(args)
        attributes: dict[str, Any] = {}
        names = [p.name for p in self.inputs if not p.variadic]
        for name, value in kwargs.items():
            if name in self.attributes:
                convert = _CONVERSIONS.get(self.attribute_types.get(name, ""))
                attributes[name] = value if convert is None else convert(value)
            elif name in names and names.index(name) >= len(args):
                position = names.index(name)
                inputs += [None] * (position + 1 - len(inputs))
                inputs[position] = value
            elif name != "_outputs":
                reason = "is given twice" if name in names else "is not one of its inputs or attributes"
                do = did_you_mean(name, [*names, *self.attributes])
                raise InvalidCall(f'{of.title}: "{name}" {reason}', available=self.describe(), do=do)
        self.check_inputs(of, inputs)
        return inputs, self.complete(of, attributes)

    def check_inputs(self, of: Titled, inputs: Sequence[Any]) -> None:
        """Raise ``InvalidCall`` unless there are as many inputs as allowed and every required one is present."""
        if len(inputs) > len(self.inputs) and not self.variadic:
            what = f"{of.title} got more than {counted(len(self.inputs), 'input')}"
            raise InvalidCall(what, given=counted(len(inputs), "input"), available=self.describe())
        for position, parameter in enumerate(self.inputs):
            if not parameter.optional and (position >= len(inputs) or inputs[position] is None):
                raise InvalidCall(f'{of.title}: input "{parameter.name}" is missing', available=self.describe())
            if parameter.variadic and any(value is None for value in inputs[position:]):
                raise InvalidCall(f'{of.title}: an input of "*{parameter.name}" is left out', available=self.describe())

    def complete(self, of: Titled, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """``attributes`` completed with defaults.

        Raises ``InvalidCall`` if a required one is missing or one has the wrong type.
        """
        completed = {}
        for name, default in self.attributes.items():
            value, kind = attributes.get(name), self.attribute_types.get(name, "")
            if value is None:
                value = default
            elif value is not default:
                _check_kind(of, name, kind, value)
            if value is REQUIRED:
                raise InvalidCall(f'{of.title}: attribute "{name}" is missing', available=self.describe())
            completed[name] = value if kind in ("ints", "strs") else _as_stored(value)
        return completed

    def describe(self) -> str:
        inputs = ", ".join(("*" if p.variadic else "") + p.name + ("?" if p.optional else "") for p in self.inputs)
        attributes = ", ".join(n if d is REQUIRED else f"{n}={d!r}" for n, d in self.attributes.items())
        return f"inputs ({inputs}); attributes ({attributes})"


def _dtype(value: Any) -> Any:
    """The ONNX code of the element type that a string or a numpy dtype names; other values are unchanged."""
    if not isinstance(value, str | type) and not hasattr(value, "itemsize"):
        return value
    try:
        return DType.of(value)
    except (TypeError, ValueError):
        return value


def _contents(value: Any) -> Any:
    """A numpy array as tensor contents; other values are unchanged."""
    return ArrayConstant(value[...]) if hasattr(value, "__array_interface__") and not hasattr(value, "array") else value


#: Conversions of call arguments by the type of the attribute.
_CONVERSIONS: Final = {"int": _dtype, "Constant": _contents}


def _marks_index(annotation: Any, names: Mapping[str, Any]) -> bool:
    """Whether an annotation is or contains ``Index``; a string is resolved in the namespace of the function."""
    if not isinstance(annotation, str):
        given = (annotation, *get_args(annotation))
        return any(set(get_args(Index)) <= set(get_args(each)) for each in given if get_origin(each) is Annotated)
    for text in re.findall(r"[A-Za-z_][\w.]*", annotation):
        first, *attributes = text.split(".")
        if first not in names and (text == "Index" or attributes[-1:] == ["Index"]):  # imported only for type checkers
            return True
        meaning = names.get(first)
        for attribute in attributes:
            meaning = getattr(meaning, attribute, None)
        if meaning is Index:
            return True
    return False


#: Types of attributes in messages.
PHRASES = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "ints": "a list of integers",
    "floats": "a list of numbers",
    "strs": "a list of texts",
    "mixed": "a list",
    "Graph": "a graph",
    "Constant": "a tensor",
    "Type": "a type",
}


def _declared_kind(parameter: inspect.Parameter) -> str:
    """The type of an attribute by its default, else by its annotation; empty if neither determines it."""
    kind = "" if parameter.default is REQUIRED else kind_of(parameter.default)
    annotation = parameter.annotation
    named = (annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)).split(" | ")
    types = {"int": "int", "float": "float", "str": "str"}
    types |= {f"list[{item}]": f"{item}s" for item in types}
    types |= {name: name for name in ("Graph", "Constant", "Type")}
    return kind or next((types[name] for name in named if name in types), "")


def kind_of(value: Any) -> str:
    """The attribute type of a Python value; empty if it is ambiguous or not a type that signatures distinguish."""
    if isinstance(value, list | tuple):
        types = set(map(_kind_of_type, set(map(type, value))))  # fast for millions of items, which have few types
        if not types:
            return ""
        if types == {"int", "float"}:
            return "floats"
        only, *others = types
        return "mixed" if others or not only else f"{only}s"
    given: Any = type(value)
    return _kind_of_type(given)


_KINDS = (("str", str), ("int", Integral), ("float", Real), ("Graph", Graph), ("Type", Type))


@functools.cache
def _kind_of_type(given: Any) -> str:
    for kind, wanted in _KINDS:
        if issubclass(given, wanted):
            return kind
    return "Constant" if hasattr(given, "array") else ""


def is_kind(value: Any, kind: str) -> bool:
    """Whether an attribute value of a file has a type; an empty list has every list type."""
    return kind_of(value) == kind or (value == [] and kind.endswith("s"))


def _check_kind(of: Titled, name: str, wanted: str, value: Any) -> None:
    given = kind_of(value)
    if wanted and given and given not in (wanted, wanted.replace("float", "int")):
        raise InvalidCall(f'{of.title}: attribute "{name}" is not {PHRASES[wanted]}', given=f"{name}={value!r}")
