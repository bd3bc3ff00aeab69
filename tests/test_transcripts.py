"""The output of 40 typical commands, errors included, compared with ``tests/transcripts``.

Machine-dependent numbers, versions, the install command and the width of columns are replaced by placeholders.
``python tests/test_transcripts.py`` updates the files by running the commands in them; review the diff.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tenonnx.registry.registry import Registry
from tenonnx_cli import main

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "transcripts"
CHAPTERS = sorted(path.stem for path in FOLDER.glob("*.txt"))
FILES = ("digits/digits.onnx", "digits/samples.npz", "digits_cnn/digits-cnn.onnx", "digits_cnn/digits.npz")

#: Packages to enable. The only backend is numpy, since other runtimes differ between processors.
PACKAGES = ("standard", "run", "convert", "cli", "targets", "optimize", "quantized", "training", "score", "serve")

#: Patterns of text that differs between machines and releases, with placeholders.
REPLACED = (
    (r"(\S*python\S* -m pip|uv pip) install( -p \S+)?", "pip install"),
    (r"(?<=then: )\S+(?= -m pytest)", "python"),
    (r"\b\d+\.\d+\.\d+[\w.+-]*", "VERSION"),
    (r"\d+:\d\d:\d\d left", "TIME left"),
    (r"[\d,.]+ samples/s", "N samples/s"),
    (r"\b[\d,.]+ (ns|µs|ms|s)\b", "TIME"),
    (r"\b[\d,.]+ (bytes|KiB|MiB|GiB)", "SIZE"),
    (r"[-+]?\d+\.\d+(e[-+]?\d+)?|[-+]?\b\d+e[-+]?\d+|\b(inf|nan)\b", "N"),
    (r" {3,}", "  "),
    (r"-{4,}", "---"),
)


def printed(line: str) -> str:
    """Output of a command, stdout and stderr combined, and its exit code."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = main(shlex.split(line)[1:])
    text = shown.getvalue()
    for pattern, short in REPLACED:
        text = re.sub(pattern, short, text)
    lines = [each.rstrip() for each in text.splitlines()]
    return "".join(f"{each}\n" for each in lines) + (f"[exit {code}]\n" if code else "")


def transcript(chapter: str) -> str:
    """The commands of a chapter with their present output, in a folder with the example files."""
    lines = (FOLDER / f"{chapter}.txt").read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name in ("FORCE_COLOR", "NO_COLOR", "TENONNX_TRACEBACK", "TENONNX_BACKEND_CHOICE"):
            patch.delenv(name, raising=False)
        patch.setenv("COLUMNS", "100")
        patch.setattr("tenonnx.registry.registry._default", Registry.installed())
        patch.setenv("TENONNX_PLUGINS", ",".join(f"tenonnx-{name}" for name in PACKAGES))
        for file in FILES:
            shutil.copy(ROOT / "examples" / file, folder)
        commands = [each.removeprefix("$ ") for each in lines if each.startswith("$ ")]
        return "\n".join(f"$ {command}\n{printed(command)}" for command in commands)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_commands_print_what_the_transcript_shows(chapter):
    assert transcript(chapter) == (FOLDER / f"{chapter}.txt").read_text("utf-8")


def test_the_transcripts_have_about_forty_commands():
    lines = [line for chapter in CHAPTERS for line in (FOLDER / f"{chapter}.txt").read_text("utf-8").splitlines()]
    assert sum(line.startswith("$ tenonnx ") for line in lines) >= 40
    assert sum(line == "[exit 2]" for line in lines) >= 10


if __name__ == "__main__":
    for name in sys.argv[1:] or CHAPTERS:
        (FOLDER / f"{name}.txt").write_text(transcript(name), "utf-8")
