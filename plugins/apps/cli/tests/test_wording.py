"""Messages in terms of the command line."""

import re
from pathlib import Path

import pytest

from tenonnx_cli.wording import for_command_line

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("make it writable, or pass overwrite=True (--overwrite)", "make it writable, or pass --overwrite"),
        ("give the inputs (feeds=, --input name=file.npy)", "give the inputs (--input name=file.npy)"),
        ("give trust=True (--trust) where these are your own", "give --trust where these are your own"),
        ("--input name=file.npy sets the values", "--input name=file.npy sets the values"),
        ("a group such as head.*:rate=10 (see the docs)", "a group such as head.*:rate=10 (see the docs)"),
    ],
)
def test_options_replace_python_arguments(text, said):
    assert for_command_line(text) == said


def test_no_message_that_names_an_option_keeps_the_argument():
    flags = re.compile(r"[a-z_]+=(?:True|False|)[ ,]*\(?--[a-z]")
    result = [
        line.strip()
        for folder in ("core", "plugins", "quantized", "onnx_ml", "contrib_ms")
        for path in (ROOT / folder).glob("**/src/**/*.py")
        for line in path.read_text("utf-8").splitlines()
        if flags.search(line) and "#" not in line
    ]
    assert result
    assert [line for line in result if flags.search(for_command_line(line))] == []
