"""What programs that call another one have in common."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tenonnx.graph.program import Bindable, Program


class WrappedProgram(Bindable):
    """What calls ``program`` in its ``__call__``, and has the backend and the state of that."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def backend(self) -> str:
        return self._program.backend

    @property
    def state(self) -> MutableMapping[str, Any]:
        return self._program.state
