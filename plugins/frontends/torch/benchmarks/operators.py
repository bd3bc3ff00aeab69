"""PyTorch's samples of its operators (OpInfo), exported at three opsets and compared with PyTorch.

``[OPSETS=13,17] python operators.py results.json [names]`` writes the result of each sample: ``right``, or the error.
Results that the file contains already are kept. PyTorch's samples require the package ``expecttest``.
"""

import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from modules.operators import operators, samples

import tenonnx as tx
from tenonnx_torch.examples import Examples
from tenonnx_torch.verification import verify_against

OPSETS = tuple(map(int, os.environ.get("OPSETS", "13,17,26").split(",")))

CONTEXT = multiprocessing.get_context("fork")

#: Timeout of a sample in seconds.
LIMIT = 100


def outcome(error):
    kind = {"VerificationFailed": "wrong", "NotRepresentable": "refused", "InvalidCall": "no module"}
    said = f"{error} {getattr(error, 'given', '')}".split()
    return f"{kind.get(type(error).__name__, 'fails')}: {' '.join(said)[:400]}"


def tried(name, place):
    """Yield the results of a sample at each opset."""
    warnings.simplefilter("ignore")
    module, examples = list(samples(name))[place]
    try:
        given = Examples.of(module, examples)
        graph = tx.load(module, *examples, verify=False)
    except Exception as error:
        yield from [outcome(error)] * len(OPSETS)
        return
    check = lambda written: verify_against(module, given, written).raise_if_failed()  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        for opset in OPSETS:
            try:
                tx.export(graph, Path(folder) / "m.onnx", opset_version=opset, verify=check)
                yield "right"
            except Exception as error:
                yield outcome(error)


def apart(name, place):
    """``tried`` in a separate process, which may crash or hang."""
    receiving, sending = CONTEXT.Pipe(duplex=False)

    def run():
        for each in tried(name, place):
            sending.send(each)

    process, found = CONTEXT.Process(target=run), []
    process.start()
    sending.close()
    last = "ends the process"
    try:
        while len(found) < len(OPSETS):
            if not receiving.poll(LIMIT):
                last = f"takes more than {LIMIT} s"
                break
            found.append(receiving.recv())
    except EOFError:
        pass
    process.kill()
    process.join()
    return dict(zip(map(str, OPSETS), [*found, *[last] * len(OPSETS)], strict=False))


def main():
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    list(tried("add", 0))  # fills caches for all forked processes
    path = Path(sys.argv[1])
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in sys.argv[2:] or operators():
        if name in results:
            continue
        start = time.monotonic()
        try:
            count = len(list(samples(name)))
        except Exception as error:
            results[name] = [dict.fromkeys(map(str, OPSETS), f"no samples: {error}"[:200])]
            continue
        results[name] = [apart(name, place) for place in range(count)]
        path.write_text(json.dumps(results, indent=1) + "\n")
        counts = Counter(kind.partition(":")[0] for each in results[name] for kind in each.values())
        print(f"{time.monotonic() - start:.0f} s {name}: {dict(counts)}", flush=True)
    for opset in map(str, OPSETS):
        print(opset, Counter(each[opset].partition(":")[0] for found in results.values() for each in found))


if __name__ == "__main__":
    main()
