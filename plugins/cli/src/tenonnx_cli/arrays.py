"""Contents of inputs and outputs in files of numpy."""

from __future__ import annotations

import functools
import io
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, TensorType, Value, limits
from tenonnx.tools import LOOKED_AT, looks_like, write_bytes
from tenonnx_cli.output import complain, complain_of_unused, data_file, standard_output
from tenonnx_cli.printable import printable
from tenonnx_cli.tables import PARQUET, is_table, read_table, write_table

#: Axes that an array may have, as numpy has it.
MOST_AXES = 64

#: Bytes that an element of a header may have, beyond which it is as many elements.
LARGEST_ELEMENT = 16

#: Bytes that are unpacked at once.
CHUNK = 1 << 20

#: Characters of the name of a member of an archive; the format has 65,535 bytes.
LONGEST_NAME = 1000


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
        feeds.update({name: _typed(read(), all_inputs[name]) for name, read in held.items() if name in all_inputs})
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
            held = held[name]()
        feeds[name] = _typed(held, all_inputs[name])
    return feeds


def read_archive(path: str) -> dict[str, Any]:
    """The arrays of a .npz file by name."""
    held = _read(path)
    if not isinstance(held, dict):
        raise InvalidCall(f"{path} must be a .npz file, which holds arrays by name", given="a single array")
    return {name: read() for name, read in held.items()}


def read_array(path: str) -> Any:
    """The array of a .npy file."""
    held = _read(path)
    if isinstance(held, dict):
        raise InvalidCall(f"{path} must be a .npy file, which holds one array", given="several arrays")
    return held


def _read(path: str) -> Any:
    """One array, or by name functions that read one each. Nothing in the file is executed."""
    with _refusing(path):
        with data_file(path) as file:
            start = file.read(8)
        if not start.startswith(b"PK"):
            source: Any = data_file(path) if path == "-" else path
            array = np.load(source, mmap_mode=None if path == "-" else "r", allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise ValueError("it holds no array")
            return array.view(np.ndarray)
        with data_file(path) as file, zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
        return {name.removesuffix(".npy"): functools.partial(_member, path, name) for name in members}


def _member(path: str, name: str) -> Any:
    """One array of an archive, whose header is held against the limit of elements ahead of it."""
    with _refusing(path), data_file(path) as whole, zipfile.ZipFile(whole) as archive, archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} of its format")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be loaded")
        if len(shape) > MOST_AXES or any(dim < 0 for dim in shape):
            raise ValueError(f"a header of shape {shape!r:.80}")
        limits.check_elements((*shape, -(-dtype.itemsize // LARGEST_ELEMENT)), f'"{printable(name)}" in {path}')
        size = math.prod(shape) * dtype.itemsize
        contents = bytearray()
        while len(contents) < size and (chunk := file.read(min(size - len(contents), CHUNK))):
            contents += chunk
        if len(contents) < size:
            raise ValueError(f"{len(contents):,} bytes of {size:,} in {printable(name)}")
        array = np.frombuffer(contents, dtype, count=math.prod(shape)) if size else np.empty(math.prod(shape), dtype)
        return array.reshape(shape, order="F" if fortran else "C")


#: What a damaged archive, or one with a password, and a header that is no Python raise.
_ODD = (NotImplementedError, RuntimeError, SyntaxError, RecursionError, KeyError)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    """Raise ``InvalidCall`` for what a file of arrays cannot be."""
    try:
        yield
    except OSError as error:
        raise InvalidCall(f'"{path}" must be a file that can be read', given=error.strerror or str(error)) from error
    except (
        ValueError,
        TypeError,
        EOFError,
        MemoryError,
        OverflowError,
        zipfile.BadZipFile,
        zlib.error,
        *_ODD,
    ) as error:
        raise InvalidCall(
            f'"{path}" must be a .npy or .npz file without pickled objects',
            given=_seen(path) or " ".join(str(error).split()),
            do="save it with numpy.save or numpy.savez; strings as an array of dtype str",
        ) from error


def _seen(path: str) -> str:
    """What a file is that is none of numpy's, as far as its beginning tells."""
    with data_file(path) as file:
        start = file.read(LOOKED_AT)
    return "" if start.startswith((b"PK", b"\x93NUMPY")) else looks_like(start)


def _typed(array: Any, value: Value) -> Any:
    """The array with the dtype that numpy forgets in a file when it does not have it itself."""
    kind = value.type
    if array.dtype.kind == "V" and isinstance(kind, TensorType) and kind.dtype.numpy.itemsize == array.dtype.itemsize:
        return array.view(kind.dtype.numpy)
    return array


def write_arrays(path: str, contents: Mapping[str, Any]) -> None:
    """Write outputs as a .npz, .csv or .parquet file, or a single one as a .npy file; whole or not at all.

    To standard output, which is called -, they go as a .npz file.
    """
    if path != "-" and (is_table(path) or path.lower().endswith(PARQUET)):
        write_table(path, contents)
        return
    arrays = dict(flattened(contents))
    buffer = io.BytesIO()
    suffix = Path(path).suffix.lower()
    if suffix == ".npz" or path == "-":
        with zipfile.ZipFile(buffer, "w") as archive:  # numpy.savez cannot name an array "file"
            for name, array in zip(_members(arrays), arrays.values(), strict=True):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    elif suffix == ".npy" and len(arrays) == 1:
        np.save(buffer, next(iter(arrays.values())))
    else:
        raise InvalidCall(
            "outputs are written to a .npz, .csv or .parquet file, or a single one to a .npy file",
            given=f"{path} for {', '.join(contents)}",
        )
    if path == "-":
        standard_output().write(buffer.getbuffer())
    else:
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
            found.append((name, _as_text(array) if array.dtype == object else array))
    return found


def _as_text(array: Any) -> Any:
    """Text as numpy writes it, where each takes the room of the longest."""
    longest = max((len(each) for each in array.reshape(-1)), default=0)
    limits.check_memory(4 * longest * array.size, "text in a file of numpy")
    return array.astype(str)


def _members(names: Iterable[str]) -> list[str]:
    """Names of members of an archive that lead nowhere else where it is unpacked, and differ; in their order."""
    found: dict[str, None] = {}
    for given in names:
        parts = [part for part in printable(given).replace("\\", "/").split("/") if part not in ("", ".", "..")]
        name = ("/".join(parts).replace(":", "_") if parts else "output")[:LONGEST_NAME]
        safe, count = name, 1
        while safe in found:
            safe, count = f"{name}-{count}", count + 1
        found[safe] = None
        if safe != given:
            complain(f'note: the output "{printable(given):.200}" is written as "{safe:.200}"')
    return list(found)
