"""Conformance cases: strategies for inputs and attributes, and known gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tenonnx.extend import InvalidCall, PluginError

if TYPE_CHECKING:
    from tenonnx.extend import Op
    from tenonnx.extend.testing import Plugin, Tolerance

Function = TypeVar("Function", bound=Callable[..., Any])

#: Calls drawn for each check of each case.
EXAMPLES = 6

#: The checks that a gap can name.
CHECKS = (
    "numpy=body",
    "onnxruntime",
    "reference",
    "types",
    "gradient",
    "export",
    "signature",
    "bad input",
    "oracle",
    "law",
    "versions",
    "own versions",
    "layout",
    "special values",
    "empty axes",
    "specialized",
    "requirements",
    "outputs",
    "negative axes",
    "data movement",
    "symbolic",
    "rewrite",
    "expected",
    "repeated",
    "constants",
    "variations",
    "other attributes",
    "broadcast",
    "kinks",
    "derivative",
    "elementwise",
    "many elements",
    "declared",
    "torch",
    "jax",
)


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of an op: arrays, None, lists (sequences) and dicts (maps) as inputs, attributes by keyword.

    ``outputs`` is how many outputs the node declares, where the case says so. ``version`` is, while a check compares
    versions, the one that it is at; conditions of gaps may ask for it. ``turn`` counts the calls that a check sees,
    for one that does not try everything with each of them.
    """

    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: int | None = None
    version: int | None = None
    turn: int = 0


def call(*inputs: Any, _outputs: int | None = None, **attributes: Any) -> Call:
    """The call that a case draws."""
    return Call(inputs, attributes, _outputs)


@dataclass(frozen=True, slots=True)
class Gap:
    """A check that is known to fail, with the reason; ``when`` tells of a call whether it is one of those.

    ``when`` is asked of the drawn call and, where a check fails of one that it made of that, of the changed one.
    A gap is strict: once no drawn call that it covers fails any more, the test says so and fails.
    """

    check: str
    reason: str
    when: Callable[[Call], bool] | None = None

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise InvalidCall("Gap: unknown check", given=repr(self.check), available=", ".join(CHECKS))
        if not self.reason:
            raise InvalidCall("a gap has no reason")

    def covers(self, call: Call) -> bool:
        return self.when is None or bool(self.when(call))


@dataclass(frozen=True, slots=True)
class Law:
    """Distribution of a random output: its mean and standard deviation, for each element or all, and its range."""

    mean: Any
    deviation: Any
    low: float = -math.inf
    high: float = math.inf


@dataclass(eq=False, slots=True)
class Case:
    """One way to draw calls of ``op``: ``function`` takes hypothesis' ``draw`` and returns a ``Call``.

    ``gradient`` is False where there is nothing to differentiate, for the reason ``no_gradient``, or names the inputs
    that have a gradient; by default all float inputs must have one. ``steps`` and ``tolerance`` are
    what ``compare`` takes, ``law`` tells of a call
    what its first output is drawn from, and ``reference`` computes the outputs anew. ``compared`` counts, by check,
    the comparisons that took place, ``drawn`` names the inputs that were present and the attributes other than their
    default, ``left_out`` the inputs that were absent, ``undrawn`` says of what is never drawn why no call can have it,
    ``unusable`` names the check that first met a call which cannot be computed, ``reached`` are the versions that calls
    were compared at, ``refusals`` holds what oracles answered instead, and ``combinations`` are those of drawn values
    of attributes that no drawn call has.
    """

    op: Op
    function: Callable[..., Call]
    gaps: tuple[Gap, ...] = ()
    gradient: bool | tuple[str, ...] = True
    steps: int = 0
    tolerance: Tolerance | None = None
    law: Callable[[Call], Law] | None = None
    reference: Callable[..., Any] | None = None
    undrawn: Mapping[str, str] = field(default_factory=dict)
    no_gradient: str = ""
    number: int = 0
    unusable: str = ""
    compared: dict[str, int] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    combinations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def title(self) -> str:
        """``op@version`` as test ids have it: the version is the first one of this meaning."""
        domain = "" if self.op.domain == "ai.onnx" else f"{self.op.domain}."
        number = f"#{self.number + 1}" if self.number else ""
        return f"{domain}{self.op.name}@{self.op.since}{number}"

    def gaps_of(self, check: str) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.check == check)


_collected: dict[Op, list[Case]] = {}


def cases(
    op: Op,
    *,
    gaps: Iterable[Gap] = (),
    gradient: bool | str | Iterable[str] = True,
    steps: int = 0,
    tolerance: Tolerance | None = None,
    law: Callable[[Call], Law] | None = None,
    reference: Callable[..., Any] | None = None,
    undrawn: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]:
    """Declare that the decorated function draws calls of ``op``.

    The calls keep off kinks and the edges of the op's domain. ``gaps`` are known failures; ``gradient`` is False for
    ops without one, the reason why an op with a vjp has none in these calls, or names the inputs that have one.
    ``steps`` lets integer outputs differ by so many, and
    ``tolerance`` replaces that of the table for float outputs; it must carry a reason. ``law`` gives the distribution
    of what is drawn at random. ``reference`` computes the outputs anew from arrays and attributes, written in numpy or
    with another library, so that the op is judged by more than its own body. ``undrawn`` gives the reason why no call
    has these inputs or attributes; it is strict, too.
    """
    if not hasattr(op, "signature"):
        raise InvalidCall("cases() was given something other than an op", given=repr(op))
    if tolerance is not None and not tolerance.reason:
        raise InvalidCall(f"the tolerance of a case of {op.title} has no reason", given=str(tolerance))
    no_gradient = gradient if isinstance(gradient, str) else ""
    names = gradient if isinstance(gradient, bool) else False if isinstance(gradient, str) else tuple(gradient)
    unknown = [] if isinstance(names, bool) else sorted(set(names) - {p.name for p in op.signature.inputs})
    if unknown:
        raise InvalidCall(f"cases({op.title}): gradient names {unknown}", available=op.signature.describe())

    reasons = dict(undrawn or {})
    if not all(reasons.values()) or not reasons.keys() <= {
        *(p.name for p in op.signature.inputs),
        *op.signature.attributes,
    }:
        raise InvalidCall(
            f"cases({op.title}): undrawn does not name inputs or attributes, each with a reason",
            given=str(reasons),
            available=op.signature.describe(),
        )

    def declare(function: Function) -> Function:
        held = _collected.setdefault(op, [])
        told = (tuple(gaps), names, steps, tolerance, law, reference, reasons, no_gradient)
        held.append(Case(op, function, *told, number=len(held)))
        return function

    return declare


#: Ops that a package owns and has not written yet, with the reason.
_unwritten: dict[tuple[str, str], str] = {}


def unwritten(domain: str, names: Iterable[str], *, reason: str) -> None:
    """Declare ops of ``domain`` that the package owns and does not provide yet. It is strict: written ops must go."""
    if not reason:
        raise InvalidCall("unwritten() got no reason")
    _unwritten.update({(domain, name): reason for name in names})


_incomparable: dict[Op, str] = {}


def incomparable(*ops: Op, reason: str) -> None:
    """Declare ops that have no cases because nothing can compute them, with the reason."""
    if not reason:
        raise InvalidCall("incomparable() got no reason")
    _incomparable.update(dict.fromkeys(ops, reason))


def incomparable_ops() -> dict[Op, str]:
    """The ops that are declared to have no cases, with the reasons."""
    return dict(_incomparable)


def unwritten_ops(domain: str) -> dict[str, str]:
    """The ops of a domain that are declared as not written yet, with the reasons."""
    return {name: reason for (owner, name), reason in _unwritten.items() if owner == domain}


def collected(op: Op | None = None) -> Iterator[Case]:
    """The cases declared so far, of one op or of all, in the order of their declaration."""
    if op is not None:
        yield from _collected.get(op, ())
    else:
        for held in _collected.values():
            yield from held


def load(declaring: Iterable[Plugin] | None = None) -> dict[str, Exception | None]:
    """Import the modules with cases of these plugins, by default of all that are installed.

    The answer names every module, and for each that could not be imported the reason.
    """
    from tenonnx.extend.testing import plugins

    found: dict[str, Exception | None] = {}
    for plugin in plugins("tenonnx.conformance") if declaring is None else declaring:
        try:
            _load_package(plugin.load(), found)
        except PluginError as error:
            found[plugin.value] = error
    return found


def _load_package(package: Any, found: dict[str, Exception | None]) -> None:
    import importlib
    import pkgutil

    found[package.__name__] = None
    for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}.", lambda name: None):
        try:
            importlib.import_module(module.name)
        except Exception as error:
            found[module.name] = error
        else:
            found[module.name] = None
