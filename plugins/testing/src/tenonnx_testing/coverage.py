"""Which versions of an op the calls of its cases are compared at."""

from __future__ import annotations

from tenonnx.extend import Op
from tenonnx_testing import schemas
from tenonnx_testing.cases import Call, Gap, collected
from tenonnx_testing.checks import CHECKS
from tenonnx_testing.kit import STUBBORN, run_check
from tenonnx_testing.run import Failure


def gap_at(op: Op, version: int) -> Gap | None:
    """The gap that says why no case of a meaning reaches a version."""
    there = Call((), {}, version=version)
    return next((gap for case in collected(op) for gap in case.gaps_of("versions") if gap.covers(there)), None)


def check_versions(op: Op, examples: int) -> None:
    """At every version of a meaning some call of a case is compared, unless a gap says why not."""
    versions = set(schemas.versions(op))
    for count in (examples, examples * STUBBORN):
        for case in collected(op):
            for check in (CHECKS[name] for name in ("reference", "onnxruntime") if CHECKS[name].applies(case)):
                if not versions <= _reached(op):
                    try:
                        run_check(case, check, count)
                    except Failure:
                        continue  # the check itself tells
    missing = versions - _reached(op)
    known = {version for version in versions if gap_at(op, version)}
    if missing - known:
        raise Failure(
            f"{op.title}: no call of its cases is compared at the versions {sorted(missing - known)}; draw some that "
            "these can say, of element types that they take"
        )
    if known - missing:
        raise Failure(f"{op.title}: the gap of versions is stale, calls are compared at {sorted(known - missing)}")


def _reached(op: Op) -> set[int]:
    return {version for case in collected(op) for version in case.reached}
