"""Calibration: readers of data, methods, and calibrators."""

from __future__ import annotations

import abc
import json
import os
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as tx
from tenonnx.extend import InvalidCall, TensorType
from tenonnx.extend.transforms import infer
from tenonnx_compat.models import graph_of
from tenonnx_compat.refusal import announce, refuse_options
from tenonnx_quantized.tuning.calibrate import observe

Array = np.ndarray[Any, Any]


class CalibrationMethod(Enum):
    """Methods that choose the range of an activation from data."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


#: tenonnx's names of the supported methods.
METHODS = {
    CalibrationMethod.MinMax: "minmax",
    CalibrationMethod.Entropy: "entropy",
    CalibrationMethod.Percentile: "percentile",
}


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Iterator over the inputs of calibration runs; every class with ``get_next`` is a subclass."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """The next inputs by name, or None at the end."""

    def __iter__(self) -> CalibrationDataReader:
        return self

    def __next__(self) -> dict[str, Any]:
        feeds = self.get_next()
        if feeds is None:
            raise StopIteration
        return feeds

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        raise NotImplementedError


class TensorData:
    """Statistics of a tensor, as attributes such as ``lowest`` and ``highest``."""

    _allowed = frozenset(["avg", "std", "lowest", "highest", "hist", "hist_edges", "bins"])
    _floats = frozenset(["avg", "std", "lowest", "highest", "hist_edges"])

    def __init__(self, **statistics: Any) -> None:
        for name, value in statistics.items():
            if name not in self._allowed:
                raise ValueError(f"Unexpected value {name!r} not in {self._allowed}.")
            if name in self._floats and getattr(value, "dtype", None) not in (np.float16, np.float32):
                raise ValueError(f"Unexpected type or dtype for k={name!r}: {value!r}")
            setattr(self, name, value)
        self._names = list(statistics)

    @property
    def range_value(self) -> tuple[Any, Any]:
        """The pair (lowest, highest). Raises ``AttributeError`` if they are missing."""
        return self.__dict__["lowest"], self.__dict__["highest"]

    def to_dict(self) -> dict[str, Any]:
        """The statistics by name, with the class name under ``CLS``."""
        return {**{name: getattr(self, name) for name in self._names}, "CLS": type(self).__name__}


class TensorsData:
    """Statistics by tensor name. Raises ``TypeError`` for entries that are neither tuples nor ``TensorData``."""

    def __init__(self, calibration_method: CalibrationMethod, data: Mapping[str, TensorData | tuple[Any, ...]]) -> None:
        self.calibration_method = calibration_method
        self.data: dict[str, TensorData] = {}
        for name, value in data.items():
            if isinstance(value, tuple) and len(value) in (2, 4):
                names = ("lowest", "highest", "hist", "bins")[: len(value)]
                value = TensorData(**dict(zip(names, value, strict=True)))
            if not isinstance(name, str) or not isinstance(value, TensorData):
                raise TypeError(f"neither a tuple nor a TensorData by name: {name!r}, {value!r}")
            self.data[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def __getitem__(self, name: str) -> TensorData:
        return self.data[name]

    def __setitem__(self, name: str, value: TensorData) -> None:
        if name not in self.data:
            raise RuntimeError(f"Only an existing tensor can be modified, {name!r} is not.")
        self.data[name] = value

    def keys(self) -> KeysView[str]:
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        """The entries and the method, with the class name under ``CLS``."""
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}


class CalibraterBase:
    """Collects calibration data, and computes the ranges of float tensors.

    ``augmented_model_path`` and ``use_external_data_format`` have no effect, since no model is written;
    ``averaging_constant`` and ``max_intermediate_outputs`` neither, since all batches are averaged at once. Raises
    ``NotSupported`` for per-channel ranges.
    """

    method = CalibrationMethod.MinMax

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | os.PathLike[str] = "augmented_model.onnx",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        moving_average: bool = False,
        averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None,
        per_channel: bool = False,
        percentile: float = 99.999,
    ) -> None:
        refuse_options("onnxruntime.quantization.create_calibrator", {"per_channel": per_channel})
        self.graph = graph_of(model_path)
        self.op_types_to_calibrate = op_types_to_calibrate
        self.symmetric = symmetric
        self.percentile = percentile
        self.calibration = "average" if moving_average else METHODS[self.method]
        self.batches: list[dict[str, Any]] = []
        self.execution_providers: Sequence[Any] = ["CPUExecutionProvider"]

    def augment_graph(self) -> None:
        """Do nothing: no outputs have to be added to observe values."""

    def create_inference_session(self) -> None:
        """Do nothing: ``compute_data`` runs the model."""

    def set_execution_providers(self, execution_providers: Sequence[Any] = ("CPUExecutionProvider",)) -> None:
        """Raise ``NotSupported`` for other providers than CPUExecutionProvider."""
        others = [each for each in execution_providers if each != "CPUExecutionProvider"]
        refuse_options("onnxruntime.quantization.create_calibrator", {"providers": others})

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Add the batches of a reader. Raises ``ValueError`` if there are none."""
        batches = list(iter(data_reader.get_next, None))
        if not batches:
            raise ValueError("No data is collected.")
        self.batches += batches

    def compute_data(self) -> TensorsData:
        """The ranges of all float inputs and outputs of ops in ``op_types_to_calibrate``."""
        graph = self.graph.copy()
        graph.all_inputs = graph.inputs
        infer(graph, strict=False)
        wanted = [n for n in graph.nodes if not self.op_types_to_calibrate or n.op_type in self.op_types_to_calibrate]
        names = {
            value.name: None
            for node in wanted
            for value in (*node.inputs, *node.outputs)
            if value is not None and not value.is_constant and _is_float(value)
        }
        observed = observe(graph, list(names), self.batches, self.calibration, percentile=self.percentile)
        ranges = observed.extremes if self.method is CalibrationMethod.MinMax else observed.ranges
        if self.symmetric:
            ranges = {name: (-max(map(abs, ends)), max(map(abs, ends))) for name, ends in ranges.items()}
        return ranges_data(self.method, ranges)

    @property
    def get_augment_model(self) -> Any:
        """Raise ``NotSupported``: there is no augmented model."""
        return refuse_options("onnxruntime.quantization.create_calibrator", {"get_augment_model": True})


class MinMaxCalibrater(CalibraterBase):
    """Ranges from the minimum to the maximum."""


class EntropyCalibrater(CalibraterBase):
    """Ranges that minimize the Kullback-Leibler divergence of the quantized distribution."""

    method = CalibrationMethod.Entropy


class PercentileCalibrater(CalibraterBase):
    """Ranges that contain a percentile of the values."""

    method = CalibrationMethod.Percentile


def _is_float(value: tx.Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype.is_float


def ranges_data(method: CalibrationMethod, ranges: Mapping[str, tuple[float, float]]) -> TensorsData:
    """Convert ranges by name to ``TensorsData``."""
    statistics = {name: tuple(np.array(end, np.float32) for end in ends) for name, ends in ranges.items()}
    return TensorsData(method, statistics)


def create_calibrator(
    model: str | os.PathLike[str],
    op_types_to_calibrate: Sequence[str] | None = None,
    augmented_model_path: str | os.PathLike[str] = "augmented_model.onnx",
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    use_external_data_format: bool = False,
    providers: Sequence[Any] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> CalibraterBase:
    """Create a calibrator for a method. Raises ``NotSupported`` for the method ``Distribution`` and numbers of bins."""
    call = "onnxruntime.quantization.create_calibrator"
    announce(call, "tx.quantize(graph, batches, mode='static')[1].ranges")
    refuse_options(call, {"calibrate_method": None if calibrate_method in METHODS else calibrate_method.name})
    classes = {each.method: each for each in (MinMaxCalibrater, EntropyCalibrater, PercentileCalibrater)}
    options = {"symmetric": calibrate_method is CalibrationMethod.Percentile, **(extra_options or {})}
    refuse_options(call, {name: options.pop(name, None) for name in ("num_bins", "num_quantized_bins", "scenario")})
    calibrator = classes[calibrate_method](model, op_types_to_calibrate, augmented_model_path, **options)
    calibrator.set_execution_providers(providers or ["CPUExecutionProvider"])
    return calibrator


def _encoded(value: Any) -> Any:
    """Encode an object for JSON, in the format of onnxruntime's calibration caches."""
    if isinstance(value, TensorData | TensorsData):
        return value.to_dict()
    if isinstance(value, CalibrationMethod):
        return {"CLS": "CalibrationMethod", "value": str(value)}
    if isinstance(value, np.ndarray | np.generic):
        return {"data": value.tolist(), "dtype": str(value.dtype), "CLS": "numpy.array"}
    raise TypeError(f"no form in JSON: {value!r}")


def _decoded(value: dict[str, Any]) -> Any:
    form = value.pop("CLS", None)
    if form == "numpy.array":
        return np.array(value["data"], np.dtype(value["dtype"]))
    if form == "TensorData":
        return TensorData(**value)
    if form == "CalibrationMethod":
        return CalibrationMethod[value["value"].rpartition(".")[2]]
    return TensorsData(value["calibration_method"], value["data"]) if form == "TensorsData" else value


def save_tensors_data(tensors_data: TensorsData, path: str | os.PathLike[str], *, smooth_quant: bool = False) -> None:
    """Write statistics as JSON, in the format of onnxruntime's calibration caches."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({**tensors_data.to_dict(), "smooth_quant": smooth_quant}, default=_encoded))


def load_tensors_data(path: str | os.PathLike[str]) -> TensorsData:
    """Read statistics that ``save_tensors_data`` wrote. Raises ``FileNotFoundError`` and ``InvalidCall``."""
    try:
        data = json.loads(Path(path).read_text(), object_hook=_decoded)
        given = type(data).__name__
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        data, given = None, f"{type(error).__name__}: {error}"[:200]
    if not isinstance(data, TensorsData):
        raise InvalidCall(f'"{os.fspath(path)}" holds no calibration data', given=given, do="calibrate again")
    return data
