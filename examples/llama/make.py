"""Generator of ``llama.onnx``: a tiny LLaMA with 4-bit weights, written by onnxruntime-genai's model builder.

Run ``python make.py [folder]`` with torch, transformers, onnxruntime-genai (0.18) and its dependencies. The weights are
random numbers of a fixed seed; ``samples.npz`` is a prompt, ``samples-decode.npz`` the token after it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, HEADS, KEY_VALUE_HEADS, SIZE, LAYERS, LENGTH = 64, 2, 1, 16, 2, 6


def write_source(folder: Path) -> None:
    """Write the model in the format of transformers, the input of the builder."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HEADS * SIZE,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(WordLevel({f"t{k}": k for k in range(VOCABULARY)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", bos_token="t1", eos_token="t2").save_pretrained(
        folder
    )


def build(folder: Path) -> onnx.ModelProto:
    write_source(folder / "source")
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", "", "-i", str(folder / "source")]
    builder += ["-o", str(folder / "built"), "-p", "int4", "-e", "cpu", "-c", str(folder / "cache")]
    subprocess.run([*builder, "--extra_options", "int4_block_size=16"], check=True)
    return onnx.load(folder / "built" / "model.onnx")


def main(folder: Path) -> None:
    path = folder / "llama.onnx"
    with tempfile.TemporaryDirectory() as scratch:
        onnx.save(build(Path(scratch)), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(0).integers(3, VOCABULARY, (2, LENGTH + 1))
    past = [f"past_key_values.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    empty = np.zeros((2, KEY_VALUE_HEADS, 0, SIZE), np.float32)
    prompt = {"input_ids": tokens[:, :LENGTH], "attention_mask": np.ones((2, LENGTH), np.int64)}
    prompt |= dict.fromkeys(past, empty)
    names = [output.name for output in session.get_outputs()]
    present = dict(zip(names, session.run(None, prompt), strict=True))
    step = {"input_ids": tokens[:, LENGTH:], "attention_mask": np.ones((2, LENGTH + 1), np.int64)}
    step |= {name: present[name.replace("past_key_values", "present")] for name in past}
    np.savez(folder / "samples.npz", **prompt)
    np.savez(folder / "samples-decode.npz", **step)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
