"""Check that repeated calls give equal results, in this thread and another one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tenonnx_testing.cases import Call, Case
from tenonnx_testing.run import Failure, Outputs, blaming, evaluate, is_random


def gives_the_same_again(case: Case, drawn: Call, expected: Outputs) -> bool:
    """Check that a second call and a call in another thread give the same bits."""
    if is_random(case.op, drawn):
        return False
    with blaming(f"{case.op.title}, called again,"):
        again = evaluate(case.op, drawn)
    with blaming(f"{case.op.title}, called in another thread,"), ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(evaluate, case.op, drawn).result()
    for where, found in (("in another thread", elsewhere), ("when it is called again", again)):
        for position, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not _same_bits(one, other):
                raise Failure(f"{case.op.title} gives other bits {where}: output {position}")
    return True


def _same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same_bits, one, other))
    if not isinstance(one, np.ndarray) or one.dtype == object:
        return bool(np.all(one == other))
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
