"""Invalid calls of every quantized op: errors name the op and the input or attribute."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx.extend import DType
from tenonnx.registry.discovery import plugins
from tenonnx_testing.cases import collected, load
from tenonnx_testing.kit import calls

load(plugin for plugin in plugins("tenonnx.conformance") if plugin.value.startswith("tenonnx_quantized"))
OPS = {
    f"{op.domain}::{op.name}@{op.since}": op
    for op in dict.fromkeys(case.op for case in collected())
    if op.__module__.startswith("tenonnx_quantized")
}

#: Inputs whose name contains "scale", but which are not scales of quantized values.
NO_SCALES = {
    ("MatMulNBitsMlp", "norm_scale"): "factors of a norm",
    ("MatMulNBitsQkv", "norm_scale"): "factors of a norm",
    ("QOrderedLayerNormalization", "scale"): "factors of a norm",
    ("MatMulBlockQuantizedFp4Weight", "input_scale"): "says nothing about the result",
    ("MatMulBlockQuantizedFp4Weight", "weight_scale"): "bytes",
}

#: Inputs whose length depends on other inputs and attributes.
FITTING = {
    "MatMulNBits": ("B", "scales", "zero_points", "bias"),
    "MatMulNBitsMlp": ("gate_B", "gate_scales", "up_B", "up_scales"),
    "MatMulNBitsQkv": ("q_B", "q_scales", "k_B", "k_scales", "v_B", "v_scales"),
    "GatherBlockQuantized": ("scales", "zero_points"),
    "MatMulBnb4": ("B", "absmax"),
    "MatMulFpQ4": ("A", "B"),
    "MatMulBlockQuantizedFp8Weight": ("b_scale",),
    "MatMulBlockQuantizedFp4Weight": ("weight_scale",),
    "QMoE": ("fc1_scales", "fc1_zero_points", "fc2_scales", "fc2_zero_points"),
    "DequantizeBFP": ("x",),
}

#: Attributes with invalid values.
ATTRIBUTES = {
    "MatMulNBits": {"block_size": (-16, 0, 24), "bits": (0, 9), "K": (0,), "N": (0,)},
    "MatMulNBitsMlp": {"block_size": (-16, 0, 24), "bits": (0, 9)},
    "MatMulNBitsQLoRA": {"block_size": (-16, 0, 24), "bits": (0, 9)},
    "MatMulNBitsQkv": {"block_size": (-16, 0, 24), "bits": (0, 9)},
    "GatherBlockQuantized": {"block_size": (-16, 8, 24), "bits": (3, 9)},
    "MatMulBnb4": {"block_size": (-16, 0, 24), "K": (0,), "quant_type": (2,)},
    "MatMulFpQ4": {"blk_quant_type": (3,)},
    "MatMulBlockQuantizedFp8Weight": {"block_size": (-1, 0)},
    "MatMulBlockQuantizedFp4Weight": {"block_size": (-2, 0, 3)},
    "QMoE": {"block_size": (-16, 24), "expert_weight_bits": (0, 5)},
    "QuantizeLinear": {"block_size": (-1,)},
    "DequantizeLinear": {"block_size": (-1,)},
    "QuantizeBFP": {"bfp_type": (7,), "block_dim": (9,)},
    "DequantizeBFP": {"bfp_type": (7,), "block_dim": (9,)},
}


@pytest.fixture(params=OPS)
def op(request):
    return OPS[request.param]


@functools.cache
def drawn_calls(op):
    return [drawn for case in collected(op) for drawn in calls(case, 8)]


@functools.cache
def with_each_input(op):
    """Triples of the name of an array input, a call with it, and its position."""
    result: dict[str, tuple[Any, int]] = {}
    for drawn in drawn_calls(op):
        for place, contents in enumerate(drawn.inputs):
            if isinstance(contents, np.ndarray) and contents.size:
                result.setdefault(op.signature.input_at(place).name, (drawn, place))
    return result.items()


def with_input(drawn, place, contents):
    return replace(drawn, inputs=tuple(contents if k == place else v for k, v in enumerate(drawn.inputs)))


def called(op, drawn):
    return op(*drawn.inputs, **drawn.attributes, **({} if drawn.outputs is None else {"_outputs": drawn.outputs}))


def graph_of(op, drawn, fed=None):
    """Return a graph of the call with constants for all inputs except ``fed``."""
    graph = tx.Graph(opsets={"com.microsoft": 1} | ({"ai.onnx": op.version} if op.domain == "ai.onnx" else {}))
    values = [
        None
        if v is None
        else graph.input("fed", DType.of(v.dtype).name, v.shape)
        if k == fed
        else graph.variable(f"constant{k}", v)
        for k, v in enumerate(drawn.inputs)
    ]
    outputs = called(op, replace(drawn, inputs=tuple(values)))
    graph.output("y", outputs[0] if isinstance(outputs, tuple) else outputs)
    graph.nodes[-1].name = "it"
    return graph


def refused(op, which, act, *, by=tx.TypeMismatch):
    """Check that ``act`` raises an error that names the op and the input or attribute, and return it."""
    with pytest.raises(by) as failure:
        act()
    message = str(failure.value)
    assert op.title in message
    assert which in message
    return message


def is_scale(op, which, contents):
    named = ("scale" in which or which == "absmax") and (op.name, which) not in NO_SCALES
    return named and DType.of(contents.dtype).is_float


def unusual_numbers(contents):
    """Yield the array with one unusual scale (zero, negative, infinite, NaN) as far as its dtype has it."""
    for number in (np.nan, np.inf, 0.0, -1.0):
        other = np.array(contents)
        with np.errstate(all="ignore"):
            other.reshape(-1)[-1] = number
        if np.array_equal(other.reshape(-1)[-1].astype(np.float32), np.float32(number), equal_nan=True):
            yield other


def test_any_scale_is_accepted(op):
    """Zero, negative, infinite and NaN scales are accepted in eager calls and graphs, since no runtime checks them."""
    for which, (drawn, place) in with_each_input(op):
        if is_scale(op, which, drawn.inputs[place]):
            for contents in unusual_numbers(drawn.inputs[place]):
                unusual = with_input(drawn, place, contents)
                result = called(op, unusual)
                graph = graph_of(op, unusual)
                graph.infer()
                kind = graph.outputs[0].type
                assert kind == graph_of(op, drawn).outputs[0].type
                assert kind.dtype is DType.of((result[0] if isinstance(result, tuple) else result).dtype)


def test_zero_points(op):
    """Zero points of another type than the quantized values are rejected."""
    for which, (drawn, place) in with_each_input(op):
        if "zero_point" in which:
            broken = with_input(drawn, place, np.zeros(drawn.inputs[place].shape, np.int32))
            refused(op, which, lambda broken=broken: called(op, broken))
            refused(op, which, lambda broken=broken: graph_of(op, broken))


def test_sizes(op):
    """Packed quantized values and parameters with one element too many are rejected."""
    named = dict(with_each_input(op))
    for which in FITTING.get(op.name, ()):
        drawn, place = named[which]
        contents = drawn.inputs[place]
        longer = with_input(drawn, place, np.concatenate([contents, contents[..., -1:]], -1))
        refused(op, which, lambda broken=longer: called(op, broken))
        refused(op, which, lambda broken=longer: graph_of(op, broken))


@pytest.mark.parametrize(("kind", "number"), [("UINT8", 300), ("INT8", -129), ("INT16", 1 << 15), ("UINT16", -1)])
def test_a_zero_point_out_of_range_in_a_file(kind, number):
    """Fields of a file can store integers outside the range of a small integer type."""
    proto = onnx.TensorProto(data_type=onnx.TensorProto.DataType.Value(kind), dims=[1], int32_data=[number])
    quantized, y = onnx.helper.make_tensor_value_info("x", proto.data_type, [1]), onnx.ValueInfoProto(name="y")
    proto.name, scale = "zero", onnx.numpy_helper.from_array(np.ones(1, np.float32), "scale")
    node = onnx.helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"], name="it")
    graph = onnx.helper.make_graph([node], "bad", [quantized], [y], [proto, scale])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    with pytest.raises(tx.InvalidModel, match=f'"zero" holds numbers out of the range of {kind.lower()}') as failure:
        tx.load(model).run({"x": np.zeros(1, DType[kind.lower()].numpy)}, backend="numpy")
    assert str([number]) in str(failure.value)


def test_attributes(op):
    """Invalid block sizes, bit widths and formats are rejected."""
    for which, numbers in ATTRIBUTES.get(op.name, {}).items():
        if which in op.signature.attributes:
            drawn = next(drawn for drawn in drawn_calls(op) if drawn.attributes[which])
            for number in numbers:
                broken = replace(drawn, attributes={**drawn.attributes, which: number})
                refused(op, which, lambda broken=broken: called(op, broken))


def test_the_tables_name_existing_ops():
    names = {op.name: op for op in OPS.values()}
    inputs = {(name, p.name) for name, op in names.items() for p in op.signature.inputs}
    assert inputs >= {*NO_SCALES, *((n, which) for n, given in FITTING.items() for which in given)}
    assert names.keys() >= FITTING.keys()
    with_blocks = {op.name for op in OPS.values() if {"block_size", "bits", "block_dim"} & set(op.signature.attributes)}
    assert with_blocks <= ATTRIBUTES.keys(), "sizes of blocks are tried"
