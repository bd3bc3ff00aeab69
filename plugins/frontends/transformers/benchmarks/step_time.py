"""Compare the step time of an exported Llama with that of a graph from onnxruntime-genai's builder, in float32.

    python plugins/frontends/transformers/benchmarks/step_time.py [--hidden 256] [--layers 2] [--past 128]

Weights are random. Steps of the two graphs alternate, with one thread, and the fastest of each counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers
from tokenizers import Tokenizer, models

import tenonnx_transformers

VOCABULARY = 2000


def saved(folder: Path, hidden: int, layers: int) -> Any:
    """Save a Llama with random weights, and a tokenizer that the builder needs, to a folder."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(hidden // 128, 1),
        max_position_embeddings=1024,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    words = models.WordLevel({f"w{place}": place for place in range(VOCABULARY)}, unk_token="w0")
    transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words)).save_pretrained(folder)
    return model


class Step:
    """A step of one token after a past, in a session with one thread."""

    def __init__(self, path: Path, past: int, hidden: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.best, self.feeds = float("inf"), dict[str, Any]()
        generator = np.random.default_rng(0)
        for each in self.session.get_inputs():
            if each.name.startswith("past"):
                self.feeds[each.name] = generator.standard_normal((1, max(hidden // 128, 1), past, 64), np.float32)
            else:
                size = past + 1 if each.name == "attention_mask" else 1
                value = past if each.name == "position_ids" else 1
                self.feeds[each.name] = np.full((1, size), value, np.int64)

    def run(self) -> Any:
        begin = time.perf_counter()
        found = self.session.run(None, self.feeds)
        self.best = min(self.best, time.perf_counter() - begin)
        return found[0]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--past", type=int, default=128)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved(folder / "model", given.hidden, given.layers)
        places = {"ours": folder / "ours", "builder": folder / "builder"}
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu"]
        paths = ["-i", folder / "model", "-o", places["builder"], "-c", folder / "cache"]
        subprocess.run([*command, *map(str, paths)], check=True, stdout=subprocess.DEVNULL)
        tenonnx_transformers.export(folder / "model", places["ours"], layout="genai", verify=False)
        sizes = {key: sum(each.stat().st_size for each in place.glob("model.onnx*")) for key, place in places.items()}
        steps = {key: Step(place / "model.onnx", given.past, given.hidden) for key, place in places.items()}
        first = {key: step.run() for key, step in steps.items()}
        print(f"largest difference of logits: {np.abs(first['ours'] - first['builder']).max():.2g}")
        for _ in range(200):
            for step in steps.values():
                step.run()
        for key, step in steps.items():
            print(f"{key}: {1000 * step.best:.3f} ms, {sizes[key] / 1e6:.2f} MB")
        print(f"ratio: {steps['ours'].best / steps['builder'].best:.2f}")


if __name__ == "__main__":
    main()
