"""Stress tests of external faults: changing files, races, kills and memory growth.

    python benchmarks/faults.py races --count 12253     # files changed while they are read; concurrent first loads
    python benchmarks/faults.py kills --count 112       # SIGKILL during an export that overwrites its source
    python benchmarks/faults.py external                # models that try to read or write outside their folder
    python benchmarks/faults.py growth --count 20000    # memory after calls of many kinds

Each prints a summary as JSON, and exits with 1 after a failure. Linux only, since it needs fork and file locks.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hostile_paths import ELEMENTS, SECRET, locations
from onnx import TensorProto, helper
from soak import model, state

import tenonnx as tx


class Wrong(Exception):
    """A failed check."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise Wrong(what)


class Tally:
    """Counts of each outcome, and the first failures."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    def attempt(self, what: str, act: Callable[[], Any]) -> None:
        try:
            act()
            outcome = "ok"
        except tx.TenonnxError as error:
            outcome = type(error).__name__
        except Exception as error:
            outcome = "wrong"
            self.wrong.append(f"{what}: {type(error).__name__}: {error}"[:300])
        self.outcomes[f"{what.split(':')[0]}: {outcome}"] += 1

    def report(self, **more: Any) -> int:
        summary = {"attempts": sum(self.outcomes.values()), "outcomes": dict(sorted(self.outcomes.items())), **more}
        print(json.dumps(summary | {"wrong": len(self.wrong), "first_wrong": self.wrong[:5]}, indent=2))
        return 1 if self.wrong else 0


def external(name: str, location: str, offset: str = "0", length: str = str(8 * ELEMENTS), **more: str) -> TensorProto:
    """An int64 tensor whose external data is in a file."""
    tensor = TensorProto(name=name, data_type=TensorProto.INT64, dims=[ELEMENTS], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": length, **more}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def holding(tensor: TensorProto) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [output], initializer=[tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def read(path: Path, *, mapped: bool) -> None:
    """Load a model and read all contents. Raises ``Wrong`` if they come from outside its folder."""
    graph = tx.load(path, mapped=mapped)
    for value in graph.variables:
        must(SECRET[:8] not in value.data.array().tobytes(), "contents from outside the folder")
    must(SECRET[:8] not in str(graph.run({}, backend="numpy")).encode(), "contents from outside the folder")
    found = io.BytesIO()
    tx.export(graph, found)
    must(SECRET[:8] not in found.getvalue(), "contents from outside the folder")


# ----- races ----------------------------------------------------------------------------------------------------------


def races(count: int, tally: Tally, folder: Path) -> int:
    swaps, writes, first = count * 2 // 3, count // 3, max(1, count // 600)
    swapped(swaps - first, tally, folder / "swapped")
    written(writes, tally, folder / "written")
    for _ in range(count - swaps - writes + first):
        tally.attempt("first loads", first_loads)
    return tally.report()


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Repeat ``act`` in another thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def swapped(count: int, tally: Tally, place: Path) -> None:
    """Load a model while another thread swaps a file, or its folder, for a link to the outside and back."""
    inside = place / "inside"
    (inside / "sub").mkdir(parents=True)
    (place / "data.bin").write_bytes(SECRET)
    for at in (inside, inside / "sub"):
        (at / "data.bin").write_bytes(bytes(8 * ELEMENTS))
    path = inside / "m.onnx"
    ways: dict[str, tuple[str, Callable[[], object]]] = {
        "a file that is swapped": ("data.bin", lambda: swap(inside / "data.bin", place / "data.bin", os.symlink)),
        "a file with a second name": ("data.bin", lambda: swap(inside / "data.bin", place / "data.bin", os.link)),
        "a folder that is swapped": ("sub/data.bin", lambda: swap(inside / "sub", place, os.symlink)),
        "a file that is replaced": ("data.bin", lambda: replaced(inside / "data.bin")),
        "a file that grows and shrinks": ("data.bin", lambda: resized(inside / "data.bin")),
    }
    for k, (what, (location, act)) in enumerate(ways.items()):
        path.write_bytes(holding(external("w", location)).SerializeToString())
        with meanwhile(act):
            for _ in range(k * count // len(ways), (k + 1) * count // len(ways)):
                tally.attempt(what, partial(read, path, mapped=False))


def swap(inside: Path, outside: Path, link: Callable[..., None]) -> None:
    aside = inside.with_name("aside")
    inside.rename(aside)
    link(outside, inside)
    inside.unlink()
    aside.rename(inside)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"\1" * 8 * ELEMENTS)
    other.replace(path)


def resized(path: Path) -> None:
    os.truncate(path, 0)
    os.truncate(path, 8 * ELEMENTS)


def numbered(number: int) -> tx.Graph:
    """A graph whose name and contents depend on ``number``."""
    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.name = f"number {number}"
    for k in range(3):
        graph.variable(f"w{k}", np.full(2000, number, np.float32))
    graph.outputs.append(graph.input("x", "float32", (2,)))
    return graph


def whole(path: Path, **keywords: Any) -> int:
    """The number of the model at ``path``. Raises ``Wrong`` if it mixes files of several exports."""
    graph = tx.load(path, **keywords)
    number = int(graph.name.split()[1])
    for value in graph.variables:
        must(bool((value.data.array() == number).all()), "a file with the data of another")
    return number


def written(count: int, tally: Tally, folder: Path) -> None:
    """Read a model while two threads export it, with external data and as a single file."""
    folder.mkdir()
    for k, (name, threshold) in enumerate((("m.onnx", 0), ("one.onnx", None), ("native.safetensors", None))):
        path, numbers, beside = folder / name, itertools.count(), Tally()
        export = partial(export_next, numbers, path, threshold)
        export()
        with meanwhile(partial(beside.attempt, "export", export)):
            for step in range(k * count // 3, (k + 1) * count // 3):
                if step % 8 == 0:
                    tally.attempt("exports at once", export)
                else:
                    tally.attempt("reading what is exported", partial(whole, path))
        tally.wrong += beside.wrong
        must(len(list(folder.glob(".tenonnx-*"))) == 0, "temporary files stay")


def export_next(numbers: Iterator[int], path: Path, threshold: int | None) -> None:
    _export(path, next(numbers), threshold)


FIRST_LOADS = """
import sys, threading
import tenonnx as tx
from tenonnx.graph.dtypes import DType
data, found, barrier = sys.stdin.buffer.read(), [], threading.Barrier(8)
def load():
    barrier.wait()
    graph = tx.load(data)
    tx.infer(graph)
    found.append((str(graph.outputs[0].type), [node.op is not None for node in graph.nodes]))
threads = [threading.Thread(target=load) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 8 and len(set(map(str, found))) == 1, found
assert found[0][0] == "float32[n, 64]" and all(found[0][1]), found
"""


def first_loads() -> None:
    """In a new process, let eight threads load a model at once, and check that all of them know the ops."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LOADS], input=model().SerializeToString(), capture_output=True, timeout=120
    )
    must(done.returncode == 0, done.stderr.decode()[-200:])


# ----- kills ----------------------------------------------------------------------------------------------------------


def kills(count: int, tally: Tally, folder: Path) -> int:
    """Kill a child that exports repeatedly; the model must stay complete, and the next export removes leftovers."""
    dice, numbers = random.Random(0), itertools.count(1)
    for name, threshold in (("m.onnx", 0), ("one.onnx", None), ("native.safetensors", None)):
        path = folder / name
        _export(path, 0, threshold)
        for _ in range(count // 3 + (count % 3 if threshold == 0 else 0)):
            first = 1000 * next(numbers)
            child = os.fork()
            if not child:
                with suppress(BaseException):
                    for number in range(first, first + 1000):
                        _export(path, number, threshold)
                os._exit(1)
            time.sleep(dice.uniform(0.001, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            tally.attempt(f"{name} after a kill", partial(whole, path))
        tally.attempt(f"{name} exported anew", partial(_tidied, path, threshold))
    return tally.report()


def _export(path: Path, number: int, threshold: int | None) -> None:
    if path.suffix == ".onnx":
        tx.export(numbered(number), path, external_data_threshold=threshold)
    else:
        numbered(number).save(path)


def _tidied(path: Path, threshold: int | None) -> None:
    _export(path, 7, threshold)
    must(whole(path) == 7, "the model is another's")
    own = [
        name
        for name in sorted(each.name for each in path.parent.iterdir())
        if name.startswith((path.name, ".tenonnx-"))
    ]
    must(len(own) == (2 if threshold == 0 else 1), f"more than the model stays: {own}")


# ----- external data --------------------------------------------------------------------------------------------------


def attacks(tally: Tally, place: Path) -> int:
    inside = place / "inside"
    inside.mkdir()
    for tensor_of, location in itertools.product(PLACES, locations(place, inside)):
        path = inside / "m.onnx"
        path.write_bytes(PLACES[tensor_of](external("w", location)).SerializeToString())
        for mapped in (True, False):
            tally.attempt(f"{tensor_of}: {location!r:.80}", partial(read, path, mapped=mapped))
    for offset, length in itertools.product(NUMBERS, NUMBERS):
        path.write_bytes(holding(external("w", "data.bin", offset, length)).SerializeToString())
        tally.attempt(f"ranges: {offset!r} {length!r}", partial(read, path, mapped=True))
    reads = sum(tally.outcomes.values())
    for what, lay in TRAPS.items():
        for name in ("trapped.onnx", "trapped.safetensors"):
            with tempfile.TemporaryDirectory(dir=place) as fresh:
                tally.attempt(f"writing: {what}", partial(_write_over, Path(fresh), name, lay))
    return tally.report(reads=reads, writes=2 * len(TRAPS))


NUMBERS = (
    "",
    "0",
    "-1",
    "1",
    "7",
    "95",
    "96",
    "97",
    "+8",
    " 8",
    "8 ",
    "0x8",
    "8.0",
    "1e3",
    "1_0",
    "nan",
    "²",
    "٣",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "-9223372036854775808",
    "9" * 400,
)


def _sparse(tensor: TensorProto, *, values: bool) -> onnx.ModelProto:
    other = onnx.numpy_helper.from_array(np.arange(ELEMENTS), "w" if not values else "")
    sparse = onnx.SparseTensorProto(dims=[1 << 10])
    sparse.values.CopyFrom(tensor if values else other)
    sparse.indices.CopyFrom(other if values else tensor)
    model = holding(tensor)
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(sparse)
    return model


def _constant(tensor: TensorProto) -> onnx.ModelProto:
    model = holding(tensor)
    del model.graph.initializer[:]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    return model


def _branch(tensor: TensorProto) -> onnx.ModelProto:
    branch = holding(tensor)
    inner = branch.graph
    model = holding(onnx.numpy_helper.from_array(np.array(True), "c"))
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner))
    return model


def _function(tensor: TensorProto) -> onnx.ModelProto:
    model = _constant(tensor)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "F", [], ["y"], list(model.graph.node), imports)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("F", [], ["y"], domain="local"))
    model.opset_import.append(imports[1])
    model.functions.append(function)
    return model


#: Models that contain a tensor in each possible place.
PLACES: dict[str, Callable[[TensorProto], onnx.ModelProto]] = {
    "an initializer": holding,
    "values of a sparse tensor": lambda tensor: _sparse(tensor, values=True),
    "indices of a sparse tensor": lambda tensor: _sparse(tensor, values=False),
    "an attribute": _constant,
    "a branch": _branch,
    "a function": _function,
}


#: Files and links at the destination of an export, which must not change files of others.
TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "the model is a link": lambda path, secret: path.symlink_to(secret),
    "the model has a second name": lambda path, secret: os.link(secret, path),
    "the model is a link to nothing": lambda path, secret: path.symlink_to(path.parent / "nothing"),
    "the model is a folder": lambda path, _: path.mkdir(),
    "the model is a pipe": lambda path, _: os.mkfifo(path),
    "the data is a link": lambda path, secret: _beside(path, ".data").symlink_to(secret),
    "the data has a second name": lambda path, secret: os.link(secret, _beside(path, ".data")),
    "the data is a folder": lambda path, _: _beside(path, ".data").mkdir(),
    "the data is a pipe": lambda path, _: os.mkfifo(_beside(path, ".data")),
    "leftovers are links": lambda path, secret: path.with_name(f".tenonnx-{path.name}.tmp").symlink_to(secret),
    "the folder is a link": lambda path, _: _linked_folder(path),
    "the model names the data of another": lambda path, _: path.write_bytes(
        holding(external("w", "../secret")).SerializeToString()
    ),
}


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _linked_folder(path: Path) -> None:
    aside = path.parent.with_name(f"{path.parent.name}-aside")
    path.parent.rename(aside)
    path.parent.symlink_to(aside, target_is_directory=True)


def _write_over(folder: Path, name: str, lay: Callable[[Path, Path], object]) -> None:
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    inside = folder / "inside"
    inside.mkdir()
    lay(inside / name, secret)
    try:
        _export(inside / name, 3, 0)
    finally:
        must(secret.read_bytes() == SECRET, "what lies outside is written over")
    must(whole(inside / name) == 3, "the model is another's")


# ----- growth ---------------------------------------------------------------------------------------------------------


def growth(count: int, tally: Tally, folder: Path, allowed: int) -> int:
    """Make many kinds of calls, and measure memory after each tenth of them."""
    path = folder / "m.onnx"
    tx.export(tx.load(model()), path, external_data_threshold=1024)
    program, x = tx.load(path).compile("numpy"), np.ones((8, 64), np.float32)

    def refused(act: Callable[[], Any]) -> None:
        with suppress(tx.TenonnxError):
            act()
            raise Wrong("what is wrong was taken")

    kinds: dict[str, Callable[[], object]] = {
        "run": lambda: program({"x": x}),
        "refuse a feed": lambda: refused(lambda: program({"x": x[:, 1:]})),
        "load": lambda: tx.load(path),
        "refuse a file": lambda: refused(lambda: tx.load(b"no model")),
        "compile and run": lambda: tx.load(path).compile("numpy")({"x": x}),
        "infer": lambda: tx.infer(tx.load(path)),
        "retarget": lambda: tx.retarget(tx.load(path), 13),
        "refuse a target": lambda: refused(lambda: tx.retarget(tx.load(path), 6, domains=["ai.onnx.ml"])),
        "export": lambda: tx.export(tx.load(path), io.BytesIO()),
        "differentiate": lambda: tx.grad(tx.load(path), of="y3", wrt="x", seeds={"y3": "g"}),
    }
    states = []
    for k in range(count):
        if k % (count // 10) == 0:
            states.append(state(folder))
        what = list(kinds)[k % len(kinds)]
        tally.attempt(what, kinds[what])
    states.append(state(folder))
    # the first tenth fills the caches
    grown = states[-1]["resident_mib"] - states[1]["resident_mib"]
    if grown > allowed or any(states[-1][key] != states[1][key] for key in ("descriptors", "threads", "files")):
        tally.wrong.append(f"grown by {grown} MiB: {states[1]} to {states[-1]}")
    return tally.report(states=[list(each.values()) for each in states], state=list(states[0]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=("races", "kills", "external", "growth"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--allowed", type=int, default=4, help="MiB that memory may grow")
    arguments = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.fault == "external":
            return attacks(tally, folder)
        if arguments.fault == "growth":
            return growth(arguments.count, tally, folder, arguments.allowed)
        return (races if arguments.fault == "races" else kills)(arguments.count, tally, folder)


if __name__ == "__main__":
    sys.exit(main())
