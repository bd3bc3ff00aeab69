"""Runners of consumers on PyPI and npm, for ``tenonnx targets probe --runner tenonnx_testing.runners:NAME``.

Each takes the path of an ONNX file and feeds by name, and returns the outputs in order or by name. This file does not
import tenonnx, so that it runs in the environment of a consumer (``--python``).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np


def reference(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """Reference evaluator of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(path).run(None, dict(feeds)))


def onnxruntime(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU provider of onnxruntime, with default session options except a single thread."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return run_session(session, feeds)


def openvino(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU plugin of OpenVINO, in float32."""
    core = import_module("openvino").Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    program = core.compile_model(core.read_model(path), "CPU", settings)
    found = program(dict(feeds))
    return [found[output] for output in program.outputs]


def opencv(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """DNN module of OpenCV."""
    net = import_module("cv2").dnn.readNetFromONNX(path)
    for name, array in feeds.items():
        net.setInput(array, name)
    return list(net.forward(net.getUnconnectedOutLayersNames()))


def tinygrad(path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """ONNX runner of tinygrad, on its default device."""
    tensor, runner = import_module("tinygrad").Tensor, import_module("tinygrad.nn.onnx").OnnxRunner(path)
    found = runner({name: tensor(array) for name, array in feeds.items()})
    return {name: each.numpy() if isinstance(each, tensor) else each for name, each in found.items()}


def onnx2torch(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """PyTorch module converted by onnx2torch. Without torchvision, all ops but NonMaxSuppression and RoiAlign run."""
    torch = import_module("torch")
    if "torchvision" not in sys.modules and find_spec("torchvision") is None:
        stand_ins = [ModuleType(name) for name in ("torchvision", "torchvision.ops")]
        sys.modules.update((each.__name__, each) for each in stand_ins)
        vars(stand_ins[1])["roi_align"] = None
    module = import_module("onnx2torch").convert(_model(path)).eval()
    with torch.no_grad():
        found = module(*(torch.from_numpy(feeds[name]) for name in _input_names(path, feeds)))
    return [each.numpy() for each in (found if isinstance(found, list | tuple) else [found])]


def jaxonnxruntime(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """JAX function converted by jaxonnxruntime, with 64-bit types enabled."""
    import_module("jax").config.update("jax_enable_x64", True)
    backend = import_module("jaxonnxruntime.backend")
    return [np.asarray(each) for each in backend.run_model(_model(path), dict(feeds))]


def iree(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU code compiled by IREE."""
    importer = import_module("iree.compiler.tools.import_onnx.__main__")
    compiler, runtime = import_module("iree.compiler"), import_module("iree.runtime")
    with TemporaryDirectory() as folder:
        text = f"{folder}/model.mlir"
        if importer.main(importer.parse_arguments([path, "-o", text])):
            raise RuntimeError("the importer failed")
        options = {"input_type": "onnx", "extra_args": ["--iree-llvmcpu-target-cpu=host"]}
        code = compiler.compile_file(text, target_backends=["llvm-cpu"], **options)
    module = runtime.load_vm_flatbuffer(code, driver="local-sync")
    call = getattr(module, _model(path).graph.name)
    found = call(*(feeds[name] for name in _input_names(path, feeds)))
    return [np.asarray(each) for each in (found if isinstance(found, list | tuple) else [found])]


def tvm(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU code compiled by TVM from its Relax importer."""
    tvm = import_module("tvm")
    module = import_module("tvm.relax.frontend.onnx").from_onnx(_model(path))
    compiled = tvm.relax.build(tvm.relax.transform.DecomposeOpsForInference()(module), tvm.target.Target("llvm"))
    machine = tvm.relax.VirtualMachine(compiled, tvm.cpu())
    runtime = import_module("tvm.runtime")
    found = machine["main"](*(runtime.tensor(np.asarray(feeds[name])) for name in _input_names(path, feeds)))
    listed = [found] if hasattr(found, "numpy") else list(found)
    return [each.numpy() for each in listed]


def mnn(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU backend of MNN, on a file converted from ONNX.

    This calls the extension module of the converter, since its Python wrapper installs a package and reports what was
    converted to a server. MNN stores 64-bit integers in 32 bits.
    """
    expr, nn, converter = import_module("MNN.expr"), import_module("MNN.nn"), import_module("_tools")
    inputs, outputs = _input_names(path, feeds), [value.name for value in _model(path).graph.output]
    with TemporaryDirectory() as folder:
        converted = f"{folder}/model.mnn"
        arguments = ["-f", "ONNX", "--modelFile", path, "--MNNModel", converted, "--bizCode", "tenonnx"]
        converter.mnnconvert(["mnnconvert", *arguments])
        if not Path(converted).exists():
            raise RuntimeError("the converter wrote no file")
        module = nn.load_module_from_file(converted, inputs, outputs)
    given = [
        expr.const(feeds[name], list(feeds[name].shape), expr.NCHW, _mnn_dtype(expr, feeds[name])) for name in inputs
    ]
    found = module.forward(given)
    listed = found if isinstance(found, list | tuple) else [found]
    arrays = [np.array(expr.convert(each, expr.NCHW).read()) for each in listed]
    wide = [value.type.tensor_type.elem_type == _INT64 for value in _model(path).graph.output]
    return [
        a.astype(np.int64) if is_wide and a.dtype == np.int32 else a for a, is_wide in zip(arrays, wide, strict=True)
    ]


#: ``TensorProto.INT64``.
_INT64 = 7


def _mnn_dtype(expr: Any, array: np.ndarray[Any, Any]) -> Any:
    kinds = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8, "int64": expr.int64, "float64": expr.double}
    if array.dtype.name not in kinds:
        raise TypeError(f"MNN has no {array.dtype.name}")
    return kinds[array.dtype.name]


def tract(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """Optimized model of tract."""
    tract = import_module("tract")
    model = tract.onnx().load(path)
    for place, name in enumerate(_input_names(path, feeds)):
        array = feeds[name]
        model.set_input_fact(place, f"{','.join(map(str, (*array.shape, _tract_dtype(array))))}")
    found = (
        model.into_model()
        .into_runnable()
        .run([np.asarray(feeds[name], order="C") for name in _input_names(path, feeds)])
    )
    return [each.to_numpy() for each in found]


def _tract_dtype(array: np.ndarray[Any, Any]) -> str:
    return "bool" if array.dtype == np.bool_ else f"{array.dtype.kind}{8 * array.dtype.itemsize}"


def ncnn(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """CPU backend of ncnn, on a file converted by pnnx, which drops the batch axis and renames inputs and outputs."""
    import subprocess

    ncnn, pnnx = import_module("ncnn"), import_module("pnnx")
    inputs = _input_names(path, feeds)
    shapes = ",".join(f"[{','.join(map(str, feeds[n].shape))}]{_pnnx_dtype(feeds[n])}" for n in inputs)
    with TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(Path(path).read_bytes())
        command = [pnnx.EXEC_PATH, str(model), f"inputshape={shapes}", "fp16=0"]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)  # noqa: S603
        written = Path(folder, "model.ncnn.param")
        if ended.returncode or not written.exists():
            raise RuntimeError(f"pnnx failed ({ended.returncode}): {(ended.stderr or ended.stdout)[-200:]}")
        net = ncnn.Net()
        net.opt.num_threads = 1
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        if net.load_param(str(written)) or net.load_model(str(written.with_suffix(".bin"))):
            raise RuntimeError("ncnn does not load the converted model")
        with net.create_extractor() as extractor:
            for place, name in enumerate(inputs):
                extractor.input(f"in{place}", ncnn.Mat(np.asarray(_without_batch(feeds[name]), order="C")).clone())
            result = []
            for place, value in enumerate(_model(path).graph.output):
                code, output = extractor.extract(f"out{place}")
                if code:
                    raise RuntimeError(f"ncnn computes no {value.name}")
                dims = [each.dim_value for each in value.type.tensor_type.shape.dim]
                array = np.array(output)
                result.append(array.reshape(dims) if array.size == np.prod(dims) else array)
    return result


def _pnnx_dtype(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype.kind}{8 * array.dtype.itemsize}"


def _without_batch(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array[0] if array.ndim > 1 and array.shape[0] == 1 else array


def litert(path: str, feeds: Mapping[str, Any]) -> list[Any]:
    """LiteRT interpreter, on a file converted by onnx2tf."""
    convert, interpreter = import_module("onnx2tf").convert, import_module("ai_edge_litert.interpreter")
    inputs = _input_names(path, feeds)
    with TemporaryDirectory() as folder:
        options = {"non_verbose": True, "keep_shape_absolutely_input_names": inputs}
        convert(input_onnx_file_path=path, output_folder_path=folder, **options)
        file = next(Path(folder).glob("*_float32.tflite"))
        runner = interpreter.Interpreter(str(file), num_threads=1)
    runner.allocate_tensors()
    known = runner.get_input_details()
    for place, name in enumerate(inputs):
        named = [each for each in known if each["name"].split(":")[0].removeprefix("serving_default_") == name]
        runner.set_tensor((named or [known[place]])[0]["index"], feeds[name])
    runner.invoke()
    return [runner.get_tensor(each["index"]) for each in runner.get_output_details()]


def onnxruntime_web(path: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """WebAssembly provider of onnxruntime-web in Node; the package is resolved from the working directory."""
    import base64
    import json

    node = _node()
    given = {
        name: {"type": _WEB[array.dtype.name], "dims": array.shape, "data": base64.b64encode(array.tobytes()).decode()}
        for name, array in feeds.items()
    }
    node.stdin.write(json.dumps({"path": path, "feeds": given}).encode() + b"\n")
    node.stdin.flush()
    answer = json.loads(node.stdout.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return {
        name: np.frombuffer(base64.b64decode(each["data"]), _NUMPY[each["type"]]).reshape(each["dims"])
        for name, each in answer["outputs"].items()
    }


#: Element types of onnxruntime-web by numpy dtype.
_WEB = {
    **{name: name for name in ("float16", "float32", "float64", "bool")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_NUMPY = {web: name for name, web in _WEB.items()}


@functools.cache
def _node() -> Any:
    import subprocess

    command = ["node", str(Path(__file__).with_name("onnxruntime_web.mjs")), str(Path.cwd())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603


# ----- models ---------------------------------------------------------------------------------------------------------


def _model(path: str) -> Any:
    import onnx

    return onnx.load(path)


def _input_names(path: str, feeds: Mapping[str, Any]) -> list[str]:
    """Names of the fed inputs, in the order of the file."""
    return [value.name for value in _model(path).graph.input if value.name in feeds]


# ----- tensors of onnxruntime -----------------------------------------------------------------------------------------

#: Prefixes of onnxruntime's names for element types that numpy lacks.
_EXTENDED = ("bfloat", "float8", "float6", "float4", "int4", "uint4", "int2", "uint2")


def run_session(session: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a session of onnxruntime and return its outputs, including element types that numpy lacks."""
    kinds = [each.type for each in (*session.get_inputs(), *session.get_outputs())]
    if not any(map(_is_extended, kinds)):
        return list(session.run(None, dict(feeds)))
    values = session.run_with_ort_values(None, {name: _value(array) for name, array in feeds.items()})
    return [_contents(value) for value in values]


def _is_extended(kind: str) -> bool:
    return kind.removeprefix("tensor(").startswith(_EXTENDED)


def _bits(dtype: int) -> int:
    import onnx

    name = onnx.TensorProto.DataType.Name(dtype)
    digits = "".join(map(str, filter(str.isdigit, name.split("E")[0])))
    return int(digits)


def _value(array: np.ndarray[Any, Any]) -> Any:
    """Convert an array to an OrtValue, bit by bit if onnxruntime does not know the numpy dtype."""
    import onnx

    values = import_module("onnxruntime").OrtValue
    if array.dtype.isbuiltin == 1:
        return values.ortvalue_from_numpy(array)
    dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    if _bits(dtype) < 8:
        packed = onnx.numpy_helper.from_array(array).raw_data
        value = values.ortvalue_from_shape_and_type(array.shape, dtype)
        ctypes.memmove(value.data_ptr(), packed, len(packed))
        return value
    bits = array.view(f"u{array.dtype.itemsize}")
    return values.ortvalue_from_numpy_with_onnx_type(bits, dtype)


def _contents(value: Any) -> np.ndarray[Any, Any]:
    """Convert an OrtValue to an array, read from its memory if numpy lacks the element type."""
    import onnx

    kind = value.data_type()
    if not _is_extended(kind):
        return value.numpy()  # type: ignore[no-any-return]
    dtype = onnx.TensorProto.DataType.Value(kind.removeprefix("tensor(").removesuffix(")").upper())
    shape: Sequence[int] = value.shape()
    size = (int(np.prod(shape, dtype=np.int64)) * _bits(dtype) + 7) // 8
    raw = ctypes.string_at(value.data_ptr(), size)
    return onnx.numpy_helper.to_array(onnx.TensorProto(dims=shape, data_type=dtype, raw_data=raw))
