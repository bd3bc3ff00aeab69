"""Lines of the user's code: what a failure inside PyTorch leads back to."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

#: Code that is not the user's: PyTorch, the exporter, and this package.
_FOREIGN = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n *(?P<code>[^\n]*)')


def of_node(node: Any) -> str:
    """The line of the user from which a node of a traced module comes, or nothing."""
    lines = list(_in_text(node.meta.get("stack_trace") or ""))
    return lines[-1] if lines else ""


def of_error(error: BaseException) -> list[str]:
    """The lines of the user that led to an error in PyTorch, the innermost last."""
    found: list[str] = []
    for each in _chain(error):
        for node in _locals(each, torch.fx.Node):
            found += [line] if (line := of_node(node)) else []
        found += [_line(f.filename, f.lineno or 0, f.name, f.line or "") for f in _frames(each)]
        found += _in_text(str(each))
    return list(dict.fromkeys(found))


def of_guards(error: BaseException) -> list[str]:
    """The lines that fix a size which was to vary, as far as the tracer kept them."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environments = {id(env): env for each in _chain(error) for env in _locals(each, ShapeEnv)}
    found: list[str] = []
    for environment in environments.values():
        for guard in environment.guards:
            found += _in_text(str(getattr(guard, "sloc", "")) + "\n")
            user = getattr(getattr(guard, "sloc", None), "user_loc", None)
            found += [str(user)] if user and not str(user).startswith(_FOREIGN) else []
    return list(dict.fromkeys(found))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _locals(error: BaseException, kind: type[Any]) -> Iterator[Any]:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, kind):
                yield value


def _frames(error: BaseException) -> Iterable[traceback.FrameSummary]:
    return [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_FOREIGN)]


def _in_text(text: str) -> Iterator[str]:
    for match in _FRAME.finditer(text):
        if not match["file"].startswith(_FOREIGN):
            yield _line(match["file"], int(match["line"]), match["function"], match["code"])


def _line(file: str, number: int, function: str, code: str) -> str:
    return f"{file}:{number}, in {function}: {code.strip()}"
