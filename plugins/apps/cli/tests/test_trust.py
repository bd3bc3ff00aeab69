"""``--trust``, ``--load FILE.py``, ``--timeout`` and ``check --untrusted``."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import tenonnx as tx
import tenonnx_cli


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = tx.Graph(opsets={"ai.onnx": 17})
    with graph.building():
        graph.output("y", graph.input("x", "float32", (2,)) * 2.0)
    tx.export(graph, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_untrusted_files_are_checked_without_trust(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tenonnx_cli.main(["check", "--untrusted", str(model)]) == 0
    script = model.with_name("own.py")
    script.write_text(f"open({str(model.with_name('ran'))!r}, 'w')")
    for option in (["--trust"], ["--load", str(script)]):
        assert tenonnx_cli.main(["check", "--untrusted", *option, str(model)]) == tenonnx_cli.REFUSED
        assert option[0] in capsys.readouterr().err
    assert not model.with_name("ran").exists()


def test_a_file_runs_first(model: Path) -> None:
    script = model.with_name("own.py")
    script.write_text(f"open({str(model.with_name('ran'))!r}, 'w').close()")
    assert tenonnx_cli.main(["check", "--load", str(script), str(model)]) == 0
    assert model.with_name("ran").exists()
    assert tenonnx_cli.main(["inspect", "--load", "no-python-file", str(model)]) == tenonnx_cli.REFUSED


@pytest.mark.parametrize("suffix", ["pkl", "joblib"])
@pytest.mark.parametrize("command", ["check", "inspect"])
def test_pickles_are_not_read(suffix: str, command: str, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> object:
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / f"m.{suffix}").write_bytes(pickle.dumps(Evil()))
    assert tenonnx_cli.main([command, str(tmp_path / f"m.{suffix}")]) == tenonnx_cli.REFUSED
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with a name")
@pytest.mark.parametrize("name", ["m.onnx", "m.safetensors", "m.pkl", "m.txt"])
def test_pipes_and_devices_are_errors_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    for path in (tmp_path / name, Path("/dev/zero")):
        with pytest.raises(tx.InvalidCall, match="device, pipe or socket"):
            tx.load(path)


ALL_COMMANDS = (
    "inspect check run bench convert plan compare verify extract rename compose targets ops plugins train evaluate "
    "grad quantize serve score"
)


@pytest.mark.parametrize("command", [*ALL_COMMANDS.split(), "plugins new", "plugins test"])
def test_every_command_has_a_timeout(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tenonnx_cli.main([*command.split(), "--help"]) == 0
    assert "--timeout SECONDS" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    ["inspect {}", "check {}", "plan {} --opset 16", "rename {} x=z -o r.onnx", "extract {} -o e.onnx", "run {}"],
)
def test_reading_ends_in_time(command: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(model) if word == "{}" else word for word in command.split()]
    assert tenonnx_cli.main([*words, "--timeout", "1e-9"]) == tenonnx_cli.REFUSED
    assert "OutOfTime: not finished within 1e-09 s" in capsys.readouterr().err
    assert [path.name for path in model.parent.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("command", ["inspect", "check"])
def test_trust_changes_nothing_for_files_that_need_none(command: str, model: Path) -> None:
    assert tenonnx_cli.main([command, "--trust", str(model)]) == 0
    assert tx.load(model, trust=True).nodes
