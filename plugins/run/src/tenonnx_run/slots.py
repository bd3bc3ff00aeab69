"""Slots of a plan: the place of each value's contents while a graph runs, and the step after which it is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenonnx.graph.graph import Value


class Slots:
    """Places of the values of a graph, in the order in which they are asked for; -1 is that of an absent input.

    ``contents`` are those that are there from the start, as ``initial(value, slot)`` gives them, or None. A plan copies
    them for each run, and appends None for the absent input once all values have a slot.
    """

    def __init__(self, initial: Callable[[Value, int], Any]) -> None:
        self._initial = initial
        self.places: dict[Value, int] = {}
        self.contents: list[Any] = []

    def of(self, value: Value | None) -> int:
        """The slot of a value."""
        if value is None:
            return -1
        slot = self.places.get(value)
        if slot is None:
            slot = self.places[value] = len(self.contents)
            self.contents.append(None)  # first, since contents may ask for slots of other values
            self.contents[slot] = self._initial(value, slot)
        return slot

    def freed(self, steps: Sequence[Iterable[int]], kept: Iterable[int]) -> list[tuple[int, ...]]:
        """By step, given as the slots that it reads and writes, those that no later step has.

        Slots in ``kept``, and those with contents from the start, are not among them.
        """
        last = {slot: place for place, used in enumerate(steps) for slot in used}
        found: list[list[int]] = [[] for _ in steps]
        initial = (slot for slot, contents in enumerate(self.contents) if contents is not None)
        for slot in last.keys() - {-1, *kept, *initial}:
            found[last[slot]].append(slot)
        return [tuple(sorted(each)) for each in found]
