"""The line of the user's code behind a failure inside PyTorch."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from typing import Any

import onnxscript
import torch
from torch._guards import detect_fake_mode
from torch.overrides import TorchFunctionMode

from tenonnx_frontends import UserLines, line

#: Files other than the user's: PyTorch, the exporter, and this package.
_USER = UserLines((torch.__file__, onnxscript.__file__, __file__))

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n *(?P<code>[^\n]*)')


def of_node(node: Any) -> str:
    """The user's line that produced a node of a traced module, empty if unknown."""
    lines = list(_in_text(node.meta.get("stack_trace") or ""))
    return lines[-1] if lines else ""


def of_error(error: BaseException) -> list[str]:
    """The user's lines that led to an error in PyTorch, innermost last."""
    found: list[str] = []
    for each in _chain(error):
        for node in _locals(each, torch.fx.Node):
            found += [place] if (place := of_node(node)) else []
        found += _USER.of_error(each)
        found += _in_text(str(each))
    return list(dict.fromkeys(found))


class FixedSizes(TorchFunctionMode):
    """Records, during tracing, the user's lines after which a dynamic size becomes fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, None] = {}
        self._guards = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._look(args)
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._look(args)

    def _look(self, args: Any) -> None:
        mode = detect_fake_mode([arg for arg in args if isinstance(arg, torch.Tensor)])
        environment = None if mode is None else mode.shape_env
        if environment is not None and len(environment.guards) > self._guards:
            self._guards = len(environment.guards)
            frames = [f for f in traceback.extract_stack() if not _USER.is_foreign(f.filename)]
            inside = [f for f in frames if f.name != "<module>"]
            self.lines |= {line(f.filename, f.lineno or 0, f.name, f.line): None for f in inside[-1:]}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _locals(error: BaseException, kind: type[Any]) -> Iterator[Any]:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, kind):
                yield value


def _in_text(text: str) -> Iterator[str]:
    for match in _FRAME.finditer(text):
        if not _USER.is_foreign(match["file"]):
            yield line(match["file"], int(match["line"]), match["function"], match["code"])
