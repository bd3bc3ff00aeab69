"""Limits of a runtime or converter, and of its ops."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tenonnx.extend import DType, InvalidCall, TensorType
from tenonnx_targets.accuracy import Accuracy

if TYPE_CHECKING:
    from tenonnx.extend import Type, Value
    from tenonnx.extend.transforms import Ways

#: Text for the versions of a domain without a documented limit.
ANY_VERSION = "any"

#: Share of the ops of a domain at the version with the most of them that another version has to have.
MOST = 0.9

#: Wildcard for all ops of a domain in a list of ops.
ALL_OPS = "*"


@dataclass(frozen=True, slots=True)
class OpLimits:
    """Limits of an op in one entry of a target's list; None or empty means unlimited.

    ``dtypes`` are the element types of the first input (of the first output, without inputs), ``ranks`` those of the
    input with the most dims, ``constant`` names inputs that must be constants, ``attributes`` lists allowed values, and
    ``outputs`` is the most outputs.
    """

    dtypes: frozenset[DType] | None = None
    since: int | None = None
    until: int | None = None
    ranks: tuple[int, ...] | None = None
    constant: tuple[str, ...] = ()
    attributes: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    outputs: int | None = None

    def problem(
        self, op: Any, version: int, inputs: Sequence[Value | None], outputs: int, kind: Any, given: Mapping[str, Any]
    ) -> str:
        """The violated limit of the entry, or an empty string. An unknown type matches any."""
        if self.dtypes is not None and isinstance(kind, TensorType) and kind.dtype not in self.dtypes:
            return str(kind.dtype)
        if not (self.since or version) <= version <= (self.until or version):
            return f"version {version}"
        ranks = [v.rank for v in inputs if v is not None and isinstance(v.type, TensorType)]
        known = [rank for rank in ranks if rank is not None]
        if self.ranks is not None and known and max(known) not in self.ranks:
            return f"rank {max(known)}"
        if self.outputs is not None and outputs > self.outputs:
            return f"{outputs} outputs"
        from tenonnx.extend import Op  # imported lazily, to keep completion of target names fast

        if isinstance(op, Op):
            for place, value in enumerate(inputs):
                name = op.signature.input_at(place).name
                if name in self.constant and value is not None and value.data is None:
                    return f"a computed {name}"
            given = {**op.signature.attributes, **given}
        for name, allowed in self.attributes:
            if name in given and given[name] not in allowed:
                return f"{name}={given[name]!r}"
        return ""


@dataclass(frozen=True, slots=True)
class Target:
    """Limits of one runtime or converter, or of a list of ops.

    None means that no limit is documented.

    - ``opsets``: the newest version of each supported domain; ``minimum``: the oldest version.
    - ``dtypes``: the supported element types of graph inputs and outputs.
    - ``ops``: the supported ops, each with its entries, one of which has to match a call.
    - ``unspecified``: names of ops that are supported at any version, although the specification of their domain has
      them later or never.
    - ``without``: ops that are not supported.
    - ``batch``: the first dim of all inputs.
    - ``file_size``: the maximum size of a model with its tensors in bytes; ``external_data``: whether tensors may be
      stored in other files.
    - ``failures``: measured failures of calls of single ops.
    - ``accuracy``: the class of the least accurate lowerings that are allowed.
    """

    name: str
    title: str
    opsets: Mapping[str, int | None]
    minimum: Mapping[str, int]
    ir_version: int | None
    dtypes: frozenset[DType] | None
    ops: Mapping[tuple[str, str], tuple[OpLimits, ...]] | None
    source: str
    note: str
    package: str
    unspecified: frozenset[str] = frozenset()
    without: frozenset[tuple[str, str]] = frozenset()
    static_shapes: bool = False
    control_flow: bool = True
    max_rank: int | None = None
    batch: int | None = None
    external_data: bool = True
    file_size: int | None = None
    failures: tuple[Mapping[str, Any], ...] = ()
    accuracy: Accuracy = Accuracy.ROUNDING

    @staticmethod
    def load(path: Any) -> Target:
        """The target of a TOML or JSON file, or one of several by ``FILE#NAME``. Raises ``InvalidCall``."""
        from tenonnx.tools import find_runtime

        return find_runtime(str(path))

    @staticmethod
    def of_ops(ops: Collection[str]) -> Target:
        """The target that supports only these ops: names, with the domain if it is not ai.onnx (``domain::Name``)."""
        listed = {_op_of(name): (OpLimits(),) for name in ops}
        opsets = dict.fromkeys(["ai.onnx", *(domain for domain, _ in listed)])
        return Target("the list of ops", "the ops that were given", opsets, {}, None, None, listed, "", "", "")

    def only(self, ops: Collection[str]) -> Target:
        """The target restricted to some of its ops. Raises ``InvalidCall`` for an op that it does not support."""
        wanted = [_op_of(name) for name in ops]
        entries = {op: self._entries(*op) for op in wanted}
        missing = [name for name, op in zip(ops, wanted, strict=True) if entries[op] is None]
        if missing:
            raise InvalidCall(
                f"target {self.name} does not have the op {missing[0]}", do=f"tenonnx targets {self.name} lists its ops"
            )
        return replace(self, ops={op: found for op, found in entries.items() if found is not None})

    def less(self, ops: Collection[str]) -> Target:
        """The target without the given ops."""
        listed = self.ops
        if listed is None:
            listed = {(domain, ALL_OPS): (OpLimits(),) for domain in self.opsets}
        return replace(self, ops=listed, without=self.without | {_op_of(name) for name in ops})

    def nearest(self, domain: str, version: int, ops: Collection[tuple[str, str]] = ()) -> int:
        """The version with most of the supported ``ops``, and of versions with as many the nearest to ``version``.

        An op that is not supported may become any other: with such ops, versions with far fewer of all ops are avoided.
        """
        oldest, newest = self.minimum.get(domain, 1), self.opsets[domain]
        nearest = max(oldest, version if newest is None else min(newest, version))
        found = {op: self._entries(*op) for op in ops}
        used = [entries for (owner, _), entries in found.items() if entries and owner == domain]
        every = [entries for (owner, _), entries in (self.ops or {}).items() if entries and owner == domain]
        others = [] if all(found.values()) else every
        versions = range(oldest, (newest or nearest) + 1)
        most = max(_count_supported(others, at) for at in versions)

        def rank(at: int) -> tuple[int, bool, int]:
            return _count_supported(used, at), _count_supported(others, at) >= MOST * most, -abs(at - nearest)

        return max(versions, key=rank)

    def versions(self, domain: str) -> str:
        """The supported versions of a domain, as text."""
        oldest, newest = self.minimum.get(domain), self.opsets[domain]
        if newest is None:
            return ANY_VERSION if oldest is None else f"{oldest} and newer"
        return f"up to {newest}" if oldest is None else f"{oldest} to {newest}"

    def _entries(self, domain: str, name: str) -> tuple[OpLimits, ...] | None:
        if (domain, name) in self.without:
            return None
        if self.ops is None or (domain, name) == ("ai.onnx", "Constant"):
            return (OpLimits(),)
        return self.ops.get((domain, name), self.ops.get((domain, ALL_OPS)))

    def problem(
        self,
        op: Any,
        version: int,
        inputs: Sequence[Value | None],
        outputs: Sequence[Type | None],
        given: Mapping[str, Any],
        /,
    ) -> str:
        """Reason why the target does not support a call, or an empty string; an unknown type matches any."""
        title, kinds = f"{op.domain}::{op.name}", [None if v is None else v.type for v in inputs]
        entries = self._entries(op.domain, op.name)
        if entries is None:
            return (
                f"{title} is not on the list of ops{f' of {self.name}' if self.package else ''}{self._measured(title)}"
            )
        kind = next(iter((*kinds, *outputs)), None)
        problems = [entry.problem(op, version, inputs, len(outputs), kind, given) for entry in entries]
        if all(problems):
            return f"{title} of {self.name} does not take {problems[0]}"
        if not self.control_flow and any(hasattr(value, "nodes") for value in given.values()):
            return f"{self.name} has no control flow, such as {title}"
        for shape in [kind.shape for kind in (*kinds, *outputs) if isinstance(kind, TensorType) and kind.shape]:
            if self.max_rank is not None and len(shape) > self.max_rank:
                return f"{self.name} has tensors of up to {self.max_rank} dims, but {title} has one of {len(shape)}"
            if self.static_shapes and not all(isinstance(dim, int) for dim in shape):
                return (
                    f"{self.name} takes only static shapes, but {title} has a tensor of ({', '.join(map(str, shape))})"
                )
        return ""

    def _measured(self, title: str) -> str:
        """The measured failures of an op, as text."""
        outcomes = [each["outcome"] for each in self.failures if each["op"] in (title, title.removeprefix("ai.onnx::"))]
        return f" (measured: {', '.join(outcomes)})" if outcomes else ""

    def interface_problem(self, what: str, value: Value) -> tuple[str, str]:
        """Reason why this target does not support an input or output of a model, and advice; empty if it does."""
        kind = value.type
        while kind is not None and not hasattr(kind, "dtype"):
            kind = getattr(kind, "element", None)
        dtype = getattr(kind, "dtype", None)
        if self.dtypes is not None and dtype is not None and dtype not in self.dtypes:
            return f"{self.name} has no {dtype}", "give the model an interface of other element types"
        shape = kind.shape if isinstance(kind, TensorType) and what == "graph input" else None
        if self.batch is not None and shape and shape[0] != self.batch:
            dims = ",".join(map(str, (self.batch, *shape[1:])))
            return (
                f"{self.name} takes a batch of {self.batch} alone, but the first dim is {shape[0]}",
                f"fix it: --fix-shapes {value.name}:{dims}",
            )
        return "", ""

    def ways(self, retargeting: Any, call: Any, ways: Ways) -> Ways:
        """Ways to try for a call that the target does not support, cheapest first."""
        if self.ops is None and self.control_flow:
            return ways
        from tenonnx_targets.planning import ways_by_cost

        return ways_by_cost(self, retargeting, call, ways)

    def to_dict(self) -> dict[str, Any]:
        ops = None if self.ops is None else sorted(f"{domain}::{name}" for domain, name in self.ops)
        dtypes = None if self.dtypes is None else sorted(map(str, self.dtypes))
        shown = {"dtypes": dtypes, "ops": ops, "unspecified": sorted(self.unspecified)}
        return {name: each for name, each in asdict(self).items() if name not in ("without", "accuracy")} | shown


def _count_supported(listed: Iterable[tuple[OpLimits, ...]], version: int) -> int:
    """The number of ops that have an entry with a version."""
    return sum(any((e.since or 1) <= version <= (e.until or version) for e in entries) for entries in listed)


def _op_of(name: str) -> tuple[str, str]:
    domain, _, op = name.rpartition("::")
    return domain or "ai.onnx", op
