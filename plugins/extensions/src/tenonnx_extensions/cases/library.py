"""The kernels of onnxruntime-extensions as an oracle."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx_extensions.checks import DOMAIN


def library() -> str | None:
    """The path of the library, or None if the package is not installed."""
    found = importlib.util.find_spec("onnxruntime_extensions")
    folders = found.submodule_search_locations if found is not None else None
    files = [path for folder in folders or () for path in sorted(Path(folder).glob("_extensions_pydll*"))]
    return next((str(path) for path in files if path.suffix in (".so", ".pyd", ".dylib")), None)


def kernel(name: str, outputs: int = 1, domain: str = DOMAIN) -> Callable[..., Any] | None:
    """A kernel of the library as a function of its inputs and attributes, or None without the library."""
    path = library()
    if path is None or importlib.util.find_spec("onnxruntime") is None:
        return None

    def run(*inputs: Any, **attributes: Any) -> Any:
        import onnx
        import onnxruntime

        given = {f"x{k}": np.asarray(each) for k, each in enumerate(inputs) if each is not None}
        infos = [
            onnx.helper.make_tensor_value_info(key, _element(each), [None] * each.ndim) for key, each in given.items()
        ]
        names = [f"y{k}" for k in range(outputs)]
        written = {key: value for key, value in attributes.items() if value is not None}
        node = onnx.helper.make_node(name, list(given), names, domain=domain, **written)
        ends = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
        graph = onnx.helper.make_graph([node], "one", infos, ends)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(domain, 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(path)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run(None, given)
        return found[0] if outputs == 1 else tuple(found)

    return run


def _element(array: Any) -> int:
    import onnx

    if array.dtype == object:
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
