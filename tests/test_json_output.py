"""``--json`` output of commands, validated against ``docs/reference/json.schema.json``."""

import contextlib
import copy
import json
import shutil
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator

from tenonnx_cli import main
from tenonnx_cli.program import program

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCHEMA = json.loads((ROOT / "docs/reference/json.schema.json").read_text("utf-8"))

#: Command lines in a folder with the files of ``folder``, with exit codes.
LINES = {
    "inspect cnn.onnx": 0,
    "version": 0,
    "doctor cnn.onnx": 0,
    "inspect decoder.onnx": 0,
    "inspect cnn.onnx --variables --tree": 0,
    "inspect digits.onnx --op MatMul": 0,
    "inspect digits.onnx --costs": 0,
    "inspect branch.onnx": 0,
    "check digits.onnx": 0,
    "check damaged.onnx": 1,
    "run digits.onnx --inputs digits.npz": 0,
    "run digits.onnx -o outputs.npz": 0,
    "bench digits.onnx --seconds 0.01": 0,
    "bench digits.onnx digits.onnx --seconds 0.01 --batch-size 1,4 --threads 1": 0,
    "bench digits.onnx --nodes": 0,
    "convert digits.onnx -o old.onnx --opset 12 --verify": 0,
    "convert digits.onnx -o half.onnx --float16 --verify": 0,
    "convert decoder.onnx -o plain.onnx --opset 17 --domains ai.onnx --no-verify": 0,
    "plan decoder.onnx --target tensorrt-10": 0,
    "plan decoder.onnx --opset 6 --domains ai.onnx": 1,
    "compare digits.onnx other.onnx": 1,
    "compare digits.onnx digits.onnx --quantiles": 0,
    "compare cnn.onnx --outputs outputs.npz --quantiles": 0,
    "verify digits.onnx digits.onnx": 0,
    "verify digits.onnx far.onnx": 1,
    "extract digits.onnx -o part.onnx --output-names probabilities": 0,
    "rename digits.onnx pixels=x -o named.onnx": 0,
    "compose head.onnx tail.onnx -o both.onnx": 0,
    "formats": 0,
    "targets": 0,
    "targets tensorrt-10": 0,
    "targets probe --runner tenonnx_testing.runners:reference -o mine.toml --ops Relu --examples 1": 0,
    "ops Softmax": 0,
    "ops com.microsoft::Gelu": 0,
    "plugins": 0,
    "plugins new tenonnx-new --domain com.new": 0,
    "train cnn.onnx --data cnn.npz --loss softmax_cross_entropy --metric accuracy --epochs 1 -o tuned.onnx": 0,
    "evaluate cnn.onnx --data cnn.npz --metric accuracy --loss softmax_cross_entropy": 0,
    "evaluate cnn.onnx cnn.onnx --data cnn.npz --metric accuracy": 0,
    "grad cnn.onnx --of scores --wrt images --cotangent g -o slope.onnx": 0,
    "quantize digits.onnx -o small.onnx": 0,
    "quantize digits.onnx -o small.onnx --recipe onnxruntime-cpu --inputs digits.npz --report": 0,
    "quantize digits.onnx -o small.onnx --mode weights --budget 10s --inputs digits.npz": 0,
    "score cnn.onnx --input rows.npy -o scores": 0,
    "anonymize digits.onnx -o plain.onnx": 0,
    "reduce digits.onnx -o small.onnx --check false": 0,
    "explain digits.onnx -o explained.onnx": 0,
}


#: Strings that may look like numbers.
TEXTS = {"/version", "/failure", "/variables/OMP_NUM_THREADS", "/variables/OPENBLAS_NUM_THREADS"}


def command_of(line):
    whole = " ".join(line.split()[:2])
    return whole if whole in ("plugins new", "targets probe") else line.split()[0]


def validator(command):
    schema = SCHEMA["properties"][command] | {"$defs": SCHEMA["$defs"]}
    return Draft202012Validator(schema)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for source, name in (
        ("digits/digits.onnx", "digits.onnx"),
        ("digits/samples.npz", "digits.npz"),
        ("digits_cnn/digits-cnn.onnx", "cnn.onnx"),
        ("decoder/decoder.onnx", "decoder.onnx"),
    ):
        shutil.copy(EXAMPLES / source, tmp_path / name)
    with np.load(EXAMPLES / "digits_cnn/digits.npz") as digits:
        np.savez(tmp_path / "cnn.npz", **{name: each[:64] for name, each in digits.items()})
        np.save(tmp_path / "rows.npy", digits["images"][:16])
    (tmp_path / "damaged.onnx").write_bytes((tmp_path / "digits.onnx").read_bytes()[:900])
    for name, factor in (("other.onnx", 1.01), ("far.onnx", -3.0)):
        model = onnx.load(tmp_path / "digits.onnx")
        weight = next(each for each in model.graph.initializer if len(each.dims) == 2)
        changed = onnx.numpy_helper.to_array(weight) * np.float32(factor)
        weight.CopyFrom(onnx.numpy_helper.from_array(changed, weight.name))
        onnx.save(model, tmp_path / name)
    branch = """<ir_version: 8, opset_import: ["": 17, "f": 1]> g (bool c, float[n] x) => (float[n] y) {
        z = If (c) <then_branch = t () => (float[n] a) { a = Relu(x) },
                    else_branch = e () => (float[n] b) { b = Abs(x) }>
        y = f.twice(z) }
        <domain: "f", opset_import: ["": 17]> twice (x) => (y) { y = Add(x, x) }"""
    onnx.save(onnx.parser.parse_model(branch), tmp_path / "branch.onnx")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", LINES)
def test_a_command_prints_json_of_its_schema(line, folder, capsys):
    if line.startswith("compose"):
        assert (
            main(["extract", "cnn.onnx", "-o", "head.onnx", "--output-names", "Relu"])
            == main(["extract", "cnn.onnx", "-o", "tail.onnx", "-i", "Relu"])
            == 0
        )
        capsys.readouterr()
    if "--outputs" in line:
        assert main(["run", "cnn.onnx", "-o", "outputs.npz"]) == 0
        capsys.readouterr()
    code = main([*line.split(), "--json"])
    output = capsys.readouterr()
    assert code == LINES[line], output.err
    result = json.loads(output.out)
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator(command_of(line)).iter_errors(result)]
    assert not errors


@pytest.mark.parametrize("line", ["inspect none.onnx", "convert digits.onnx", "inspect digits.onnx --node none"])
def test_an_error_matches_the_schema(line, folder, capsys):
    assert main([*line.split(), "--json"]) == 2
    result = json.loads(capsys.readouterr().out)
    schema = {"$ref": "#/$defs/error", "$defs": SCHEMA["$defs"]}
    assert not list(Draft202012Validator(schema).iter_errors(result))


@pytest.mark.parametrize("line", LINES)
def test_every_command_prints_its_error_as_json(line, folder, capsys):
    """Errors for missing files, unknown names and unknown options."""
    words = [each for each in line.split() if not each.endswith((".onnx", ".npz", ".npy"))]
    name = words[0]
    for wrong in ([name, "none.onnx", "--none"], [*line.split(), "--none", "1"]):
        assert main([*wrong, "--json"]) == 2
        output = capsys.readouterr()
        result = json.loads(output.out)
        schema = {"$ref": "#/$defs/error", "$defs": SCHEMA["$defs"]}
        assert not list(Draft202012Validator(schema).iter_errors(result))
        assert output.err


@pytest.mark.parametrize("line", LINES)
def test_numbers_are_numbers(line, folder, capsys):
    if "compose" in line or "--outputs" in line:
        return
    main([*line.split(), "--json"])

    def numbers(node, path):
        if isinstance(node, dict):
            return [each for key, inner in node.items() for each in numbers(inner, f"{path}/{key}")]
        if isinstance(node, list):
            return [each for inner in node for each in numbers(inner, f"{path}[]")]
        if isinstance(node, str):
            with contextlib.suppress(ValueError):
                float(node.replace(",", ""))
                return [(path, node)]
        return []

    result = numbers(json.loads(capsys.readouterr().out), "")
    assert [each for each in result if each[0] not in TEXTS] == []


def commands(group, context, before=""):
    """Commands with --json, those of groups with both words."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if any("--json" in parameter.opts for parameter in command.get_params(context)):
            yield before + name
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{before}{name} ")
        else:
            yield from (f"{before}{name} {inner}" for inner in getattr(command, "commands", ()))


def test_every_command_has_a_schema_and_a_trial():
    with click.Context(program, info_name="tenonnx") as context:
        ours = {name for name in commands(program, context) if not name.startswith("acme")}
    tried = {command_of(line) for line in LINES} | {"targets import"}  # needs pyarrow, see test_winml.py
    assert ours == set(SCHEMA["properties"]) == tried


def test_the_schema_describes_every_key():
    Draft202012Validator.check_schema(SCHEMA)

    def untold(node, path):
        if isinstance(node, list):
            return [each for position, inner in enumerate(node) for each in untold(inner, f"{path}/{position}")]
        if not isinstance(node, dict):
            return []
        keys = node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ()
        result = [f"{path}/{name}" for name, told in keys if "description" not in told and "$ref" not in told]
        return result + [each for name, inner in node.items() for each in untold(inner, f"{path}/{name}")]

    assert not untold(SCHEMA, "")


@pytest.mark.parametrize("change", ["more", "fewer", "other"])
def test_another_key_or_type_is_found(change, folder, capsys):
    assert main(["check", "digits.onnx", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    changed = copy.deepcopy(result)
    if change == "more":
        changed["extra"] = 1
    elif change == "fewer":
        del changed["valid"]
    else:
        changed["valid"] = "yes"
    assert validator("check").is_valid(result)
    assert not validator("check").is_valid(changed)
