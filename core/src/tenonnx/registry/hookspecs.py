"""The hooks that plugins implement. Each is called once, with the ``Registry`` that is being filled."""

from __future__ import annotations

from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("tenonnx")
hookimpl = pluggy.HookimplMarker("tenonnx")


@hookspec
def register_ops(registry: Any) -> None:
    """Add the package's ops (``registry.add``, ``add_module``, ``add_package``) and its rules on ops of others."""


@hookspec
def register_tables(registry: Any) -> None:
    """Say where tables are: of element types (``registry.add_dtypes``), of Python's operators (``add_operators``).

    And which other names its domain's ops go by (``add_aliases``).

    Called ahead of ``register_ops``, and without it where an op is called before any is looked up: import nothing slow.
    """
