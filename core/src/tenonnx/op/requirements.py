"""What must hold of a call: declared once beside an op, in few words, and asked by all who meet a call of it.

``op.requires(shapes(X="batch hidden", W="hidden out"), floats("X"), same_dtype("X", "W"))``: whoever calls the op, on
arrays or into a graph, whoever infers types and whoever loads a file (as far as attributes tell) refuses what breaks
one of these, in the same words. Nothing unknown breaks a requirement: a type, rank, size or symbol that is not known
yet may still turn out right. Bodies and rules need not ask again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tenonnx.errors import InvalidCall, TypeMismatch
from tenonnx.graph.dtypes import DType
from tenonnx.graph.symbolic import Dim, differ
from tenonnx.graph.types import Shape, TensorType
from tenonnx.graph.values import Value, in_parts

if TYPE_CHECKING:
    from tenonnx.op.op import Op


class Arguments:
    """A call as requirements see it: inputs and attributes by name, and the dims that ``shapes`` has named so far."""

    __slots__ = ("attributes", "dims", "inputs", "runs", "title")

    def __init__(self, title: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        self.title = title
        self.inputs = inputs
        self.attributes = attributes
        self.dims: dict[str, Dim] = {}
        self.runs: dict[str, Shape] = {}

    def __getitem__(self, name: str) -> Any:
        """An input, an attribute, or a dim by name; None where it is absent or unknown."""
        if name in self.inputs:
            return self.inputs[name]
        return self.attributes[name] if name in self.attributes else self.dims.get(name)

    def number(self, name: str | int) -> int | None:
        """A number, or that of an attribute or dim; None where it is absent or unknown."""
        found = name if isinstance(name, int) else self[name]
        return found if isinstance(found, int) else None

    def values(self, *names: str) -> list[tuple[str, Value]]:
        """What is given for inputs, by name: several values for a variadic one, none for an absent one."""
        return [(n, v) for n in names for v in _listed(self.inputs.get(n)) if v is not None]

    def tensors(self, *names: str) -> Iterator[tuple[str, TensorType]]:
        """The types of what is given for inputs, where they are known to be tensors."""
        return ((n, v.type) for n, v in self.values(*names) if isinstance(v.type, TensorType))

    def fail(self, what: str, *names: str, given: str = "", available: str = "", do: str = "") -> NoReturn:
        """Refuse the call; ``names`` are shown as they were given."""
        parts = [*(self._shown(name) for name in dict.fromkeys(names)), *([given] if given else [])]
        raise TypeMismatch(f"{self.title}: {what}", given=", ".join(parts), available=available, do=do)

    def _shown(self, name: str) -> str:
        if name not in self.inputs:
            return f"{name}={self[name]!r}"
        kinds = [str(v.type or "of unknown type") for _, v in self.values(name)]
        return f"{name} {', '.join(kinds)}" if kinds else f"no {name}"


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else (given,)


class Requirement:
    """Something that must hold of a call: ``check`` raises ``TypeMismatch`` where it does not.

    ``names`` are the inputs, attributes and dims that it reads, of which ``dims`` are those that it names itself.
    ``implies`` narrows the shape of an input, by name, to what it must be if this is to hold. ``types_alone`` says that
    it looks at no more than types, attributes and small integers, so that calls that are alike need not ask again.
    ``choices`` are all that some attributes may be. ``numbers`` gives of an array in the place of one of
    ``names`` the numbers that it must not hold: it is asked of what is fed, too.
    """

    __slots__ = ("check", "choices", "dims", "implies", "names", "numbers", "types_alone", "word")

    def __init__(
        self,
        word: str,
        names: Iterable[str],
        check: Callable[[Arguments], None],
        dims: Iterable[str] = (),
        implies: Callable[[Arguments, str, Shape | None], Shape | None] | None = None,
        types_alone: bool = False,
        choices: Mapping[str, Sequence[Any]] | None = None,
        numbers: Callable[[Any], Sequence[Any]] | None = None,
    ) -> None:
        self.word = word
        self.names = tuple(names)
        self.check = check
        self.dims = frozenset(dims)
        self.implies = implies
        self.types_alone = types_alone
        self.choices = choices or {}
        self.numbers = numbers

    def __repr__(self) -> str:
        return f"{self.word}({', '.join(self.names)})"


class Requirements:
    """All that must hold of the calls of one op, in the order in which it was declared."""

    def __init__(self, op: Op, declared: Sequence[Requirement] = ()) -> None:
        self.op = op
        self.declared = tuple(declared)

    def and_also(self, requirements: Sequence[Requirement]) -> Requirements:
        """These and more. Raises ``InvalidCall`` where one names what the op does not have."""
        made = Requirements(self.op, (*self.declared, *requirements))
        code = inspect.unwrap(self.op.function).__code__
        variadic = bool(code.co_flags & inspect.CO_VARARGS)
        known = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + variadic])
        known.update(*(requirement.dims for requirement in made.declared))
        for requirement in requirements:
            unknown = [name for name in requirement.names if name not in known]
            if unknown:
                raise InvalidCall(
                    f"{self.op.title}.requires: there is no input, attribute or named dim {', '.join(unknown)}",
                    given=repr(requirement),
                    available=self.op.signature.describe(),
                )
        return made

    def check(self, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> Arguments | None:
        """What is learned of a call. Raises ``TypeMismatch`` where its complete attributes and inputs break one."""
        if not self.declared:
            return None
        call = self.arguments(inputs, attributes)
        for requirement in self.declared:
            requirement.check(call)
        return call

    def narrowed(self, inputs: Sequence[Value | None], call: Arguments | None) -> Sequence[Value | None]:
        """The inputs with the shapes that they must have for the requirements to hold."""
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
        narrowed.elements = value.elements
        return narrowed

    @functools.cached_property
    def of_numbers(self) -> list[Requirement]:
        """Those that judge every number of their inputs."""
        return [requirement for requirement in self.declared if requirement.numbers is not None]

    def check_numbers(self, inputs: Sequence[Value | None]) -> None:
        """Raise ``TypeMismatch`` where contents alone break one: those of arrays, whose types were judged before."""
        for requirement in self.of_numbers:
            requirement.check(self.arguments(inputs, {}))

    @functools.cached_property
    def read_contents(self) -> bool:
        """Whether one may look at the contents of inputs."""
        return any(not r.types_alone and r not in self.of_attributes for r in self.declared)

    @functools.cached_property
    def of_attributes(self) -> list[Requirement]:
        """Those that read attributes alone."""
        attributes = self.op.signature.attributes
        return [r for r in self.declared if all(n in attributes for n in r.names)]

    def check_attributes(self, title: str, attributes: Mapping[str, Any]) -> None:
        """Raise ``TypeMismatch`` where complete attributes alone, as a file tells them, break one."""
        for requirement in self.of_attributes:
            requirement.check(Arguments(title, {}, attributes))

    def arguments(self, inputs: Sequence[Value | None], attributes: Mapping[str, Any]) -> Arguments:
        parameters = self.op.signature.inputs
        named: dict[str, Any] = {p.name: v for p, v in zip(parameters, inputs, strict=False)}
        if self.op.signature.variadic:
            named[parameters[-1].name] = tuple(inputs[len(parameters) - 1 :])
        return Arguments(self.op.title, named, attributes)


# ----- shapes ---------------------------------------------------------------------------------------------------------

#: The shapes that an input may have, each a tuple of words.
Pattern = tuple[tuple[str, ...], ...]


def shapes(**patterns: str) -> Requirement:
    """The shapes of inputs, one word for each axis: ``shapes(query="batch length hidden", mask="batch length")``.

    A word is a name (equal wherever it stands), the name of an integer attribute, a number, ``_`` for any size, or once
    ``...`` for any number of axes; ``sizes...`` is the same run of axes wherever it stands. Between alternatives there
    is ``|``, and the empty text is a scalar. ``divides``, ``at_least`` and ``holds`` may speak of the named sizes.
    """
    parsed: dict[str, Pattern] = {n: tuple(tuple(p.split()) for p in text.split("|")) for n, text in patterns.items()}
    dims = {word for pattern in parsed.values() for axes in pattern for word in axes if word.isidentifier()} - {"_"}

    def check(call: Arguments) -> None:
        for name, value in call.values(*parsed):
            if not isinstance(value.type, TensorType | None):
                call.fail(f'"{name}" must be a tensor', name)
            if value.type is not None and value.type.shape is not None:
                reason = _mismatch(call, parsed[name], value.type.shape)
                if reason is not None:
                    wanted = " or ".join(f"[{', '.join(axes)}]" for axes in parsed[name])
                    others = [n for n, _ in call.values(*parsed)] if reason else []
                    call.fail(f'"{name}" must have the shape {wanted}{reason}', name, *others)

    def implies(call: Arguments, name: str, shape: Shape | None) -> Shape | None:
        fits = [axes for axes in parsed[name] if shape is None or _aligned(axes, shape) is not None]
        return _implied(call, fits[0], shape) if len(fits) == 1 else shape

    return Requirement("shapes", parsed, check, dims, implies, types_alone=True)


def _mismatch(call: Arguments, pattern: Pattern, shape: Shape) -> str | None:
    """Why no alternative of a pattern fits, empty where no rank does; None where one fits."""
    reason = ""
    for axes in pattern:
        pairs = _aligned(axes, shape)
        if pairs is not None:
            noted = dict(call.dims), dict(call.runs)
            problems = (_disagreement(call, word, dims) for word, dims in pairs)
            found = next((problem for problem in problems if problem is not None), None)
            if found is None:
                return None
            (call.dims, call.runs), reason = noted, reason or found
    return reason


def _implied(call: Arguments, axes: Sequence[str], shape: Shape | None) -> Shape | None:
    """A shape as far as the names of its axes tell."""
    found: list[Dim] = []
    for word, dims in [(word, None) for word in axes] if shape is None else _aligned(axes, shape) or ():
        if word.endswith("..."):
            known: Shape | None = call.runs.get(word, dims)
        else:
            known = (_size(call, word),)
        if known is None:
            return None
        found += known if dims is None else map(_learned, known, dims)
    return tuple(found)


def _aligned(axes: Sequence[str], shape: Shape) -> list[tuple[str, Shape]] | None:
    """What each word of a pattern stands for in a shape; None where the ranks do not fit."""
    run = next((k for k, word in enumerate(axes) if word.endswith("...")), len(axes))
    behind = len(axes) - run - 1
    if len(shape) != len(axes) if behind < 0 else len(shape) < run + behind:
        return None
    end = len(shape) - max(behind, 0)
    parts = [*((d,) for d in shape[:run]), *([shape[run:end]] if behind >= 0 else []), *((d,) for d in shape[end:])]
    return list(zip(axes, parts, strict=True))


def _disagreement(call: Arguments, word: str, dims: Shape) -> str | None:
    """Why dims cannot be what a word stands for, or None; what is learned of it is noted."""
    if word in ("_", "..."):
        return None
    if word.endswith("..."):
        run = call.runs.get(word, dims)
        if len(run) != len(dims) or any(map(differ, run, dims)):
            return f", where {word} is [{', '.join(map(_side, run))}]"
        call.runs[word] = tuple(map(_learned, run, dims))
        return None
    (dim,) = dims
    known = _size(call, word)
    if differ(known, dim):
        return "" if word.isdigit() else f", where {word} is {known}"
    call.dims[word] = _learned(known, dim)
    return None


def _size(call: Arguments, word: str) -> Dim:
    """What is known so far of the size that a word stands for."""
    given = int(word) if word.isdigit() else call.attributes.get(word)
    return call.dims.get(word) if given is None else given


def _learned(known: Dim, dim: Dim) -> Dim:
    """What is known of a size that two dims tell: a number, else the first name."""
    return dim if known is None or isinstance(dim, int) else known


def _side(dim: Dim) -> str:
    return "?" if dim is None else str(dim)


def broadcasts_to(target: str, *inputs: str) -> Requirement:
    """Each of ``inputs`` takes the shape of the input ``target`` when it is broadcast."""

    def check(call: Arguments) -> None:
        for _, whole in call.tensors(target):
            for name, kind in call.tensors(*inputs):
                if whole.shape is not None and kind.shape is not None and not _stretches(kind.shape, whole.shape):
                    call.fail(f'"{name}" must broadcast to "{target}"', name, target)

    def implies(call: Arguments, name: str, shape: Shape | None) -> Shape | None:
        others = call.tensors(*inputs) if name == target else call.tensors(target)
        for other in (kind.shape for _, kind in others):
            if shape is not None and other is not None:
                known = (*(None,) * len(shape), *other)[len(other) :]
                pairs = zip(shape, known, strict=True)
                if name == target:  # what is longer than 1 is as long as the target
                    shape = tuple(b if a is None and isinstance(b, int) and b != 1 else a for a, b in pairs)
                else:  # what is 1 is stretched
                    shape = tuple(a if b is None or isinstance(a, int) else b for a, b in pairs)
        return shape

    return Requirement("broadcasts_to", (target, *inputs), check, implies=implies, types_alone=True)


def _stretches(shape: Shape, wanted: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and not any(a != 1 and differ(a, b) for a, b in pairs)


def axis(name: str, *, of: str, end: bool = False) -> Requirement:
    """An attribute, or an input whose contents are known, names an axis or distinct axes of the input ``of``.

    They may count from the end; with ``end`` they are axes of a result that has one more than the input.
    """

    def check(call: Arguments) -> None:
        given = call[name]
        if isinstance(given, Value):
            given = None if given.data is None else given.data.array().reshape(-1).tolist()
        axes = [] if given is None else _listed(given)
        for _, kind in call.tensors(of):
            if kind.rank is None or not axes:
                continue
            rank = kind.rank + end
            if not all(-rank <= position < rank for position in axes):
                within = f"lie in [{-rank}, {rank - 1}]" if rank else "name an axis, and a scalar has none"
                call.fail(f"{name} must {within}", name, of)
            if len({position % rank for position in axes}) < len(axes):
                call.fail(f"{name} must name an axis once", name, of)

    return Requirement("axis_or_end" if end else "axis", (name, of), check, types_alone=True)


# ----- element types --------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, Callable[[DType], bool]] = {
    "float": lambda dtype: dtype.is_float,
    "integer": lambda dtype: dtype.is_integer,
    "number": lambda dtype: dtype.is_numeric,
}


def dtypes(**inputs: str) -> Requirement:
    """The element types of inputs: ``dtypes(mask="bool", lengths="int32 int64", X="float integer")``.

    A word is an element type or a kind: ``float``, ``integer`` or ``number``.
    """
    allowed = {name: _members(words) for name, words in inputs.items()}

    def check(call: Arguments) -> None:
        for name, kind in call.tensors(*inputs):
            if kind.dtype not in allowed[name]:
                wanted = " or ".join(f"{word}s" if word in _KINDS else word for word in inputs[name].split())
                call.fail(f'"{name}" must hold {wanted}', name, do="cast it")

    return Requirement("dtypes", inputs, check, types_alone=True)


@functools.cache
def _members(words: str) -> frozenset[DType]:
    """The element types that words stand for."""
    found: set[DType] = set()
    for word in words.split():
        if word not in _KINDS and word not in DType.__members__:
            raise InvalidCall("dtypes() takes element types and kinds", given=word, available=", ".join(_KINDS))
        found.update([DType[word]] if word in DType.__members__ else filter(_KINDS[word], DType))
    return frozenset(found)


def floats(*inputs: str) -> Requirement:
    """These inputs hold floats, of whatever width."""
    return dtypes(**dict.fromkeys(inputs, "float"))


def integers(*inputs: str) -> Requirement:
    """These inputs hold integers, of whatever width."""
    return dtypes(**dict.fromkeys(inputs, "integer"))


def same_dtype(*inputs: str) -> Requirement:
    """These inputs have one element type."""

    def check(call: Arguments) -> None:
        given = list(call.tensors(*inputs))
        for name, kind in given[1:]:
            first, other = given[0]
            if kind.dtype is not other.dtype:
                call.fail(f'"{name}" must have the element type of "{first}"', first, name, do="cast one of them")

    return Requirement("same_dtype", inputs, check, types_alone=True)


# ----- presence and numbers -------------------------------------------------------------------------------------------


def together(*names: str) -> Requirement:
    """Either all of these inputs and attributes are given, or none."""

    def check(call: Arguments) -> None:
        missing = [name for name in names if call[name] is None]
        if missing and len(missing) < len(names):
            call.fail(f"{', '.join(names)} must be given together", given=f"no {', '.join(missing)}")

    return Requirement("together", names, check, types_alone=True)


def divides(divisor: str | int, number: str) -> Requirement:
    """An attribute, a size named by ``shapes``, or a number divides an attribute or size; it is positive, too."""
    names = [name for name in (divisor, number) if isinstance(name, str)]

    def check(call: Arguments) -> None:
        small, large = call.number(divisor), call.number(number)
        if small is not None and (small < 1 or (large is not None and large % small)):
            call.fail(f"{divisor} must divide {number}", *names)

    return Requirement("divides", names, check, types_alone=True)


def at_least(**bounds: float) -> Requirement:
    """Attributes, all numbers of lists, or sizes named by ``shapes`` are not less than that."""

    def check(call: Arguments) -> None:
        for name, least in bounds.items():
            if any(isinstance(number, int | float) and not number >= least for number in _listed(call[name])):
                call.fail(f"{name} must be at least {least}", name)

    return Requirement("at_least", bounds, check, types_alone=True)


def one_of(**choices: Iterable[Any]) -> Requirement:
    """Attributes, or all items of lists, are among these: ``one_of(mode=("linear", "nearest"))``."""
    known = {name: list(items) for name, items in choices.items()}

    def check(call: Arguments) -> None:
        for name, items in known.items():
            if any(given is not None and given not in items for given in _listed(call[name])):
                call.fail(f"{name} must be a known one", name, available=", ".join(map(repr, items)))

    return Requirement("one_of", known, check, types_alone=True, choices=known)


def every(what: str, test: Callable[[Any], Any], *inputs: str) -> Requirement:
    """Every float of these inputs is ``what``, wherever contents are known: of constants, in calls on arrays, of feeds.

    ``test`` tells of an array in float32 or float64 which numbers are. Large contents of files are read in parts.
    """

    def numbers(array: Any) -> Sequence[Any]:
        """Three of those that are not."""
        import numpy as np

        kind = DType.of(array.dtype)
        if not kind.is_float:
            return ()
        wide = array.astype(np.float32) if kind.bits < 32 else array
        return wide[~test(wide)][:3].tolist()  # type: ignore[no-any-return]

    def check(call: Arguments) -> None:
        for name, value in call.values(*inputs):
            found: Sequence[Any] = next(filter(None, map(numbers, in_parts(value.data))), ())
            if found:
                call.fail(f'"{name}" must be {what}', name, given=str(found))

    return Requirement(what, inputs, check, numbers=numbers)


def holds(function: Callable[..., str | None]) -> Requirement:
    """What no other word says: ``function`` returns what must hold and does not, or None; or raises ``TypeMismatch``.

    Its parameters are named as the inputs, attributes and sizes that it reads, any of which may be None, and
    ``**others`` takes all further attributes. Where it reads attributes alone, files are checked by it when loaded.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes_others = bool(code.co_flags & inspect.CO_VARKEYWORDS)

    def check(call: Arguments) -> None:
        others = call.attributes if takes_others else {}
        try:
            problem = function(**{**others, **{name: call[name] for name in names}})
        except TypeMismatch as error:
            what = error.what if error.what.startswith(call.title) else f"{call.title}: {error.what}"
            raise type(error)(what, given=error.given, available=error.available, do=error.do) from error
        if problem:
            call.fail(problem, *names)

    return Requirement("holds", names, check)
