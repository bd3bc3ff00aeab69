"""Names: new ones, and those that are near to one that nothing has."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence


def unique_name(names: MutableMapping[str, int], wanted: str) -> str:
    """The first of ``wanted``, ``wanted_1``, ``wanted_2`` ... that is not among ``names``; it is taken."""
    name, count = wanted, names.get(wanted, 0)
    while name in names:
        count += 1
        name = f"{wanted}_{count}"
    names[wanted] = count
    names.setdefault(name, 0)
    return name


def near_names(name: str, names: Sequence[str]) -> list[str]:
    """The names that are written much like this one, or else the first twenty."""
    import difflib

    return difflib.get_close_matches(name, names, 3) or list(names[:20])
