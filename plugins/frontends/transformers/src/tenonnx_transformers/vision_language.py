"""Export of vision-language decoders: graphs of the vision tower, of the embedding, and of a decoder step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tenonnx.extend import NotRepresentable
from tenonnx.extend.checks import Tolerance
from tenonnx_transformers.calls import image_shape
from tenonnx_transformers.decoders import decoder_part, decoder_parts, decoder_states, positions_of
from tenonnx_transformers.generation import Generated, compare_tokens, ends_of, prompts_for, steps_for
from tenonnx_transformers.image_grids import constant_grid, grid_inputs
from tenonnx_transformers.parts import Part
from tenonnx_transformers.sources import Source, quiet
from tenonnx_transformers.states import BATCH, LENGTH, State, run_model
from tenonnx_transformers.verification import Compared, Session, check

#: Names of inputs and outputs between the graphs, those of onnxruntime-genai.
FEATURES, EMBEDDINGS = "image_features", "inputs_embeds"

#: Lengths of the text after the image in prompts of a batch, and number of tokens to generate.
_TEXTS, _TOKENS = (4, 7), 64

#: Inputs of ``forward`` with 1 for tokens of images.
_KINDS = ("mm_token_type_ids", "token_type_ids")


class Parts(NamedTuple):
    """The parts of a model, and the ``states`` of its decoder."""

    vision: Part
    embedding: Part
    decoder: Part
    states: Sequence[State]


def vision_language_parts(source: Source) -> Parts:
    """Return the parts of a model. Raises ``NotRepresentable`` for models of another structure."""
    model: Any = source.model
    kind = type(model).__name__
    if not hasattr(model, "get_image_features") or image_token(model) is None or model.config.is_encoder_decoder:
        raise NotRepresentable(
            f"{kind} does not put features of images in the place of tokens",
            available="models with get_image_features and a token of images in their config",
        )
    taken = inspect.signature(model.get_image_features).parameters
    other = [name for name, each in taken.items() if each.default is inspect.Parameter.empty and name != "pixel_values"]
    other = [name for name in other if name != "kwargs"]
    if other or ("image_sizes" in inspect.signature(model.forward).parameters and _needs_sizes(model)):
        raise NotRepresentable(
            f"the vision tower of {kind} takes inputs other than pixels", given=", ".join(other) or "image_sizes"
        )
    states = decoder_states(model)
    if len(decoder_parts(model, states)) > 1:
        raise NotRepresentable(f"the decoder of {kind} needs two graphs, for the prompt and for later tokens")
    vision = _vision_part(model)
    with torch.no_grad():
        features = vision.call(vision.examples)[0]
    return Parts(vision, _embedding_part(model, features), _decoder_part(model, states), states)


def image_token(model: Any) -> int | None:
    """Token that stands for a feature of an image in prompts."""
    for name in ("image_token_id", "image_token_index"):
        token = getattr(model.config, name, None)
        if isinstance(token, int):
            return token
    return None


def _needs_sizes(model: Any) -> bool:
    """Whether the features of an image depend on its size before preprocessing."""
    return type(model.config).__name__ in ("LlavaNextConfig", "LlavaOnevisionConfig", "Mistral3Config")


def pixels(model: Any, images: int, seed: int = 0) -> dict[str, Tensor]:
    """Random inputs of the vision tower for a number of images."""
    generator = torch.Generator().manual_seed(seed)
    grid = grid_inputs(model, images, generator)
    if grid is not None:
        return grid
    return {"pixel_values": torch.randn(images, *image_shape(model.config), generator=generator)}


def _vision_part(model: Any) -> Part:
    """Return the part from the ``pixel_values`` of one image to ``image_features``, float32 of shape (tokens, size)."""
    inputs = pixels(model, 1)
    options = constant_grid(model, inputs["image_grid_thw"]) if "image_grid_thw" in inputs else _selection(model)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        output = model.get_image_features(given["pixel_values"], **options)
        features = getattr(output, "pooler_output", output)
        features = torch.cat(list(features), 0) if isinstance(features, list | tuple) else features
        return [features.reshape(-1, features.shape[-1])]

    return Part("vision", model, call, {"pixel_values": inputs["pixel_values"]}, [FEATURES], {})


def _selection(model: Any) -> dict[str, Any]:
    """Options of ``get_image_features`` that ``forward`` takes from the config."""
    taken = inspect.signature(model.get_image_features).parameters
    names = ("vision_feature_layer", "vision_feature_select_strategy")
    return {name: getattr(model.config, name) for name in names if name in taken and hasattr(model.config, name)}


def _embedding_part(model: Any, features: Tensor) -> Part:
    """Return the part from ``input_ids`` and ``image_features``, which may be empty, to ``inputs_embeds``."""
    token, count = image_token(model), len(features)
    tokens = torch.arange(2 * (count + 3)).reshape(2, -1) % 7
    tokens.view(-1)[:count] = int(token or 0)

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        ids, images = given["input_ids"], given[FEATURES]
        is_image = ids == token
        text = model.get_input_embeddings()(ids.masked_fill(is_image, 0))
        padded = torch.cat([images, images.new_zeros(1, images.shape[1])])  # indexed by all texts without images
        places = is_image.reshape(-1).long().cumsum(0).reshape(ids.shape) - 1
        return [torch.where(is_image[..., None], padded[places.clamp(min=0)], text)]

    dims = {"input_ids": {0: BATCH, 1: LENGTH}, FEATURES: {0: "num_image_tokens"}}
    return Part("embedding", model, call, {"input_ids": tokens, FEATURES: features}, [EMBEDDINGS], dims)


def _decoder_part(model: Any, states: list[State]) -> Part:
    """Return the part of a step from ``inputs_embeds`` instead of tokens."""
    usual = decoder_part(model, states)
    with torch.no_grad():
        embedded = model.get_input_embeddings()(usual.examples["input_ids"])
    examples = {EMBEDDINGS: embedded, **{name: x for name, x in usual.examples.items() if name != "input_ids"}}
    dims = {EMBEDDINGS: {0: BATCH, 1: LENGTH}, **{k: v for k, v in usual.dims.items() if k != "input_ids"}}
    if _has_grid_positions(model):
        examples["position_ids"] = examples["position_ids"].expand(3, -1, -1).contiguous()
        dims["position_ids"] = {1: BATCH, 2: LENGTH}
    past = {state.past for state in states}

    def call(given: Mapping[str, Tensor]) -> list[Tensor]:
        before = {(state.layer, state.kind): given[state.past] for state in states}
        logits, after = run_model(model, {key: x for key, x in given.items() if key not in past}, before)
        return [logits, *(after[state.layer, state.kind] for state in states)]

    return Part("model", model, call, examples, usual.outputs, dims)


def _has_grid_positions(model: Any) -> bool:
    """Whether positions of image tokens have the axes time, height and width."""
    return hasattr(getattr(model, "model", None), "get_rope_index")


class Prompt(NamedTuple):
    """A batch of prompts with one image each: inputs of the vision tower, tokens and mask, and further inputs."""

    images: Mapping[str, Tensor]
    tokens: Tensor
    mask: Tensor
    pad: int
    other: Mapping[str, Tensor]

    def positions(self, model: Any) -> Tensor:
        """Positions of the prompt, int64 of shape (batch, length), or (3, batch, length) on grids."""
        if not _has_grid_positions(model):
            return positions_of(self.mask)
        grid = self.images["image_grid_thw"]
        places, _ = model.model.get_rope_index(
            self.tokens, self.other["mm_token_type_ids"], image_grid_thw=grid, attention_mask=self.mask
        )
        return torch.as_tensor(places)


def prompt_of(model: Any, parts: Parts, lengths: Sequence[int] = _TEXTS) -> Prompt:
    """Draw prompts: a token of text, an image, then text; padded on the left."""
    images = pixels(model, len(lengths))
    with torch.no_grad():
        single = parts.vision.call(pixels(model, 1))[0]
    texts = prompts_for(model.config, lengths)
    token, rows = int(image_token(model) or 0), []
    texts.tokens[texts.tokens == token] = int(texts.tokens[texts.tokens != token][-1])
    for text, mask in zip(texts.tokens, texts.mask, strict=True):
        at = int((mask == 0).sum()) + 1
        rows.append(torch.cat([text[:at], torch.full((len(single),), token), text[at:]]))
    tokens = torch.stack(rows)
    mask = torch.cat([texts.mask, texts.mask.new_ones(len(lengths), len(single))], 1)
    taken = inspect.signature(model.forward).parameters
    other = {name: (tokens == token).long() for name in _KINDS if name in taken}
    return Prompt(images, tokens, mask, texts.pad, other)


def compare_images(source: Source, parts: Parts, runs: Sequence[Session], allowed: Tolerance) -> list[Any]:
    """Compare logits of prompts with images, and greedy tokens, with those of the model.

    Return a ``Compared`` for each graph and a ``Generated``. Raises ``VerificationFailed`` if they differ.
    """
    model: Any = source.model
    prompt = prompt_of(model, parts)
    vision, embedding, decoder = runs
    images = [{"pixel_values": _image(prompt, row)["pixel_values"]} for row in range(len(prompt.tokens))]
    features = np.concatenate([vision({"pixel_values": each["pixel_values"].numpy()})[0] for each in images])
    with torch.no_grad():
        expected = torch.cat([parts.vision.call(each)[0] for each in images]).numpy()
        inputs = {"input_ids": prompt.tokens, "attention_mask": prompt.mask, **prompt.images, **prompt.other}
        whole = model(**inputs, use_cache=False).logits.float().numpy()
    where = f"{len(prompt.tokens)} images"
    reports: list[Compared | Generated] = [check("vision", FEATURES, where, features, expected, allowed)]

    steps = steps_for(model.config, _TOKENS)
    with quiet(), torch.no_grad():
        generated = model.generate(
            **inputs,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            num_beams=1,
            pad_token_id=prompt.pad,
            suppress_tokens=[image_token(model)],  # the model could not continue after it without an image
        )[:, -steps:].numpy()
    past = {state.past: state.empty(len(prompt.tokens)).numpy() for state in parts.states}
    tokens, mask, places = prompt.tokens.numpy(), prompt.mask.numpy(), prompt.positions(model).numpy()
    ends, chosen = [*ends_of(model.generation_config), int(image_token(model) or 0)], []
    for step in range(steps):
        (embedded,) = embedding({"input_ids": tokens, FEATURES: features if step == 0 else features[:0]})
        feeds = {EMBEDDINGS: embedded, "attention_mask": mask, "position_ids": places, **past}
        logits, *after = decoder(feeds)
        if step == 0:
            seen = mask == 1
            reports.append(check("model", "logits", f"{where}, past 0", logits[seen], whole[seen], allowed))
        past = {state.past: array for state, array in zip(parts.states, after, strict=True)}
        last = np.array(logits[:, -1], np.float32)
        last[:, [end for end in ends if 0 <= end < last.shape[-1]]] = -np.inf
        chosen.append(last.argmax(-1))
        tokens, mask = chosen[-1][:, None], np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
        places = places[..., -1:] + 1

    def model_logits(row: int, step: int) -> np.ndarray[Any, Any]:
        seen = prompt.mask[row] == 1
        text = torch.cat([prompt.tokens[row][seen], torch.from_numpy(generated[row, :step])])[None]
        one = {"input_ids": text, "attention_mask": torch.ones_like(text)}
        kinds = {name: (text == image_token(model)).long() for name in prompt.other}
        with torch.no_grad():
            output = model(**one, **kinds, **_image(prompt, row), use_cache=False)
        return np.asarray(output.logits[0, -1].float())

    reports.append(compare_tokens("onnxruntime", np.stack(chosen, 1), generated, model_logits, allowed))
    return reports


def _image(prompt: Prompt, row: int) -> dict[str, Tensor]:
    """Inputs of the vision tower for the image of one prompt."""
    return {name: x.chunk(len(prompt.tokens))[row] for name, x in prompt.images.items()}
