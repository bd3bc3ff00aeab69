"""Targets by name: what runtimes and converters take, as data files of this package and of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tenonnx.errors import InvalidCall, PluginError
from tenonnx.graph.dtypes import DType
from tenonnx.graph.types import TensorType, Type
from tenonnx.registry.discovery import plugins

#: Plugins of this entry-point group are packages that hold files of targets.
GROUP = "tenonnx.targets"

#: The version of a domain whose limit is not documented.
ANY = "any"

#: What a target may say, here or for all targets of its file, and of which type.
_KEYS: Mapping[str, type] = {
    "title": str, "source": str, "note": str, "opsets": dict, "minimum": dict, "ir_version": int, "dtypes": list,
    "ops": list, "unspecified": list,
}  # fmt: skip
_REQUIRED = ("title", "source", "opsets")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What one runtime takes.

    ``opsets`` are the domains that it knows, each with its newest version, None where no limit is documented;
    ``minimum`` the oldest ones. ``dtypes`` are the element types of graph inputs and outputs. ``ops``, where the
    vendor has such a list, are all ops that it takes, each with the element types of its first input (of its first
    output, if it has no inputs). None stands for anything that is not documented. ``unspecified`` are ops, by name,
    that it takes at any version although the specification of their domain has them later or never.
    """

    name: str
    title: str
    opsets: Mapping[str, int | None]
    minimum: Mapping[str, int]
    ir_version: int | None
    dtypes: frozenset[DType] | None
    ops: Mapping[tuple[str, str], frozenset[DType] | None] | None
    source: str
    note: str
    package: str
    unspecified: frozenset[str] = frozenset()

    def nearest(self, domain: str, version: int) -> int:
        """The version of a domain that is nearest to ``version``."""
        newest = self.opsets[domain]
        return max(self.minimum.get(domain, 1), version if newest is None else min(newest, version))

    def versions(self, domain: str) -> str:
        """The versions of a domain in words."""
        oldest, newest = self.minimum.get(domain), self.opsets[domain]
        if newest is None:
            return ANY if oldest is None else f"{oldest} and newer"
        return f"up to {newest}" if oldest is None else f"{oldest} to {newest}"

    def problem(self, domain: str, name: str, inputs: Sequence[Type | None], outputs: Sequence[Type | None]) -> str:
        """Why this runtime does not take an op on these types; a type that is not known stands for any."""
        if self.ops is None:
            return ""
        if (domain, name) not in self.ops:
            return f"{domain}::{name} is not on the list of ops of {self.name}"
        allowed, kind = self.ops[domain, name], next(iter((*inputs, *outputs)), None)
        if allowed is None or not isinstance(kind, TensorType) or kind.dtype in allowed:
            return ""
        return f"{domain}::{name} of {self.name} does not take {kind.dtype}"

    def to_json(self) -> dict[str, Any]:
        dtypes = None if self.dtypes is None else sorted(map(str, self.dtypes))
        ops = None if self.ops is None else sorted(f"{domain}::{name}" for domain, name in self.ops)
        return asdict(self) | {"dtypes": dtypes, "ops": ops, "unspecified": sorted(self.unspecified)}


def runtimes() -> tuple[dict[str, Runtime], list[PluginError]]:
    """The targets of every file that is installed, by name, and what is wrong with the files that are left out."""
    found: dict[str, Runtime] = {}
    failures: list[PluginError] = []
    for package, folder in _folders(failures):
        for file in sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name):
            try:
                made = list(_read(file.read_text("utf-8"), package))
                taken = [p for p in made if p.name in found]
                if taken:
                    raise ValueError(f'"{taken[0].name}" is a target of {found[taken[0].name].package} too')
            except (OSError, ValueError) as error:
                failures.append(
                    PluginError(
                        f"target file {file.name} of {package} is left out: {error}",
                        do="docs/how-to/writing-a-plugin.md says what is in such a file",
                    )
                )
            else:
                found.update((runtime.name, runtime) for runtime in made)
    return found, failures


def find_runtime(name: str) -> Runtime:
    """The target of that name. Raises ``InvalidCall`` naming what is near."""
    import difflib

    found, failures = runtimes()
    if name in found:
        return found[name]
    near = difflib.get_close_matches(name, found, 5, 0.5) or [n for n in found if n.startswith(name[:4])] or found
    raise InvalidCall(
        "unknown target",
        given=name,
        available=", ".join(near),
        do="tenonnx targets lists all of them; --opset and --domains say a target without a file",
        also=(failure.what for failure in failures),
    )


def _folders(failures: list[PluginError]) -> Iterator[tuple[str, Any]]:
    """The folders that hold target files, with the package that each is of."""
    from importlib import resources

    yield "tenonnx", resources.files("tenonnx.runtimes")
    for plugin in plugins(GROUP):
        try:
            module = plugin.load()
        except PluginError as error:
            failures.append(error)
        else:
            yield plugin.source, resources.files(module)


# ----- one file -------------------------------------------------------------------------------------------------------


def _read(text: str, package: str) -> Iterator[Runtime]:
    """The targets of a file. Raises ``ValueError`` for one that is not as it must be."""
    import tomllib

    shared = tomllib.loads(text)
    tables = shared.pop("targets", None)
    if not isinstance(tables, dict) or not tables:
        raise ValueError("it must have a table [targets.NAME]")
    for name, own in tables.items():
        if not isinstance(own, dict):
            raise ValueError(f'"targets.{name}" must be a table')
        yield _runtime(name, shared | own, package)


def _runtime(name: str, table: Mapping[str, Any], package: str) -> Runtime:
    for key, value in table.items():
        if key not in _KEYS:
            raise ValueError(f'"{key}" of target {name} is none of {", ".join(_KEYS)}')
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise ValueError(f'"{key}" of target {name} must be {_KEYS[key].__name__}, not {value!r}')
    missing = [key for key in _REQUIRED if not table.get(key)]
    if missing:
        raise ValueError(f"target {name} lacks {', '.join(missing)}")
    ops: dict[tuple[str, str], frozenset[DType] | None] = {}
    for group in table.get("ops", ()):
        if not isinstance(group, dict) or set(group) - {"domain", "dtypes", "names"}:
            raise ValueError(f'"ops" of target {name} must be tables of names, dtypes and domain')
        for op in _strings(group.get("names"), f'"names" in "ops" of target {name}'):
            ops[group.get("domain", "ai.onnx"), op] = _dtypes(group, name)
    return Runtime(
        name,
        table["title"],
        {domain: None if version == ANY else _version(version, name) for domain, version in table["opsets"].items()},
        {domain: _version(version, name) for domain, version in table.get("minimum", {}).items()},
        None if "ir_version" not in table else _version(table["ir_version"], name),
        _dtypes(table, name),
        ops if "ops" in table else None,
        table["source"].strip(),
        table.get("note", "").strip(),
        package,
        frozenset(_strings(table.get("unspecified", []), f'"unspecified" of target {name}')),
    )


def _version(given: Any, name: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ValueError(f"a version of target {name} must be a whole number from 1 on, not {given!r}")
    return given


def _dtypes(table: Mapping[str, Any], name: str) -> frozenset[DType] | None:
    if "dtypes" not in table:
        return None
    names = _strings(table["dtypes"], f'"dtypes" of target {name}')
    unknown = [dtype for dtype in names if dtype not in DType.__members__]
    if unknown:
        raise ValueError(f"target {name} has a dtype {unknown[0]!r}, which ONNX does not define")
    return frozenset(DType[dtype] for dtype in names)


def _strings(given: Any, what: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError(f"{what} must be a list of strings, not {given!r}")
    return given
