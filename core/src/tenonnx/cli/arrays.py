"""Contents of inputs and outputs in files of numpy."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx.cli.output import complain_of_unused
from tenonnx.cli.tables import PARQUET, is_table, read_table, write_table
from tenonnx.errors import InvalidCall
from tenonnx.formats.files import write_bytes
from tenonnx.formats.recognise import LOOKED_AT, looks_like
from tenonnx.graph.graph import Graph
from tenonnx.graph.types import TensorType
from tenonnx.graph.values import Value


def read_feeds(graph: Graph, inputs: Sequence[str], archive: str | None) -> dict[str, Any]:
    """What ``--input name=file`` and ``--inputs file`` give; names in an archive that are no inputs are left out.

    A table is given by either option.
    """
    all_inputs = {value.name: value for value in graph.all_inputs}
    feeds: dict[str, Any] = {}
    tables = [path for path in (archive,) if path is not None and is_table(path)]
    tables += [text for text in inputs if is_table(text) and text.partition("=")[0] not in all_inputs]
    for path in tables:
        feeds.update(read_table(graph, path))
    if archive is not None and archive not in tables:
        held = _read(archive)
        if not isinstance(held, dict):
            raise InvalidCall("--inputs must name a .npz or .csv file", given=archive, do="--input name=file.npy")
        feeds.update({name: _typed(array, all_inputs[name]) for name, array in held.items() if name in all_inputs})
        complain_of_unused(archive, [name for name in held if name not in all_inputs])
    for text in (each for each in inputs if each not in tables):
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise InvalidCall("--input must be name=file.npy, name=file.npz or a table.csv", given=text)
        if name not in all_inputs:
            raise InvalidCall(f'the model has no input "{name}"', available=", ".join(all_inputs))
        held = _read(path)
        if isinstance(held, dict):
            if name not in held:
                raise InvalidCall(f'{path} must hold an array "{name}"', available=", ".join(held))
            held = held[name]
        feeds[name] = _typed(held, all_inputs[name])
    return feeds


def read_archive(path: str) -> dict[str, Any]:
    """The arrays of a .npz file by name."""
    held = _read(path)
    if not isinstance(held, dict):
        raise InvalidCall(f"{path} must be a .npz file, which holds arrays by name", given="a single array")
    return held


def read_array(path: str) -> Any:
    """The array of a .npy file."""
    held = _read(path)
    if isinstance(held, dict):
        raise InvalidCall(f"{path} must be a .npy file, which holds one array", given="several arrays")
    return held


def _read(path: str) -> Any:
    """One array, or arrays by name. Nothing in the file is executed."""
    try:
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held.view(np.ndarray)
        with held:
            return {name: held[name] for name in held.files}
    except OSError as error:
        raise InvalidCall(f'"{path}" must be a file that can be read', given=error.strerror or str(error)) from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InvalidCall(
            f'"{path}" must be a .npy or .npz file without pickled objects',
            given=_seen(path) or " ".join(str(error).split()),
            do="save it by numpy.save or numpy.savez; strings as an array of dtype str",
        ) from error


def _seen(path: str) -> str:
    """What a file is that is none of numpy's, as far as its beginning tells."""
    with Path(path).open("rb") as file:
        start = file.read(LOOKED_AT)
    return "" if start.startswith((b"PK", b"\x93NUMPY")) else looks_like(start)


def _typed(array: Any, value: Value) -> Any:
    """The array with the dtype that numpy forgets in a file when it does not have it itself."""
    kind = value.type
    if array.dtype.kind == "V" and isinstance(kind, TensorType) and kind.dtype.numpy.itemsize == array.dtype.itemsize:
        return array.view(kind.dtype.numpy)
    return array


def write_arrays(path: str, contents: Mapping[str, Any]) -> None:
    """Write outputs as a .npz, .csv or .parquet file, or a single one as a .npy file; whole or not at all."""
    if is_table(path) or path.lower().endswith(PARQUET):
        write_table(path, contents)
        return
    arrays = dict(flattened(contents))
    buffer = io.BytesIO()
    suffix = Path(path).suffix.lower()
    if suffix == ".npz":
        with zipfile.ZipFile(buffer, "w") as archive:  # numpy.savez cannot name an array "file"
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    elif suffix == ".npy" and len(arrays) == 1:
        np.save(buffer, next(iter(arrays.values())))
    else:
        raise InvalidCall(
            "outputs are written to a .npz, .csv or .parquet file, or a single one to a .npy file",
            given=f"{path} for {', '.join(contents)}",
        )
    write_bytes(path, [buffer.getbuffer()])


def flattened(contents: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Tensors by name; those inside of a sequence or map by the way to them, such as ``y[0]['setosa']``."""
    found: list[tuple[str, Any]] = []
    for name, each in contents.items():
        if isinstance(each, list | tuple):
            found += flattened({f"{name}[{position}]": inner for position, inner in enumerate(each)})
        elif isinstance(each, Mapping):
            found += flattened({f"{name}[{key!r}]": inner for key, inner in each.items()})
        elif each is not None:
            array = np.asarray(each)
            found.append((name, array.astype(str) if array.dtype == object else array))
    return found
