"""GPTQ layer by layer on synthetic decoders: seconds and peak memory.

``python quantized/benchmarks/large_models.py FOLDER [--layers N] [--hidden N] [--feed-forward N] [--words N]
[--kill N]``

Weights are random, in external data. The default has 0.5 billion parameters. For the layer sizes of a 7 billion model,
use ``--hidden 4096 --feed-forward 11008``; ``--layers 3`` suffice to measure peak memory. With ``--kill``, the run is
killed after N weights and resumed. Memory is resident memory, including pages of mapped files.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from large_decoder import Sizes, write_model

LENGTH, BATCHES = 64, 4

RUN = "import sys; from tenonnx_cli import main; sys.exit(main())"


def fill(path: Path) -> None:
    """Overwrite zeros with random weights, one MiB at a time."""
    part = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float32)
    size = path.stat().st_size
    with path.open("r+b") as file:
        for start in range(0, size, part.nbytes):
            np.roll(part, start // part.nbytes).tofile(file)
        file.truncate(size)


def write_data(path: Path, sizes: Sizes) -> None:
    random = np.random.default_rng(1)
    angles = np.arange(LENGTH)[:, None] / 10000 ** (np.arange(sizes.width) % (sizes.width // 2) / (sizes.width // 2))
    waves = {"cosines": np.cos(angles).astype(np.float32), "sines": np.sin(angles).astype(np.float32)}
    mask = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)
    path.mkdir(exist_ok=True)
    for k in range(BATCHES):
        tokens = random.integers(0, sizes.words, (1, LENGTH))
        np.savez(path / f"{k}.npz", tokens=tokens, mask=mask, **waves)


def quantize(folder: Path, kill: int) -> int | None:
    """Run the command, and kill it after ``kill`` weights unless that is 0. Returns its exit status."""
    data = [part for k in range(BATCHES) for part in ("--inputs", str(folder / "data" / f"{k}.npz"))]
    files = [str(folder / "model.onnx"), "-o", str(folder / "quantized.onnx"), "--checkpoint", str(folder / "run")]
    options = ["--mode", "weights", "--bits", "4", "--method", "gptq", "--overwrite", "-q"]
    run = subprocess.Popen([sys.executable, "-c", RUN, "quantize", *files, *data, *options])
    while run.poll() is None:
        time.sleep(0.5)
        if kill and len(list((folder / "run").glob("*.scale.npy"))) >= kill:
            run.kill()
    return run.returncode


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, default in (("layers", 40), ("hidden", 1024), ("feed-forward", 2048), ("words", 40960), ("kill", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    sizes = Sizes(given.hidden, given.hidden // 64, given.feed_forward, given.words)
    write_model(given.folder, given.layers, sizes)
    fill(given.folder / "weights.bin")
    write_data(given.folder / "data", sizes)
    print(f"weights {(given.folder / 'weights.bin').stat().st_size / 2**20:.0f} MiB", flush=True)
    for kill in (given.kill, 0) if given.kill else (0,):
        start = time.perf_counter()
        status = quantize(given.folder, kill)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"status {status}, {time.perf_counter() - start:.0f} s, peak memory {peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
