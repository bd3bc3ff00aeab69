"""Requirements of a call, declared once for each op.

``op.requires(shapes(X="batch hidden", W="hidden out"), floats("X"), same_dtype("X", "W"))``: checked in calls on
arrays, when a graph is built, during type inference and, for attributes, when a file is loaded, always with the same
error. An unknown type, rank, size or symbol never violates a requirement. Bodies and rules can rely on the
requirements.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.graph import Value
from tenonnx.graph.symbolic import Dim
from tenonnx.graph.types import Shape, TensorType
from tenonnx.op.signature import Signature


class Arguments:
    """Arguments of a call for requirements: inputs and attributes by name, and the dims bound by ``shapes`` so far."""

    __slots__ = ("attributes", "dims", "inputs", "runs", "title")

    def __init__(self, title: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        self.title = title
        self.inputs = inputs
        self.attributes = attributes
        self.dims: dict[str, Dim] = {}
        self.runs: dict[str, Shape] = {}

    def __getitem__(self, name: str) -> Any:
        """An input, attribute or dim by name; None if absent or unknown."""
        if name in self.inputs:
            return self.inputs[name]
        return self.attributes[name] if name in self.attributes else self.dims.get(name)

    def number(self, name: str | int) -> int | None:
        """An int, or the value of an attribute or dim; None if absent or unknown."""
        result = name if isinstance(name, int) else self[name]
        return result if isinstance(result, int) else None

    def values(self, *names: str) -> list[tuple[str, Value]]:
        """Inputs by name: several values for a variadic input, none for an absent one."""
        return [(n, v) for n in names for v in listed(self.inputs.get(n)) if v is not None]

    def tensors(self, *names: str) -> Iterator[tuple[str, TensorType]]:
        """The known tensor types of the given inputs."""
        return ((n, v.type) for n, v in self.values(*names) if isinstance(v.type, TensorType))

    def fail(self, what: str, *names: str, given: str = "", available: str = "", do: str = "") -> NoReturn:
        """Raise ``TypeMismatch`` for the call; the message shows the inputs and attributes ``names``."""
        parts = [*(self._shown(name) for name in dict.fromkeys(names)), *([given] if given else [])]
        raise TypeMismatch(f"{self.title}: {what}", given=", ".join(parts), available=available, do=do)

    def _shown(self, name: str) -> str:
        if name not in self.inputs:
            return f"{name}={self[name]!r}"
        kinds = [str(v.type or "of unknown type") for _, v in self.values(name)]
        return f"{name} {', '.join(kinds)}" if kinds else f"no {name}"


def listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else (given,)


class Requirement:
    """A condition on calls: ``check`` raises ``TypeMismatch`` for a call that violates it.

    ``names`` are the inputs, attributes and dims that it reads; ``dims`` are those of them that it binds. ``implies``
    narrows the shapes of inputs by name to those that meet the requirement. ``types_alone`` means that it reads only
    types, attributes and small integers, so that similar calls are checked once. ``choices`` are all values allowed for
    some attributes. ``numbers`` returns the forbidden elements of an array for one of ``names``; feeds are checked with
    it, too.
    """

    __slots__ = ("check", "choices", "constructor", "dims", "implies", "names", "numbers", "types_alone")

    def __init__(
        self,
        constructor: str,
        names: Iterable[str],
        check: Callable[[Arguments], None],
        dims: Iterable[str] = (),
        implies: Callable[[Arguments, str, Shape | None], Shape | None] | None = None,
        types_alone: bool = False,
        choices: Mapping[str, Sequence[Any]] | None = None,
        numbers: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        self.constructor = constructor
        self.names = tuple(names)
        self.check = check
        self.dims = frozenset(dims)
        self.implies = implies
        self.types_alone = types_alone
        self.choices = choices or {}
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"{self.constructor}({', '.join(self.names)})"


class Declared(Protocol):
    """The part of an op that requirements read."""

    @property
    def title(self) -> str: ...

    @property
    def signature(self) -> Signature: ...

    @property
    def function(self) -> Callable[..., Any]: ...


class Requirements:
    """The requirements of an op, in the order of their declaration."""

    def __init__(self, op: Declared, declared: Sequence[Requirement] = ()) -> None:
        self.op = op
        self.declared = tuple(declared)

    def and_also(self, requirements: Sequence[Requirement]) -> Requirements:
        """These and further requirements. Raises ``InvalidCall`` for a name that the op does not have."""
        wrong = next((each for each in requirements if not isinstance(each, Requirement)), None)
        if wrong is not None:
            what = f"{self.op.title}.requires was given no requirement"
            raise InvalidCall(what, given=repr(wrong)[:200], do='floats("x"), say')
        combined = Requirements(self.op, (*self.declared, *requirements))
        code = inspect.unwrap(self.op.function).__code__
        variadic = bool(code.co_flags & inspect.CO_VARARGS)
        known = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + variadic])
        known.update(*(requirement.dims for requirement in combined.declared))
        for requirement in requirements:
            unknown = [name for name in requirement.names if name not in known]
            if unknown:
                raise InvalidCall(
                    f"{self.op.title}.requires: there is no input, attribute or named dim {', '.join(unknown)}",
                    given=repr(requirement),
                    available=self.op.signature.describe(),
                )
        return combined

    def check(self, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> Arguments | None:
        """Check a call; returns the resolved dims. Raises ``TypeMismatch`` for a violated requirement."""
        if not self.declared:
            return None
        call = self.arguments(inputs, attributes)
        for requirement in self.declared:
            requirement.check(call)
        return call

    def narrowed(self, inputs: Sequence[Value | None], call: Arguments | None) -> Sequence[Value | None]:
        """The inputs with their shapes narrowed to those that meet the requirements."""
        if call is None:
            return inputs
        return [self._narrowed(value, place, call) for place, value in enumerate(inputs)]

    def _narrowed(self, value: Value | None, place: int, call: Arguments) -> Value | None:
        if value is None or value.data is not None or not isinstance(value.type, TensorType):
            return value
        name, shape = self.op.signature.input_at(place).name, value.type.shape
        for requirement in self.declared:
            if requirement.implies is not None and name in requirement.names:
                shape = requirement.implies(call, name, shape)
        if shape == value.type.shape:
            return value
        narrowed = Value(value.name, value.type.with_shape(shape), graph=value.graph)
        narrowed.symbolic_contents = value.symbolic_contents
        return narrowed

    @functools.cached_property
    def of_numbers(self) -> list[Requirement]:
        """Requirements on the elements of inputs."""
        return [requirement for requirement in self.declared if requirement.numbers is not None]

    def check_numbers(self, inputs: Sequence[Value | None]) -> None:
        """Raise ``TypeMismatch`` if elements of arrays violate a requirement; types were checked before."""
        for requirement in self.of_numbers:
            requirement.check(self.arguments(inputs, {}))

    @functools.cached_property
    def read_contents(self) -> bool:
        """Whether a requirement may read the contents of inputs."""
        return any(not r.types_alone and r not in self.of_attributes for r in self.declared)

    @functools.cached_property
    def of_attributes(self) -> list[Requirement]:
        """Requirements that read only attributes."""
        attributes = self.op.signature.attributes
        return [r for r in self.declared if all(n in attributes for n in r.names)]

    def check_attributes(self, title: str, attributes: Mapping[str, Any]) -> None:
        """Raise ``TypeMismatch`` if complete attributes, for example of a file, violate a requirement."""
        for requirement in self.of_attributes:
            requirement.check(Arguments(title, {}, attributes))

    def arguments(self, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> Arguments:
        parameters = self.op.signature.inputs
        named: dict[str, Any] = {p.name: v for p, v in zip(parameters, inputs, strict=False)}
        if self.op.signature.variadic:
            named[parameters[-1].name] = tuple(inputs[len(parameters) - 1 :])
        return Arguments(self.op.title, named, attributes)
