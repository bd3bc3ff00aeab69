"""The trial of one mutant: the operations that users apply to an unknown model."""

from __future__ import annotations

import contextlib
import io
import math
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenonnx as tx
from tenonnx_convert.verifying.generate import generate_feeds
from tenonnx_convert.verifying.structure import structure_problems

#: Contents of a file outside the mutant's folder, which no model may contain.
CANARY = b"CANARYCANARYCANARYCANARY"

#: Time limit of a run in seconds, since loops with huge trip counts are valid.
DEADLINE = 1.0

#: ``onnx.checker`` runs on one mutant in 25, since it needs a process, and for at most two seconds.
checked_every, CHECKER_SECONDS = 25, 2

#: Whether to print the traceback of a foreign exception.
trace = False

#: Ops to fuse: those that seeds contain as primitive ops, and a number of random ones.
WRITTEN_OUT, FUSED = ("Gelu", "LayerNormalization"), 4

#: Maximum number of elements of a random input.
LARGEST_FED = 1 << 20


class Finding(Exception):
    """A defect that raises no exception by itself."""


def attempt(path: Path, seed: int = 1) -> dict[str, str]:
    """Outcomes by step: ``ok``, the name of our error, or a finding: ``!``, a foreign exception and its place."""
    outcomes: dict[str, str] = {}
    graph = _step(outcomes, "load", lambda: tx.load(path))
    if graph is None:
        return outcomes
    dice = random.Random(seed)
    steps: dict[str, Callable[[], Any]] = {
        "contents": lambda: _look(graph),
        "infer": lambda: tx.infer(tx.load(path), strict=False),
        "check": lambda: _check(graph) if seed % checked_every == 0 else None,
        "export": lambda: tx.export(graph, io.BytesIO()),
        "tidy": lambda: tx.export(tx.load(path), io.BytesIO(), tidy=True),
        "save": lambda: graph.save(path.with_name("saved.safetensors")),
        "retarget": lambda: tx.retarget(graph, dice.randrange(7, 25)),
        "narrow": lambda: tx.retarget(graph, dice.randrange(9, 22), domains=["ai.onnx"]),
        "fuse": lambda: _fuse(graph, dice),
        "simplify": lambda: tx.export(tx.simplify(graph), io.BytesIO()),
        "half": lambda: tx.export(tx.lower_precision(graph, dice.choice(("float16", "bfloat16"))).graph, io.BytesIO()),
        "shaping": lambda: _shape(graph, dice),
        "edit": lambda: _edit(tx.load(path), dice),
        "run": lambda: _run(path),
        "grad": lambda: _grad(tx.load(path)),
    }
    for name, step in steps.items():
        _step(outcomes, name, step)
    return outcomes


def _step(outcomes: dict[str, str], name: str, step: Callable[[], Any]) -> Any:
    try:
        result = step()
        outcomes[name] = "ok"
        return result
    except tx.LimitExceeded as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, MemoryError):
            cause = cause.__cause__
        outcomes[name] = "LimitExceeded" if cause is None else f"!{name}: memory: {_place(cause)}"
    except tx.TenonnxError as error:
        outcomes[name] = type(error).__name__
    except Exception as error:
        if trace:
            traceback.print_exc()
        outcomes[name] = f"!{name}: {type(error).__name__}: {str(error)[:80]!r} {_place(error)}"
    return None


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tenonnx" in frame.filename and "fuzz" not in frame.filename] or frames
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in ours[:-4:-1])


def _look(graph: Any) -> None:
    for value in graph.variables:
        if value.data.nbytes < 1 << 20 and CANARY[:8] in value.data.array().tobytes():
            raise Finding(f"{value.name} holds what lies outside the folder")
    str(graph.summary())


def _check(graph: Any) -> None:
    with tx.limits.override(seconds=CHECKER_SECONDS):
        structure_problems(graph)


def _fuse(graph: Any, dice: random.Random) -> None:
    ops = ((op, version) for domain, version in graph.opsets.items() for op in tx.default_registry().ops(domain))
    known = [op for op, version in ops if op.holds_at(version) and not op.primitive]
    wanted = [op for op in known if op.name in WRITTEN_OUT] + dice.sample(known, min(FUSED, len(known)))
    tx.export(tx.fuse(graph, wanted), io.BytesIO())


def _shape(graph: Any, dice: random.Random) -> None:
    tx.costs(graph)
    if graph.inputs:
        value = dice.choice(graph.inputs)
        rank = len(value.type.shape or ()) if isinstance(value.type, tx.TensorType) else 1
        shape: list[Any] = [dice.choice((None, 0, 1, 3, "N")) for _ in range(rank)]
        tx.export(tx.fix_shapes(graph, {value.name: shape}), io.BytesIO())
        tx.free_dims(graph, {value.name: {dice.randrange(-1, 2): "M"}})


def _edit(graph: Any, dice: random.Random) -> None:
    values = list(graph.values())
    ways: list[Callable[[], Any]] = [
        lambda: graph.insert_after(dice.choice(values), lambda value: value + value),
        lambda: graph.replace(dice.choice(values), dice.choice(values)),
        lambda: graph.rename(dice.choice(values), dice.choice(("renamed", values[0].name))),
        lambda: graph.remove(dice.choice(graph.nodes)),
        lambda: graph.extract([dice.choice(values).name], [dice.choice(values).name]),
        lambda: graph.extract(None, [dice.choice(values).name]),
    ]
    for way in dice.sample(ways, 3) if values and graph.nodes else []:
        with contextlib.suppress(tx.TenonnxError):
            way()
    tx.export(graph, io.BytesIO())


def _run(path: Path) -> None:
    graph = tx.load(path)
    sizes = [value.type.shape for value in graph.inputs if isinstance(value.type, tx.TensorType) and value.type.shape]
    if sum(math.prod(dim for dim in shape if isinstance(dim, int)) for shape in sizes) > LARGEST_FED:
        return  # the caller is responsible for inputs this large
    feeds = generate_feeds(graph)
    tx.load(path).compile("numpy", deadline=DEADLINE)(feeds)


def _grad(graph: Any) -> None:
    tx.infer(graph, strict=False)
    floats = [v for v in graph.outputs if isinstance(v.type, tx.TensorType) and v.type.dtype.is_float]
    inputs = [v for v in graph.inputs if isinstance(v.type, tx.TensorType) and v.type.dtype.is_float]
    if floats and inputs:
        tx.grad(graph, of=floats[0].name, wrt=inputs[0].name, seeds={floats[0].name: "fuzz/seed"})
