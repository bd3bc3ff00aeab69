"""Shell completion of options, backends, targets, domains, ops and values of a model."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
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
    """Print the answer to a shell: a script, or completions. Returns the exit code."""
    for shell in (BashComplete, ZshComplete, FishComplete):
        add_completion_class(type(shell.__name__, (_Named, shell), {}))
    return shell_complete(program, {}, "tenonnx", variable, instruction)


class _Named:
    """A shell that also completes names of installed plugins, and of values of a model.

    Errors and warnings are suppressed and complete nothing.
    """

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.suppress(Exception):
                return self._completions(args, incomplete)
        return []

    def _completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        names = _NAMES.get(args[-1]) if args[-1:] and (args[-1].startswith("-") or len(args) == 1) else None
        if incomplete.startswith("-"):
            names = None
        if names is not None:
            return _matching(names(), incomplete)
        if (args[-1:] and args[-1] in _OF_VALUES) or (args[:1] == ["rename"] and _model_in(args[1:])):
            values = _values(args)
            *before, last = incomplete.split(",")
            return _matching([",".join([*before, name]) for name in values], ",".join([*before, last]))
        result: list[CompletionItem] = super().get_completions(args, incomplete)  # type: ignore[misc]
        return result


def _matching(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


#: Options that take names of values of the model.
_OF_VALUES = frozenset(
    ["--output-names", "--input-names", "-i", "--of", "--wrt", "--node", "--input", "--keep-weights"]
)


def _model_in(args: list[str]) -> str | None:
    """The model that the line names before the incomplete word."""
    return next((each for each in args if each.endswith((".onnx", ".safetensors")) and Path(each).is_file()), None)


def _values(args: list[str]) -> Iterable[str]:
    """Names of values of that model, or of its nodes or inputs, depending on the option."""
    from tenonnx import load

    path = _model_in(args)
    if path is None:
        return []
    graph = load(path)
    if args[-1] == "--node":
        return [node.name for node in graph.walk() if node.name]
    if args[-1] == "--input":
        return [f"{value.name}=" for value in graph.all_inputs]
    if args[-1] == "--keep-weights":
        return [value.name for value in graph.variables]
    return {value.name for value in graph.values() if value.name}


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


def _domains() -> Iterable[str]:
    from tenonnx import default_registry
    from tenonnx.tools import INTERNAL_DOMAIN

    return [domain for domain in default_registry().domains() if domain != INTERNAL_DOMAIN]


#: Sources of names by the previous word: an option, or a command whose first argument is a name.
_NAMES: dict[str, Callable[[], Iterable[Any]]] = {
    "--backend": _backends,
    "--target": _targets,
    "targets": _targets,
    "--domains": _domains,
    "--domain": _domains,
    "--fuse-also": _ops,
    "ops": _ops,
}
