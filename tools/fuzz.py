"""Fuzzer: feeds the library with mutants of small models, and reports crashes and exceptions of other packages.

    python tools/fuzz.py --seed 1 --count 20000 --jobs 2 --json summary.json --keep findings
    python tools/fuzz.py --seed 1 --only 1234            # one mutant again, with its traceback
    python tools/fuzz.py --lists --count 5000            # only models with strings, sequences, optional values or maps
    python tools/fuzz.py --numbers --count 30000         # instead, make each number of each seed huge in turn
    python tools/fuzz.py --files tests/hostile           # existing files instead of mutants
    python tools/fuzz.py --collect                       # rebuild the seeds from the cases of the conformance kit

The seeds, ``--seed`` and a number determine a mutant. A child process tries it, with limits of processor time and
memory. Findings are exceptions that are not ours, crashes, processor time or memory above the limits, started
programs, and contents of files outside the model's folder.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import onnx  # noqa: E402
from fuzzing import trial  # noqa: E402
from fuzzing.lists import lists, of_lists  # noqa: E402
from fuzzing.mutations import enlarged, mutant, sites  # noqa: E402

SEEDS = Path(__file__).parent / "fuzzing" / "seeds.zip"

#: Largest seed in bytes; mutations of larger ones would hit contents, not structure.
LARGEST_SEED = 1500

#: Audit events that no model may cause. Our own packages are imported before.
FORBIDDEN = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class"}


def seeds() -> list[onnx.ModelProto]:
    with zipfile.ZipFile(SEEDS) as archive:
        return [onnx.ModelProto.FromString(archive.read(name)) for name in sorted(archive.namelist())]


# ----- in the child ---------------------------------------------------------------------------------------------------

_caused: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in FORBIDDEN and not _is_checker(event, arguments):
        _caused.append(f"{event} {arguments!r:.100}")


def _is_checker(event: str, arguments: tuple[Any, ...]) -> bool:
    return event == "subprocess.Popen" and any(str(part).endswith("verifying/onnx_checker.py") for part in arguments[1])


def try_one(data: bytes, suffix: str, number: int) -> dict[str, Any]:
    """Try one mutant in its own folder, next to a file that it must not read."""
    with tempfile.TemporaryDirectory() as outside:
        (Path(outside) / "canary").write_bytes(trial.CANARY)
        folder = Path(outside) / "inside"
        folder.mkdir()
        (folder / "data.bin").write_bytes(bytes(64))
        path = folder / f"model{suffix}"
        path.write_bytes(data)
        del _caused[:]
        start = time.process_time()
        outcomes = trial.attempt(path, number)
        if _caused:
            outcomes["audit"] = f"!audit: {_caused[0]}"
        return {"number": number, "seconds": time.process_time() - start, "outcomes": outcomes}


def _child(jobs: list[tuple[int, Any]], make: Any, arguments: argparse.Namespace, out: int) -> None:
    sys.addaudithook(_audit)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (arguments.memory << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with os.fdopen(out, "w", buffering=1) as report:
        for number, job in jobs:
            print(json.dumps({"begin": number}), file=report)
            data, suffix = make(job)
            spent = resource.getrusage(resource.RUSAGE_SELF)
            cpu = int(spent.ru_utime + spent.ru_stime) + 2 + arguments.seconds
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))
            print(json.dumps(try_one(data, suffix, number)), file=report)


# ----- in the parent --------------------------------------------------------------------------------------------------


class Worker:
    """A child process for every ``jobs``-th mutant; if it dies, a new one continues."""

    def __init__(self, jobs: list[tuple[int, Any]], make: Any, arguments: argparse.Namespace) -> None:
        self.jobs, self.make, self.arguments = jobs, make, arguments
        self.current: int | None = None
        self.spawn()

    def spawn(self) -> None:
        read, write = os.pipe()
        self.since = time.monotonic()
        self.process = os.fork()
        if not self.process:
            status = 1
            try:
                os.close(read)
                _child(self.jobs, self.make, self.arguments, write)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        self.pipe, self.buffer = read, b""

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield the child's messages that have arrived. Starts a new child if this one died."""
        chunk = os.read(self.pipe, 1 << 16)
        self.buffer += chunk
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self.since = time.monotonic()
            message = json.loads(line)
            if "begin" in message:
                self.current = message["begin"]
            else:
                self._done(message["number"])
                yield message
        if not chunk:
            os.close(self.pipe)
            _, status = os.waitpid(self.process, 0)
            if self.current is not None and self.jobs:
                number = self.current
                self._done(number)
                why = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "exit"
                yield {"number": number, "seconds": 0, "outcomes": {"process": f"!process: {_meaning(why)}"}}
            self.pipe = -1
            if self.jobs:
                self.spawn()

    def _done(self, number: int) -> None:
        while self.jobs and self.jobs[0][0] != number:
            self.jobs.pop(0)
        if self.jobs:
            self.jobs.pop(0)
        self.current = None


def _meaning(name: str) -> str:
    return {"SIGXCPU": "time", "SIGKILL": "hang"}.get(name, f"crash by {name}")


def results(jobs: list[tuple[int, Any]], make: Any, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    workers = [Worker(jobs[k :: arguments.jobs], make, arguments) for k in range(arguments.jobs)]
    while open_ones := [worker for worker in workers if worker.pipe >= 0]:
        ready, _, _ = select.select([worker.pipe for worker in open_ones], [], [], 1.0)
        for worker in open_ones:
            if worker.pipe in ready:
                yield from worker.receive()
            elif time.monotonic() - worker.since > 20 * arguments.seconds:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process, signal.SIGKILL)


def summarize(found: Iterator[dict[str, Any]], make: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    steps: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    findings: dict[str, list[int]] = collections.defaultdict(list)
    seconds = slowest = 0.0
    count, start = 0, time.monotonic()
    slow = 0
    for message in found:
        count += 1
        seconds += message["seconds"]
        if message["seconds"] > slowest:
            slowest, slow = message["seconds"], message["number"]
        if message["seconds"] > arguments.seconds:
            message["outcomes"]["process"] = "!process: time"
        for step, outcome in message["outcomes"].items():
            if outcome.startswith("!"):
                if outcome not in findings or len(findings[outcome]) < 3:
                    _keep(message["number"], make, arguments)
                findings[outcome].append(message["number"])
                outcome = "finding"
            steps[step][outcome] += 1
        if arguments.verbose and count % 1000 == 0:
            print(f"{count} in {time.monotonic() - start:.0f} s, {len(findings)} kinds of findings", file=sys.stderr)
    ordered = sorted(findings.items(), key=lambda item: -len(item[1]))
    return {
        "seed": arguments.seed,
        "mutants": count,
        "findings": sum(map(len, findings.values())),
        "processor_seconds": round(seconds, 1),
        "slowest": {"seconds": round(slowest, 2), "number": slow},
        "limits": {"seconds": arguments.seconds, "memory_mib": arguments.memory},
        "steps": {step: dict(counter.most_common()) for step, counter in steps.items()},
        "kinds": [{"what": what, "count": len(numbers), "numbers": numbers[:5]} for what, numbers in ordered],
    }


def _keep(number: int, make: Any, arguments: argparse.Namespace) -> None:
    if arguments.keep:
        data, suffix = make(number if not arguments.files else arguments.paths[number])
        Path(arguments.keep).mkdir(exist_ok=True)
        (Path(arguments.keep) / f"{arguments.seed}-{number}{suffix}").write_bytes(data)


def warm_up(models: list[onnx.ModelProto]) -> None:
    """Import in the parent what the children need."""
    tx = trial.tx
    for domain in tx.default_registry().domains():
        tx.default_registry().load(domain)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for model in models[:: max(1, len(models) // 40)]:
            path.write_bytes(model.SerializeToString())
            trial.attempt(path)


def collect() -> None:
    """Make the seeds: small models of every op with a conformance case, and the handmade ones."""
    from fuzzing.handmade import handmade

    from tenonnx_testing.cases import collected, load
    from tenonnx_testing.kit import calls
    from tenonnx_testing.models import single_node
    from tenonnx_testing.run import evaluate

    seeds: dict[str, bytes] = {f"handmade-{name}": model.SerializeToString() for name, model in handmade().items()}
    seeds |= {name: model.SerializeToString() for name, model in lists().items()}
    load()
    for case in collected():
        for position, call in enumerate(calls(case, 3)):
            with contextlib.suppress(Exception):  # some calls of cases cannot be written to a file
                expected = evaluate(case.op, call)
                found = single_node(case.op, call, case.op.version, expected, 21)
                if found is not None and found.model.ByteSize() <= LARGEST_SEED:
                    seeds[f"{case.op.domain}-{case.op.name}-{case.op.since}-{position}"] = (
                        found.model.SerializeToString()
                    )
    with zipfile.ZipFile(SEEDS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(seeds.items()):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    print(f"{len(seeds)} seeds, {SEEDS.stat().st_size} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="how many mutants")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--only", type=int, help="try this one alone, here, and show its outcomes")
    parser.add_argument("--numbers", action="store_true", help="make each number of each seed huge in turn")
    parser.add_argument("--lists", action="store_true", help="only seeds of text, sequences, optional values and maps")
    parser.add_argument("--files", help="try the files of a folder instead of mutants")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=5, help="processor time for one mutant")
    parser.add_argument("--memory", type=int, default=4096, help="MiB that one mutant may take")
    parser.add_argument("--json", help="write the summary there")
    parser.add_argument("--keep", help="write the mutants of findings to this folder")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--collect", action="store_true", help="make the seeds anew")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.collect:
        collect()
        return 0
    models = [model for model in seeds() if of_lists(model) or not arguments.lists]
    if arguments.files:
        arguments.paths = sorted(Path(arguments.files).glob("*.*"))
        jobs: list[tuple[int, Any]] = list(enumerate(arguments.paths))
        trial.checked_every = 1
        make = lambda path: (path.read_bytes(), path.suffix)  # noqa: E731
    elif arguments.numbers:
        places = sites(models)
        jobs = [(n, n) for n in range(len(places))[arguments.first : arguments.first + arguments.count]]
        make = lambda number: enlarged(models, places[number])  # noqa: E731
    else:
        jobs = [(number, number) for number in range(arguments.first, arguments.first + arguments.count)]
        make = lambda number: mutant(models, arguments.seed, number)  # noqa: E731
    if arguments.only is not None:
        data, suffix = make(arguments.only if not arguments.files else arguments.paths[arguments.only])
        if arguments.keep:
            _keep(arguments.only, make, arguments)
        trial.trace = True
        print(json.dumps(try_one(data, suffix, arguments.only), indent=2))
        return 0
    warm_up(models)
    summary = summarize(results(jobs, make, arguments), make, arguments)
    text = json.dumps(summary, indent=2)
    if arguments.json:
        Path(arguments.json).write_text(text + "\n", "utf-8")
    print(text)
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
