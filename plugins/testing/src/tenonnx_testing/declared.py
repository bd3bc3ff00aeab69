"""Checks of the declarations of an op and its cases as a whole."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from tenonnx.extend import Op, TenonnxError, find_rule, find_trait
from tenonnx_testing import schemas
from tenonnx_testing.cases import Call, Case, collected
from tenonnx_testing.derivatives import is_float
from tenonnx_testing.kit import drawable, draws, given_names, optional
from tenonnx_testing.mutations import as_dtype, is_admitted, with_input
from tenonnx_testing.run import Failure, completed, evaluate, is_random

#: Minimum number of calls before an input counts as constant.
ENOUGH = 8

#: Cases need not draw every choice of lists longer than this; number of calls to try other dtypes on.
FEW = 3

#: Kinds of rules that take the inputs and attributes, with the parameters that precede them.
GIVEN = {"numpy": (), "type": (), "vjp": ("g", "y"), "symbolic": (), "rewrite": ()}

#: Invalid value of a text attribute.
UNKNOWN_WORD = "nonsense"

#: The bytecode instruction that reads an attribute ``name``.
_READ_NAME = ("LOAD_ATTR", "name")

#: Kinds of dtypes, of which cases have to draw each that an input takes.
KINDS = {"f": "floats", "i": "integers", "u": "integers", "b": "booleans"}

#: Traits whose values are names of inputs.
NAMING = ("adjusts", "scales", "weights")


def check_declared(op: Op, examples: int) -> None:
    """Run each check of ``DECLARED``. A gap ``declared`` turns findings into an expected failure."""
    cases = list(collected(op))
    problems = [problem for check in DECLARED for problem in check(op, cases)]
    gaps = [gap for case in cases for gap in case.gaps_of("declared")]
    if problems and gaps:
        pytest.xfail("; ".join(gap.reason for gap in gaps))
    if gaps:
        raise Failure(f"{op.title}: the gap of declared is stale, nothing is missing any more: {gaps[0].reason}")
    if problems:
        raise Failure(f"{op.title}: {problems[0]}" + "".join(f"\n  also: {problem}" for problem in problems[1:]))


def draws_all(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report inputs that no call has, and attributes that have their default in every call.

    Ops with a schema of ONNX or onnxruntime are left to the summary of a run, since some attributes are out of use.
    """
    if schemas.history(op.domain, op.name):
        return
    drawn = [call for case in cases for call in draws(case)]
    undrawn = {name for case in cases for name in case.undrawn}
    had = set().union(*(given_names(op, call) for call in drawn))
    missing = [name for name in drawable(op) if name not in had | undrawn]
    if missing:
        do = f'say why in cases(..., undrawn={{"{missing[0]}": "the reason"}})'
        yield f"no call of its cases has another {', '.join(missing)} than by default: draw some, or {do}"


def draws_all_choices(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report values listed by ``one_of`` that no call has."""
    if schemas.history(op.domain, op.name):
        return
    drawn = [call for case in cases for call in draws(case)]
    undrawn = {name for case in cases for name in case.undrawn}
    choices = {name: items for each in op.requirements.declared for name, items in each.choices.items()}
    for name, items in choices.items():
        default = op.signature.attributes.get(name)
        found = [value for call in drawn for value in _listed(call.attributes.get(name, default))]
        missing = [item for item in items if item not in found]
        if missing and name not in undrawn and len(items) <= FEW:
            yield f"no call of its cases has {' or '.join(f'{name}={item!r}' for item in missing)}: draw some"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def draws_broadcasting(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report an op that broadcasts if the operands of each call have equal shapes."""
    if not op.broadcasts or schemas.history(op.domain, op.name):
        return
    drawn = [[v.shape for v in call.inputs if isinstance(v, np.ndarray)] for case in cases for call in draws(case)]
    several = [shapes for shapes in drawn if len(shapes) > 1]
    if several and all(len({*shapes}) == 1 for shapes in several):
        yield "it broadcasts, and the operands of each call have one shape: draw some of others, by broadcastable(...)"


def draws_different_contents(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a mask, scale or zero point with one value in all calls, if the op accepts other values."""
    undrawn = {name for case in cases for name in case.undrawn}
    drawn = _drawn(op, cases)
    for place, parameter in enumerate(op.signature.inputs):
        had = [call for call in drawn if place < len(call.inputs) and _is_filled(call.inputs[place])]
        contents = {number for call in had for number in np.unique(call.inputs[place]).tolist()}
        if len(had) < ENOUGH or len(contents) != 1 or parameter.index or parameter.variadic:
            continue
        is_scale = all(map(is_float, (call.inputs[place] for call in had))) and contents != {0.0}
        if not is_scale and any(call.inputs[place].dtype.itemsize > 1 for call in had):
            continue  # a size or an option in an integer
        if parameter.name not in undrawn and any(_other_contents(op, call, place) for call in had):
            yield f"each call of its cases has {parameter.name} of {contents.pop()!r} alone: draw others"


def _drawn(op: Op, cases: Sequence[Case]) -> list[Call]:
    """Completed calls of an op; empty for an op with a schema of ONNX or onnxruntime."""
    if schemas.history(op.domain, op.name):
        return []
    return [completed(op, call) for case in cases for call in draws(case)]


def _with_floats(drawn: Sequence[Call]) -> list[Call]:
    """Calls whose first input is a non-empty float tensor."""
    return [call for call in drawn if call.inputs and _is_filled(call.inputs[0]) and is_float(call.inputs[0])]


def _is_filled(contents: Any) -> bool:
    return isinstance(contents, np.ndarray) and contents.size > 0 and contents.dtype.kind in "iufb"


def _other_contents(op: Op, call: Call, place: int) -> bool:
    """Whether the op computes the call with changed contents of one input."""
    contents = call.inputs[place]
    other = ~contents if contents.dtype == bool else contents + contents.dtype.type(1)
    return is_admitted(op, with_input(call, place, other)) and _computed(op, with_input(call, place, other)) is not None


def _computed(op: Op, call: Call) -> tuple[Any, ...] | None:
    try:
        with np.errstate(all="ignore"):
            return evaluate(op, call)
    except TenonnxError:
        return None


def draws_negative_numbers(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a first float input that is always positive, if the op gives finite results for negative numbers."""
    drawn = _drawn(op, cases)
    had = _with_floats(drawn)
    if len(had) < ENOUGH or len(had) < len(drawn) / 2 or any((call.inputs[0] <= 0).any() for call in had):
        return
    name = op.signature.inputs[0].name
    found = [_computed(op, with_input(call, 0, -call.inputs[0])) for call in had]
    floats = [v for outputs in found if outputs is not None for v in outputs if is_float(v)]
    if floats and None not in found and all(np.isfinite(v).all() for v in floats):
        yield f"each call of its cases has {name} > 0, and the op computes negative numbers: draw some, or refuse them"


def draws_several_ranks(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a first input that is a vector in every call, if the op accepts and computes matrices."""
    had = _with_floats(_drawn(op, cases))
    if len(had) < ENOUGH or len({call.inputs[0].ndim for call in had}) != 1 or had[0].inputs[0].ndim != 1:
        return
    wider = [with_input(call, 0, np.stack([call.inputs[0]] * 2)) for call in had]
    if all(is_admitted(op, call) and _computed(op, call) is not None for call in wider):
        name = op.signature.inputs[0].name
        yield f"{name} is a vector in each call of its cases, and the op takes further axes: draw some, or refuse them"


def draws_each_kind(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report an input of one dtype in all calls, a float or an integer, if ``dtypes`` lists both kinds for it."""
    drawn = _drawn(op, cases)
    listed = {name for each in op.requirements.declared if each.constructor == "dtypes" for name in each.names}
    undrawn = {name for case in cases for name in case.undrawn}
    for place, parameter in enumerate(op.signature.inputs):
        had = [call for call in drawn if place < len(call.inputs) and _is_filled(call.inputs[place])]
        if len(had) < ENOUGH or parameter.name not in listed - undrawn or parameter.index or parameter.variadic:
            continue
        if len({call.inputs[place].dtype for call in had}) > 1:
            continue  # the draws of one of several dtypes may lack another by chance
        kind = KINDS[had[0].inputs[place].dtype.kind]
        for dtype in ("float32", "int32", "uint8", "int64"):
            if KINDS[np.dtype(dtype).kind] != kind and any(_takes(op, call, place, dtype) for call in had[:FEW]):
                yield f"each call of its cases has {parameter.name} of {kind}, and it takes {dtype}: draw some"
                break


def _takes(op: Op, call: Call, place: int, dtype: str) -> bool:
    """Whether the op computes the call with another dtype of one input, or of all inputs of its dtype."""
    kind = call.inputs[place].dtype
    alike = [k for k, v in enumerate(call.inputs) if isinstance(v, np.ndarray) and v.dtype == kind]
    for places in ([place], alike):
        changed = replace(
            call, inputs=tuple(as_dtype(v, dtype) if k in places else v for k, v in enumerate(call.inputs))
        )
        if is_admitted(op, changed) and _computed(op, changed) is not None:
            return True
    return False


def draws_longer_lists(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a list of axes, sizes or indices that has one element in each call, if the op computes longer ones."""
    drawn = _drawn(op, cases)
    for place, parameter in enumerate(op.signature.inputs):
        had = [call for call in drawn if place < len(call.inputs) and _is_filled(call.inputs[place])]
        if len(had) < ENOUGH or not parameter.index or any(call.inputs[place].shape != (1,) for call in had):
            continue
        if any(
            is_admitted(op, longer) and _computed(op, longer) is not None
            for call in had
            for further in (0, 1)
            for longer in [with_input(call, place, np.append(call.inputs[place], call.inputs[place][0] + further))]
        ):
            yield f"each call of its cases has one element in {parameter.name}, and it takes several: draw some"


def takes_known_words_alone(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a text attribute if an invalid value gives the same results as a valid one."""
    if schemas.history(op.domain, op.name):
        return
    listed = {name for each in op.requirements.declared for name in each.choices}
    for name in (n for n, value in op.signature.attributes.items() if isinstance(value, str) and n not in listed):
        drawn = [completed(op, call) for case in cases for call in draws(case)]
        words = {call.attributes[name] for call in drawn}
        results = {word: [_outputs_with(op, call, name, word) for call in drawn] for word in (*words, UNKNOWN_WORD)}
        unknown = results.pop(UNKNOWN_WORD)
        alike = [word for word in words if None not in unknown and _same(results[word], unknown)]
        if len(words) > len(alike) > 0:
            shown = ", ".join(map(repr, sorted(words)))
            yield f"{name}={UNKNOWN_WORD!r} is taken for {alike[0]!r}: declare one_of({name}=({shown}))"


def _outputs_with(op: Op, call: Call, name: str, word: str) -> list[Any] | None:
    """Outputs with a text attribute set to ``word``; None if the op rejects it."""
    try:
        return list(evaluate(op, replace(call, attributes={**call.attributes, name: word})))
    except TenonnxError:
        return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one is None and other is None


def leaves_out_what_is_optional(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report optional inputs that every call has, if the op accepts a call without them."""
    if schemas.history(op.domain, op.name):
        return
    drawn = [completed(op, call) for case in cases for call in draws(case)]
    for name in optional(op):
        place = [p.name for p in op.signature.inputs].index(name)
        had = [call for call in drawn if place < len(call.inputs) and call.inputs[place] is not None]
        if len(had) == len(drawn) and any(is_admitted(op, with_input(call, place, None)) for call in had):
            yield f"each call of its cases has {name}, which is optional: draw some without it"


def draws_where_said(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report an op with ``pure=False`` whose body draws no random numbers in any call."""
    if op.pure or op.primitive:
        return
    drawn = [completed(op, call) for case in cases for call in draws(case)]
    if not any(is_random(op, call) for call in drawn):
        yield "it has pure=False, and its body draws nothing at random: leave that out"


def compares_its_gradient(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report an op with a vjp rule whose cases never compare its gradient."""
    silent = all(case.gradient is False for case in cases) and not any(case.no_gradient for case in cases)
    if find_rule(op, "vjp") is not None and silent and any(_gives_floats(op, case) for case in cases):
        yield 'it has a vjp, and its cases have gradient=False: leave that out, or say why: gradient="the reason"'


def _gives_floats(op: Op, case: Case) -> bool:
    """Whether the simplest call of a case has float inputs and float outputs."""
    drawn = completed(op, draws(case)[0])
    return all(any(map(is_float, values)) for values in (drawn.inputs, evaluate(op, drawn)))


def names_its_inputs(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report traits that name unknown inputs."""
    names = [p.name for p in op.signature.inputs]
    for trait in NAMING:
        unknown = [name for name in (find_trait(op, trait) or "").split() if name not in names]
        if unknown:
            yield f"the trait {trait} names {', '.join(unknown)}, and its inputs are {', '.join(names)}"


def reads_no_names(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a body that reads the names of values, which differ between files."""
    function = op.function
    if isinstance(function, FunctionType) and _reads_a_name(function.__code__):
        line = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        yield f"the body reads .name, and the names of values differ from file to file ({line})"


def _reads_a_name(code: CodeType) -> bool:
    """Whether code reads the attribute ``name`` of one of its parameters."""
    parameters = code.co_varnames[: code.co_argcount]
    steps = list(dis.get_instructions(code))
    return any(
        one.opname.startswith("LOAD_FAST") and one.argval in parameters and (two.opname, two.argval) == _READ_NAME
        for one, two in pairwise(steps)
    )


def takes_what_rules_are_given(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report rules that cannot be called with the inputs in order and the attributes by keyword."""
    names = [p.name for p in op.signature.inputs]
    if any(p.variadic for p in op.signature.inputs):
        return
    for kind, first in GIVEN.items():
        rule = find_rule(op, kind)
        if not isinstance(rule, FunctionType):
            continue
        taken = inspect.signature(rule)
        counted = [name for name in ("_outputs",) if name in taken.parameters]
        try:
            taken.bind(*first, *names, **dict.fromkeys([*op.signature.attributes, *counted]))
        except TypeError as error:
            given = ", ".join([*first, *names, *(f"{name}=..." for name in op.signature.attributes)])
            yield f"the rule {kind} is called as {rule.__name__}({given}): {error}"


def has_a_reference_of_its_own(op: Op, cases: Sequence[Case]) -> Iterator[str]:
    """Report a reference that calls the op, its body or one of its rules."""
    own = [op, op.function, *op.rules.values()]
    for case in cases:
        if isinstance(case.reference, FunctionType) and _calls(case.reference, own, set()):
            yield "the reference of its case evaluates the op itself: compute the outputs with numpy or another library"


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _calls(function: FunctionType, own: Sequence[Any], seen: set[FunctionType]) -> bool:
    """Whether a function refers to one of ``own``, directly or through functions that it calls."""
    seen.add(function)
    names = _names(function.__code__)
    known = {**function.__globals__, **_closure(function)}
    found = [known[name] for name in (*names, *function.__code__.co_freevars) if name in known]
    found += [vars(each).get(name) for each in found if isinstance(each, ModuleType) for name in names]
    if any(each is mine for each in found for mine in own):
        return True
    return any(isinstance(each, FunctionType) and each not in seen and _calls(each, own, seen) for each in found)


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells}


#: Checks of an op; each yields a message per problem.
DECLARED: tuple[Callable[[Op, Sequence[Case]], Iterator[str]], ...] = (
    takes_what_rules_are_given,
    has_a_reference_of_its_own,
    names_its_inputs,
    reads_no_names,
    compares_its_gradient,
    takes_known_words_alone,
    leaves_out_what_is_optional,
    draws_where_said,
    draws_all,
    draws_all_choices,
    draws_broadcasting,
    draws_different_contents,
    draws_each_kind,
    draws_longer_lists,
    draws_negative_numbers,
    draws_several_ranks,
)
