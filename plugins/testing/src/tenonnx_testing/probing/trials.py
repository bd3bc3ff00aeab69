"""Single-op models for probing a consumer, drawn from the conformance cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tenonnx.extend import DType, Op, TenonnxError
from tenonnx_testing import schemas
from tenonnx_testing.cases import Call, Case, collected
from tenonnx_testing.kit import covering_calls, first_dtype
from tenonnx_testing.models import Trial, single_node
from tenonnx_testing.probing.sequences import with_tensors
from tenonnx_testing.run import Failure, blaming, evaluate, is_index

#: Oldest version of ai.onnx that is probed.
OLDEST = 7

#: Divisor of the number of calls at older versions of an op.
_OLDER_SHARE = 3

#: Number of calls per span with index inputs (axes, shapes) as graph inputs.
_COMPUTED = 2


@dataclass(frozen=True, slots=True)
class Span:
    """Range of versions in which the signature of an op stays the same: the first, and the last that is probed."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A single-op model of one call. With ``computed``, index inputs are fed rather than initializers."""

    case: Case
    span: Span
    call: Call
    trial: Trial
    computed: bool

    @property
    def facts(self) -> dict[str, Any]:
        """JSON-compatible facts for the limits of a target: dtypes, ranks, attributes and computed inputs.

        ``rank`` is the highest rank of an input, ``fed`` names the inputs after the first that are no index inputs, and
        ``outputs`` is the number of outputs, or 0 for ops without optional outputs.
        """
        op, arrays = self.case.op, [each for each in self.call.inputs if isinstance(each, np.ndarray)]
        first = next(iter([*self.call.inputs, *self.trial.expected]), None)
        schema = schemas.schema_at(op, self.span.last)
        has_optional = schema is not None and any(output.kind == "Optional" for output in schema.outputs)
        return {
            "op": f"{op.domain}::{op.name}",
            "first": self.span.first,
            "last": self.span.last,
            "dtype": DType.of(first.dtype).name if isinstance(first, np.ndarray) else "",
            "others": [DType.of(each.dtype).name for each in arrays if each is not first],
            "rank": max((each.ndim for each in arrays), default=None),
            "fed": _names(op, self.call.inputs, _is_further_value),
            "outputs": len(self.trial.model.graph.node[-1].output) if has_optional else 0,
            "attributes": _plain_attributes(op, self.call.attributes),
            "computed": _names(op, self.call.inputs, is_index) if self.computed else [],
        }


def _names(op: Op, inputs: Sequence[Any], chosen: Callable[[Op, int], bool]) -> list[str]:
    """Names of the present inputs at some positions."""
    places = [place for place, each in enumerate(inputs) if each is not None and chosen(op, place)]
    return list(dict.fromkeys(op.signature.input_at(place).name for place in places))


def _is_further(op: Op, place: int) -> bool:
    return place > 0


def _is_further_value(op: Op, place: int) -> bool:
    return place > 0 and not is_index(op, place)


def _never(op: Op, place: int) -> bool:
    return False


def _plain_attributes(op: Op, given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are strings or integers."""
    return {name: value for name, value in given.items() if type(value) in (int, str) or isinstance(value, DType)}


def newest_versions(domains: Collection[str], newest: int) -> dict[str, int]:
    """Versions to probe by domain: ``newest`` for ai.onnx, and the newest that onnx knows for others."""
    latest = {domain: max(schema_versions(domain), default=1) for domain in domains}
    return {**latest, "ai.onnx": newest}


def schema_versions(domain: str) -> set[int]:
    """Versions of a domain that the onnx package knows."""
    wanted = "" if domain == "ai.onnx" else domain
    return {each.since_version for each in onnx.defs.get_all_schemas_with_history() if each.domain == wanted}


def cases_of(domains: Collection[str], ops: Collection[str]) -> list[Case]:
    """Cases of the ops of some domains; with ``ops``, only of those names."""
    found = [case for case in collected() if case.op.domain in domains and not case.op.signature.reads_graph]
    return [case for case in found if not ops or case.op.name in ops]


def spans(op: Op, newest: int) -> list[Span]:
    """Ranges of versions with the same signature, oldest first, up to ``newest``."""
    starts = schemas.versions(op)
    ends = [*(start - 1 for start in starts[1:]), newest if op.before is None else op.before - 1]
    oldest = OLDEST if op.domain == "ai.onnx" else 1
    return [
        Span(max(first, oldest), min(last, newest))
        for first, last in zip(starts, ends, strict=True)
        if first <= newest and last >= oldest
    ]


def probes(case: Case, newest: Mapping[str, int], examples: int) -> Iterator[Probe]:
    """Yield models of a case for each span of its versions. Calls with empty tensors are left out."""
    ranges = spans(case.op, newest[case.op.domain])
    if not ranges:
        return
    drawn = [call for call in covering_calls(case, examples) if not _has_empty(call.inputs)]
    for span in ranges:
        left = _COMPUTED
        for call in drawn if span is ranges[-1] else _fewer(drawn):
            usual = _trial(case, span, call, newest, is_index)
            if usual is None:
                continue
            at_version = replace(call, version=span.last)
            yield Probe(case, span, at_version, usual, computed=False)
            fed = _trial(case, span, call, newest, _never) if left else None
            if fed is not None and len(fed.feeds) > len(usual.feeds):
                left -= 1
                yield Probe(case, span, at_version, fed, computed=True)


def with_constants(probe: Probe, newest: Mapping[str, int]) -> Trial | None:
    """Return the model with all inputs but the first as initializers; None if none of them was fed."""
    trial = _trial(probe.case, probe.span, probe.call, newest, _is_further)
    return trial if trial is not None and len(trial.feeds) < len(probe.trial.feeds) else None


def _fewer(drawn: Sequence[Call]) -> list[Call]:
    """Return a share of the calls, and one call for each further dtype."""
    count = -(-len(drawn) // _OLDER_SHARE)
    known = {first_dtype(call) for call in drawn[:count]}
    others = {kind: call for call in reversed(drawn[count:]) if (kind := first_dtype(call)) not in known}
    return [*drawn[:count], *others.values()]


def _trial(
    case: Case, span: Span, call: Call, newest: Mapping[str, int], constant: Callable[[Op, int], bool]
) -> Trial | None:
    """Return the model of a call at the last version of a span; None if it is invalid or has empty outputs."""
    at_version = replace(call, version=span.last)
    try:
        with blaming(case.title):
            expected = evaluate(case.op, at_version)
            trial = single_node(case.op, at_version, span.last, expected, newest["ai.onnx"], constant=constant)
    except (Failure, TenonnxError):
        return None
    trial = None if trial is None else with_tensors(trial)
    return None if trial is None or _has_empty(trial.expected) else trial


def _has_empty(contents: Collection[Any]) -> bool:
    return any(isinstance(each, np.ndarray) and each.size == 0 for each in contents)
