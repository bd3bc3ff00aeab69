"""Seeds with more than a single op: control flow, functions, captures, sparse tensors and symbolic dims."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, helper
from onnx.helper import make_node


def _info(name: str, kind: int = TensorProto.FLOAT, dims: list[int | str] | None = None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _tensor(name: str, contents: object, dtype: type) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(contents, dtype), name)


def _model(nodes: list[onnx.NodeProto], inputs: list[ValueInfoProto], *outputs: str, **graph: object) -> ModelProto:
    proto = helper.make_graph(nodes, "g", inputs, [_info(name) for name in outputs], **graph)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(proto, opset_imports=imports, ir_version=10)


def handmade() -> dict[str, ModelProto]:
    x, c = _info("x", TensorProto.FLOAT, ["N", 4]), _info("c", TensorProto.BOOL, [])
    weight = _tensor("w", [[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    shape = _tensor("s", [0, -1], np.int64)
    result: dict[str, ModelProto] = {}
    result["mlp"] = _model(
        [
            make_node("MatMul", ["x", "w"], ["a"]),
            make_node("Relu", ["a"], ["b"]),
            make_node("Reshape", ["b", "s"], ["d"]),
            make_node("Softmax", ["d"], ["y"], axis=-1),
        ],
        [x],
        "y",
        initializer=[weight, shape],
    )
    result["shapes"] = _model(
        [
            make_node("Shape", ["x"], ["a"]),
            make_node("Gather", ["a", "i"], ["n"]),
            make_node("Unsqueeze", ["n", "z"], ["u"]),
            make_node("Concat", ["u", "m"], ["t"], axis=0),
            make_node("ConstantOfShape", ["t"], ["f"], value=_tensor("v", [1.5], np.float32)),
            make_node("Expand", ["f", "t"], ["y"]),
        ],
        [x],
        "y",
        initializer=[_tensor("i", 0, np.int64), _tensor("z", [0], np.int64), _tensor("m", [2], np.int64)],
    )
    result["written_out"] = _model(
        [
            make_node("ReduceMean", ["x", "last"], ["m"]),
            make_node("Sub", ["x", "m"], ["d"]),
            make_node("Mul", ["d", "d"], ["dd"]),
            make_node("ReduceMean", ["dd", "last"], ["v"]),
            make_node("Add", ["v", "tiny"], ["ve"]),
            make_node("Sqrt", ["ve"], ["s"]),
            make_node("Div", ["d", "s"], ["n"]),
            make_node("Mul", ["n", "scale"], ["l"]),
            make_node("Div", ["l", "root"], ["a"]),
            make_node("Erf", ["a"], ["b"]),
            make_node("Add", ["b", "one"], ["c"]),
            make_node("Mul", ["l", "c"], ["e"]),
            make_node("Mul", ["e", "half"], ["y"]),
        ],
        [x],
        "y",
        initializer=[
            _tensor("last", [-1], np.int64),
            _tensor("tiny", 1e-5, np.float32),
            _tensor("scale", [1, 2, 3, 4], np.float32),
            _tensor("root", 2**0.5, np.float32),
            _tensor("one", 1, np.float32),
            _tensor("half", 0.5, np.float32),
        ],
    )
    then = helper.make_graph([make_node("Mul", ["x", "x"], ["p"])], "then", [], [_info("p")])
    inner = helper.make_graph([make_node("Add", ["x", "late"], ["r"])], "inner", [], [_info("r")])
    deeper = make_node("If", ["c"], ["q"], then_branch=then, else_branch=inner)
    other = helper.make_graph([deeper], "else", [], [_info("q")])
    result["branches"] = _model(
        [make_node("If", ["c"], ["y"], then_branch=then, else_branch=other), make_node("Neg", ["x"], ["late"])],
        [x, c],
        "y",
    )
    body = helper.make_graph(
        [
            make_node("Add", ["v", "x"], ["w1"]),
            make_node("Identity", ["k"], ["k1"]),
            make_node("ReduceSum", ["w1"], ["e"], keepdims=0),
        ],
        "body",
        [_info("n", TensorProto.INT64, []), _info("k", TensorProto.BOOL, []), _info("v")],
        [_info("k1", TensorProto.BOOL), _info("w1"), _info("e")],
    )
    result["loop"] = _model(
        [make_node("Loop", ["m", "", "x"], ["y", "scanned"], body=body)],
        [x],
        "y",
        "scanned",
        initializer=[_tensor("m", 3, np.int64)],
    )
    step = helper.make_graph(
        [make_node("Add", ["h", "r"], ["h1"]), make_node("Tanh", ["h1"], ["o"])],
        "step",
        [_info("h"), _info("r")],
        [_info("h1"), _info("o")],
    )
    result["scan"] = _model(
        [make_node("Scan", ["b", "x"], ["last", "y"], body=step, num_scan_inputs=1)],
        [x],
        "last",
        "y",
        initializer=[_tensor("b", [0, 0, 0, 0], np.float32)],
    )
    scaled = make_node("Mul", ["a", "f"], ["b"])
    factor = make_node("Constant", [], ["f"])
    factor.attribute.add(name="value_float", type=AttributeProto.FLOAT, ref_attr_name="factor")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    scale = helper.make_function("local", "Scale", ["a"], ["b"], [factor, scaled], opsets, ["factor"])
    twice = [
        make_node("Scale", ["a"], ["t"], domain="local", factor=2.0),
        make_node("Scale", ["t"], ["b"], domain="local", factor=0.5),
    ]
    result["functions"] = _model([make_node("Twice", ["x"], ["y"], domain="local")], [x], "y")
    result["functions"].functions.extend([scale, helper.make_function("local", "Twice", ["a"], ["b"], twice, opsets)])
    sparse = helper.make_sparse_tensor(
        _tensor("w", [5, 6], np.float32), _tensor("i", [[0, 1], [3, 0]], np.int64), [4, 2]
    )
    result["sparse"] = _model([make_node("MatMul", ["x", "w"], ["y"])], [x], "y", sparse_initializer=[sparse])
    result["sequences"] = _model(
        [
            make_node("SplitToSequence", ["x", "one"], ["s"], axis=1),
            make_node("SequenceAt", ["s", "one"], ["a"]),
            make_node("SequenceInsert", ["s", "a"], ["t"]),
            make_node("ConcatFromSequence", ["t"], ["y"], axis=1),
        ],
        [x],
        "y",
        initializer=[_tensor("one", 1, np.int64)],
    )
    result["vendor"] = _model(
        [
            make_node("FusedGemm", ["x", "w"], ["a"], domain="com.microsoft", activation="Relu"),
            make_node("Gelu", ["a"], ["y"], domain="com.microsoft"),
        ],
        [x],
        "y",
        initializer=[weight],
    )
    result["texts"] = _model(
        [make_node("RegexFullMatch", ["t"], ["y"], pattern="(a|b)+c?")],
        [_info("t", TensorProto.STRING, [2])],
        "y",
    )
    return result
