"""Why an op is not there, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenonnx.registry.discovery import cure
from tenonnx.registry.registry import Registry


class Absence(NamedTuple):
    """What to say beside an op that no installed package provides; ``package`` would, if we know one."""

    reason: str
    package: str | None
    do: str


def absence(registry: Registry | None, domain: str, name: str, version: int) -> Absence:
    """Why there is no op of that name at a version of its domain."""
    package = None if registry is None else registry.provider(domain, name)
    others = () if registry is None else registry.meanings(domain, name)
    if others:
        when = _when([(op.since, op.before) for op in others], version)
        reason = f"an op of {domain} {when}, while the file is of version {version}"
        return Absence(reason, None, f"give the file the version of {domain} that it was written for")
    if package is None:
        return Absence("no package that we know provides it", None, f"install or write a package that serves {domain}")
    if registry is not None and any(plugin.distribution == package for plugin in registry.failures):
        return Absence(f"{package} failed to load, see tenonnx plugins", None, "mend what tenonnx plugins shows")
    return Absence(f"{package} provides it", package, cure([package]))


def remedy(absences: Iterable[Absence]) -> str:
    """What can be done about all of them."""
    found = list(dict.fromkeys(absences))
    packages = {each.package for each in found if each.package}
    return ", ".join(sorted({*([cure(packages)] if packages else []), *(a.do for a in found if not a.package)}))


def _when(versions: Sequence[tuple[int, int | None]], version: int) -> str:
    """The versions of its domain that an op is in, seen from one that it is not in."""
    later = [since for since, _ in versions if since > version]
    return f"from version {min(later)} on" if later else f"below version {max(before or 0 for _, before in versions)}"
