"""Sharded checkpoints: each process writes the parts on its devices to a folder ``*.shards``.

It has a folder for each checkpoint, named by the number of steps: ``graph.safetensors`` is the graph without what is
trained, ``state.json`` the rest of its training state, ``part-00000-of-00002.safetensors`` what the first of two
processes holds. A checkpoint is whole when all of its files are there. Older ones are removed once a later one is, so
that there is always one to go on from, whenever a process ends. The front end of these folders is ``read``: ``tx.load``
puts the parts together, whatever the mesh that they come from.
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

#: What the name of such a folder ends with.
SUFFIX = ".shards"

GRAPH, STATE, _PARTS = "graph.safetensors", "state.json", "tenonnx.parts"


#: The name of a checkpoint: the number of its steps.
_NAME = re.compile(r"[0-9]{1,18}")

#: How many of the files that a checkpoint lacks are named.
_TOLD = 5


class Part(NamedTuple):
    """A block of an array, from ``start`` on along each axis."""

    name: str
    dtype: str
    shape: Sequence[int]
    start: Sequence[int]
    size: Sequence[int]


def is_sharded(checkpoint: str | os.PathLike[str] | None) -> bool:
    """Whether a checkpoint is written in parts."""
    return checkpoint is not None and Path(checkpoint).suffix.lower() == SUFFIX


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder of a checkpoint, or raise ``InvalidCall`` where there cannot be one."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def remove_unfinished(path: str | os.PathLike[str], steps: int) -> None:
    """Remove what another training left unfinished behind ``steps``, where this one begins.

    A part of it would else count for one that a process of this training has not written yet. All processes begin
    before any of them writes, since they take the first step together.
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
    held: Mapping[str, Any],
    settings: Mapping[str, Any],
    whole: Mapping[str, Array],
) -> None:
    """Write the part of this process, and as the first one also the rest.

    ``held`` are the arrays that training changes, by name: those of JAX are written by the process whose devices have
    them, others by the first one. So are the arrays ``whole``, which are further state. Raises ``InvalidCall`` for
    a folder that cannot be written.
    """
    number, count = _process(held.values())
    base = Path(folder)
    place = base / f"{steps:09}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if number == 0:
            for later in (each for each in _checkpoints(base) if int(each.name) > steps):
                shutil.rmtree(later, ignore_errors=True)  # of a training before this one
        _write_part(place / _part_name(number, count), {**held, **whole}, first=number == 0)
        if number == 0:
            _write_graph(place, graph, list(held), settings, count)
            _remove_older(base)
    except OSError as error:
        raise _unwritable(base, error) from error


def read(source: str | os.PathLike[str], *, registry: Any = None) -> Graph:
    """The graph of the latest complete checkpoint, with its training state.

    Raises ``InvalidCall`` where none is, with the parts that are missing, ``InvalidModel`` for parts that do not fit.
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
    told = _state(place)
    arrays = _arrays(place, told["parts"])
    if absent := [name for name in told["trained"] if name not in arrays]:
        raise InvalidModel(f'"{place}" lacks trained parameters or their state', given=f"no {', '.join(absent[:5])}")
    values = {value.name: value for value in graph.all_inputs}
    for name in told["variables"]:
        if name in values and values[name].data is None and name in arrays:
            values[name]._replace_fields(data=arrays[name])
            graph.variables.append(values[name])
    order = {name: k for k, name in enumerate(told["variables"])}
    graph.variables.sort(key=lambda value: order.get(value.name, len(order)))
    graph.all_inputs = [value for value in graph.all_inputs if value.name in told["inputs"]]
    state = {name: data for name, data in arrays.items() if name not in order}
    graph.training_state = TrainingState(state, told["settings"])
    return graph


def _process(arrays: Any) -> tuple[int, int]:
    """Index of this process and number of processes, by the devices of arrays of JAX."""
    local, everywhere = {0}, {0}
    for array in arrays:
        devices = {d.process_index for d in array.sharding.device_set} if hasattr(array, "sharding") else {0}
        if len(devices) > len(everywhere):
            everywhere = devices
            local = {part.device.process_index for part in array.addressable_shards}
    return sorted(everywhere).index(min(local)), len(everywhere)


def _blocks(array: Any, *, first: bool) -> Iterator[tuple[Sequence[int], Array]]:
    """The blocks of an array that this process writes, and where they begin: each block is written once."""
    if hasattr(array, "addressable_shards"):
        for part in array.addressable_shards:
            if part.replica_id == 0:
                yield [cut.start or 0 for cut in part.index], np.asarray(part.data)
    elif first:
        held = np.asarray(array)
        yield [0] * held.ndim, held


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
    """The graph with trained variables as inputs, so that their contents are not written twice."""
    told = {
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
    partial.write_text(json.dumps(told), "utf-8")
    partial.replace(place / STATE)


def _checkpoints(base: Path) -> list[Path]:
    """The folders of checkpoints, whole or not, the latest last."""
    try:
        return sorted(
            each for each in base.iterdir() if _NAME.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
        )
    except OSError:
        return []


def _part_name(number: int, count: int) -> str:
    return f"part-{number:05}-of-{count:05}.safetensors"


def _missing(place: Path) -> list[str]:
    """The files that a checkpoint lacks."""
    try:
        count = _state(place)["parts"]
        there = {each.name for each in place.iterdir() if each.is_file() and not each.is_symlink()}
    except (OSError, InvalidModel):
        return [STATE]
    names = (GRAPH, *(_part_name(k, count) for k in range(min(count, len(there) + _TOLD))))
    return [name for name in names if name not in there]


def _state(place: Path) -> dict[str, Any]:
    """State of a checkpoint without its arrays. Raises ``InvalidModel`` for anything that ``write`` does not write."""
    try:
        parts = (STATE,)
        with os.fdopen(open_inside(place, parts, f'"{place / STATE}"'), "rb") as file:
            told = json.loads(file.read())
        counts = isinstance(told["parts"], int) and not isinstance(told["parts"], bool) and told["parts"] >= 1
        names = all(isinstance(each, str) for key in ("trained", "variables", "inputs") for each in told[key])
        if counts and names and isinstance(told["settings"], dict):
            return dict(told)
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
    """The arrays of a checkpoint, put together. Raises ``InvalidModel`` unless each element is there once."""
    made: dict[str, Array] = {}
    dtypes: dict[str, DType] = {}
    filled: dict[str, int] = {}
    for number in range(count):
        path = place / _part_name(number, count)
        entries, metadata = read_tensors(path)
        try:
            parts = [Part(*each) for each in json.loads(metadata[_PARTS])]
            for k, part in enumerate(parts):
                dtype = dtypes.setdefault(part.name, DType[part.dtype])
                whole = made.setdefault(part.name, np.empty(part.shape, dtype.numpy))
                block = np.frombuffer(entries[str(k)].region.read(), dtype.numpy).reshape(part.size)
                whole[tuple(slice(a, a + n) for a, n in zip(part.start, part.size, strict=True))] = block
                filled[part.name] = filled.get(part.name, 0) + block.size
        except (KeyError, ValueError, TypeError, IndexError, MemoryError, RecursionError) as error:
            raise InvalidModel(f'"{path}" is not part of a checkpoint', given=str(error)) from error
    if odd := [name for name, array in made.items() if filled[name] != math.prod(array.shape)]:
        raise InvalidModel(
            f'the parts in "{place}" are of several checkpoints',
            given=f"{filled[odd[0]]} of {made[odd[0]].size} elements of {odd[0]}",
        )
    return {name: ArrayConstant(array, dtypes[name]) for name, array in made.items()}
