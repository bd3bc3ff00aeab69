"""Names that files and people use for an op that is called otherwise, as the family says that knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenonnx.errors import PluginError
from tenonnx.op.op import Op

#: For each domain and name the op that is meant, as ``domain::Name``.
Aliases = Mapping[tuple[str, str], str]


def checked(domain: str, names: Mapping[str, str]) -> Aliases:
    """The names of a domain with what they mean. Raises ``PluginError`` for a meaning without a domain."""
    wrong = [meant for meant in names.values() if not all(meant.partition("::")[::2])]
    if wrong:
        raise PluginError("an alias does not name an op with its domain, as in ai.onnx::Relu", given=wrong[0])
    return {(domain, name): meant for name, meant in names.items()}


def made_of(op: Op, domain: str, name: str) -> Op:
    """An op of another name that does what ``op`` does: no specification has it, so that an export has ``op``."""

    def alias(*inputs: Any, **attributes: Any) -> Any:
        return op(*inputs, **attributes)

    alias.__name__, alias.__doc__ = op.__name__, f"{op.domain}::{op.name}."
    return Op(alias, name, domain=domain, specified=False, signature=op.signature, pure=op.pure)
