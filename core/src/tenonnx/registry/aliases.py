"""Alternative names of ops, declared by packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.op.op import Op

#: Maps domain and alternative name to the op as ``domain::Name``.
Aliases = Mapping[tuple[str, str], str]


def checked(domain: str, names: Mapping[str, str]) -> Aliases:
    """The aliases of a domain. Raises ``PluginError`` if a target has no domain."""
    wrong = [meant for meant in names.values() if not all(meant.partition("::")[::2])]
    if wrong:
        raise PluginError("an alias does not name an op with its domain, as in ai.onnx::Relu", given=wrong[0])
    return {(domain, name): meant for name, meant in names.items()}


def made_of(op: Op, domain: str, name: str) -> Op:
    """A copy of ``op`` with another name, which no specification has, so that exports write ``op`` instead."""

    def alias(*inputs: Any, **attributes: Any) -> Any:
        return op(*inputs, **attributes)

    alias.__name__, alias.__doc__ = op.__name__, f"{op.domain}::{op.name}."
    return Op(alias, name, domain=domain, specified=False, signature=op.signature, pure=op.pure)
