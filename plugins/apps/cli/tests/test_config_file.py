"""Options from a TOML file: read, overridden, and refused if they are invalid."""

import json
import tomllib
from pathlib import Path

import onnx
import pytest

import tenonnx as tx
from tenonnx_cli import main

CNN = str(Path(__file__).parents[4] / "examples" / "digits_cnn" / "digits-cnn.onnx")


@pytest.mark.parametrize(
    ("name", "table"), [("pyproject.toml", "tool.tenonnx.convert"), ("options.toml", "convert")], ids=["project", "own"]
)
def test_options_come_from_the_table_of_the_command(name, table, tmp_path, capfd):
    config, output = tmp_path / name, tmp_path / "m.onnx"
    config.write_text(f'[{table}]\nopset = 13\nsimplify = true\ndomains = ["ai.onnx"]\nfix_shapes = ["images:2,1,8,8"]')
    assert main(["convert", CNN, "-o", str(output), "--config", str(config)]) == 0
    graph = tx.load(output)
    assert graph.opsets == {"ai.onnx": 13}
    assert len(graph.nodes) < len(tx.load(CNN).nodes)
    assert str(graph.inputs[0].type) == "float32[2, 1, 8, 8]"
    assert main(["convert", CNN, "-o", str(output), "--config", str(config), "--opset", "15"]) == 0
    assert tx.load(output).opsets == {"ai.onnx": 15}


def test_options_of_a_file_apply_in_python(tmp_path):
    config, output = tmp_path / "pyproject.toml", tmp_path / "m.onnx"
    config.write_text(
        "[tool.tenonnx.convert]\nopset = 13\nsimplify = true\nfloat16 = false\ncosts = true\n"
        'fix-shapes = ["images:2,1,8,8"]\nfuse = false'
    )
    result = tx.read_config(config)
    assert result.opset_version == {"ai.onnx": 13}
    assert result.step_options["fuse"] is False
    tx.convert(CNN, output, config=result)
    graph = tx.load(output)
    assert graph.opsets == {"ai.onnx": 13}
    assert len(graph.nodes) < len(tx.load(CNN).nodes)
    assert str(graph.inputs[0].type) == "float32[2, 1, 8, 8]"
    tx.convert(CNN, output, config=result, opset_version=15)
    assert tx.load(output).opsets == {"ai.onnx": 15}


def test_a_profile_of_a_file_applies_in_python(tmp_path):
    config = tmp_path / "tenonnx.toml"
    config.write_text("[convert]\nopset = 17\nfunctions = 'inline'\n[profiles.edge.convert]\nopset = 13\n")
    result = tx.read_config(config, profile="edge")
    assert (result.opset_version, result.functions) == ({"ai.onnx": 13}, "inline")
    with pytest.raises(tx.InvalidCall, match='has no profile "edges"'):
        tx.read_config(config, profile="edges")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("opsett = 13", "unknown option of convert"),
        ("opset = 'new'", "'new' is neither a version"),
        ("verify = 'often'", "is not true or false"),
        ("task = 'default'", "has options for reading the source"),
        ("opset = [", "cannot read"),
    ],
)
def test_a_file_that_python_cannot_use_is_refused(text, message, tmp_path):
    (tmp_path / "options.toml").write_text(f"[convert]\n{text}\n")
    with pytest.raises(tx.InvalidCall, match=message):
        tx.read_config(tmp_path / "options.toml")


def test_each_command_reads_its_own_table(tmp_path, capfd):
    config = tmp_path / "options.toml"
    config.write_text("[convert]\nopset = 13\n[plan]\nopset = 15\n")
    assert main(["plan", CNN, "--json", "--config", str(config)]) == 0
    assert json.loads(capfd.readouterr().out)["opsets"] == {"ai.onnx": 15}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[convert]\nopsett = 13", "unknown option of convert"),
        ("[convert]\noutput = 'm.onnx'", "unknown option of convert"),
        ("[convert]\nsimplify = 1", "not true or false"),
        ("[convert]\nopset = [true]", "not a number, a string or an array"),
        ("[convert]\nopset = { 'ai.onnx' = 13 }", "not a number, a string or an array"),
        ("[convert]\nopset = 'new'", "neither a version"),
        ("[convert\n", "cannot read"),
        (None, "cannot read"),
    ],
)
def test_errors_in_a_file_are_reported(text, message, tmp_path, capfd):
    config = tmp_path / "options.toml"
    if text is not None:
        config.write_text(text)
    assert main(["convert", CNN, "-o", str(tmp_path / "m.onnx"), "--config", str(config)]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize(
    ("name", "table"), [("pyproject.toml", "tool.tenonnx.convert"), ("tenonnx.toml", "convert")], ids=["project", "own"]
)
def test_the_nearest_file_is_read(name, table, tmp_path, monkeypatch, capfd):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / name).write_text(f"[{table}]\nopset = 13\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'of no settings'\n")
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert main(["convert", CNN, "-o", "m.onnx"]) == 0
    assert tx.load("m.onnx").opsets == {"ai.onnx": 13}
    Path("tenonnx.toml").write_text("[convert]\nopset = 15\n")
    assert main(["convert", CNN, "-o", "m.onnx"]) == 0
    assert tx.load("m.onnx").opsets == {"ai.onnx": 15}
    Path("given.toml").write_text("[convert]\nopset = 14\n")
    assert main(["convert", CNN, "-o", "m.onnx", "--config", "given.toml"]) == 0
    assert tx.load("m.onnx").opsets == {"ai.onnx": 14}


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("convert", "trust = true"),
        ("convert", "load = ['evil.py']"),
        ("convert", "rules = ['evil.py']"),
        ("convert", "hook = ['evil.py:f']"),
        ("convert", "timeout = 1e9"),
        ("convert", "overwrite = true"),
        ("inspect", "svg = 'x.svg'"),
        ("anonymize", "check = 'touch evil'"),
    ],
)
def test_a_discovered_file_may_not_run_code_or_lift_limits(command, option, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('evil', 'w').close()\ndef f(model):\n    open('evil', 'w').close()\n")
    Path("tenonnx.toml").write_text(f"[{command}]\n{option}\n[profiles.p.{command}]\n{option}\n")
    output = [] if command == "inspect" else ["-o", "m.onnx"]
    assert main([command, CNN, *output, "--profile", "p"]) == 0
    assert capfd.readouterr().err.count(f"note: {option.split()[0]} in ") == 2
    assert not Path("evil").exists()
    assert not Path("x.svg").exists()


def test_a_named_file_may_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hook.py").write_text("def f(model):\n    model.doc_string = 'hooked'\n")
    Path("own.toml").write_text("[convert]\nhook = ['hook.py:f']\n")
    assert main(["convert", CNN, "-o", "m.onnx", "--config", "own.toml"]) == 0
    assert onnx.load("m.onnx").doc_string == "hooked"


def test_profiles_add_to_the_table_of_the_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = "[convert]\nopset = 13\nsimplify = true\n[profiles.edge.convert]\nopset = 12\n"
    Path("tenonnx.toml").write_text(f"{text}[profiles.cloud.plan]\nopset = 9\n")
    for profile, opset in (("edge", 12), ("cloud", 13)):
        assert main(["convert", CNN, "-o", "m.onnx", "--profile", profile]) == 0
        graph = tx.load("m.onnx")
        assert graph.opsets == {"ai.onnx": opset}
        assert len(graph.nodes) < len(tx.load(CNN).nodes)
    assert main(["convert", CNN, "-o", "m.onnx", "--profile", "egde"]) == 2
    assert "did you mean edge?" in capfd.readouterr().err
    Path("tenonnx.toml").unlink()
    assert main(["convert", CNN, "-o", "m.onnx", "--profile", "edge"]) == 2
    assert "no file of settings" in capfd.readouterr().err


def test_the_printed_configuration_reproduces_the_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    line = ["--opset", "15", "--domains", "ai.onnx", "--simplify", "--no-verify", "--fix-shapes", "images:2,1,8,8"]
    assert main(["convert", CNN, "-o", "first.onnx", *line, "--atol", "1e-3", "--print-config"]) == 0
    text = capfd.readouterr().out
    assert not Path("first.onnx").exists()
    table = tomllib.loads(text)["convert"]
    assert (table["simplify"], table["verify"], table["seed"]) == (True, False, 0)
    Path("used.toml").write_text(text)
    assert main(["convert", CNN, "-o", "first.onnx", *line]) == 0
    assert main(["convert", CNN, "-o", "second.onnx", "--config", "used.toml"]) == 0
    assert Path("first.onnx").read_bytes() == Path("second.onnx").read_bytes()
    capfd.readouterr()
    assert main(["convert", CNN, "-o", "second.onnx", "--config", "used.toml", "--print-config"]) == 0
    assert tomllib.loads(capfd.readouterr().out) == tomllib.loads(text)


def test_help_is_shown_where_the_settings_are_broken(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("tenonnx.toml").write_text("[convert\n")
    assert main(["convert", "-h"]) == 0
    assert main(["convert", "--help"]) == 0
    assert main(["convert", CNN, "-o", "m.onnx"]) == 2
    assert "cannot read" in capfd.readouterr().err
