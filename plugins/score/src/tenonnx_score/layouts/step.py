"""``--layout``: the step of a conversion that gives the file its place in the folder of a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tenonnx import Graph, InvalidCall
from tenonnx.extend.transforms import step_behind
from tenonnx.tools import write_bytes
from tenonnx_score.layouts import kserve, triton
from tenonnx_score.layouts.interface import Interface, interface_of

LAYOUTS: Mapping[str, Callable[[Path, Interface], tuple[Path, dict[Path, str]]]] = {
    "triton": triton.files, "kserve": kserve.files,
}  # fmt: skip


@step_behind("verify")
def layout(graph: Graph, conversion: Any) -> tuple[Graph, tuple[()]]:
    """Write the folder that a model server takes.

    Raises ``InvalidCall`` for a server that is not known, and where the output is no folder, and ``NotRepresentable``
    for inputs and outputs that the server cannot describe; then nothing is written.
    """
    server, path = conversion.options.layout, conversion.path
    if server not in LAYOUTS:
        raise InvalidCall("layout must name a server", given=server, available=", ".join(LAYOUTS))
    if not isinstance(path, str | os.PathLike) or Path(path).is_file() or Path(path).suffix:
        raise InvalidCall(
            "with a layout the model is written to a folder", given=str(path), do="give a folder: -o repository/net"
        )
    model, texts = LAYOUTS[server](Path(path).absolute(), interface_of(graph))
    model.parent.mkdir(parents=True, exist_ok=True)
    for place, text in texts.items():
        write_bytes(place, [text.encode("utf-8")])
    conversion.path = model
    return graph, ()
