"""Slots of a plan: the storage of each value while a graph runs, and the step after which it is freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenonnx.graph.graph import Value


class Slots:
    """Slots of the values of a graph, in order of first use; -1 is the slot of an absent input.

    ``contents`` are the initial contents, from ``initial(value, slot)``, or None. A plan copies them for each run, and
    appends None for the absent input once all values have a slot.
    """

    def __init__(self, initial: Callable[[Value, int], Any]) -> None:
        self._initial = initial
        self.slots: dict[Value, int] = {}
        self.contents: list[Any] = []

    def of(self, value: Value | None) -> int:
        """The slot of a value."""
        if value is None:
            return -1
        slot = self.slots.get(value)
        if slot is None:
            slot = self.slots[value] = len(self.contents)
            self.contents.append(None)  # first, since ``initial`` may ask for slots of other values
            self.contents[slot] = self._initial(value, slot)
        return slot

    def freed(self, steps: Sequence[Iterable[int]], kept: Iterable[int]) -> list[tuple[int, ...]]:
        """For each step, given as the slots that it reads and writes, the slots that no later step uses.

        Slots in ``kept`` and slots with initial contents are not included.
        """
        last = {slot: place for place, used in enumerate(steps) for slot in used}
        found: list[list[int]] = [[] for _ in steps]
        initial = (slot for slot, contents in enumerate(self.contents) if contents is not None)
        for slot in last.keys() - {-1, *kept, *initial}:
            found[last[slot]].append(slot)
        return [tuple(sorted(each)) for each in found]
