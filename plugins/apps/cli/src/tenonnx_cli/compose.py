"""``tenonnx compose``: two models as one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import load_model, models_argument
from tenonnx_cli.parts import output_option, pairs, pairs_among, write, write_options

#: Configuration files of an image processor or a feature extractor, and of a timm model.
PROCESSOR, OF_TIMM = "preprocessor_config.json", "config.json"

#: Keyword for YOLO's preprocessing, which pads images with gray borders.
LETTERBOX = "letterbox"


def is_tokenizer(path: str) -> bool:
    """Whether a path is a tokenizer: a file, or a folder with one."""
    names = {"tokenizer.json", "vocab.txt", "source.spm"}
    given = Path(path)
    if given.is_dir():
        return any((given / name).is_file() for name in names) or any(given.glob("*.model"))
    return given.name in names or given.suffix == ".model"


def is_image_processor(path: str) -> bool:
    """Whether a path is an image processor: its file, a folder with it and no tokenizer, or "letterbox"."""
    given = Path(path)
    return (
        path == LETTERBOX
        or given.name in (PROCESSOR, OF_TIMM)
        or ((given / PROCESSOR).is_file() and not is_tokenizer(path))
    )


def is_feature_extractor(path: str) -> bool:
    """Whether a path is that of a feature extractor of speech: its file, or a folder with it."""
    given = Path(path)
    file = given if given.name == PROCESSOR else given / PROCESSOR
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "sampling_rate" in found


@click.command(
    "compose",
    cls=Command,
    examples=[
        "tenonnx compose ./tokenizer classify.onnx -o whole.onnx --length 128",
        "tenonnx compose preprocessor_config.json vit.onnx -o whole.onnx --decode classification",
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
@click.option(
    "--length",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens in each row after a tokenizer: longer rows are truncated, shorter ones padded. By default rows are "
    "padded to the longest.",
)
@click.option(
    "--decode",
    type=click.Choice(["classification", "detection", "segmentation", "text"]),
    help="After an image processor and a model, and for classification after a tokenizer or a feature extractor and "
    "one, too: scores and labels of the five most probable classes, by id2label of the config.json beside FIRST; boxes "
    "with scores and labels; or a map with the class of each pixel. For text, SECOND is a folder that tenonnx convert "
    "wrote for a model that generates text, such as a translation.",
)
@click.option(
    "--new-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --decode text: generate at most N tokens, by default those of generation_config.json, or 20.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=1, max_open=True),
    metavar="SCORE",
    help="With --decode detection: leave out boxes whose score is not above SCORE, by default 0.5.",
)
@click.option(
    "--colors",
    is_flag=True,
    help="With --decode segmentation: an image with the color of each pixel's class in the palette of Pascal VOC, too.",
)
@click.option(
    "--encoded",
    is_flag=True,
    help="Before an image processor or a feature extractor: take the bytes of one JPEG, PNG, WAV, FLAC or MP3 file, "
    "by ops of onnxruntime-extensions.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="Lower ops of other domains to ai.onnx where it can express them; the other ones stay.",
)
@write_options
def command(
    first: str,
    second: str,
    output: str,
    mapping: Sequence[str],
    length: int | None,
    decode: str | None,
    new_tokens: int | None,
    threshold: float | None,
    colors: bool,
    encoded: bool,
    plain: bool,
    **writing: Any,
) -> None:
    """Connect two models, such as preprocessing and a network: outputs of FIRST become inputs of SECOND.

    FIRST may be a tokenizer (tokenizer.json, vocab.txt, a .model of SentencePiece, or a folder with one of these): the
    result takes text. It may be an image processor (preprocessor_config.json, a folder with it, or a config.json of
    timm): the result takes images of any size, as it does with the word letterbox for models of YOLO. It may be a
    feature extractor of speech (preprocessor_config.json, or a folder with it): the result takes audio.

    Inputs and outputs that are not connected remain those of the result. Its opset is the newer of the two.
    """
    from tenonnx.tools import extension

    if new_tokens is not None and decode != "text":
        raise click.UsageError("--new-tokens was given without --decode text")
    speech = is_feature_extractor(first)
    processor, tokenizer = not speech and is_image_processor(first), not speech and is_tokenizer(first)
    if decode == "text" and not tokenizer:
        raise click.UsageError("--decode text was given without a tokenizer as the first model")
    after = extension("generator")(second, new_tokens=new_tokens) if decode == "text" else load_model(second)
    fitted = None if mapping else after
    is_classification = decode == "classification" and (tokenizer or speech)
    if decode not in (None, "text") and not processor and not is_classification:
        raise click.UsageError("--decode was given without an image processor as the first model")
    if encoded and not processor and not speech:
        raise click.UsageError(
            "--encoded was given without an image processor or a feature extractor as the first model"
        )
    if threshold is not None and decode != "detection":
        raise click.UsageError("--threshold was given without --decode detection")
    if colors and decode != "segmentation":
        raise click.UsageError("--colors was given without --decode segmentation")
    if length is not None and not tokenizer:
        raise click.UsageError("--length was given without a tokenizer as the first model")
    if processor:
        before = extension("image_processor")(
            first, model=fitted, image_size=decode in ("detection", "segmentation"), encoded=encoded
        )
    elif speech:
        before = extension("feature_extractor")(first, model=fitted, encoded=encoded)
    elif tokenizer:
        before = extension("tokenizer")(first, model=fitted, length=length)
    else:
        before = load_model(first)
    joined: dict[str, list[str]] = {}
    names = [value.name for value in before.outputs]
    found = _of_pixels(names, after) if processor and not mapping else pairs_among(set(names), mapping)
    for of, name in found:
        joined.setdefault(of, []).append(name)
    whole = extension("compose")(before, after, joined or None)
    if decode == "text":
        whole = extension("compose")(whole, extension("detokenizer")(first))
    elif decode is not None:
        options: dict[str, Any] = {"colors": colors, "letterbox": first == LETTERBOX}
        if threshold is not None:
            options["threshold"] = threshold
        named = Path(second if first == LETTERBOX else first)
        beside = named if named.is_dir() else named.parent
        whole = extension("compose")(whole, extension("decoder")(decode, beside, model=after, **options))
    if plain:
        from tenonnx.extend.transforms import retarget_to, target_for

        whole = retarget_to(whole, target_for(whole, None, ["ai.onnx"]), refuse=False).graph
    write(whole, output, first, second, **writing)


def _of_pixels(outputs: Sequence[str], model: Any) -> list[tuple[str, str]]:
    """Connections of an image processor's outputs, if the network's pixel input has another name."""
    inputs = [value.name for value in model.inputs]
    if "pixel_values" not in outputs or "pixel_values" in inputs:
        return []
    images = [value.name for value in model.inputs if value.rank == 4]
    return [("pixel_values", images[0]), *((name, name) for name in outputs if name in inputs)]
