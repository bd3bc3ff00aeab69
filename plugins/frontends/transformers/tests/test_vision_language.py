"""Vision-language decoders, with the parts run by PyTorch: tracing them takes longer."""

import numpy as np
import pytest
import torch
from configurations import make

import tenonnx as tx
import tenonnx_transformers
from tenonnx_transformers import vision_language
from tenonnx_transformers.sources import source_of
from tenonnx_transformers.vision_language import compare_images, vision_language_parts

ROUNDING = tx.extend.checks.Tolerance(1e-4, 1e-4, "rounding")


def run_of(part):
    """Run a part like a session: arrays by name, without those that it does not take."""

    def run(feeds):
        given = {name: torch.from_numpy(np.asarray(feeds[name])) for name in part.examples}
        with torch.no_grad():
            return [tensor.numpy() for tensor in part.call(given)]

    return run


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_parts_generate_the_tokens_of_the_model(name, monkeypatch):
    monkeypatch.setattr(vision_language, "_TOKENS", 5)
    source = source_of(make(name))
    source.model.set_attn_implementation("eager")
    parts = vision_language_parts(source)
    runs = [run_of(part) for part in parts[:3]]
    vision, logits, generated = compare_images(source, parts, runs, ROUNDING)
    assert (vision.output, logits.output) == ("image_features", "logits")
    assert (generated.equal, generated.tokens) == (10, 10)
    with pytest.raises(tx.VerificationFailed, match='"image_features" of vision differs'):
        compare_images(source, parts, [lambda feeds: [runs[0](feeds)[0] + 1], *runs[1:]], ROUNDING)


@pytest.mark.parametrize("layout", ["genai", "transformers.js"])
def test_other_layouts_are_refused(layout, tmp_path):
    with pytest.raises(tx.NotRepresentable, match="not supported for vision-language decoders"):
        tenonnx_transformers.export(make("llava"), tmp_path / "out", layout=layout)


def test_other_structures_are_refused():
    source = source_of(make("gpt2"), task="image-text-to-text")
    with pytest.raises(tx.NotRepresentable, match="does not put features of images"):
        vision_language_parts(source)
