"""``tenonnx compare --git`` as the diff driver of git, and ``--markdown``."""

import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tenonnx import InvalidCall
from tenonnx_cli.markdown import table
from tenonnx_cli.tools import program

DIGITS = Path(__file__).parents[4] / "examples" / "digits_cnn" / "digits-cnn.onnx"


def run(*line):
    return program.main(["compare", *map(str, line)], standalone_mode=False)


@pytest.fixture
def repository(tmp_path):
    """A repository with one model, whose diff driver is the command."""
    place = tmp_path / "repository"
    place.mkdir()

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        result = subprocess.run(["git", *identity, *arguments], cwd=place, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    git("init", "-q")
    git("config", "diff.onnx.command", f'"{sys.executable}" -m tenonnx compare --git')
    (place / ".gitattributes").write_text("*.onnx diff=onnx\n")
    shutil.copy(DIGITS, place / "model.onnx")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    return place, git


def doubled(path):
    """Write the model with another bias and one more node."""
    model = onnx.load(path)
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "classifier.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, path)


def test_git_diff_shows_a_table(repository):
    place, git = repository
    doubled(place / "model.onnx")
    result = git("diff")
    assert result.startswith("diff --tenonnx a/model.onnx b/model.onnx")
    assert "classifier.bias" in result
    assert "after: differs from before" in result


def test_added_deleted_and_broken_files(repository):
    place, git = repository
    (place / "model.onnx").rename(place / "new.onnx")
    git("add", "-A")
    assert "model.onnx: deleted" in git("diff", "--cached", "--no-renames")
    assert "new.onnx: added" in git("diff", "--cached", "--no-renames")
    git("commit", "-q", "-m", "second")
    (place / "new.onnx").write_bytes(b"no model")
    assert "not compared: " in git("diff")


def test_markdown(tmp_path, capsys):
    shutil.copy(DIGITS, tmp_path / "new.onnx")
    doubled(tmp_path / "new.onnx")
    assert run(DIGITS, tmp_path / "new.onnx", "--markdown") == 1
    text = capsys.readouterr().out
    assert text.startswith("### ")
    assert "| output | backend | absolute | relative | grade |" in text
    assert "classifier.bias" in text
    assert run(DIGITS, DIGITS, "--markdown") == 0
    assert "Structure: equal" in capsys.readouterr().out


def test_no_name_ends_a_cell():
    assert table(("a|b",), [("c|<script>`",)]) == [r"| a\|b |", "| --- |", r"| c\|\<script\>\` |"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--git"], "seven arguments"),
        (["--git", "--json"], "--git and --json"),
        (["--markdown", "--json"], "--markdown and --json"),
        (["third.onnx"], "more than two models"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(InvalidCall) as caught:
        run(DIGITS, DIGITS, *arguments)
    assert words in str(caught.value)
