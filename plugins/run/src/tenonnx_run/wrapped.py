"""Base class of programs that wrap another one."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tenonnx.graph.program import Bindable, Program


class WrappedProgram(Bindable):
    """Base of programs that delegate to ``program`` in ``__call__`` and share its backend and state."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def backend(self) -> str:
        return self._program.backend

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._program.state
