"""Time per node, from the runtime's profiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx_onnxruntime.compiling import open_session
from tenonnx_onnxruntime.kernels import CPU
from tenonnx_onnxruntime.session import RuntimeProgram

if TYPE_CHECKING:
    from tenonnx.extend import Graph

#: Warm-up calls.
_WARMING = 3


def node_seconds(graph: Graph, feeds: Mapping[str, Any], calls: int) -> list[dict[str, float]]:
    """The seconds of each node of the optimized graph, by name, for each call, from the runtime's profiler."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"enable_profiling": True, "profile_file_prefix": str(Path(folder) / "nodes")}
        session, is_plain = open_session(graph, [CPU], options, None)
        program = RuntimeProgram(graph, session, is_plain)
        for _ in range(calls + _WARMING):
            program(feeds)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    spent: dict[str, list[float]] = {}
    for event in events:
        name, is_kernel, _ = str(event.get("name", "")).rpartition("_kernel_time")
        if event.get("cat") == "Node" and is_kernel:
            spent.setdefault(name, []).append(event["dur"] * 1e-6)
    return [{name: each[-calls + k] for name, each in spent.items() if len(each) >= calls} for k in range(calls)]
