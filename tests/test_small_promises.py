"""Convenience features of graphs, files and commands: defaults, options, pipes and names."""

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import example

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_cli import main

CNN = str(example("digits_cnn/digits-cnn"))
DIGITS = Path(CNN).with_name("digits.npz")
DIGITS_MODEL = str(example("digits/digits"))
X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)


def by_hand(function=ops.relu, dtype="float32", **options):
    graph = tx.Graph(**options)
    graph.output("y", function(graph.input("x", dtype, (2, 3))))
    return graph


@pytest.mark.parametrize("function", [ops.relu, lambda x: ops.reduce_mean(x, [1]), lambda x: ops.softmax(x, axis=1)])
def test_a_handmade_graph_is_exported_at_opset_17(function):
    message = by_hand(function).to_proto()
    assert (message.opset_import[0].version, message.ir_version) == (17, 8)
    onnx.checker.check_model(message, full_check=True)


def test_a_handmade_graph_is_exported_at_the_lowest_sufficient_opset():
    assert by_hand(ops.gelu).to_proto().opset_import[0].version == 20
    assert by_hand(opsets={"ai.onnx": 11}).to_proto().opset_import[0].version == 11
    assert by_hand().to_proto(opset_version=9).opset_import[0].version == 9


def test_export_by_name_writes_the_native_form(tmp_path):
    tx.export(by_hand(), tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes()[8:9] == b"{"
    assert tx.load(tmp_path / "m.safetensors").run({"x": X})["y"].tolist() == np.maximum(X, 0).tolist()


def test_verify_is_true_a_tolerance_or_a_function(tmp_path):
    def wrong(message):
        message.graph.node[0].op_type = "Abs"

    tx.export(by_hand(), tmp_path / "m.onnx", verify=True)
    tx.export(by_hand(), tmp_path / "m.onnx", verify=1e-6)
    for verify in (True, 1e-3):
        with pytest.raises(tx.VerificationFailed):
            tx.export(by_hand(), tmp_path / "n.onnx", verify=verify, post_export_hooks=[wrong])
    with pytest.raises(tx.InvalidCall, match="verify is neither True"):
        tx.export(by_hand(), tmp_path / "n.onnx", verify="yes")
    assert not (tmp_path / "n.onnx").exists()


def test_a_number_for_verify_is_the_largest_difference(tmp_path):
    def nudged(message):
        (scale,) = message.graph.initializer
        scale.CopyFrom(
            onnx.numpy_helper.from_array(np.nextafter(onnx.numpy_helper.to_array(scale), np.float32(2e6)), "k")
        )

    def large():
        graph = tx.Graph()
        graph.output("y", graph.input("x", "float32", (2, 3)) * graph.variable("k", np.float32(1e6)))
        return graph

    tx.export(large(), tmp_path / "m.onnx", post_export_hooks=[nudged], verify=True)
    with pytest.raises(tx.VerificationFailed, match=r"may differ by 0.001 \+ 0 \*"):
        tx.export(large(), tmp_path / "n.onnx", post_export_hooks=[nudged], verify=1e-3)


def test_run_returns_inner_values():
    graph = tx.load(CNN)
    images = np.ones((1, 1, 8, 8), np.float32)
    result = graph.run({"images": images}, outputs=["Relu", "scores"])
    assert list(result) == ["Relu", "scores"]
    np.testing.assert_allclose(result["scores"], graph.run({"images": images})["scores"], rtol=1e-5)
    assert list(graph.run({"images": images}, outputs=graph["Conv"])) == ["Conv"]
    with pytest.raises(tx.InvalidCall, match="available"):
        graph.run({"images": images}, outputs=["nothing"])
    with pytest.raises(tx.InvalidFeed):
        graph.run({"images": images, "strange": images}, outputs=["Relu"])


def test_load_fixes_shapes_and_inputs():
    fixed = tx.load(CNN, input_shapes={"images": (2, 1, 8, 8)})
    assert str(fixed.outputs[0].type) == "float32[2, 10]"
    assert (
        onnx.load_from_string(fixed.to_proto().SerializeToString())
        .graph.input[0]
        .type.tensor_type.shape.dim[0]
        .dim_value
        == 2
    )
    images = np.ones((3, 1, 8, 8), np.float32)
    constant = tx.fix_inputs(tx.load(CNN), {"images": images})
    assert constant.inputs == []
    np.testing.assert_allclose(constant.run({})["scores"], tx.load(CNN).run({"images": images})["scores"], atol=1e-5)
    for wrong in ({"nothing": 1}, {"images": "x"}):
        with pytest.raises(tx.InvalidCall):
            tx.fix_inputs(tx.load(CNN), wrong)
    with pytest.raises(tx.InvalidCall):
        tx.load(CNN, input_shapes={"images": (1,)})


@pytest.mark.parametrize("given", [{"images": [0, 2, 3, 1]}, ["images"], "images"])
def test_layouts_of_inputs_and_outputs_change(given, tmp_path):
    images = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    graph = tx.transpose_interface(tx.load(CNN), given, {"scores": [1, 0]})
    assert [str(v.type) for v in (*graph.inputs, *graph.outputs)] == ["float32[batch, 8, 8, 1]", "float32[10, batch]"]
    tx.export(graph, tmp_path / "m.onnx")
    for each in (graph, tx.load(tmp_path / "m.onnx")):
        turned = each.run({"images": images.transpose(0, 2, 3, 1)}, "onnxruntime")["scores"]
        np.testing.assert_allclose(turned.T, tx.load(CNN).run({"images": images})["scores"], rtol=1e-4, atol=1e-5)
    for wrong in ({"nothing": [0, 1]}, {"images": [0, 1]}, {"images": [0, 0, 1, 2]}):
        with pytest.raises(tx.InvalidCall, match=r"transpose|does not name each axis once"):
            tx.transpose_interface(tx.load(CNN), wrong)


def test_summaries_have_types():
    assert "Conv: ?" not in tx.load(CNN).summary()
    assert "Conv: float32[batch, " in tx.load(CNN).summary()


def test_inner_types_are_declared_on_demand():
    graph = tx.load(CNN)
    declared = graph.to_proto(shapes="all")
    assert {info.name for info in declared.graph.value_info} >= {"Conv", "Relu", "MaxPool"}
    onnx.checker.check_model(declared, full_check=True)
    assert not tx.load(declared).to_proto(shapes="interface").graph.value_info
    with pytest.raises(tx.InvalidCall, match="neither all nor interface"):
        graph.to_proto(shapes="none")


def test_a_star_import_gives_the_public_names():
    names: dict[str, object] = {}
    exec("from tenonnx import *", names)
    public = set(names) - {"__builtins__"}
    assert public == set(tx.__all__)
    assert {"load", "export", "Graph", "limits", "simplify"} <= public
    assert not {"annotations", "import_module", "Any"} & public
    assert ops.__all__ == sorted(dir(ops), key=ops.__all__.index)


def pipe(*arguments, data=b"", **variables):
    command = [sys.executable, "-m", "tenonnx", *map(str, arguments)]
    return subprocess.run(command, input=data, capture_output=True, timeout=120, env={**os.environ, **variables})


def test_models_are_piped():
    stream = io.BytesIO()
    tx.export(by_hand(), stream)
    done = pipe("convert", "-", "-o", "-", "--opset", 13, data=stream.getvalue())
    assert done.returncode == 0, done.stderr
    assert onnx.load_from_string(done.stdout).opset_import[0].version == 13
    assert b"verified bit for bit" in done.stderr
    renamed = pipe("rename", "-", "x=z", "-o", "-", data=done.stdout)
    assert onnx.load_from_string(renamed.stdout).graph.input[0].name == "z"
    for command in (("inspect", "-"), ("check", "-"), ("run", "-")):
        assert pipe(*command, data=done.stdout).returncode == 0
    for data in (b"", b"no model"):
        refused = pipe("inspect", "-", data=data)
        assert refused.returncode == 2
        assert b"Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["quantize", "-", "--mode", "weights"],
        ["grad", "-", "--of", "scores", "--wrt", "images", "--cotangent", "g"],
        ["train", "-", "--data", str(DIGITS), "--epochs", "1", "--loss", "softmax_cross_entropy"],
    ],
)
def test_commands_of_packages_write_models_to_standard_output(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = pipe(*command, "-o", "-", data=Path(CNN).read_bytes())
    assert done.returncode == 0, done.stderr
    assert onnx.load_from_string(done.stdout).graph.input[0].name == "images"
    assert b"-: " in done.stderr or b"output: -" in done.stderr
    assert not list(tmp_path.iterdir())


def test_arrays_are_piped(tmp_path):
    with np.load(DIGITS) as digits:
        images = digits["images"][:3]
    whole, single = io.BytesIO(), io.BytesIO()
    np.savez(whole, images=images)
    np.save(single, images)
    for option, data in ((("--inputs", "-"), whole), (("--input", "images=-"), single)):
        done = pipe("run", CNN, *option, "-o", "-", data=data.getvalue())
        assert done.returncode == 0, done.stderr
        with np.load(io.BytesIO(done.stdout)) as result:
            assert result["scores"].shape == (3, 10)
        assert b"scores (by " in done.stderr
    measured = pipe("evaluate", CNN, "--data", "-", "--metric", "accuracy", data=DIGITS.read_bytes())
    assert measured.stdout.startswith(b"accuracy 0.9"), measured.stderr
    model = tmp_path / "row.onnx"
    graph = tx.Graph()
    graph.output("y", ops.add(graph.input("a", "float32", ("n",)), graph.input("b", "float32", ("n",))))
    tx.export(graph, model)
    table = pipe("run", model, "--inputs", "-", "--json", data=b"a,b\n1,2\n3,4\n")
    assert b"3.0" in table.stdout, table.stderr


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", b"- reads the data from standard input"),
        (b"PK damaged", b"as a .npy or .npz file"),
        (b"a,b\n1,2\n", b"has no column"),
    ],
)
def test_invalid_piped_arrays_are_refused(data, said):
    done = pipe("run", CNN, "--inputs", "-", data=data)
    assert done.returncode == 2
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no sh")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("inspect - <&-", 2, "standard input, which is empty"),
        ("convert {model} -o - --opset 13 >&-", 2, "it is closed"),
        ("check {model} >&-", 0, ""),
        ("check {model} 2>&-", 0, ""),
    ],
)
def test_closed_standard_streams_are_no_bug(line, code, said):
    command = f"{shlex.quote(sys.executable)} -m tenonnx {line.format(model=CNN)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "unexpected" not in done.stderr


def test_a_drawing_is_not_mixed_with_json(capsys):
    assert main(["inspect", CNN, "--svg", "--json"]) == 2
    shown = capsys.readouterr()
    assert set(json.loads(shown.out)) == {"error"}
    assert "a drawing was requested together with" in shown.err


def test_only_one_file_of_a_command_may_be_piped():
    done = pipe("run", "-", "--inputs", "-", data=Path(CNN).read_bytes())
    assert done.returncode == 2
    assert b"only one argument can be -" in done.stderr


def test_a_folder_is_scored_by_a_model_that_is_piped(tmp_path):
    with np.load(DIGITS) as digits:
        np.save(tmp_path / "rows.npy", digits["images"][:4])
    done = pipe("score", "-", "--input", tmp_path / "rows.npy", "-o", tmp_path / "out", data=Path(CNN).read_bytes())
    assert done.returncode == 0, done.stderr
    assert b"4 rows" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_a_line():
    completion = "COMP_WORDS=(tenonnx co) COMP_CWORD=1; _tenonnx_completion tenonnx; printf '%s\\n' \"${COMPREPLY[@]}\""
    lines = f'eval "$(_TENONNX_COMPLETE=bash_source tenonnx)"\n{completion}'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=120, env={"PATH": path})
    assert {"convert", "compare", "compose"} <= set(done.stdout.split()), done.stderr


@pytest.mark.parametrize(
    ("line", "offered", "left"),
    [
        ("train m.onnx --loss ", {"huber", "ctc"}, {"accuracy"}),
        ("train m.onnx --optimizer ada", {"adam", "adamw", "adagrad"}, {"sgd"}),
        ("evaluate m.onnx --metric acc", {"accuracy"}, {"f1"}),
        ("evaluate m.onnx --loss h", {"huber"}, {"ctc"}),
        ("convert m.onnx --domains com.m", {"com.microsoft"}, {"ai.onnx"}),
        ("convert m.onnx --target tensorrt", {"tensorrt-10"}, {"coreml"}),
        ("extract {model} --output-names prob", {"probabilities"}, {"pixels"}),
        ("extract {model} --output-names pixels,prob", {"pixels,probabilities"}, {"pixels"}),
        ("grad {model} --wrt pix", {"pixels"}, {"probabilities"}),
        ("rename {model} pix", {"pixels"}, {"probabilities"}),
        ("run {model} --input pi", {"pixels="}, {"probabilities="}),
        ("inspect {model} --node ", {"MatMul"}, {"pixels"}),
        ("extract none.onnx --output-names ", set(), {"pixels"}),
        ("extract {damaged} --output-names ", set(), {"pixels"}),
    ],
)
def test_values_of_options_are_completed(line, offered, left, tmp_path):
    (tmp_path / "damaged.onnx").write_bytes(Path(DIGITS_MODEL).read_bytes()[:500])
    words = f"tenonnx {line.format(model=DIGITS_MODEL, damaged=tmp_path / 'damaged.onnx')}"
    count = str(len(words.split(" ")) - 1)
    result = pipe(_TENONNX_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
    names = {each.removeprefix("plain,") for each in result.stdout.decode().splitlines()}
    assert result.stderr == b""
    assert offered <= names
    assert not left & names
    assert all(each.startswith(words.rpartition(" ")[2]) for each in names)


@pytest.mark.parametrize("words", ["tenonnx inspect ", "tenonnx convert m.onnx -o ", "tenonnx grad m.onnx -o "])
def test_shells_complete_names_of_files(words):
    result = pipe(_TENONNX_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert result.stdout.startswith(b"file,")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tenonnx run m.onnx --backend num", {b"numpy"}),
        ("tenonnx convert m.onnx --target tensorrt", {b"tensorrt-8", b"tensorrt-10"}),
        ("tenonnx targets nothing", set()),
        ("tenonnx ops Softp", {b"Softplus"}),
        ("tenonnx convert m.onnx --fuse-also SimplifiedL", {b"SimplifiedLayerNormalization"}),
        ("tenonnx quantize m.onnx --mode d", {b"dynamic"}),
    ],
)
def test_shells_complete_values(words, offered):
    result = pipe(_TENONNX_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert {line.partition(b",")[2] for line in result.stdout.split()} == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_lines(shell):
    script = pipe(_TENONNX_COMPLETE=f"{shell}_source")
    assert script.returncode == 0
    assert b"_TENONNX_COMPLETE" in script.stdout
    word = "co" if shell == "fish" else "1"
    result = pipe(_TENONNX_COMPLETE=f"{shell}_complete", COMP_WORDS="tenonnx co", COMP_CWORD=word)
    assert {b"convert", b"compare", b"compose"} <= set(result.stdout.replace(b",", b" ").split()), result


def test_models_with_other_names_are_compared(tmp_path, capsys):
    assert main(["rename", CNN, "images=x", "scores=logits", "-o", str(tmp_path / "m.onnx")]) == 0
    assert main(["compare", CNN, str(tmp_path / "m.onnx")]) != 0
    assert main(["compare", CNN, str(tmp_path / "m.onnx"), "--map", "images=x", "--map", "scores=logits"]) == 0
    assert main(["compare", CNN, str(tmp_path / "m.onnx"), "--map", "images=nothing"]) == 2
    assert "--map names a value that is neither" in capsys.readouterr().err


def test_the_conformance_tests_of_a_package_run_by_command(capfd):
    options = ["--examples", "1", "-k", "Binarizer"]
    assert main(["plugins", "test", "ai.onnx.ml", *options]) == 0
    assert "passed" in capfd.readouterr().out
    assert main(["plugins", "test", "no-such-package"]) == 2
    assert "is neither an installed package" in capfd.readouterr().err


def test_a_conformance_test_knows_its_project(tmp_path):
    from tenonnx_testing import suite as kit

    (tmp_path / "pyproject.toml").write_text('[project]\nname = "tenonnx-onnx-ml"\n')
    (tmp_path / "tests").mkdir()
    assert kit.project_of(tmp_path / "tests" / "test_it.py") == "tenonnx-onnx-ml"
    with pytest.raises(tx.InvalidCall, match="no project found"):
        kit.project_of(type(tmp_path)("/nowhere/at/all"))


def test_convert_fixes_and_transposes_inputs(tmp_path):
    images = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    expected = tx.load(CNN).run({"images": images})["scores"]
    report = tx.convert(
        CNN, tmp_path / "turned.onnx", transpose_inputs=["images"], transpose_outputs={"scores": [1, 0]}
    )
    assert report.verification.verified
    turned = tx.load(tmp_path / "turned.onnx").run({"images": images.transpose(0, 2, 3, 1)})["scores"]
    np.testing.assert_allclose(turned.T, expected, rtol=1e-4, atol=1e-5)
    np.save(tmp_path / "images.npy", images)
    fixed = str(tmp_path / "fixed.onnx")
    assert main(["convert", str(CNN), "-o", fixed, "--constant", f"images={tmp_path / 'images.npy'}"]) == 0
    np.testing.assert_allclose(tx.load(fixed).run({})["scores"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", ["images", "images=[1", "images={1}"])
def test_contents_on_the_command_line_are_json_or_a_file(given, tmp_path, capfd):
    assert main(["convert", str(CNN), "-o", str(tmp_path / "m.onnx"), "--constant", given]) != 0
    assert "neither NAME=FILE.npy nor NAME=VALUE" in capfd.readouterr().err
