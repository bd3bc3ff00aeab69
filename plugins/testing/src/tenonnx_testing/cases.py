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

    ``outputs`` is the number of outputs that the node declares, or None. ``version`` is the version that a check of
    versions currently runs; conditions of gaps may read it. ``turn`` counts the calls of a check, which may use it to
    rotate through its variants.
    """

    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any]
    outputs: int | None = None
    version: int | None = None
    turn: int = 0


def call(*inputs: Any, _outputs: int | None = None, **attributes: Any) -> Call:
    """Return a call with these inputs and attributes, for the function of a case."""
    return Call(inputs, attributes, _outputs)


@dataclass(frozen=True, slots=True)
class Gap:
    """A check that is known to fail, with the reason; ``when`` returns whether a call is affected.

    ``when`` receives the drawn call or, where a check fails on a changed call, the changed one. A gap is strict: the
    test fails once none of the calls that it covers fails any more.
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
    """Distribution of a random output: mean and standard deviation, as scalars or per element, and range."""

    mean: Any
    deviation: Any
    low: float = -math.inf
    high: float = math.inf


@dataclass(eq=False, slots=True)
class Case:
    """A strategy for calls of ``op``: ``function`` takes hypothesis' ``draw`` and returns a ``Call``.

    Declared by the author:

    - ``gradient``: True if all float inputs have a gradient, the names of those that have one, or False if none has,
      for the reason ``no_gradient``;
    - ``steps`` and ``tolerance``: as in ``compare``;
    - ``law``: returns the distribution of a call's first output, for random ops;
    - ``reference``: an independent implementation of the op;
    - ``undrawn``: inputs and attributes that no call can have, with the reasons.

    Recorded by the checks:

    - ``compared``: number of comparisons by check;
    - ``drawn_names``, ``left_out``: names of present inputs and non-default attributes, and of absent inputs;
    - ``reached``: versions at which calls were compared;
    - ``refusals``: errors of the oracles that have no kernel;
    - ``combinations``: combinations of drawn attribute values that no drawn call has;
    - ``unusable``: the first check that met a call that cannot be computed.
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
    drawn_names: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    combinations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def title(self) -> str:
        """``op@version`` for test ids, with the first version of this meaning of the op."""
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
    """Return a decorator that declares a function as a strategy for calls of ``op``.

    The calls have to avoid kinks and the edges of the op's domain.

    - ``gaps``: known failures;
    - ``gradient``: False for an op without a gradient; a text with the reason why these calls of an op with a vjp have
      none; or the names of the inputs that have one;
    - ``steps``: accepted difference of integer outputs;
    - ``tolerance``: replaces the default tolerance of float outputs, and has to give a reason;
    - ``law``: returns the distribution of a call's first output, for random ops;
    - ``reference``: an independent implementation in numpy or another library, called with arrays and attributes;
    - ``undrawn``: reasons why no call has certain inputs or attributes; strict, like gaps.
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
        declared = _collected.setdefault(op, [])
        details = (tuple(gaps), names, steps, tolerance, law, reference, reasons, no_gradient)
        declared.append(Case(op, function, *details, number=len(declared)))
        return function

    return declare


#: Ops of a package that are not implemented yet, with the reason.
_unwritten: dict[tuple[str, str], str] = {}


def unwritten(domain: str, names: Iterable[str], *, reason: str) -> None:
    """Declare ops of ``domain`` that the package does not implement yet; an implemented op fails the coverage test."""
    if not reason:
        raise InvalidCall("unwritten() got no reason")
    _unwritten.update({(domain, name): reason for name in names})


_incomparable: dict[Op, str] = {}


def incomparable(*ops: Op, reason: str) -> None:
    """Declare ops that need no cases since nothing can compute them."""
    if not reason:
        raise InvalidCall("incomparable() got no reason")
    _incomparable.update(dict.fromkeys(ops, reason))


def incomparable_ops() -> dict[Op, str]:
    """Ops declared by ``incomparable``, with the reasons."""
    return dict(_incomparable)


def unwritten_ops(domain: str) -> dict[str, str]:
    """Ops of a domain declared by ``unwritten``, with the reasons."""
    return {name: reason for (owner, name), reason in _unwritten.items() if owner == domain}


def collected(op: Op | None = None) -> Iterator[Case]:
    """Yield the cases declared so far, of one op or of all, in the order of declaration."""
    if op is not None:
        yield from _collected.get(op, ())
    else:
        for declared in _collected.values():
            yield from declared


def load(declaring: Iterable[Plugin] | None = None) -> dict[str, Exception | None]:
    """Import the case modules of these plugins, by default of all installed ones.

    Returns the exception of each module that cannot be imported, and None for the others, by module name.
    """
    from tenonnx.extend.testing import plugins

    result: dict[str, Exception | None] = {}
    for plugin in plugins("tenonnx.conformance") if declaring is None else declaring:
        try:
            _load_package(plugin.load(), result)
        except PluginError as error:
            result[plugin.value] = error
    return result


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
