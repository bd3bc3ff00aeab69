"""Search for sizes of dims at which a graph runs, with random inputs.

A file says of its dims that they are free, not what its nodes then demand: that a mask is as long as the past and the
new tokens together, or that an image has a multiple of 32 pixels. What fails tells more: numbers in the error that are
sizes of symbols must often be equal to others that stand there.
"""

from __future__ import annotations

import heapq
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tenonnx.errors import InvalidCall, InvalidFeed, OutOfTime, TenonnxError
from tenonnx.graph.graph import Graph
from tenonnx_convert.verifying.generate import ADVICE, InputShapes, generate_feeds, usual_sizes

#: What networks divide their inputs by, the likely ones first.
MULTIPLES = (8, 16, 32, 64, 128, 224, 384, 1)

#: So many sizes are tried, for so many seconds of work: of this thread, as those that others take are no reason to
#: give up.
ATTEMPTS, SECONDS = 200, 20.0


def feasible_feeds(
    graph: Graph,
    run: Callable[[Mapping[str, Any]], dict[str, Any]],
    seed: int = 0,
    input_shapes: InputShapes | None = None,
    unlike: Mapping[str, int] | None = None,
    least: Mapping[str, int] = MappingProxyType({}),
    attempts: int = ATTEMPTS,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Made-up inputs that ``run`` takes, what it gives for them, and the sizes that are other than usual.

    ``unlike`` are sizes of symbols that are not to be taken, and ``least`` the smallest that are. Raises
    ``InvalidCall`` for a symbol that no input has, and ``InvalidFeed`` with the first error where none of the sizes
    that were tried is taken.
    """
    usual = {**usual_sizes(graph, input_shapes), **least}
    first: TenonnxError | None = None
    started = time.thread_time()
    number = itertools.count()
    waiting: list[tuple[int, int, dict[str, int]]] = [(0, next(number), usual)]
    if unlike:
        if unknown := unlike.keys() - usual.keys():
            raise InvalidCall(
                "no input has a dim of that name",
                given=", ".join(sorted(unknown)),
                available=", ".join(name for name in usual if not name.startswith("?")),
            )
        doubled = {name: 2 * size for name, size in unlike.items()}
        larger = {name: size + 1 for name, size in unlike.items()}
        waiting = [(0, next(number), {**usual, **other}) for other in (doubled, larger)]
    seen: set[tuple[int, ...]] = set()
    while waiting and len(seen) < attempts and time.thread_time() - started < SECONDS:
        cost, _, sizes = heapq.heappop(waiting)
        key = tuple(sizes.values())
        if key in seen or any(sizes.get(name) == size for name, size in (unlike or {}).items()):
            continue
        if any(sizes.get(name, size) < size for name, size in least.items()):
            continue
        seen.add(key)
        try:
            feeds = generate_feeds(graph, seed, input_shapes, sizes)
            return feeds, run(feeds), {name: size for name, size in sizes.items() if usual[name] != size}
        except OutOfTime:
            raise
        except TenonnxError as error:
            first = first or error
            for further, other in _others(sizes, str(error), is_first=cost == 0):
                heapq.heappush(waiting, (cost + further, next(number), other))
    assert first is not None
    tried = f"{len(seen)} choices of sizes for {', '.join(usual)}" if len(seen) > 1 else ""
    raise InvalidFeed(
        "found no sizes of random inputs at which the model runs",
        given=str(first),
        also=tried and f"tried {tried}",
        do=ADVICE,
    ) from first


def _others(sizes: dict[str, int], error: str, *, is_first: bool) -> Iterator[tuple[int, dict[str, int]]]:
    """Other sizes to try after an error, with what each costs: what is likely comes first."""
    numbers = sorted({int(found) for found in re.findall(r"\b\d{1,4}\b", error)} - {0})
    for name, size in sizes.items():
        for wanted in numbers:
            if wanted != size:
                yield (1 if size in numbers else 4), {**sizes, name: wanted}
    for one, other in itertools.permutations(sizes, 2):
        if sizes[one] in numbers and sizes[one] != sizes[other]:
            yield 2, {**sizes, one: sizes[other]}
    for one, left, right in itertools.permutations(sizes, 3):
        if left < right and sizes[one] in numbers:
            yield 2, {**sizes, one: sizes[left] + sizes[right]}
    if is_first:
        for place, multiple in enumerate(MULTIPLES):
            cost = 1 + place // 3  # so that numbers in errors, of which there may be many, do not come before all
            yield cost, {name: multiple if k else size for k, (name, size) in enumerate(sizes.items())}
            yield cost, dict.fromkeys(sizes, multiple)
