"""Measured limits of a runtime on whole models: opsets, IR versions, dynamic shapes and external data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tenonnx.extend import InvalidCall, TenonnxError
from tenonnx_testing.probing.trials import OLDEST

#: A runner: takes the path of a model, feeds, and names of outputs; returns the outputs.
Run = Callable[[Path, dict[str, Any], list[str]], list[Any]]

_X = np.array([[-1, 0, 2], [3, -4, 5]], np.float32)


@dataclass(frozen=True, slots=True)
class Traits:
    """Limits on whole models. ``opset`` is the newest supported version of ai.onnx."""

    opset: int
    ir_version: int
    static_shapes: bool
    external_data: bool


def find_traits(run: Run) -> Traits:
    """Measure traits with models of one Relu or Add. Raises ``InvalidCall`` if the runner computes no Relu."""
    with TemporaryDirectory(prefix="tenonnx-") as folder:
        trial = _Trials(run, Path(folder, "model.onnx"))
        newest = onnx.defs.onnx_opset_version()
        opset = next(
            (v for v in range(newest, OLDEST - 1, -1) if trial.relu(v, _ir(v)) or trial.relu(v, _OLD_IR)), None
        )
        if opset is None:
            raise InvalidCall(
                "the runner does not compute a model of one Relu",
                given=trial.reason,
                do="check that it takes a path and feeds by name, and returns outputs",
            )
        versions = range(onnx.IR_VERSION, 3, -1)
        ir_version = next((v for v in versions if trial.relu(opset, v)), _OLD_IR)
        return Traits(
            opset,
            ir_version,
            static_shapes=not trial.relu(opset, min(_ir(opset), ir_version), "n"),
            external_data=trial.external(opset, min(_ir(opset), ir_version)),
        )


#: Fallback IR version, for runtimes that reject the one that belongs to an opset.
_OLD_IR = 8


def _ir(opset: int) -> int:
    return int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))


class _Trials:
    def __init__(self, run: Run, path: Path) -> None:
        self.run, self.path = run, path
        self.reason = ""

    def relu(self, opset: int, ir_version: int, rows: int | str = 2) -> bool:
        """Whether the runner computes a Relu."""
        node = helper.make_node("Relu", ["x"], ["y"])
        self.path.write_bytes(_model([node], opset, ir_version, rows).SerializeToString())
        return self._computes(np.maximum(_X, 0))

    def external(self, opset: int, ir_version: int) -> bool:
        """Whether the runner computes an Add with external data."""
        row = np.array([1, 2, 3], np.float32)
        self.path.with_name("model.data").write_bytes(row.tobytes())
        tensor = TensorProto(name="row", dims=[3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="model.data")
        tensor.external_data.add(key="offset", value="0")
        tensor.external_data.add(key="length", value=str(row.nbytes))
        model = _model([helper.make_node("Add", ["x", "row"], ["y"])], opset, ir_version, 2)
        model.graph.initializer.append(tensor)
        self.path.write_bytes(model.SerializeToString())
        return self._computes(_X + row)

    def _computes(self, expected: np.ndarray[Any, Any]) -> bool:
        try:
            (found,) = self.run(self.path, {"x": _X}, ["y"])
        except InvalidCall:
            raise
        except TenonnxError as error:
            self.reason = f"{error.what}: {error.given}" if error.given else error.what
            return False
        right = isinstance(found, np.ndarray) and np.array_equal(found, expected)
        self.reason = self.reason if right else f"Relu gives {np.asarray(found).tolist()}"
        return right


def _model(nodes: list[onnx.NodeProto], opset: int, ir_version: int, rows: int | str) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 3]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "probe", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
