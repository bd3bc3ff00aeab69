"""Search for sizes of dims at which a graph runs, with random inputs.

A file declares dims as dynamic without the conditions of its nodes: a mask must be as long as past and new tokens
together, or an image needs a multiple of 32 pixels. Errors help: if numbers in them are sizes of symbols, these must
often be equal to other numbers in the message.
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

#: Factors by which networks often divide sizes, the most likely ones first.
MULTIPLES = (8, 16, 32, 64, 128, 224, 384, 1)

#: Maximum number of sizes to try, and maximum CPU seconds of this thread, which other load does not affect.
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
    """Random inputs that ``run`` accepts, its outputs for them, and the sizes that differ from the default ones.

    ``unlike`` are excluded sizes of symbols, ``least`` their minimum sizes. Raises ``InvalidCall`` for an unknown
    symbol, and ``InvalidFeed`` with the first error if none of the sizes works.
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
            for further, other in _other_sizes(sizes, str(error), is_first=cost == 0):
                heapq.heappush(waiting, (cost + further, next(number), other))
    assert first is not None
    tried = f"{len(seen)} choices of sizes for {', '.join(usual)}" if len(seen) > 1 else ""
    raise InvalidFeed(
        "found no sizes of random inputs at which the model runs",
        given=str(first),
        also=tried and f"tried {tried}",
        do=ADVICE,
    ) from first


def _other_sizes(sizes: dict[str, int], error: str, *, is_first: bool) -> Iterator[tuple[int, dict[str, int]]]:
    """Sizes to try after an error, with their costs; likely ones come first."""
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
            cost = 1 + place // 3  # so that the numbers of long error messages do not come before all else
            yield cost, {name: multiple if k else size for k, (name, size) in enumerate(sizes.items())}
            yield cost, dict.fromkeys(sizes, multiple)
