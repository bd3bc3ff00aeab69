"""User-defined metric of a model: a function of the graph, or a command that prints a number."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall
from tenonnx.extend.checks import ModelCommand

#: A number that a user measures on a model, such as its accuracy on a test set.
Metric = Callable[[Graph], float]

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


def metric_of_command(command: str) -> Metric:
    """The last number that a command prints for a model, whose path replaces ``{model}`` or is appended.

    Raises ``InvalidCall`` for a command that is empty, cannot be started, fails, or prints no number.
    """
    run = ModelCommand(command, "--evaluate")

    def metric(graph: Graph) -> float:
        with tempfile.TemporaryDirectory(prefix="tenonnx-quantize-") as folder:
            path = str(Path(folder) / "model.onnx")
            tx.export(graph, path)
            ended = run(path)
        assert ended is not None
        status, output = ended
        if status:
            raise InvalidCall(f"the command of --evaluate ended with status {status}", given=output[-400:].strip())
        numbers = _NUMBER.findall(output)
        if not numbers:
            raise InvalidCall("the command of --evaluate printed no number", given=output[-400:].strip() or "nothing")
        return float(numbers[-1])

    return metric
