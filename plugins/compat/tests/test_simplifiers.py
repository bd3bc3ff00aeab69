"""onnxsim and onnxslim: arguments, results and exit codes."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import tenonnx as tx
from tenonnx_compat import CompatWarning, NotSupported, onnxsim, onnxslim
from tenonnx_compat.onnxsim import onnx_simplifier
from tenonnx_compat.onnxslim import cli, utils

EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS = EXAMPLES / "digits_cnn" / "digits-cnn.onnx"


def types(model):
    return [node.op_type for node in model.graph.node]


def outputs(model, feeds):
    return InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def two_outputs():
    """y = relu(x + (1 + 1)), z = -x, with dynamic dims."""
    dims = ["batch", 3]
    nodes = [
        helper.make_node("Add", ["one", "one"], ["two"]),
        helper.make_node("Add", ["x", "two"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "two",
        [info("x", TensorProto.FLOAT, dims)],
        [info("y", TensorProto.FLOAT, dims), info("z", TensorProto.FLOAT, dims)],
        [numpy_helper.from_array(np.ones(3, np.float32), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_simplify_returns_a_model_and_whether_it_agrees():
    model = onnx.load(DIGITS)
    simplified, agrees = onnxsim.simplify(model, check_n=2)
    assert agrees is True
    assert "BatchNormalization" not in types(simplified)
    assert "BatchNormalization" in types(model)
    x = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    for one, other in zip(outputs(simplified, {"images": x}), outputs(model, {"images": x}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_simplify_takes_a_path_and_writes_one(tmp_path):
    simplified, _ = onnxsim.simplify(str(DIGITS), output_path=str(tmp_path / "out.onnx"))
    assert types(onnx.load(tmp_path / "out.onnx")) == types(simplified)


@pytest.mark.parametrize("options", [{"skip_fuse_bn": True}, {"skipped_optimizers": ["fuse_bn_into_conv"]}])
def test_batch_normalization_is_kept_on_request(options):
    simplified, agrees = onnxsim.simplify(DIGITS, 1, **options)
    assert agrees
    assert types(simplified).count("BatchNormalization") == 2


def test_without_optimization_only_constants_are_folded():
    simplified, _ = onnxsim.simplify(DIGITS, perform_optimization=False)
    assert "BatchNormalization" in types(simplified)
    simplified, _ = onnxsim.simplify(two_outputs(), perform_optimization=False)
    assert types(simplified) == ["Add", "Relu", "Neg"]
    simplified, _ = onnxsim.simplify(two_outputs(), perform_optimization=False, skip_constant_folding=True)
    assert types(simplified) == types(two_outputs())


def test_shapes_outputs_and_opset():
    model = two_outputs()
    simplified, agrees = onnxsim.simplify(
        model, 1, overwrite_input_shapes={None: [5, 3]}, unused_output=["z"], target_opset_version=13
    )
    assert agrees
    assert [dim.dim_value for dim in simplified.graph.input[0].type.tensor_type.shape.dim] == [5, 3]
    assert [value.name for value in simplified.graph.output] == ["y"]
    assert simplified.opset_import[0].version == 13
    assert [value.name for value in simplified.graph.value_info] == ["sum"]
    assert not onnxsim.simplify(model, skip_shape_inference=True)[0].graph.value_info


def test_a_model_that_computes_something_else_is_reported(monkeypatch):
    wrong = two_outputs()
    wrong.graph.node[2].op_type = "Neg"
    monkeypatch.setattr(onnx_simplifier, "message_of", lambda *_, **__: wrong)
    assert onnxsim.simplify(two_outputs(), check_n=1)[1] is False
    assert onnxsim.simplify(two_outputs(), check_n=0)[1] is True


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"certify": True}, NotSupported, "does not support certify"),
        ({"skipped_optimizers": ["quantize_fp8"]}, NotSupported, "does not support skipped_optimizers"),
        ({"skip_constant_folding": True}, NotSupported, "does not support skip_constant_folding"),
        (
            {"tensor_size_threshold": "1KB", "perform_optimization": False},
            NotSupported,
            "does not support tensor_size_threshold",
        ),
        ({"initializers_as_constants": False}, NotSupported, "does not support initializers_as_constants"),
        ({"overwrite_input_shapes": {"w": [1]}}, RuntimeError, 'have input named "w"'),
        ({"unused_output": ["w"]}, RuntimeError, 'have output named "w"'),
    ],
)
def test_unsupported_options_of_onnxsim_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        onnxsim.simplify(two_outputs(), **options)


def test_functions_that_do_not_simplify_are_refused_by_name():
    with pytest.raises(NotSupported, match=r"does not have onnxsim\.quantize_dynamic"):
        onnxsim.quantize_dynamic(two_outputs())
    with pytest.raises(AttributeError):
        _ = onnxsim.nonsense


def test_a_warning_names_our_call_once_at_the_line_of_the_user():
    with pytest.warns(CompatWarning, match=r"tx\.simplify") as caught:
        onnxsim.simplify(two_outputs())
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings(action="error"):
        onnxsim.simplify(two_outputs())


def test_onnxsim_command(tmp_path, capsys):
    out = tmp_path / "out.onnx"
    onnx_simplifier.main([str(DIGITS), str(out), "1", "--overwrite-input-shape", "images:2,1,8,8"])
    text = capsys.readouterr().out
    assert "Simplified Model" in text
    assert "BatchNormalization  2" in text
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    onnx_simplifier.main([str(DIGITS), str(out), "--overwrite-input-shape", "2,1,8,8", "--save-as-external-data"])
    assert (tmp_path / "out.onnx.data").exists()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["missing.onnx", "out.onnx"], 1),
        ([str(DIGITS), "out.onnx", "--overwrite-input-shape", "w:1"], 1),
        ([str(DIGITS), "out.onnx", "--initializers-as-non-constants"], 1),
        ([str(DIGITS)], 2),
    ],
)
def test_exit_codes_of_onnxsim(arguments, status, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        onnx_simplifier.main(arguments)
    assert caught.value.code == status
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_a_failed_check_of_the_command_exits_with_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx_simplifier, "same_outputs", lambda *_, **__: False)
    with pytest.raises(SystemExit) as caught:
        onnx_simplifier.main([str(DIGITS), str(tmp_path / "out.onnx"), "1"])
    assert caught.value.code == 1
    assert "Check failed" in capsys.readouterr().out
    assert (tmp_path / "out.onnx").exists()


def test_slim_returns_a_model_or_writes_it(tmp_path, capsys):
    simplified = onnxslim.slim(onnx.load(DIGITS), model_check=True)
    assert "BatchNormalization" not in types(simplified)
    assert onnxslim.slim(str(DIGITS), str(tmp_path / "out.onnx")) is None
    assert "digits-cnn.onnx" in capsys.readouterr().out
    assert types(onnx.load(tmp_path / "out.onnx")) == types(simplified)


def test_options_of_slim(tmp_path):
    simplified = onnxslim.slim(two_outputs(), input_shapes=["x:4,3"], outputs=["sum"])
    assert [dim.dim_value for dim in simplified.graph.input[0].type.tensor_type.shape.dim] == [4, 3]
    assert [value.name for value in simplified.graph.output] == ["sum"]
    half = onnxslim.slim(two_outputs(), dtype="fp16")
    assert any(tensor.data_type == TensorProto.FLOAT16 for tensor in half.graph.initializer)
    assert half.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert types(onnxslim.slim(two_outputs(), skip_optimizations=cli._main.OPTIMIZATIONS)) == types(two_outputs())
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    checked = onnxslim.slim(two_outputs(), model_check=True, model_check_inputs=[f"x:{tmp_path / 'x.npy'}"])
    assert types(checked) == ["Add", "Relu", "Neg"]


def test_slim_returns_none_where_outputs_differ(monkeypatch):
    monkeypatch.setattr(cli._main, "same_outputs", lambda *_, **__: False)
    assert onnxslim.slim(two_outputs(), model_check=True) is None


def test_several_models_are_printed_side_by_side(capsys):
    assert onnxslim.slim([str(DIGITS), two_outputs()], inspect=True) is None
    assert "OnnxModel 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        {"skip_fusion_patterns": ["FusionAttention"]},
        {"dtype": "int8"},
        {"outputs": ["y:fp16"]},
        {"inputs": ["x:1,2"]},
        {"size_threshold": 8, "skip_optimizations": ["graph_fusion"]},
    ],
)
def test_unsupported_options_of_onnxslim_are_refused(options):
    with pytest.raises(NotSupported, match=f"does not support {next(iter(options))}"):
        onnxslim.slim(two_outputs(), **options)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_rewriter_runs_between_simplifications(in_place):
    def rewriter(model):
        changed = model if in_place else onnx.ModelProto.FromString(model.SerializeToString())
        for node in changed.graph.node:
            node.op_type = {"Relu": "Identity"}.get(node.op_type, node.op_type)
        return None if in_place else changed

    simplified, agrees = onnxsim.simplify(two_outputs(), custom_rewriter=rewriter)
    assert agrees
    assert types(simplified) == ["Add", "Neg"]


def test_outputs_get_inferred_dims():
    model = two_outputs()
    for value in model.graph.output:
        value.type.tensor_type.shape.dim[1].dim_param = "width"
    for simplified in (onnxsim.simplify(model)[0], onnxslim.slim(model)):
        assert [value.type.tensor_type.shape.dim[1].dim_value for value in simplified.graph.output] == [3, 3]
    slimmed = onnxslim.slim(model, no_shape_infer=True)
    assert slimmed.graph.output[0].type.tensor_type.shape.dim[1].dim_param == "width"


def test_the_pattern_of_norms_can_be_skipped():
    assert "BatchNormalization" in types(onnxslim.slim(str(DIGITS), skip_fusion_patterns=["FusionConvBN"]))


def test_versions_and_tables_of_onnxsim(capsys):
    assert onnxsim.__version__
    assert onnxslim.__version__
    onnxsim.model_info.print_simplifying_info(two_outputs(), onnxsim.simplify(two_outputs())[0])
    assert "Simplified Model" in capsys.readouterr().out


def test_static_dims_can_be_overwritten(tmp_path):
    fixed = onnxslim.slim(two_outputs(), input_shapes=["x:2,3"])
    np.save(tmp_path / "x.npy", np.ones((5, 3), np.float32))
    again = onnxslim.slim(
        fixed, input_shapes={"x": [5, 3]}, model_check=True, model_check_inputs=[f"x:{tmp_path / 'x.npy'}"]
    )
    assert [dim.dim_value for dim in again.graph.output[0].type.tensor_type.shape.dim] == [5, 3]
    again, agrees = onnxsim.simplify(fixed, check_n=1, overwrite_input_shapes={"x": [7, 3]})
    assert agrees
    (y, z) = outputs(again, {"x": np.ones((7, 3), np.float32)})
    assert y.shape == z.shape == (7, 3)


def test_onnxslim_extracts_a_part_between_values():
    model = two_outputs()
    cut = onnxslim.slim(model, inputs=["two", "x"], outputs=["sum"])
    assert [each.name for each in cut.graph.input] == ["two", "x"]
    assert types(cut) == ["Add"]


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [
        (["constant_folding"], ["Add", "Add", "Relu", "Neg"]),
        (["graph_fusion"], ["Add", "Relu", "Neg"]),
        (["dead_node_elimination", "weight_tying"], ["Add", "Relu", "Neg"]),
        (["subexpression_elimination"], ["Add", "Relu", "Neg"]),
    ],
)
def test_onnxslim_skips_single_optimizations(skipped, expected):
    assert types(onnxslim.slim(two_outputs(), skip_optimizations=skipped)) == expected


def test_summaries_of_onnxslim(tmp_path, capsys, monkeypatch):
    info = utils.summarize_model(str(DIGITS))
    assert info.tag == DIGITS.name
    assert info.op_type_counts["Conv"] == types(onnx.load(DIGITS)).count("Conv")
    (given,) = info.input_maps.values()
    assert given.shape == info.input_info[0].shape
    assert given.dtype == np.float32
    utils.print_model_info_as_table([info, utils.summarize_model(two_outputs(), "two")], elapsed_time=1.5)
    printed = capsys.readouterr().out
    assert "two" in printed
    assert "1.50 s" in printed
    assert utils.format_bytes(info.model_size) in printed
    monkeypatch.chdir(tmp_path)
    assert cli.main(["--inspect", str(DIGITS), "--dump-to-disk"]) == 0
    assert "Conv" in Path(f"{DIGITS.stem}_model_info.csv").read_text()
    assert utils.format_bytes((1024, 2048)) == "1.00 KB (2.00 KB)"


def test_checks_of_onnxslim(tmp_path):
    model = two_outputs()
    feeds, outputs, same = utils.check_onnx(model)
    assert same is model
    assert utils.check_result(outputs, utils.onnxruntime_inference(model, feeds)[0])
    assert not utils.check_result(outputs, {name: array + 1 for name, array in outputs.items()})
    utils.save(model, tmp_path / "m.onnx", model_check=True)
    assert types(onnx.load(tmp_path / "m.onnx")) == types(model)


def test_onnxslim_command(tmp_path, capsys):
    out = tmp_path / "out.onnx"
    assert cli.main([str(DIGITS), str(out), "--model-check"]) == 0
    assert "BatchNormalization" not in types(onnx.load(out))
    assert cli.main(["--inspect", str(DIGITS), str(out)]) == 0
    capsys.readouterr()
    for arguments, status in ((["missing.onnx"], 1), ([str(DIGITS), "a", "b"], 2), (["--dump-to-disk", "a"], 2)):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == status


def test_rules_of_functions_replace_subgraphs():
    texts = "t = MatMul(x, w)\n y = Add(t, b)", "y = Gemm(x, w, b)"
    head = '<domain: "com.example", opset_import: ["": 18]> f (x, w, b) => (y)'
    rule = tuple(onnx.parser.parse_function(f"{head} {{ {text} }}") for text in texts)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] x, float[3, 4] w, float[4] b) => (float[2, 4] y)'
        "{ t = MatMul(x, w)\n u = Add(b, t)\n y = Relu(u) }"
    )
    simple, agreed = onnxsim.simplify(model, check_n=1, function_rewrite_rules=[rule])
    assert agreed
    assert [node.op_type for node in simple.graph.node] == ["Gemm", "Relu"]
    assert not simple.functions
    single = onnx.parser.parse_function(f"{head} {{ y = Add(x, b) }}")
    with pytest.raises(NotSupported, match="does not support function_rewrite_rules"):
        onnxsim.simplify(model, function_rewrite_rules=[(single, single)])
    with pytest.raises(ValueError, match="mutually exclusive"):
        onnxsim.simplify(model, function_rewrite_rules=[rule], custom_rewriter=lambda message: message)


def test_large_results_are_not_folded():
    text = (
        "g (float[n, 64] x) => (float[n, 64] y) { z = ConstantOfShape<value = float[1] {0.5}>(s)\n y = MatMul(x, z) }"
    )
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([64, 64], np.int64), "s"))
    kinds = [
        [node.op_type for node in simplified.graph.node]
        for simplified in (onnxsim.simplify(model)[0], onnxsim.simplify(model, tensor_size_threshold="1KB")[0])
    ]
    assert kinds == [["MatMul"], ["ConstantOfShape", "MatMul"]]
    simplified = onnxslim.slim(model, size_threshold=1024)
    assert [node.op_type for node in simplified.graph.node] == kinds[1]


@pytest.mark.parametrize("fill", ["ones", "zeros", "arange"])
def test_generated_inputs_have_these_contents(fill):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y) { i = Identity(x)\n y = Relu(i) }'
    )
    assert onnxsim.simplify(model, check_n=1, input_fill=fill, test_input_shapes={"x": [2, 3]})[1]
    with pytest.raises(ValueError, match="unknown input_fill"):
        onnxsim.simplify(model, check_n=1, input_fill="noise")


def test_a_profile_has_node_counts(tmp_path):
    from tenonnx_compat.onnxsim.profile_plot import load_node_counts

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y) { i = Identity(x)\n y = Relu(i) }'
    )
    onnxsim.simplify(model, profile=str(tmp_path / "trace.json"), providers=["CPUExecutionProvider"])
    for text in ("[" * 100_000, "[]", '{"traceEvents": [1]}', '{"traceEvents": [{"name": "NodeCount"}]}'):
        (tmp_path / "damaged.json").write_text(text)
        with pytest.raises(tx.InvalidCall, match="not a trace"):
            load_node_counts(tmp_path / "damaged.json")
    counts = load_node_counts(tmp_path / "trace.json")
    assert counts["Initial"] == [2]
    assert counts["Optimize"][-1] == 1


def test_einsum_becomes_products():
    from tenonnx_compat.onnxsim.einsum_decompose import decompose_einsum

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x, float[3, 4] w) => (float[2, 4] y)'
        '{ y = Einsum<equation = "ij,jk->ik">(x, w) }'
    )
    simplified = decompose_einsum(model)
    assert "Einsum" not in {node.op_type for node in simplified.graph.node}
    assert tx.verify(tx.load(model), tx.load(simplified)).equal


def test_safetensors_hold_the_whole_model(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    )
    onnxsim.export_safetensors(model, str(tmp_path / "model.onnx.safetensors"))
    simplified = onnxsim.import_safetensors(str(tmp_path / "model.onnx.safetensors"))
    assert [node.op_type for node in simplified.graph.node] == ["Relu"]


def test_random_inputs_require_static_dims():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    )
    with pytest.raises(ValueError, match="has dynamic dims"):
        onnxsim.export_tflite(model, int8_quantize=True)


def test_names_of_values_have_types():
    simplified = onnxslim.slim(two_outputs(), inputs=["sum:fp32"], outputs=["y:float32"])
    assert [value.name for value in simplified.graph.input] == ["sum"]
    assert [value.name for value in simplified.graph.output] == ["y"]


def test_arguments_without_effect_are_named(tmp_path):
    for options, name in (
        ({"custom_lib": "ops.so"}, "custom_lib"),
        ({"providers": ["CUDAExecutionProvider"]}, "providers"),
        ({"gemm_fusion_backend": "none"}, "gemm_fusion_backend"),
        ({"import_custom_schemas": False}, "import_custom_schemas"),
    ):
        with pytest.warns(CompatWarning, match=f"{name} of onnxsim.simplify has no effect"):
            onnxsim.simplify(onnx.load(DIGITS), **options)


def test_external_data_hold_large_weights_only(tmp_path):
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    onnxslim.slim(two_outputs(), str(small), save_as_external_data=True)
    onnxslim.slim(str(DIGITS), str(large), save_as_external_data=True)
    assert not (tmp_path / "small.onnx.data").exists()
    assert (tmp_path / "large.onnx.data").exists()


def test_inspect_of_one_model_returns_it():
    assert onnxslim.slim(two_outputs(), inspect=True).graph.node
