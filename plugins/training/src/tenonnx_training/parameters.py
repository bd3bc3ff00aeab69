"""Which variables of a graph are trained."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence

from tenonnx.errors import InvalidCall
from tenonnx.extend import Graph, TensorType


def matching(graph: Graph, patterns: str | Sequence[str] | None, *, but: Collection[str] = ()) -> list[str]:
    """The names of the floating-point variables that ``patterns`` choose, in file order; see ``step_graph``.

    Those of ``but`` are never chosen. Raises ``InvalidCall`` for a pattern that matches none, and if none is left.
    """
    kinds = {v.name: v.tensor for v in graph.variables if isinstance(v.type, TensorType) and v.type.dtype.is_float}
    floats = {name: kind for name, kind in kinds.items() if name not in but}
    given = [patterns] if isinstance(patterns, str) else patterns
    wanted, unwanted = [p for p in given or () if p[:1] != "!"], [p[1:] for p in given or () if p[:1] == "!"]
    for pattern, among in [*((p, floats) for p in wanted), *((p, kinds) for p in unwanted)]:
        if not any(_matches(name, [pattern]) for name in among):
            raise InvalidCall(
                f'trainable "{pattern}" must match a variable that gradients can change',
                available=", ".join(list(floats)[:50]) or "no such variable",
            )
    everything = not wanted and (given is None or bool(unwanted))
    chosen = [n for n, kind in floats.items() if _matches(n, wanted) or (everything and kind.shape)]
    left = [name for name in chosen if not _matches(name, unwanted)]
    if not left:
        raise InvalidCall(
            "there must be a variable to train",
            given=f"trainable={patterns!r}",
            available=", ".join(list(floats)[:50]) or "no floating-point variable",
        )
    return left


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of ``patterns`` is the name, brackets and all, or a pattern of it."""
    return name in patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def numbers_note(graph: Graph, parameters: Sequence[str]) -> list[str]:
    numbers = [v.name for v in graph.variables if v.name in parameters and set(v.tensor.shape or ()) == {1}]
    text = f"trains single numbers, which may be constants of the model (leave out by !name): {', '.join(numbers)}"
    return [text] if numbers else []
