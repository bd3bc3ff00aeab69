"""Runners of consumers on PyPI, for ``tenonnx targets probe --runner tenonnx_testing.runners:NAME``.

Each takes the path of an ONNX file and feeds by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tenonnx_testing.oracles import run_session


def reference(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """ONNX's reference."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(path).run(None, dict(feeds)))


def onnxruntime(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """The CPU provider of onnxruntime, as a session has it by default but for one thread."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return run_session(session, feeds)


def openvino(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """The CPU plugin of OpenVINO in float32."""
    core = import_module("openvino").Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    program = core.compile_model(core.read_model(path), "CPU", settings)
    found = program(dict(feeds))
    return [found[output] for output in program.outputs]


def opencv(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """The DNN module of OpenCV."""
    net = import_module("cv2").dnn.readNetFromONNX(path)
    for name, array in feeds.items():
        net.setInput(array, name)
    return list(net.forward(net.getUnconnectedOutLayersNames()))


def tinygrad(path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The ONNX runner of tinygrad, on its default device."""
    tensor, runner = import_module("tinygrad").Tensor, import_module("tinygrad.nn.onnx").OnnxRunner(path)
    found = runner({name: tensor(array) for name, array in feeds.items()})
    return {name: each.numpy() if isinstance(each, tensor) else each for name, each in found.items()}


def onnx2torch(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """The PyTorch module that onnx2torch makes."""
    import onnx

    torch, model = import_module("torch"), onnx.load(path)
    module = import_module("onnx2torch").convert(model).eval()
    names = [value.name for value in model.graph.input if value.name in feeds]
    with torch.no_grad():
        found = module(*(torch.from_numpy(feeds[name]) for name in names))
    return [each.numpy() for each in (found if isinstance(found, list | tuple) else [found])]
