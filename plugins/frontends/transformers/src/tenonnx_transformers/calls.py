"""Export of models without generation (encoders, classifiers, detectors), with example inputs from their config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tenonnx.extend import NotRepresentable
from tenonnx_transformers.generation import prompts_for
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import Source, json_object
from tenonnx_transformers.states import BATCH, LENGTH

#: Inputs for which this module generates examples, in the order of the graph's inputs.
KNOWN = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "pixel_values",
    "pixel_mask",
    "input_values",
    "input_features",
)

#: Minimum number of audio samples, from which the convolutions of a speech encoder compute a few frames.
_SAMPLES = 8000


def call_part(source: Source) -> Part:
    """Return the part of a model without generation; outputs have the keys of its ``ModelOutput``.

    Raises ``NotRepresentable`` for a model with unknown inputs.
    """
    model: Any = source.model
    examples = inputs_for(source, batch=2, length=7)
    dims = {name: _dims(name, tensor) for name, tensor in examples.items()}
    if "input_ids" in examples and "pixel_values" in examples:
        dims["pixel_values"] = {0: "image_batch_size"}
    returned = _call_outputs(model, examples)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        found = model(**given, return_dict=True)
        return [found[name] for name in returned]

    return Part("model", model, call, examples, list(returned), dims)


def _call_outputs(model: Any, examples: Mapping[str, Tensor]) -> dict[str, Tensor]:
    with torch.no_grad():
        found = model(**examples, return_dict=True)
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def inputs_for(source: Source, batch: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Generate inputs of a model by name, for a batch of texts of ``length`` tokens; the last one has padding.

    Raises ``NotRepresentable`` for a model with unknown inputs.
    """
    model: Any = source.model
    parameters = inspect.signature(model.forward).parameters
    wanted = [name for name in KNOWN if name in parameters and _is_used(name, source)]
    if not wanted or "inputs_embeds" in wanted:
        raise NotRepresentable(f"cannot make example inputs for {type(model).__name__}", given=", ".join(parameters))
    images = batch + 1 if "input_ids" in wanted else batch  # equal numbers of images and texts may hide errors
    return {name: _example(name, source, images if name == "pixel_values" else batch, length, seed) for name in wanted}


def _is_used(name: str, source: Source) -> bool:
    """Whether users of a model pass an input: of those that ``forward`` accepts, the ones of its tokenizer."""
    config = source.config
    main = getattr(source.model, "main_input_name", "input_ids")
    if name in ("input_values", "input_features"):
        return bool(name == main)
    if name == "pixel_mask":
        return False
    if name == "attention_mask":
        return main not in ("pixel_values", "input_features") and _uses_audio_mask(source)
    if name != "token_type_ids":
        return True
    path = None if source.folder is None else source.folder / "tokenizer_config.json"
    if path is not None and path.is_file():
        names = json_object(path).get("model_input_names")
        if isinstance(names, list) and names:
            return name in names
    return bool(getattr(config.get_text_config(), "type_vocab_size", 0) > 1)


def _uses_audio_mask(source: Source) -> bool:
    """Whether an audio model takes attention masks; those with group normalization do not."""
    return getattr(source.config, "feat_extract_norm", "layer") != "group"


def _example(name: str, source: Source, batch: int, length: int, seed: int) -> Tensor:
    config = source.config
    generator = torch.Generator().manual_seed(seed)
    sound = getattr(source.model, "main_input_name", "") == "input_values"
    if name == "input_ids":
        return prompts_for(config, [length] * batch, seed).tokens
    if name == "attention_mask":
        mask = torch.ones(batch, _SAMPLES + 400 * length if sound else length, dtype=torch.int64)
        if batch > 1:
            mask[-1, mask.shape[1] * 2 // 3 :] = 0
        return mask
    if name == "token_type_ids":
        kinds = torch.zeros(batch, length, dtype=torch.int64)
        kinds[:, length // 2 :] = 1
        return kinds
    if name == "pixel_values":
        return torch.randn(batch, *image_shape(config), generator=generator)
    if name == "input_values":
        return torch.randn(batch, _SAMPLES + 400 * length, generator=generator)
    return torch.randn(batch, *_features(config, length), generator=generator)


def image_shape(config: Any) -> tuple[int, int, int]:
    """Channels, height and width of the images of a config."""
    vision = getattr(config, "vision_config", None) or getattr(config, "backbone_config", None) or config
    size = next((found for each in (config, vision) if (found := getattr(each, "image_size", None)) is not None), 224)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
    channels = getattr(vision, "num_channels", None) or getattr(config, "num_channels", None) or 3
    return int(channels), int(height), int(width)


def _features(config: Any, length: int) -> tuple[int, int]:
    """Shape of a spectrogram: (bins, fixed number of frames) for whisper and the like, else (frames, bins)."""
    bins: Any = getattr(config, "num_mel_bins", None) or getattr(config, "input_feat_per_channel", 80)
    positions: Any = getattr(config, "max_source_positions", None)
    if getattr(config, "model_type", "") == "whisper" or positions is None:
        return int(bins), 2 * int(positions or length)
    return 8 * length, int(bins)


def _dims(name: str, tensor: Tensor) -> dict[int, str]:
    if name == "input_values" or (name == "attention_mask" and tensor.shape[1] > 1000):
        return {0: BATCH, 1: "num_samples"}
    if name in ("input_ids", "attention_mask", "token_type_ids"):
        return {0: BATCH, 1: LENGTH}
    return {0: BATCH}
