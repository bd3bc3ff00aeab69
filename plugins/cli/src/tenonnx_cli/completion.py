"""What completes a line in a shell: what click knows, and names of backends, targets and ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
)

if TYPE_CHECKING:
    import click


def answer(program: click.Command, variable: str, instruction: str) -> int:
    """Print what a shell asks for, a script or what completes a line. The exit code."""
    for shell in (BashComplete, ZshComplete, FishComplete):
        add_completion_class(type(shell.__name__, (_Named, shell), {}))
    return shell_complete(program, {}, "tenonnx", variable, instruction)


class _Named:
    """A shell to which the names of what is installed are offered, too."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        names = _NAMES.get(args[-1]) if args[-1:] and (args[-1].startswith("-") or len(args) == 1) else None
        if names is None or incomplete.startswith("-"):
            found: list[CompletionItem] = super().get_completions(args, incomplete)  # type: ignore[misc]
            return found
        return [CompletionItem(name) for name in sorted(names()) if name.startswith(incomplete)]


def _backends() -> Iterable[str]:
    from tenonnx.tools import plugins

    return ["auto", "numpy", *(plugin.name for plugin in plugins("tenonnx.backends"))]


def _targets() -> Iterable[str]:
    from tenonnx.tools import runtimes

    return runtimes()[0]


def _ops() -> Iterable[str]:
    from tenonnx import default_registry
    from tenonnx.tools import INTERNAL_DOMAIN

    return {op.name for op in default_registry().ops() if op.domain != INTERNAL_DOMAIN}


#: By the word before: an option, or a command of which it is the first argument.
_NAMES: dict[str, Callable[[], Iterable[Any]]] = {
    "--backend": _backends, "--target": _targets, "targets": _targets, "--fuse-also": _ops, "ops": _ops,
}  # fmt: skip
