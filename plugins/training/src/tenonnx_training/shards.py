"""Sharded checkpoints: each process writes the parts on its devices to a folder ``*.shards``.

The folder has a subfolder for each checkpoint, named by the number of steps. ``graph.safetensors`` is the graph without
trained arrays, ``state.json`` the training state without arrays, and ``part-00000-of-00002.safetensors`` the arrays of
the first of two processes. A checkpoint is complete when all of its files exist. Older ones are removed only then, so
that a crash always leaves a complete one. ``read`` is the front end of these folders: ``tx.load`` joins the parts, on
any mesh.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tenonnx as tx
from tenonnx.extend import ArrayConstant, Constant, DType, Graph, InvalidCall, InvalidModel
from tenonnx.extend.formats import Tensor, TrainingState, open_inside, read_tensors, write_tensors
from tenonnx.extend.transforms import copy_graph

Array = np.ndarray[Any, Any]

#: Suffix of the folders.
SUFFIX = ".shards"

GRAPH, STATE, _PARTS = "graph.safetensors", "state.json", "tenonnx.parts"


#: Pattern of names of checkpoints: the number of steps.
_NAME = re.compile(r"[0-9]{1,18}")

#: Maximum number of missing files that a message names.
_TOLD = 5


class Part(NamedTuple):
    """A block of an array, at offset ``start`` along each axis."""

    name: str
    dtype: str
    shape: Sequence[int]
    start: Sequence[int]
    size: Sequence[int]


def is_sharded(checkpoint: str | os.PathLike[str] | None) -> bool:
    """Whether a checkpoint is sharded."""
    return checkpoint is not None and Path(checkpoint).suffix.lower() == SUFFIX


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create the folder of checkpoints. Raises ``InvalidCall`` where that fails."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def remove_unfinished(path: str | os.PathLike[str], steps: int) -> None:
    """Remove incomplete checkpoints of an earlier training after ``steps``, where this one begins.

    Otherwise their parts would be taken for parts of this training. All processes do this before any of them writes,
    since they take the first step together.
    """
    for each in _checkpoints(Path(path)):
        if int(each.name) > steps and _missing(each):
            shutil.rmtree(each, ignore_errors=True)


def _unwritable(path: str | os.PathLike[str], error: OSError) -> InvalidCall:
    what = "cannot write a checkpoint in parts to the folder"
    return InvalidCall(what, given=f"{os.fspath(path)}: {error.strerror}")


def write(
    folder: str | os.PathLike[str],
    steps: int,
    graph: Graph,
    arrays: Mapping[str, Any],
    settings: Mapping[str, Any],
    whole: Mapping[str, Array],
) -> None:
    """Write the part of this process; the first process also writes the graph and the settings.

    ``arrays`` has those that training changes, by name. JAX arrays are written by the processes whose devices hold
    them, others by the first process, like the arrays in ``whole``, which are further state. Raises ``InvalidCall`` for
    a folder that cannot be written.
    """
    number, count = _process(arrays.values())
    base = Path(folder)
    place = base / f"{steps:09}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if number == 0:
            for later in (each for each in _checkpoints(base) if int(each.name) > steps):
                shutil.rmtree(later, ignore_errors=True)  # of an earlier training
        _write_part(place / _part_name(number, count), {**arrays, **whole}, first=number == 0)
        if number == 0:
            _write_graph(place, graph, list(arrays), settings, count)
            _remove_older(base)
    except OSError as error:
        raise _unwritable(base, error) from error


def read(source: str | os.PathLike[str], *, registry: Any = None) -> Graph:
    """Read the latest complete checkpoint as a graph with training state.

    Raises ``InvalidCall`` where there is none, naming the missing parts, and ``InvalidModel`` for inconsistent parts.
    """
    base = Path(source)
    found = _checkpoints(base)
    place = next((each for each in reversed(found) if not _missing(each)), None)
    if place is None:
        lacking = f"{found[-1].name} without {', '.join(_missing(found[-1])[:5])}" if found else "no checkpoint"
        raise InvalidCall(
            f'"{base}" has no checkpoint with all of its parts',
            given=lacking,
            do="copy what every process wrote into one folder",
        )
    graph = tx.load(place / GRAPH, registry=registry)
    entries = _state(place)
    arrays = _arrays(place, entries["parts"])
    if absent := [name for name in entries["trained"] if name not in arrays]:
        raise InvalidModel(f'"{place}" lacks trained parameters or their state', given=f"no {', '.join(absent[:5])}")
    values = {value.name: value for value in graph.all_inputs}
    for name in entries["variables"]:
        if name in values and values[name].data is None and name in arrays:
            values[name]._replace_fields(data=arrays[name])
            graph.variables.append(values[name])
    order = {name: k for k, name in enumerate(entries["variables"])}
    graph.variables.sort(key=lambda value: order.get(value.name, len(order)))
    graph.all_inputs = [value for value in graph.all_inputs if value.name in entries["inputs"]]
    state = {name: data for name, data in arrays.items() if name not in order}
    graph.training_state = TrainingState(state, entries["settings"])
    return graph


def _process(arrays: Any) -> tuple[int, int]:
    """Index of this process and number of processes, from the devices of JAX arrays."""
    local, everywhere = {0}, {0}
    for array in arrays:
        devices = {d.process_index for d in array.sharding.device_set} if hasattr(array, "sharding") else {0}
        if len(devices) > len(everywhere):
            everywhere = devices
            local = {part.device.process_index for part in array.addressable_shards}
    return sorted(everywhere).index(min(local)), len(everywhere)


def _blocks(array: Any, *, first: bool) -> Iterator[tuple[Sequence[int], Array]]:
    """The blocks of an array that this process writes, with their offsets; each block is written once."""
    if hasattr(array, "addressable_shards"):
        for part in array.addressable_shards:
            if part.replica_id == 0:
                yield [cut.start or 0 for cut in part.index], np.asarray(part.data)
    elif first:
        contents = np.asarray(array)
        yield [0] * contents.ndim, contents


def _write_part(path: Path, arrays: Mapping[str, Any], *, first: bool) -> None:
    parts: list[Part] = []
    tensors: list[Tensor] = []
    for name, array in arrays.items():
        for start, block in _blocks(array, first=first):
            parts.append(Part(name, str(DType.of(block.dtype)), np.shape(array), start, block.shape))
            data = np.ascontiguousarray(block).tobytes()
            tensors.append(Tensor(str(len(tensors)), "U8", [len(data)], len(data), lambda data=data: data))
    write_tensors(path, tensors, {_PARTS: json.dumps(parts)}, overwrite=True)


def _write_graph(place: Path, graph: Graph, trained: Sequence[str], settings: Mapping[str, Any], count: int) -> None:
    """Write the graph with trained variables as inputs, so that their contents are not written twice."""
    state = {
        "parts": count,
        "trained": trained,
        "variables": [value.name for value in graph.variables],
        "inputs": [value.name for value in graph.all_inputs],
        "settings": settings,
    }
    copy = copy_graph(graph)
    copy.training_state = None
    opened = [value for value in copy.variables if value.name in trained]
    copy.variables = [value for value in copy.variables if value.name not in trained]
    fed = {value.name for value in copy.all_inputs}
    for value in opened:
        value._replace_fields(data=None)
    copy.all_inputs += [value for value in opened if value.name not in fed]
    copy.save(place / GRAPH)
    partial = place / f".{STATE}.tmp"
    partial.write_text(json.dumps(state), "utf-8")
    partial.replace(place / STATE)


def _checkpoints(base: Path) -> list[Path]:
    """Folders of checkpoints, complete or not, from the oldest to the latest."""
    try:
        return sorted(
            each for each in base.iterdir() if _NAME.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
        )
    except OSError:
        return []


def _part_name(number: int, count: int) -> str:
    return f"part-{number:05}-of-{count:05}.safetensors"


def _missing(place: Path) -> list[str]:
    """Names of the missing files of a checkpoint."""
    try:
        count = _state(place)["parts"]
        file_names = {each.name for each in place.iterdir() if each.is_file() and not each.is_symlink()}
    except (OSError, InvalidModel):
        return [STATE]
    names = (GRAPH, *(_part_name(k, count) for k in range(min(count, len(file_names) + _TOLD))))
    return [name for name in names if name not in file_names]


def _state(place: Path) -> dict[str, Any]:
    """State of a checkpoint without its arrays. Raises ``InvalidModel`` for content that ``write`` never writes."""
    try:
        parts = (STATE,)
        with os.fdopen(open_inside(place, parts, f'"{place / STATE}"'), "rb") as file:
            state = json.loads(file.read())
        counts = isinstance(state["parts"], int) and not isinstance(state["parts"], bool) and state["parts"] >= 1
        names = all(isinstance(each, str) for key in ("trained", "variables", "inputs") for each in state[key])
        if counts and names and isinstance(state["settings"], dict):
            return dict(state)
        given = "other kinds of values"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        given = f"{type(error).__name__}: {error}"[:200]
    raise InvalidModel(f'"{place / STATE}" is not the state of a checkpoint', given=given)


def _remove_older(base: Path) -> None:
    """Remove checkpoints older than the latest complete one."""
    found = _checkpoints(base)
    last = max((k for k, each in enumerate(found) if not _missing(each)), default=0)
    for older in found[:last]:
        shutil.rmtree(older, ignore_errors=True)


def _arrays(place: Path, count: int) -> dict[str, Constant]:
    """Join the arrays of a checkpoint. Raises ``InvalidModel`` unless each element occurs exactly once."""
    arrays: dict[str, Array] = {}
    dtypes: dict[str, DType] = {}
    filled: dict[str, int] = {}
    for number in range(count):
        path = place / _part_name(number, count)
        entries, metadata = read_tensors(path)
        try:
            parts = [Part(*each) for each in json.loads(metadata[_PARTS])]
            for k, part in enumerate(parts):
                dtype = dtypes.setdefault(part.name, DType[part.dtype])
                whole = arrays.setdefault(part.name, np.zeros(part.shape, dtype.numpy))
                block = np.frombuffer(entries[str(k)].region.read(), dtype.numpy).reshape(part.size)
                whole[tuple(slice(a, a + n) for a, n in zip(part.start, part.size, strict=True))] = block
                filled[part.name] = filled.get(part.name, 0) + block.size
        except (ArithmeticError, KeyError, ValueError, TypeError, IndexError, MemoryError, RecursionError) as error:
            raise InvalidModel(f'"{path}" is not part of a checkpoint', given=str(error)) from error
    if odd := [name for name, array in arrays.items() if filled[name] != math.prod(array.shape)]:
        raise InvalidModel(
            f'the parts in "{place}" are of several checkpoints',
            given=f"{filled[odd[0]]} of {arrays[odd[0]].size} elements of {odd[0]}",
        )
    return {name: ArrayConstant(array, dtypes[name]) for name, array in arrays.items()}
