"""``tenonnx compose``: two models as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import load_model, models_argument
from tenonnx_cli.parts import output_option, pairs, pairs_among, write, write_options


def is_tokenizer(path: str) -> bool:
    """Whether a path is that of a tokenizer: a file, or a folder with one."""
    names = {"tokenizer.json", "vocab.txt"}
    given = Path(path)
    if given.is_dir():
        return any((given / name).is_file() for name in names) or any(given.glob("*.model"))
    return given.name in names or given.suffix == ".model"


@click.command(
    "compose",
    cls=Command,
    examples=[
        "tenonnx compose resize.onnx classify.onnx -o whole.onnx --map resized=image",
        "tenonnx compose ./tokenizer classify.onnx -o whole.onnx",
    ],
)
@models_argument
@output_option
@click.option(
    "--map",
    "mapping",
    multiple=True,
    callback=pairs,
    metavar="OUT=IN",
    help="Connect output OUT of FIRST to input IN of SECOND; by default those of the same name. Repeatable; an output "
    "may go to several inputs.",
)
@write_options
def command(first: str, second: str, output: str, mapping: Sequence[str], **writing: Any) -> None:
    """Connect two models, such as preprocessing and a network: outputs of FIRST become inputs of SECOND.

    FIRST may be a tokenizer (tokenizer.json, vocab.txt, a .model of SentencePiece, or a folder with one of these): then
    the whole takes text.

    Other inputs and outputs remain those of the result. Its opset is the newer of the two.
    """
    from tenonnx.tools import extension

    after = load_model(second)
    before = (
        extension("tokenizer")(first, model=None if mapping else after) if is_tokenizer(first) else load_model(first)
    )
    joined: dict[str, list[str]] = {}
    for of, name in pairs_among({value.name for value in before.outputs}, mapping):
        joined.setdefault(of, []).append(name)
    whole = extension("compose")(before, after, joined or None)
    write(whole, output, first, second, **writing)
