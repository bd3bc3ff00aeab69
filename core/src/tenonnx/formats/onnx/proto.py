"""Message classes of ONNX, imported without the rest of the onnx package to save start-up time."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.internal import api_implementation

if TYPE_CHECKING:
    from onnx import IR_VERSION as IR_VERSION
    from onnx import AttributeProto as AttributeProto
    from onnx import FunctionProto as FunctionProto
    from onnx import GraphProto as GraphProto
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import OperatorSetIdProto as OperatorSetIdProto
    from onnx import SparseTensorProto as SparseTensorProto
    from onnx import StringStringEntryProto as StringStringEntryProto
    from onnx import TensorProto as TensorProto
    from onnx import TensorShapeProto as TensorShapeProto
    from onnx import TypeProto as TypeProto
    from onnx import ValueInfoProto as ValueInfoProto


def _generated() -> Any:
    """The generated protobuf module of onnx, imported separately if protobuf tolerates duplicate message classes.

    It is not entered in ``sys.modules``, so that a later ``import onnx`` is complete.
    """
    found = None if "onnx" in sys.modules or api_implementation.Type() != "upb" else find_spec("onnx")
    folder = next(iter(found.submodule_search_locations or ()), "") if found is not None else ""
    spec = spec_from_file_location("onnx.onnx_ml_pb2", Path(folder, "onnx_ml_pb2.py")) if folder else None
    if spec is None or spec.loader is None or not Path(str(spec.origin)).exists():
        from onnx import onnx_ml_pb2

        return onnx_ml_pb2
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


globals().update({name: value for name, value in vars(_generated()).items() if not name.startswith("_")})
