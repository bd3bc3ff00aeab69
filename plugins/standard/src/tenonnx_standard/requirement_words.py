"""Requirement constructors. Unknown types and dims never violate a requirement."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tenonnx.extend import (
    Arguments,
    Dim,
    DType,
    InvalidCall,
    Requirement,
    Shape,
    TensorType,
    TypeMismatch,
    Value,
    chunks_of,
    differ,
)

# ----- shapes ---------------------------------------------------------------------------------------------------------

#: Alternative shapes of an input, each a tuple of words.
Pattern = tuple[tuple[str, ...], ...]


def shapes(**patterns: str) -> Requirement:
    """Shapes of inputs, with a word for each axis: ``shapes(query="batch length hidden", mask="batch length")``.

    A word is a name (the same size everywhere), the name of an integer attribute, a number, ``_`` for any size, or once
    ``...`` for any number of axes; ``sizes...`` denotes the same axes everywhere. ``|`` separates alternatives, and the
    empty string is a scalar. ``divides``, ``at_least`` and ``holds`` may use the named sizes.
    """
    parsed: dict[str, Pattern] = {n: _parsed(n, text) for n, text in patterns.items()}
    dims = {word for pattern in parsed.values() for axes in pattern for word in axes if word.isidentifier()} - {"_"}

    def check(call: Arguments) -> None:
        for name, value in call.values(*parsed):
            if not isinstance(value.type, TensorType | None):
                call.fail(f'"{name}" is not a tensor', name)
            if value.type is not None and value.type.shape is not None:
                reason = _mismatch(call, parsed[name], value.type.shape)
                if reason is not None:
                    wanted = " or ".join(f"[{', '.join(axes)}]" for axes in parsed[name])
                    others = [n for n, _ in call.values(*parsed)] if reason else []
                    call.fail(f'"{name}" does not have the shape {wanted}{reason}', name, *others)

    def implies(call: Arguments, name: str, shape: Shape | None) -> Shape | None:
        fits = [axes for axes in parsed[name] if shape is None or _aligned(axes, shape) is not None]
        return _implied(call, fits[0], shape) if len(fits) == 1 else shape

    return Requirement("shapes", parsed, check, dims, implies, types_alone=True)


def _parsed(name: str, text: str) -> Pattern:
    """The alternatives of a pattern. Raises ``InvalidCall`` for a word that cannot be an axis."""
    pattern = tuple(tuple(axes.split()) for axes in text.split("|"))
    for axes in pattern:
        wrong = [word for word in axes if not _is_axis(word)]
        runs = [word for word in axes if word.endswith("...")]
        if wrong or len(runs) > 1:
            raise InvalidCall(
                f"{'unknown word' if wrong else 'two runs of axes'} in shapes({name}={text!r})",
                given=", ".join(wrong or runs),
                available='names, numbers, "_", "...", "sizes...", and "" as a whole for a scalar',
                do='shapes(x="batch size 4")',
            )
    return pattern


def _is_axis(word: str) -> bool:
    return word == "..." or word.isdecimal() or word.removesuffix("...").isidentifier()


def _mismatch(call: Arguments, pattern: Pattern, shape: Shape) -> str | None:
    """Reason why no alternative of a pattern matches, empty if no rank does; None if one matches."""
    reason, before, fits = "", (dict(call.dims), dict(call.runs)), []
    for axes in pattern:
        pairs = _aligned(axes, shape)
        if pairs is not None:
            problems = (_disagreement(call, word, dims) for word, dims in pairs)
            found = next((problem for problem in problems if problem is not None), None)
            if found is None:
                fits.append((call.dims, call.runs))
            reason = reason or found or ""
            call.dims, call.runs = dict(before[0]), dict(before[1])
    for number, resolved in enumerate(fits):  # only dims common to all matching alternatives are known
        dims, runs = (call.dims, call.runs) if number else resolved
        call.dims = {word: dim for word, dim in resolved[0].items() if dims.get(word) == dim}
        call.runs = {word: run for word, run in resolved[1].items() if runs.get(word) == run}
    return None if fits else reason


def _implied(call: Arguments, axes: Sequence[str], shape: Shape | None) -> Shape | None:
    """A shape with the dims implied by the names of its axes."""
    found: list[Dim] = []
    for word, dims in [(word, None) for word in axes] if shape is None else _aligned(axes, shape) or ():
        if word.endswith("..."):
            known: Shape | None = call.runs.get(word, dims)
        else:
            known = (_size(call, word),)
        if known is None:
            return None
        found += known if dims is None else map(_resolved_dim, known, dims)
    return tuple(found)


def _aligned(axes: Sequence[str], shape: Shape) -> list[tuple[str, Shape]] | None:
    """Dims of each word of a pattern in a shape; None if the ranks differ."""
    run = next((k for k, word in enumerate(axes) if word.endswith("...")), len(axes))
    behind = len(axes) - run - 1
    if len(shape) != len(axes) if behind < 0 else len(shape) < run + behind:
        return None
    end = len(shape) - max(behind, 0)
    parts = [*((d,) for d in shape[:run]), *([shape[run:end]] if behind >= 0 else []), *((d,) for d in shape[end:])]
    return list(zip(axes, parts, strict=True))


def _disagreement(call: Arguments, word: str, dims: Shape) -> str | None:
    """Reason why dims contradict a word, or None; records dims that the word resolves."""
    if word in ("_", "..."):
        return None
    if word.endswith("..."):
        run = call.runs.get(word, dims)
        if len(run) != len(dims) or any(map(differ, run, dims)):
            return f", where {word} is [{', '.join(map(_side, run))}]"
        call.runs[word] = tuple(map(_resolved_dim, run, dims))
        return None
    (dim,) = dims
    known = _size(call, word)
    if differ(known, dim):
        return "" if word.isdigit() else f", where {word} is {known}"
    call.dims[word] = _resolved_dim(known, dim)
    return None


def _size(call: Arguments, word: str) -> Dim:
    """Size of a word, if resolved."""
    given = int(word) if word.isdigit() else call.attributes.get(word)
    return call.dims.get(word) if given is None else given


def _resolved_dim(known: Dim, dim: Dim) -> Dim:
    """Merge two dims of one size: a number, else the first name."""
    return dim if known is None or isinstance(dim, int) else known


def _side(dim: Dim) -> str:
    return "?" if dim is None else str(dim)


def broadcasts_to(target: str, *inputs: str) -> Requirement:
    """Each of ``inputs`` broadcasts to the shape of the input ``target``."""

    def check(call: Arguments) -> None:
        for _, whole in call.tensors(target):
            for name, kind in call.tensors(*inputs):
                if whole.shape is not None and kind.shape is not None and not _stretches(kind.shape, whole.shape):
                    call.fail(f'"{name}" does not broadcast to "{target}"', name, target)

    def implies(call: Arguments, name: str, shape: Shape | None) -> Shape | None:
        others = call.tensors(*inputs) if name == target else call.tensors(target)
        for other in (kind.shape for _, kind in others):
            if shape is not None and other is not None:
                known = (*(None,) * len(shape), *other)[len(other) :]
                pairs = zip(shape, known, strict=True)
                if name == target:  # a dim greater than 1 equals the target's
                    shape = tuple(b if a is None and isinstance(b, int) and b != 1 else a for a, b in pairs)
                else:  # a dim of 1 is stretched
                    shape = tuple(a if b is None or isinstance(a, int) else b for a, b in pairs)
        return shape

    return Requirement("broadcasts_to", (target, *inputs), check, implies=implies, types_alone=True)


def _stretches(shape: Shape, wanted: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and not any(a != 1 and differ(a, b) for a, b in pairs)


def axis(name: str, *, of: str, end: bool = False) -> Requirement:
    """An attribute, or a constant input, is one or several distinct axes of the input ``of``.

    They may be negative; with ``end`` they are axes of a result with rank one higher than the input.
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
                problem = f"is outside of [{-rank}, {rank - 1}]" if rank else "names an axis of a scalar"
                call.fail(f"{name} {problem}", name, of)
            if len({position % rank for position in axes}) < len(axes):
                call.fail(f"{name} names an axis twice", name, of)

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
                call.fail(f'"{name}" does not hold {wanted}', name, do="cast it")

    return Requirement("dtypes", inputs, check, types_alone=True)


@functools.cache
def _members(words: str) -> frozenset[DType]:
    """The element types denoted by words."""
    found: set[DType] = set()
    for word in words.split():
        if word not in _KINDS and word not in DType.__members__:
            known = [*_KINDS, *DType.__members__]
            raise InvalidCall("unknown word in dtypes()", given=word, available=", ".join(known))
        found.update([DType[word]] if word in DType.__members__ else filter(_KINDS[word], DType))
    return frozenset(found)


def floats(*inputs: str) -> Requirement:
    """Inputs with any float type."""
    return dtypes(**dict.fromkeys(inputs, "float"))


def integers(*inputs: str) -> Requirement:
    """Inputs with any integer type."""
    return dtypes(**dict.fromkeys(inputs, "integer"))


def same_dtype(*inputs: str) -> Requirement:
    """Inputs with the same element type."""

    def check(call: Arguments) -> None:
        given = list(call.tensors(*inputs))
        for name, kind in given[1:]:
            first, other = given[0]
            if kind.dtype is not other.dtype:
                call.fail(f'"{name}" has another element type than "{first}"', first, name, do="cast one of them")

    return Requirement("same_dtype", inputs, check, types_alone=True)


# ----- presence and numbers -------------------------------------------------------------------------------------------


def together(*names: str) -> Requirement:
    """Either all of these inputs and attributes are present, or none."""

    def check(call: Arguments) -> None:
        missing = [name for name in names if call[name] is None]
        if missing and len(missing) < len(names):
            call.fail(f"only some of {', '.join(names)} are given", given=f"no {', '.join(missing)}")

    return Requirement("together", names, check, types_alone=True)


def divides(divisor: str | int, number: str) -> Requirement:
    """An attribute, a size named by ``shapes``, or a number is positive and divides an attribute or size."""
    names = [name for name in (divisor, number) if isinstance(name, str)]

    def check(call: Arguments) -> None:
        small, large = call.number(divisor), call.number(number)
        if small is not None and (small < 1 or (large is not None and large % small)):
            call.fail(f"{divisor} {'is not positive' if small < 1 else f'does not divide {number}'}", *names)

    return Requirement("divides", names, check, types_alone=True)


def at_least(**bounds: float) -> Requirement:
    """Lower bounds of attributes, of all items of lists, or of sizes named by ``shapes``."""

    def check(call: Arguments) -> None:
        for name, least in bounds.items():
            if any(isinstance(number, int | float) and not number >= least for number in _listed(call[name])):
                call.fail(f"{name} is less than {least}", name)

    return Requirement("at_least", bounds, check, types_alone=True)


def one_of(**choices: Iterable[Any]) -> Requirement:
    """Allowed values of attributes, or of all items of lists: ``one_of(mode=("linear", "nearest"))``."""
    known = {name: list(items) for name, items in choices.items()}

    def check(call: Arguments) -> None:
        for name, items in known.items():
            if any(given is not None and given not in items for given in _listed(call[name])):
                call.fail(f"unknown {name}", name, available=", ".join(map(repr, items)))

    return Requirement("one_of", known, check, types_alone=True, choices=known)


def every(what: str, test: Callable[[Any], Any], *inputs: str) -> Requirement:
    """Every float of these inputs is ``what``, wherever contents are known: constants, arrays in calls, feeds.

    ``test`` maps an array in float32 or float64 to a mask. Large contents of files are read in parts.
    """

    def numbers(array: Any) -> Sequence[Any]:
        """Up to three elements that violate the requirement."""
        import numpy as np

        kind = DType.of(array.dtype)
        if not kind.is_float:
            return ()
        wide = array.astype(np.float32) if kind.bits < 32 else array
        return wide[~test(wide)][:3].tolist()  # type: ignore[no-any-return]

    def check(call: Arguments) -> None:
        for name, value in call.values(*inputs):
            found: Sequence[Any] = next(filter(None, map(numbers, chunks_of(value.data))), ())
            if found:
                call.fail(f'"{name}" holds numbers that are not {what}', name, given=str(found))

    return Requirement(what, inputs, check, numbers=numbers)


def holds(function: Callable[..., str | None]) -> Requirement:
    """Any other requirement: ``function`` returns the violated condition or None, or raises ``TypeMismatch``.

    Its parameters are named like the inputs, attributes and sizes that it reads, any of which may be None; ``**others``
    collects all other attributes. If it reads only attributes, models are checked when loaded.
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
            raise error.as_a(type(error), what) from error
        if problem:
            call.fail(problem, *names)

    return Requirement("holds", names, check)


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else (given,)
