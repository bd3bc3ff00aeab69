"""Fuzzer of the readers of other formats: feeds them with mutants of small files, and reports foreign errors.

    python tools/fuzz_formats.py --seed 1 --count 200                      # every format whose packages are installed
    python tools/fuzz_formats.py --kinds lightgbm npz --count 10000 --json summary.json --keep findings
    python tools/fuzz_formats.py --kinds keras --seed 1 --only 1234        # one mutant again, with its traceback
    python tools/fuzz_formats.py --collect                                 # rebuild the seeds

The seeds, ``--seed`` and a number determine a mutant. Child processes try them, with limits of processor time and
memory. Findings are those of ``fuzz.py``, and files written outside of the mutant's folder.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import fuzz
from fuzzing import formats

#: The package that each kind requires; a kind without it is skipped.
NEEDED = {
    **dict.fromkeys(("keras", "h5", "savedmodel", "tflite"), "tensorflow"),
    **dict.fromkeys(("lightgbm",), "lightgbm"),
    **dict.fromkeys(("xgboost-json", "xgboost-ubj"), "xgboost"),
    "pt2": "torch",
    "manifest": "tenonnx_score",
    "npz": "tenonnx_cli",
    "shards": "tenonnx_training",
}

#: Script of our own worker processes, which readers may start.
_WORKER = "worker_process.py"


def made(kinds: list[str], files: dict[str, formats.Files], seed: int, number: int) -> tuple[str, formats.Files]:
    """Make a mutant; returns its kind and its files."""
    kind = kinds[number % len(kinds)]
    return kind, formats.mutant(files[kind], random.Random(f"{seed}/{kind}/{number}"))


def try_one(kind: str, files: formats.Files, number: int, *, trace: bool = False) -> dict[str, Any]:
    """Try one mutant; returns its outcome."""
    del fuzz._caused[:]
    start = time.process_time()
    outcomes = formats.attempt(kind, files, trace=trace)
    if fuzz._caused:
        outcomes["audit"] = f"!audit: {fuzz._caused[0]}"
    return {"number": number, "seconds": time.process_time() - start, "outcomes": outcomes}


def _child(jobs: list[tuple[int, Any]], make: Any, arguments: argparse.Namespace, out: int) -> None:
    """Try mutants in this process. It imports the packages itself, since some of them do not survive a fork."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind in arguments.kinds:
        formats.attempt(kind, arguments.files[kind])
    sys.addaudithook(lambda event, given: None if _WORKER in repr(given) else fuzz._audit(event, given))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (arguments.memory << 20),) * 2)
    with open(out, "w", buffering=1) as report:
        for number, job in jobs:
            print(json.dumps({"begin": number}), file=report)
            kind, files = make(job)
            spent = resource.getrusage(resource.RUSAGE_SELF)
            limit = int(spent.ru_utime + spent.ru_stime) + 2 + arguments.seconds
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            print(json.dumps(try_one(kind, files, number)), file=report)


def keep(number: int, make: Any, arguments: argparse.Namespace) -> None:
    """Write the files of a finding to the folder of ``--keep``."""
    if arguments.keep:
        kind, files = make(number)
        formats._write(Path(arguments.keep) / f"{kind}-{arguments.seed}-{number}", files)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=sorted(NEEDED), help="the formats; by default all that can be")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="how many mutants of each format")
    parser.add_argument("--only", type=int, help="try this one alone, here, with the same --kinds")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=10, help="processor time for one mutant")
    parser.add_argument("--memory", type=int, default=4096, help="MiB that one mutant may take")
    parser.add_argument("--json", help="write the summary there")
    parser.add_argument("--keep", help="write the mutants of findings to this folder")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--collect", action="store_true", help="make the seeds anew")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.collect:
        formats.collect()
        return 0
    arguments.kinds = arguments.kinds or [kind for kind, package in NEEDED.items() if find_spec(package)]
    arguments.files = formats.seeds()

    def make(number: int) -> tuple[str, formats.Files]:
        return made(arguments.kinds, arguments.files, arguments.seed, number)

    if arguments.only is not None:
        print(json.dumps(try_one(*make(arguments.only), arguments.only, trace=True), indent=2))
        return 0
    fuzz._child, fuzz._keep = _child, keep
    jobs = [(number, number) for number in range(arguments.count * len(arguments.kinds))]
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        summary = fuzz.summarize(fuzz.results(jobs, make, arguments), make, arguments)
    text = json.dumps(summary, indent=2)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", "utf-8")
    print(text)
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
