"""A mixture of experts lowered to plain operators compared with its kernel in onnxruntime, on one thread.

``python benchmarks/mixtures.py [--experts 8 32]``: two experts of 256 x 512 per token, and a dynamic number of tokens.
Measures our lowering, which copies the layers of the selected experts if there are few tokens, and one that always runs
all experts on all tokens. Times are the minimum of the rounds in processor seconds.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import onnxruntime
from measure import rounds

import tenonnx as tx
from tenonnx_contrib_ms import experts

HIDDEN, INNER, CHOSEN = 256, 512, 2
TOKENS = 1, 2, 4, 8, 64


def graph(count: int) -> tx.Graph:
    random = np.random.default_rng(0)
    mixture = tx.Graph(opsets={"ai.onnx": 17, "com.microsoft": 1})
    x, logits = mixture.input("x", "float32", ("tokens", HIDDEN)), mixture.input("logits", "float32", ("tokens", count))
    first, second = (
        mixture.variable(name, (random.normal(size=size) / 16).astype(np.float32))
        for name, size in (("first", (count, INNER, HIDDEN)), ("second", (count, HIDDEN, INNER)))
    )
    options = {"k": CHOSEN, "activation_type": "silu", "normalize_routing_weights": 1}
    mixture.output("y", experts.mixture_of_experts(x, logits, first, None, second, **options))
    return mixture


def session(model: tx.Graph) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.to_proto().SerializeToString(), options)


def lowered(count: int) -> tx.Graph:
    return tx.retarget(graph(count), 17, domains=["ai.onnx"])


def by_all(router: tx.Value, k: int, few: Callable[[], tx.Value], many: Callable[[], tx.Value]) -> tx.Value:
    return many()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experts", nargs="*", type=int, default=[8, 32])
    print("| experts | tokens | kernel ms | lowered | all experts for all tokens |\n| --- | --- | --- | --- | --- |")
    for count in parser.parse_args().experts:
        sessions = {"kernel": session(graph(count)), "lowered": session(lowered(count))}
        with mock.patch.object(experts, "_where_few", by_all):
            sessions["all"] = session(lowered(count))
        for tokens in TOKENS:
            random = np.random.default_rng(1)
            sizes = {"x": (tokens, HIDDEN), "logits": (tokens, count)}
            feeds = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
            found = [s.run(None, feeds)[0] for s in sessions.values()]
            assert all(np.allclose(found[0], other, rtol=1e-4, atol=1e-4) for other in found)
            calls = {name: functools.partial(s.run, None, feeds) for name, s in sessions.items()}
            times = rounds(calls, 31, 3, min, time.process_time)
            ratios = [f"{times[name] / times['kernel']:.2f}" for name in ("lowered", "all")]
            print(f"| {count} | {tokens} | {1e3 * times['kernel']:.3f} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
