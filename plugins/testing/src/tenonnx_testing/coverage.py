"""Coverage of an op's versions and outputs by the calls of its cases."""

from __future__ import annotations

from itertools import chain

import pytest

from tenonnx.extend import Op, TenonnxError
from tenonnx.extend.transforms import infer_call
from tenonnx_testing import schemas
from tenonnx_testing.cases import Call, Gap, collected
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import STUBBORN, calls, pool_size, run_check
from tenonnx_testing.run import Failure
from tenonnx_testing.violations import as_values


def gap_at(op: Op, version: int) -> Gap | None:
    """Gap that explains why no case of a meaning reaches a version; None if there is none."""
    call = Call((), {}, version=version)
    return next((gap for case in collected(op) for gap in case.gaps_of("versions") if gap.covers(call)), None)


def check_versions(op: Op, examples: int) -> None:
    """Check that calls are compared at every version of a meaning, unless a gap gives the reason."""
    versions = set(schemas.versions(op))
    for count in (examples, examples * STUBBORN):
        for case in collected(op):
            for check in (CHECKS[name] for name in ("reference", "onnxruntime") if CHECKS[name].applies(case)):
                if not versions <= _reached(op):
                    try:
                        run_check(case, check, count)
                    except Failure:
                        continue  # the check itself reports the failure
    missing = versions - _reached(op)
    known = {version for version in versions if gap_at(op, version)}
    if missing - known:
        raise Failure(
            f"{op.title}: no call of its cases is compared at the versions {sorted(missing - known)}; draw some "
            "whose attributes and element types exist there"
        )
    if known - missing:
        raise Failure(f"{op.title}: the gap of versions is stale, calls are compared at {sorted(known - missing)}")


def _reached(op: Op) -> set[int]:
    return {version for case in collected(op) for version in case.reached}


def has_several_outputs(op: Op) -> bool:
    schema = schemas.schema_at(op, max(schemas.versions(op), default=op.since))
    return schema is not None and len(schema.outputs) > 1 and schema.maximum_outputs == len(schema.outputs)


def check_outputs(op: Op, examples: int) -> None:
    """Check that the calls return every output of the newest schema of a meaning, and no others."""
    schema = schemas.schema_at(op, max(schemas.versions(op)))
    assert schema is not None
    most, wanted = 0, len(schema.outputs)
    counts = pool_size(examples), 2 * STUBBORN
    for drawn in chain.from_iterable(calls(case, count) for count in counts for case in collected(op)):
        attributes = op.signature.complete(op, drawn.attributes)
        try:
            found = infer_call(op, as_values(drawn), attributes, wanted if op.signature.counts_outputs else None)
        except TenonnxError:  # the call has no further outputs
            continue
        most = max(most, len(found))
        if most >= wanted:
            break
    gaps = [gap for case in collected(op) for gap in case.gaps_of("outputs")]
    if most == wanted and gaps:
        raise Failure(f"{op.title}: the gap of outputs is stale, calls give all: {gaps[0].reason}")
    if gaps:
        pytest.xfail("; ".join(gap.reason for gap in gaps))
    if most != wanted:
        names = ", ".join(formal.name for formal in schema.outputs)
        raise Failure(f"{op.title}: calls of its cases give up to {most} outputs, and the schema has {names}")
