"""Reading and writing inputs and outputs in files of numpy."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, TensorType, Value, limits
from tenonnx.tools import did_you_mean, listing, write_bytes
from tenonnx_cli.output import complain, complain_of_unused, data_file, standard_output
from tenonnx_cli.printable import printable
from tenonnx_cli.tables import PARQUET, write_table
from tenonnx_data import is_table, read_members, read_table

#: Maximum length of a member's name in characters; the zip format allows 65,535 bytes.
LONGEST_NAME = 1000


def read_feeds(
    graph: Graph, inputs: Sequence[str], archive: str | None, columns: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Feeds from ``--input name=file`` and ``--inputs file``; names in an archive that are not inputs are ignored.

    Either option accepts a table; ``columns`` maps inputs to its columns.
    """
    all_inputs = {value.name: value for value in graph.all_inputs}
    feeds: dict[str, Any] = {}
    tables = [path for path in (archive,) if path is not None and _is_table(path)]
    tables += [text for text in inputs if _is_table(text) and text.partition("=")[0] not in all_inputs]
    for path in tables:
        feeds.update(table_feeds(graph, path, columns or {}))
    if archive is not None and archive not in tables:
        members = read_members(archive, data_file)
        if not isinstance(members, dict):
            raise InvalidCall(
                "the file of --inputs holds a single array without a name", given=archive, do="--input name=file.npy"
            )
        if not members.keys() & all_inputs.keys():
            raise InvalidCall(
                f'"{printable(archive)}" holds no input of the model',
                given=printable(", ".join(members)) or "no arrays",
                available=", ".join(f"{value.name}: {value.type}" for value in all_inputs.values()),
                do="name its arrays like the inputs",
            )
        feeds.update({name: _typed(read(), all_inputs[name]) for name, read in members.items() if name in all_inputs})
        complain_of_unused(archive, [name for name in members if name not in all_inputs])
    for text in (each for each in inputs if each not in tables):
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise InvalidCall("--input is neither name=file.npy, name=file.npz nor a table.csv", given=text)
        if name not in all_inputs:
            do = did_you_mean(name, all_inputs)
            raise InvalidCall(f'the model has no input "{name}"', available=listing(all_inputs), do=do)
        members = read_members(path, data_file)
        if isinstance(members, dict):
            if name not in members:
                raise InvalidCall(
                    f'{path} has no array "{name}"', available=listing(members), do=did_you_mean(name, members)
                )
            members = members[name]()
        feeds[name] = _typed(members, all_inputs[name])
    return feeds


def table_feeds(graph: Graph, path: str, columns: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Inputs from a table: from ``columns``, by name, or from all columns for a single input."""
    table = read_table(path, data_file)
    feeds = table.feeds(graph, columns, ())
    used = {*feeds, *(name for names in columns.values() for name in names)}
    if used & set(table.names):
        complain_of_unused(path, [name for name in table.names if name not in used])
    return feeds


def _is_table(path: str) -> bool:
    """Whether a file is a table, by its name or, from standard input, because it is not a file of numpy."""
    return is_table(path) if path != "-" else not data_file(path).read(8).startswith((b"PK", b"\x93NUMPY"))


def read_array(path: str) -> Any:
    """The array of a .npy file."""
    members = read_members(path, data_file)
    if isinstance(members, dict):
        raise InvalidCall(f"{path} holds several arrays where one is expected", do="give a .npy file")
    return members


def read_outputs(graph: Graph, path: str) -> dict[str, Any]:
    """Outputs by name from a file written by ``write_arrays``."""
    kinds = {value.name: value for value in graph.outputs}
    members = read_members(path, data_file)
    if not isinstance(members, dict):
        if len(kinds) > 1:
            raise InvalidCall(f"{path} holds a single array without a name", do="give a .npz file")
        return {name: _typed(members, value) for name, value in kinds.items()}
    return {name: _typed(read(), kinds[name]) if name in kinds else read() for name, read in members.items()}


def _typed(array: Any, value: Value) -> Any:
    """The array with its declared dtype if numpy lacks it and stored raw bytes."""
    kind = value.type
    if array.dtype.kind == "V" and isinstance(kind, TensorType) and kind.dtype.numpy.itemsize == array.dtype.itemsize:
        return array.view(kind.dtype.numpy)
    return array


def write_arrays(path: str, contents: Mapping[str, Any]) -> None:
    """Write outputs to a .npz, .csv or .parquet file, or a single one to a .npy file, atomically.

    Standard output, called -, gets the .npz format.
    """
    if path != "-" and (path.lower().endswith(".csv") or path.lower().endswith(PARQUET)):
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
            "cannot write these outputs to a file of this format",
            given=f"{path} for {', '.join(contents)}",
            available="a .npz, .csv or .parquet file, or .npy for a single output",
        )
    if path == "-":
        standard_output().write(buffer.getbuffer())
    else:
        write_bytes(path, [buffer.getbuffer()])


def flattened(contents: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Tensors by name; elements of sequences and maps by their path, such as ``y[0]['setosa']``."""
    result: list[tuple[str, Any]] = []
    for name, each in contents.items():
        if isinstance(each, list | tuple):
            result += flattened({f"{name}[{position}]": inner for position, inner in enumerate(each)})
        elif isinstance(each, Mapping):
            result += flattened({f"{name}[{key!r}]": inner for key, inner in each.items()})
        elif each is not None:
            array = np.asarray(each)
            result.append((name, _as_text(array) if array.dtype == object else array))
    return result


def _as_text(array: Any) -> Any:
    """Strings as numpy stores them, padded to the longest."""
    longest = max((len(each) for each in array.reshape(-1)), default=0)
    limits.check_memory(4 * longest * array.size, "text in a file of numpy")
    return array.astype(str)


def _members(names: Iterable[str]) -> list[str]:
    """Safe and distinct member names for an archive, in the order of ``names``."""
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
