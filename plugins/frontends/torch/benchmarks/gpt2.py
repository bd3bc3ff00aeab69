"""Decoding and training steps of a GPT-2 exported from PyTorch, on each backend and in PyTorch itself.

Times are CPU seconds, or wall-clock seconds on several threads.

Needs ``transformers``; weights are random. The model has 4 layers of 256 and is exported in inference mode, without
dropout; the optimizer is Adam. Losses of the first steps must agree before timing. Each round times all backends, so
that ratios hold on a busy machine, too. ``python plugins/frontends/torch/benchmarks/gpt2.py [--rounds 5] [--threads
2]``
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import tenonnx as tx
import tenonnx_torch
import tenonnx_training as tt

BATCH, LENGTH, TOKENS, STEPS = 4, 64, 2000, 3
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "onnxruntime": ("onnxruntime", {}),
    "torch, node by node": ("torch", {}),
    "torch, compiled": ("torch", {"compiled": True}),
    "jax": ("jax", {}),
}


class Decoder(torch.nn.Module):
    """Scores of the next token at each position."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.GPT2Config(
            n_embd=256,
            n_layer=4,
            n_head=4,
            vocab_size=TOKENS,
            n_positions=128,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def of_pytorch(model: torch.nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> Callable[[], float]:
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def ours(path: Path, way: str, ids: torch.Tensor, labels: torch.Tensor, threads: int) -> Callable[[], float]:
    backend, options = WAYS[way]
    if backend == "onnxruntime":
        options = {"session_options": {"intra_op_num_threads": threads}}
    loss = tt.SoftmaxCrossEntropy(class_axis=-1)
    step = tt.TrainingStep(tx.load(path), loss, tt.Adam(1e-3), backend=backend, **options)
    feeds = {"ids": ids.numpy(), "labels": labels.numpy()}
    return lambda: step(feeds)["loss"]


def main(rounds: int, threads: int) -> None:
    logging.disable(logging.WARNING)
    clock = time.process_time if threads == 1 else time.perf_counter
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Decoder().eval()
    ids, labels = torch.randint(0, TOKENS, (2, BATCH, LENGTH))
    steps = {"PyTorch": of_pytorch(model, ids, labels)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt2.onnx"
        print(tenonnx_torch.export(model, ids, path, opset_version=17, simplify=False))
        for way, (backend, _) in WAYS.items():
            if importlib.util.find_spec(f"tenonnx_{backend}"):
                steps[way] = ours(path, way, ids, labels, threads)
    losses = {way: [step() for _ in range(STEPS)] for way, step in steps.items()}
    for way, found in losses.items():
        assert np.allclose(found, losses["PyTorch"], rtol=1e-5), (way, found, losses["PyTorch"])
    seconds: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(rounds):
        for way, step in steps.items():
            step()
            start = clock()
            for _ in range(STEPS):
                step()
            seconds[way].append((clock() - start) / STEPS)
    for way, found in seconds.items():
        median = statistics.median(found)
        print(f"{way}: {1e3 * median:.1f} ms a step, {median / statistics.median(seconds['PyTorch']):.2f} of PyTorch's")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    main(**vars(parser.parse_args()))
