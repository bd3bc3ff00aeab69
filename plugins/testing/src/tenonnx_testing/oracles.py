"""Oracles: onnxruntime and the reference implementation of the onnx package."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tenonnx_testing.models import Trial, without_output_types
from tenonnx_testing.runners import run_session

if TYPE_CHECKING:
    import onnxruntime


class Refused(Exception):
    """The oracle cannot run a model."""


def run_reference(trial: Trial) -> list[Any]:
    """Return the outputs of ``onnx.reference``. Raises ``Refused`` for any error, since it lacks parts of ONNX."""
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(ReferenceEvaluator(trial.model).run(None, dict(trial.feeds)))
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error


@functools.cache
def has_onnxruntime() -> bool:
    import importlib.util

    return importlib.util.find_spec("onnxruntime") is not None


@functools.cache
def newest_of_onnx() -> int:
    return int(onnx.defs.onnx_opset_version())


@functools.cache
def newest_of_onnxruntime() -> int:
    """Newest version of ``ai.onnx`` that the installed onnxruntime loads."""
    for version in range(newest_of_onnx(), 0, -1):
        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
        graph = onnx.helper.make_graph([node], "probe", info[:1], info[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=4)
        try:
            _session(model)
        except Refused:
            continue
        return version
    return 0


@functools.cache
def _options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(_shortened(error)) from error


def run_onnxruntime(trial: Trial) -> list[Any]:
    """Return the outputs of onnxruntime's CPU kernels, without graph optimizations. Raises ``Refused`` on errors."""
    session = _session(without_output_types(trial.model))
    try:
        return run_session(session, trial.feeds)
    except Exception as error:
        raise Refused(_shortened(error)) from error


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def check(trial: Trial) -> None:
    """Run ``onnx.checker`` on a model."""
    onnx.checker.check_model(trial.model)
