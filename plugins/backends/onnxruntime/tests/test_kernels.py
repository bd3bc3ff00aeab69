"""Tables of kernels against the installed runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotThere

import tenonnx as tx
from tenonnx import DType, SequenceType, TensorType
from tenonnx.extend import find_trait
from tenonnx_onnxruntime import kernels
from tenonnx_onnxruntime.kernels import has_kernel, has_schema, left_behind, newest, newest_ir

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "bool",
    "string",
)


def op(name, domain="ai.onnx", version=21):
    return tx.default_registry().lookup(domain, name, version)


def kernel(name, *dtypes, version=21, outputs=(), domain="ai.onnx"):
    inputs = [TensorType(DType.of(d)) for d in dtypes]
    return has_kernel(op(name, domain, version), version, inputs, [TensorType(DType.of(d)) for d in outputs])


def session(nodes, opset, ir_version, dtypes, outputs=1, domain=""):
    inputs = [onnx.helper.make_tensor_value_info(f"x{k}", DType.of(d), None) for k, d in enumerate(dtypes)]
    results = [onnx.ValueInfoProto(name=f"y{k}") for k in range(outputs)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, results)
    imports = [onnx.helper.make_opsetid(domain, opset)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


IDENTITY = onnx.helper.make_node("Identity", ["x0"], ["y0"])


def test_the_newest_versions_load_and_newer_ones_do_not():
    session([IDENTITY], newest("ai.onnx"), newest_ir(), ["float32"])
    with pytest.raises((Fail, InvalidArgument)):
        session([IDENTITY], newest("ai.onnx") + 1, newest_ir(), ["float32"])
    with pytest.raises((Fail, InvalidArgument)):
        session([IDENTITY], newest("ai.onnx"), newest_ir() + 1, ["float32"])


def test_other_domains_have_versions_too():
    assert newest("ai.onnx.ml") >= 3
    assert newest("com.microsoft") == 1
    assert newest("org.nobody") == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["Abs", "Erf", "Relu", "Neg", "Sigmoid", "Identity", "Add", "MatMul", "Where", "TopK"])
def test_a_kernel_is_one_that_the_runtime_finds(name, dtype):
    dtypes = {"Add": [dtype] * 2, "MatMul": [dtype] * 2, "Where": ["bool", dtype, dtype], "TopK": [dtype, "int64"]}.get(
        name, [dtype]
    )
    outputs = 2 if name == "TopK" else 1
    names = [f"x{k}" for k in range(len(dtypes))]
    node = onnx.helper.make_node(name, names, [f"y{k}" for k in range(outputs)])
    try:
        session([node], 21, 10, dtypes, outputs)
    except (Fail, InvalidGraph, NotThere):
        result = False
    else:
        result = True
    given = [*dtypes, *([dtype] if outputs == 1 else [dtype, "int64"])]
    assert kernel(name, *given[: len(dtypes)], outputs=given[len(dtypes) :]) == result


def test_kernels_restrict_outputs_too():
    assert kernel("Cast", "float32", outputs=["int8"])
    assert not kernel("Cast", "float32", outputs=["float4e2m1"], version=23)


def test_float16_needs_a_kernel_of_float32_only():
    assert kernel("Erf", "float16", outputs=["float16"])
    assert not kernel("Erf", "bfloat16", outputs=["bfloat16"])


def test_a_kernel_without_a_last_version_serves_no_newer_schema():
    """Add has a kernel from version 14 on, and no later schema; Identity has one for each schema."""
    assert kernel("Add", "float32", "float32", version=14)
    assert kernel("Add", "float32", "float32", version=newest("ai.onnx"))
    assert not kernel("Add", "float32", "float32", version=6)


def test_former_ops_run_at_versions_that_have_a_kernel():
    """RandomNormal has a kernel only up to opset 21, in all known versions of the runtime."""
    for version in left_behind():
        assert version < newest("ai.onnx")
    if 21 in left_behind():
        text = '<ir_version: 10, opset_import: ["" : 22]> g () => (float[N] y) { y = RandomNormal<shape = [5]>() }'
        drawn = tx.load(onnx.parser.parse_model(text)).compile("onnxruntime", strict=True)({})["y"]
        assert drawn.shape == (5,)


def test_constants_need_no_kernel_and_unknown_ops_have_none():
    assert kernel("Constant")
    assert not has_kernel(op("Add"), 0, [], [])
    unknown = tx.load(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["x" : 1]> g (float[1] a) => (float[1] b) {b = x.Y(a)}')
    )
    assert not has_schema(unknown.nodes[0].op, 1, [], [])


def test_types_beyond_tensors_are_spelled_as_the_runtime_spells_them():
    at = op("SequenceAt")
    sequence = SequenceType(TensorType(DType.float32))
    position = TensorType(DType.int64)
    assert has_kernel(at, 21, [sequence, position], [TensorType(DType.float32)])
    assert not has_kernel(at, 21, [TensorType(DType.float32), position], [TensorType(DType.float32)])
    strange = SequenceType(TensorType(DType.float8e4m3fn))
    assert not has_kernel(at, 21, [strange, position], [TensorType(DType.float8e4m3fn)])


@pytest.mark.skipif(newest("ai.onnx") < 25, reason="what an old runtime has no kernel of is expanded for it")
def test_ops_that_fusion_adds_by_default_have_a_kernel():
    """Ops named in ``fuse(also=...)`` need no kernel."""
    held = tx.default_registry().ops("com.microsoft")
    put = [op for op in held if op.pure and op.specified and not op.primitive and not find_trait(op, "on_request")]
    assert len(put) > 50
    assert [op.name for op in put if ("com.microsoft", op.name) not in kernels._kernels()] == []


def test_kernels_are_checked_for_known_defects():
    """onnxruntime 1.32 treats the second axis as channels; below it, MoE in float16 returns 0."""
    registry, x = tx.default_registry(), np.random.default_rng(0).normal(size=(1, 2, 2, 3)).astype(np.float32)
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.ms.internal.nhwc": 28})
    with graph.building():
        graph.output(
            "y",
            registry.lookup("com.ms.internal.nhwc", "SpaceToDepth", 28)(
                graph.input("x", "float32", x.shape), blocksize=2
            ),
        )
    assert graph.run({"x": x}, backend="onnxruntime")["y"].shape == (1, 1, 1, 12)

    drawn = {"x": (2, 4), "p": (2, 3), "w": (3, 5, 4), "v": (3, 4, 5)}
    feeds = {n: np.random.default_rng(1).normal(size=s).astype(np.float16) for n, s in drawn.items()}
    graph = tx.Graph(opsets={"ai.onnx": 21, "com.microsoft": 1})
    with graph.building():
        x, p, w, v = (graph.input(name, "float16", shape) for name, shape in drawn.items())
        mixed = registry.lookup("com.microsoft", "MoE", 1)(x, p, w, None, v, activation_type="silu", k=2)
        graph.output("y", mixed)
    result, expected = (graph.run(feeds, backend=name)["y"] for name in ("onnxruntime", "numpy"))
    np.testing.assert_allclose(result, expected, rtol=2e-2, atol=1e-2)
