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
    """Add the package's ops (``registry.add_module``), dtypes (``registry.add_dtypes``) and rules on ops of others."""
