"""``--layout``: the step of a conversion that writes the folder of a model server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tenonnx import InvalidCall
from tenonnx.extend.options import option
from tenonnx.extend.transforms import step_behind

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx.extend.formats import ConversionState, StepResult

#: The servers, each with a module of its name.
LAYOUTS = ("triton", "kserve")


@step_behind("verify")
@dataclass(frozen=True)
class Layout:
    """Write the folder that a model server takes.

    Raises ``InvalidCall`` for an unknown server, and where the output is no folder, and ``NotRepresentable`` for inputs
    and outputs that the server cannot describe; then nothing is written.
    """

    writes_folder: ClassVar[bool] = True

    layout: str | None = option(
        None,
        "Write the folder that a model server takes, triton or kserve; the output is then a folder.",
        "--layout",
        kind="text",
        metavar="SERVER",
    )

    def __call__(self, graph: Graph, state: ConversionState) -> StepResult:
        from tenonnx.extend.formats import StepResult
        from tenonnx.tools import write_bytes
        from tenonnx_score.layouts.interface import interface_of

        path = state.path
        if self.layout not in LAYOUTS:
            raise InvalidCall(f"unknown server for the option layout: {self.layout}", available=", ".join(LAYOUTS))
        if not isinstance(path, str | os.PathLike) or Path(path).is_file() or Path(path).suffix:
            raise InvalidCall(
                "with a layout, the output is not a folder", given=str(path), do="give a folder: -o repository/net"
            )
        server = import_module(f"tenonnx_score.layouts.{self.layout}")
        model, texts = server.files(Path(path).absolute(), interface_of(graph))
        model.parent.mkdir(parents=True, exist_ok=True)
        for place, text in texts.items():
            write_bytes(place, [text.encode("utf-8")])
        return StepResult(graph, path=model)
