"""Diagnosis of missing ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenonnx.errors import similar_names
from tenonnx.registry.discovery import cure
from tenonnx.registry.registry import Registry


class Absence(NamedTuple):
    """Reason why no installed package provides an op; ``package`` would, if it is known."""

    reason: str
    package: str | None
    do: str


def absence(registry: Registry | None, domain: str, name: str, version: int) -> Absence:
    """Diagnose why an op is unknown at a version of its domain."""
    package = None if registry is None else registry.provider(domain, name)
    others = () if registry is None else registry.meanings(domain, name)
    if others:
        when = _version_range([(op.since, op.before) for op in others], version)
        reason = f"an op of {domain} {when}, while the file is of version {version}"
        return Absence(reason, None, f"give the file the version of {domain} that it was written for")
    meant = None if registry is None else registry.meant(domain, name)
    if registry is not None and meant is not None:
        return _explain_alias(registry, meant, package)
    if registry is not None and package is not None:
        if any(plugin.distribution == package for plugin in registry.failures):
            return Absence(f"{package} failed to load, see tenonnx plugins", None, "fix what tenonnx plugins shows")
        if not registry.serves(package, domain):
            return Absence(f"{package} provides it", package, cure([package]))
    near = [] if registry is None else _similar_ops(registry, domain, name)
    is_it = f"; is it {' or '.join(near)}?" if near else ""
    if package is not None:
        return Absence(f"{package} is installed, and has no such op{is_it}", None, _DEFINE)
    if registry is not None and domain in registry.domains() and any(True for _ in registry.ops(domain)):
        return Absence(f"no package that serves {domain} has such an op{is_it}", None, _DEFINE)
    reason = f"no known package provides it{is_it}"
    return Absence(reason, None, f"install or write a package that serves {domain}")


#: Advice for an op that no known package provides.
_DEFINE = "correct the name, or write a package with the op (tenonnx plugins new, docs/how-to/writing-a-plugin.md)"


def _explain_alias(registry: Registry, meant: str, package: str | None) -> Absence:
    """The explanation for an alias, whose op may be missing itself."""
    domain, _, name = meant.partition("::")
    reason = f"what is called {meant}"
    if registry.meanings(domain, name):
        return Absence(reason, None, f"use {meant} instead; tenonnx ops {name} shows it")
    needed = registry.provider(domain, name) or package
    do = f"install or write a package that serves {domain}" if needed is None else cure([needed])
    return Absence(f"{reason}, which {needed or 'no package that we know'} provides", needed, do)


def _similar_ops(registry: Registry, domain: str, name: str) -> list[str]:
    """Ops that may be meant: the same name in another domain, and similar names in this one."""
    elsewhere = [
        f"{other}::{name}" for other in registry.domains() if other != domain and registry.meanings(other, name)
    ]
    return [*elsewhere, *similar_names(name, (op.name for op in registry.ops(domain)))][:4]


def remedy(absences: Iterable[Absence]) -> str:
    """Combined advice for several missing ops."""
    found = list(dict.fromkeys(absences))
    packages = {each.package for each in found if each.package}
    return ", ".join(sorted({*([cure(packages)] if packages else []), *(a.do for a in found if not a.package)}))


def _version_range(versions: Sequence[tuple[int, int | None]], version: int) -> str:
    """The version range of an op, as seen from a version outside of it."""
    later = [since for since, _ in versions if since > version]
    return f"from version {min(later)} on" if later else f"below version {max(before or 0 for _, before in versions)}"
