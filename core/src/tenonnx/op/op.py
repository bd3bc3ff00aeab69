"""The operator: a name, and a definition as one Python function of simpler operators."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar, overload

from tenonnx.errors import InvalidCall, PluginError, did_you_mean
from tenonnx.op.requirements import Requirement, Requirements
from tenonnx.op.rule_kinds import RESERVED, TRAITS, check_kind, check_traits
from tenonnx.op.signature import REQUIRED, Signature
from tenonnx.op.versioned_signature import SignatureChange

if TYPE_CHECKING:
    import typing_extensions

    #: Parameters of the op's function, for editors and type checkers.
    Parameters = typing_extensions.ParamSpec("Parameters", default=...)
else:
    Parameters = ParamSpec("Parameters")

P = ParamSpec("P")
Function = TypeVar("Function", bound=Callable[..., Any])


class Op(Generic[Parameters]):
    """One definition of an operator, for versions ``since <= version < before``.

    Calling an op applies it: with values it adds a node to their graph, with arrays it computes. ``function`` is the
    body (only the signature for a primitive), ``requirements`` are checked for each call, ``rules`` are functions for
    consumers by kind (``numpy``, ``vjp``, ``type``), ``facts`` are its traits.

    ``pure`` is False for ops that draw random numbers, which are never folded. ``broadcasts`` marks ops whose gradients
    the caller of the VJP sums to the shape of each input. ``specified`` is the first version of the domain's
    specification that has the op. It is False for an op that files use although no version specifies it; exports keep
    it only if the target has it. Further keywords are traits and rules.

    The modules of an op's package may modify it while they are imported; later changes raise ``PluginError``, as other
    packages may rely on the op. An op created by a program or in a function stays modifiable until it is registered.
    """

    #: The function that executes a call; set by ``op/dispatch.py``, which imports the whole layer.
    apply: ClassVar[Callable[[Op, Sequence[Any], Mapping[str, Any]], Any]]

    function: Callable[Parameters, Any]
    name: str
    domain: str
    since: int
    before: int | None
    primitive: bool
    pure: bool
    broadcasts: bool
    specified: int
    rules: Mapping[str, Callable[..., Any]]
    facts: Mapping[str, Any]
    requirements: Requirements
    signature_changes: tuple[SignatureChange, ...] = ()
    lowerings: tuple[tuple[Op | None, Callable[..., Any]], ...] = ()
    older: Op | None = None
    __name__: str
    _of_package: bool = False

    def __init__(
        self,
        function: Callable[Parameters, Any],
        name: str,
        *,
        domain: str = "ai.onnx",
        since: int = 1,
        before: int | None = None,
        primitive: bool = False,
        pure: bool = True,
        broadcasts: bool = False,
        specified: int = True,
        signature: Signature | None = None,
        **declared: Any,
    ) -> None:
        written = inspect.unwrap(function)  # a decorated function has the signature of the wrapped one
        if not (inspect.isfunction(written) or inspect.ismethod(written)):
            what = f"{domain}::{name}: an op is not made of a function written in Python"
            raise InvalidCall(what, given=repr(function)[:200], do="let a function of these inputs call it")
        if signature is None and written.__code__.co_flags & inspect.CO_VARKEYWORDS:
            raise TypeError(f"{function.__name__}: an op cannot take nameless attributes; name its attributes")
        if any(default is not None and default is not REQUIRED for default in written.__defaults__ or ()):
            raise InvalidCall(
                f"{domain}::{name}: a positional parameter, which is an input, has a default other than None",
                given=f"{function.__name__}{inspect.signature(function)}",
                do="let attributes be keyword-only: put * before them",
            )
        _check_versions(f"{domain}::{name}", since, before)
        facts = {trait: declared.pop(trait) for trait in TRAITS.keys() & declared.keys()} if declared else {}
        check_traits(f"{domain}::{name}", facts)
        rules: dict[str, Callable[..., Any]] = declared
        for kind in rules:
            check_kind(f"{domain}::{name}", kind)
        unknown = [name for name, rule in rules.items() if not callable(rule)]
        if unknown:
            raise InvalidCall(
                f"{domain}::{name}: a rule is not a function", given=f"{unknown[0]}={rules[unknown[0]]!r}"
            )
        if signature is not None:
            self.signature = signature
        vars(self).update(  # in one step, as importing a family creates hundreds of ops
            function=function,
            name=name,
            domain=domain,
            since=since,
            before=before,
            primitive=primitive,
            pure=pure,
            broadcasts=broadcasts,
            specified=specified,
            rules=MappingProxyType(rules),
            facts=MappingProxyType(facts),
            requirements=Requirements(self),
            __name__=function.__name__,
            __doc__=function.__doc__,
            __module__=function.__module__,
            __wrapped__=function,
            _of_package=_is_being_imported(function.__module__),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if self._of_package and not name.startswith("_"):
            self._must_be_open(name)
        super().__setattr__(name, value)

    def _must_be_open(self, change: str) -> None:
        package = self.__module__.partition(".")[0]
        if not (_is_being_imported(self.__module__) or any(map(_is_being_imported, _modules_of(package)))):
            raise PluginError(
                f"{self.title} was changed after the import of {package}, which made it",
                given=f"a change of its {change}",
                do=f"say this in a module of {package}; a rule for a consumer of your own goes to "
                "tenonnx.extend.add_rule, and another meaning to an op of your own",
            )

    def belongs_to_package(self) -> None:
        """Freeze the op: an installed package has registered it."""
        self._of_package = True

    @cached_property
    def signature(self) -> Signature:
        """Signature of the op, parsed from its function on first use, to keep imports fast."""
        return Signature.of(self.function)

    @property
    def version(self) -> int:
        """The version since which the newest signature holds."""
        changed = [step.before for step in self.signature_changes]
        return max(self.since, *changed) if changed else self.since

    @property
    def title(self) -> str:
        return f"{self.domain}::{self.name}@{self.version}"

    @property
    def meanings(self) -> Iterable[Op]:
        """This definition and the older ones."""
        meaning: Op | None = self
        while meaning is not None:
            yield meaning
            meaning = meaning.older

    def holds_at(self, version: int) -> bool:
        return self.since <= version and (self.before is None or version < self.before)

    def is_specified_at(self, version: int) -> bool:
        """Whether the domain's specification has the op at a version."""
        return bool(self.specified) and self.specified <= version

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
        return Op.apply(self, args, kwargs)

    def __repr__(self) -> str:
        until = "" if self.before is None else f" to {self.before - 1}"
        return f"Op({self.domain}::{self.name} from {self.since}{until})"

    # ----- versions -----------------------------------------------------------------------------------------------

    @overload
    def until(self, version: int) -> Define: ...

    @overload
    def until(
        self,
        version: int,
        *,
        attributes: Iterable[str] = (),
        lacks: Iterable[str] = (),
        renamed: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        ignored: Iterable[str] = (),
        vectors: Iterable[str] = (),
        positive: Iterable[str] = (),
        unless: Callable[..., str] | None = None,
    ) -> Op[Parameters]: ...

    def until(self, version: int, **change: Any) -> Any:
        """Declare the older definition or signature, for versions below ``version``.

        With keywords only the signature differs: ``attributes`` names inputs that were attributes, ``lacks`` parameters
        that did not exist, ``renamed`` maps new names to old ones, ``defaults`` are the old defaults (``REQUIRED`` for
        none), ``ignored`` attributes had no effect, ``vectors`` were a number where the input now has one element, and
        ``positive`` are axes of the first input that could not be negative. ``unless``, a function of inputs and
        attributes, returns the reason why the older version cannot express a call, or an empty string. Without keywords
        the result decorates the function of the older definition and returns its ``Op``. Raises ``InvalidCall`` for an
        empty or overlapping version range, and for unknown parameters and keywords.
        """
        self._check_step(version, change)
        if change:
            self.signature_changes += (_signature_change(self, version, change),)
            return self

        def meaning(function: Callable[P, Any]) -> Op[P]:
            old = Op(
                function,
                self.name,
                domain=self.domain,
                since=self.since,
                before=version,
                pure=self.pure,
                broadcasts=self.broadcasts,
                specified=self.specified,
            )
            old.facts = MappingProxyType({name: self.facts[name] for name in ("data_movement",) if name in self.facts})
            self.since = version
            self.older = old
            return old

        return meaning

    def _check_step(self, version: int, change: Mapping[str, Any]) -> None:
        call = f"{self.title}.until({version})"
        if not isinstance(version, int) or isinstance(version, bool) or version <= self.since:
            raise InvalidCall(
                f"{call} names no version above {self.since}, where {self.__name__} begins",
                given=repr(version),
                do=f"say what held before with {self.older.__name__}.until" if self.older else "",
            )
        if self.before is not None and version >= self.before:
            raise InvalidCall(f"{call} names no version below {self.before}, where {self.__name__} ends")
        if not change and self.older is not None:
            what = f"{call} is a second older meaning of {self.__name__}: {self.older.__name__} would be lost"
            raise InvalidCall(what, do="say what held from the newest version to the oldest, each by the one after it")
        lost = sorted({s.before for s in self.signature_changes if s.before <= version} if not change else ())
        if lost:
            what = f"{call} comes after older signatures, and would discard those until version {lost[0]}"
            raise InvalidCall(what, do="say it of the older meaning")

    def lower(self, to: Op | None = None) -> Callable[[Function], Function]:
        """Decorate a lowering, which expresses this op by an older one (``to``), given the op's inputs and attributes.

        It returns None if the older op cannot express the call; then the next lowering and finally the body is tried.
        Without ``to`` the lowering is tried for every target.
        """

        def register(function: Function) -> Function:
            self.lowerings += ((to, function),)
            return function

        return register

    # ----- what must hold -----------------------------------------------------------------------------------------

    def requires(self, *requirements: Requirement) -> Op[Parameters]:
        """Declare requirements that every call must meet; the constructors are in ``tenonnx.extend``.

        Raises ``InvalidCall`` if a requirement names a parameter that the op does not have. Older definitions declare
        their own.
        """
        self.requirements = self.requirements.and_also(requirements)
        return self

    # ----- rules and traits ---------------------------------------------------------------------------------------

    def traits(self, **facts: Any) -> Op[Parameters]:
        """Declare traits of the op, from those in ``tenonnx.op.rule_kinds.TRAITS``: ``data_movement=True``.

        Raises ``InvalidCall`` for an unknown trait, and for one that is declared already.
        """
        check_traits(self.title, facts)
        for name in facts:
            if name in self.facts:
                raise InvalidCall(f"{self.title} has the trait {name} already", given=f"{name}={facts[name]!r}")
        self.facts = MappingProxyType({**self.facts, **facts})
        return self

    def rule(self, kind: str, function: Any = None) -> Any:
        """Declare a rule of the op for consumers of that kind; without a function it is a decorator."""
        if function is None:
            return partial(self.rule, kind)
        if kind not in RESERVED:
            check_kind(self.title, kind)
        if kind in self.rules:
            raise InvalidCall(f"{self.title} has a {kind} rule already")
        self.rules = MappingProxyType({**self.rules, kind: function})
        return function

    def numpy(self, function: Function) -> Function:
        """Declare the numpy kernel: input arrays (None if absent), then attributes; it must agree with the body."""
        return self.rule("numpy", function)  # type: ignore[no-any-return]

    def specialize(self, function: Function) -> Function:
        """Declare a factory of specialized kernels: a function ``(*inputs, **attributes)`` of ``Operand`` inputs.

        The returned kernel takes arrays of exactly these shapes and element types, without attributes, and returns the
        same as the numpy rule; several threads may call it at once. None if the numpy rule is as good.
        """
        return self.rule("specialize", function)  # type: ignore[no-any-return]

    def symbolic(self, function: Function) -> Function:
        """Declare the op on object arrays of ints, symbolic dims and None (unknown), with the signature of ``numpy``.

        Often the same function works for both and gets both decorators. It raises ``TypeError`` if the result is
        unknown.
        """
        return self.rule("symbolic", function)  # type: ignore[no-any-return]

    def vjp(self, function: Any = None, *, surrogate: bool = False) -> Any:
        """Declare the vector-Jacobian product: ``(g, y, *inputs, **attributes)`` to a gradient or None per input.

        ``g`` and ``y`` are the output's cotangent and value, tuples if the op has several outputs. With a ``residuals``
        rule, ``y`` holds the residuals. Gradients of values that subgraphs capture follow those of the inputs. A
        ``surrogate`` is a function of inputs and attributes that computes the call by differentiable ops; it is
        differentiated instead.
        """
        return self.rule("vjp.surrogate" if surrogate else "vjp", function)

    def residuals(self, function: Function) -> Function:
        """Declare the residuals for the ``vjp``: ``(demand, *inputs, **attributes)`` to outputs and residuals.

        It is traced in place of the call before the backward pass. It returns at least the outputs of the call, or None
        to keep the call; residuals are arbitrary. ``demand`` is a ``Demand``.
        """
        return self.rule("residuals", function)  # type: ignore[no-any-return]

    def rewrite(
        self, function: Any = None, *, alone: bool = False, if_fewer: bool = False, together: bool = False
    ) -> Any:
        """Declare a rewrite to simpler ops for ``simplify``: ``(*inputs, **attributes)`` to results, or None.

        ``alone``: only used if the inputs have no other consumer, so that the rewrite may absorb their producers.
        ``if_fewer``: only kept if the graph has fewer nodes afterwards. ``together``: a function of the inputs of
        several calls that share the first input and otherwise have constants; it returns one result for each.
        """
        variants = {"alone": alone, "if_fewer": if_fewer, "together": together}
        return self.rule(".".join(["rewrite", *(name for name, chosen in variants.items() if chosen)]), function)

    def pattern(self, function: Any = None, *, absent: bool = False) -> Any:
        """Declare a pattern for fusion: a function of a canonicalized value that yields candidates for a call.

        A candidate may add a function that computes the value from the first result (None: they are equal), and the
        number of outputs, which counts unread ones. Fusion verifies each candidate with the body, so a candidate may be
        wrong. An op with this rule is matched by nothing else. With ``absent``, declare a function of inputs (None if
        absent) and attributes that fills absent required inputs with neutral values, so that fusion matches expressions
        without them.
        """
        return self.rule("pattern.absent" if absent else "pattern", function)

    def type(self, function: Function) -> Function:
        """Declare the type rule: input values and attributes to output types."""
        return self.rule("type", function)  # type: ignore[no-any-return]


def _is_being_imported(module: str) -> bool:
    """Whether a module is being imported, according to Python's import system."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return getattr(spec, "_initializing", False) is True


def _modules_of(package: str) -> Iterator[str]:
    """The imported modules of a package, newest first."""
    return (name for name in reversed(list(sys.modules)) if name == package or name.startswith(f"{package}."))


def _check_versions(name: str, since: int, before: int | None) -> None:
    if type(since) is not int or since < 1 or (before is not None and (type(before) is not int or before <= since)):
        given = f"since={since!r}" + ("" if before is None else f", before={before!r}")
        raise InvalidCall(
            f"{name}: invalid version range", given=given, do="let before be above since, and since above 0"
        )


def _signature_change(op: Op, version: int, change: dict[str, Any]) -> SignatureChange:
    words = [word for word in SignatureChange._fields if word != "before"]
    wrong = sorted(set(change) - set(words))
    if wrong:
        what = f"{op.title}.until({version}): unknown keyword {', '.join(wrong)}"
        raise InvalidCall(what, available=", ".join(words), do=did_you_mean(wrong[0], words))
    code = inspect.unwrap(op.function).__code__
    known = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1])
    for key in ("attributes", "lacks", "vectors", "positive", "renamed", "defaults"):
        unknown = sorted(set(change.get(key) or ()) - known)
        if unknown:
            raise InvalidCall(f"{op.title}.until({version}): {key} names {unknown}", available=op.signature.describe())
    kinds: dict[str, Callable[[Any], Any]] = {"renamed": dict, "defaults": dict, "unless": lambda function: function}
    signature_change = SignatureChange(
        version, **{word: kinds.get(word, tuple)(said) for word, said in change.items() if said}
    )
    if signature_change in op.signature_changes:
        raise InvalidCall(f"{op.title}.until({version}) declares the differences below that version twice")
    return signature_change


class Define(Protocol):
    """Decorator that turns a function into an op with the same parameters."""

    def __call__(self, function: Callable[P, Any], /) -> Op[P]: ...


class Opaque:
    """An operator that no installed package defines."""

    __slots__ = ("domain", "name")

    def __init__(self, domain: str, name: str) -> None:
        self.domain, self.name = domain, name

    def __repr__(self) -> str:
        return f"Opaque({self.domain}::{self.name})"


def op(name: str, *, domain: str = "ai.onnx", since: int = 1, **keywords: Any) -> Define:
    """Define an operator by its body: a function over simpler operators.

    Positional parameters are the ONNX inputs (default None: optional; ``*name``: variadic), keyword-only parameters the
    ONNX attributes with their defaults. ``since`` is the first version, ``before`` the version that removed the op.
    Further keywords are those of ``Op``, traits (``data_movement=True``) and rules.
    """

    def define(function: Callable[P, Any]) -> Op[P]:
        return Op(function, name, domain=domain, since=since, **keywords)

    return define


def primitive(name: str, **keywords: Any) -> Define:
    """Define an operator without a body: the function declares only the signature, rules define the op."""
    return op(name, primitive=True, **keywords)


__all__ = ["REQUIRED", "Op", "Opaque", "op", "primitive"]
