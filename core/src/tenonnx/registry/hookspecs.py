"""The hooks that plugins implement. Each is called once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from tenonnx.registry.registry import Registry

hookspec = pluggy.HookspecMarker("tenonnx")
hookimpl = pluggy.HookimplMarker("tenonnx")


@hookspec
def register_ops(registry: Registry) -> None:
    """Add the package's ops (``registry.add``, ``add_module``, ``add_package``) and its rules on ops of others."""


@hookspec
def register_tables(registry: Registry) -> None:
    """Say where tables are: of element types (``registry.add_dtypes``), of Python's operators (``add_operators``).

    Called ahead of ``register_ops``, and without it where an op is called before any is looked up: import nothing slow.
    """
