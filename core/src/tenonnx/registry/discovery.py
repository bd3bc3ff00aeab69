"""Finding installed plugins by their entry points, without importing any."""

from __future__ import annotations

import importlib.metadata
import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tenonnx.errors import PluginError

if TYPE_CHECKING:
    from tenonnx.registry.registry import Registry

#: The entry-point groups: ops are named by the domain they serve, the others by what they provide.
GROUPS = (
    "tenonnx.ops",
    "tenonnx.backends",
    "tenonnx.formats",
    "tenonnx.conformance",
    "tenonnx.commands",
    "tenonnx.targets",
    "tenonnx.transforms",
)

#: What the value of an entry point must have, by group.
NEEDS = {"tenonnx.backends": ("speed", "compile"), "tenonnx.formats": ("read",)}


@dataclass(frozen=True, eq=False)
class Plugin:
    """One entry point: two distributions may use one name, so each is told apart by distribution and name."""

    name: str
    value: str
    group: str
    distribution: str
    version: str

    @property
    def domain(self) -> str:
        return self.name

    @property
    def source(self) -> str:
        return f"{self.distribution} {self.version}"

    def load(self) -> Any:
        """Import what the entry point names.

        Raises ``PluginError`` naming the distribution, whatever its import raised, and when it lacks what its group
        needs.
        """
        entry = importlib.metadata.EntryPoint(self.name, self.value, self.group)
        try:
            value = entry.load()
        except Exception as error:
            where = _raised_in(error) or self.value
            raise PluginError(
                f'plugin "{self.name}" of {self.source} could not be imported',
                given=f"{self.value}: {type(error).__name__}: {error}",
                do=f"correct {where}, or reinstall {self.distribution}, or leave it out with TENONNX_PLUGINS",
            ) from error
        missing = [name for name in NEEDS.get(self.group, ()) if not hasattr(value, name)]
        if missing:
            raise PluginError(
                f'plugin "{self.name}" of {self.source} must have {" and ".join(NEEDS[self.group])}',
                given=f"{self.value} has no {', '.join(missing)}",
            )
        return value

    def register(self, registry: Registry) -> None:
        """Import the plugin and let it add its ops. Raises ``PluginError`` when it cannot."""
        import pluggy

        from tenonnx.registry import hookspecs

        manager = pluggy.PluginManager("tenonnx")
        manager.add_hookspecs(hookspecs)
        module = self.load()
        try:
            manager.register(module)
            manager.check_pending()
            if not manager.hook.register_ops.get_hookimpls():
                raise PluginError(
                    f'plugin "{self.name}" of {self.source} must have a function register_ops marked with @hookimpl',
                    given=self.value,
                )
            manager.hook.register_ops(registry=registry)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(
                f'plugin "{self.name}" of {self.source} could not register its ops',
                given=f"{type(error).__name__}: {error}",
            ) from error


def _raised_in(error: BaseException) -> str:
    """The line of the plugin's own that raised, which is where its author looks."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [f for f in frames if f.filename not in (__file__, importlib.metadata.__file__, importlib.__file__)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


@cache
def _installed(group: str) -> tuple[Plugin, ...]:
    found: dict[tuple[str, str], Plugin] = {}
    for distribution in importlib.metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == group:
                name = distribution.metadata["Name"]
                plugin = Plugin(entry.name, entry.value, group, name, distribution.version)
                found.setdefault((name, entry.name), plugin)
    return tuple(sorted(found.values(), key=lambda p: (p.name, p.distribution)))


def allowed() -> Sequence[str] | None:
    """The distributions that ``TENONNX_PLUGINS`` restricts to (comma separated, empty for none), or None for all."""
    names = os.environ.get("TENONNX_PLUGINS")
    return None if names is None else [n.strip() for n in names.split(",") if n.strip()]


def plugins(group: str) -> list[Plugin]:
    """The installed plugins of one entry-point group that ``TENONNX_PLUGINS`` does not leave out."""
    names = allowed()
    return [p for p in _installed(group) if names is None or p.distribution in names]


def left_out(group: str) -> list[Plugin]:
    """The installed plugins that ``TENONNX_PLUGINS`` leaves out."""
    kept = plugins(group)
    return [p for p in _installed(group) if p not in kept]
