"""The distribution that owns an op or an entry point."""

from __future__ import annotations

import json
import pkgutil
from functools import cache


@cache
def _hints() -> dict[str, dict[str, str]]:
    return json.loads(pkgutil.get_data("tenonnx.registry", "hints.json") or "{}")  # type: ignore[no-any-return]


def provider(domain: str, name: str) -> str | None:
    """The distribution that provides ``domain::name``, or None if unknown. Groups of entry points count as domains."""
    of_domain = _hints().get(domain, {})
    return of_domain.get(name, of_domain.get("*"))


def names_of(domain: str) -> frozenset[str]:
    """All known names of a domain or an entry-point group."""
    return frozenset(_hints().get(domain, {}))


def names_of_core() -> frozenset[str]:
    """Names in the namespaces of core, below ``tenonnx``."""
    spaces = json.loads(pkgutil.get_data("tenonnx", "names.json") or "{}")
    return frozenset(f"{space}.{name}".removeprefix("tenonnx.") for space, names in spaces.items() for name in names)


@cache
def _ours() -> frozenset[str]:
    return frozenset(name for owners in _hints().values() for name in owners.values())


def is_ours(distribution: str) -> bool:
    """Whether the project itself publishes the distribution."""
    return distribution in _ours()
