"""Tables by file format."""

from __future__ import annotations

from pathlib import Path

from tenonnx.extend import InvalidCall, import_optional
from tenonnx_data.array_files import ArrayTable
from tenonnx_data.datasets import is_dataset
from tenonnx_data.table import Opener, Table, opened_file
from tenonnx_data.text_files import CsvTable

#: Suffixes of files that pyarrow reads.
ARROW_SUFFIXES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc", ".jsonl", ".ndjson", ".json", ".tsv")

#: Suffixes of compressed text files.
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")

#: Table formats, for messages and help.
FORMATS = ".npz, .npy, .csv, .parquet, .arrow, .jsonl, a folder of one kind of these, a Hugging Face dataset on disk"


def is_table(path: str) -> bool:
    """Whether a path is a table instead of numpy arrays: by its suffix, or a folder of tables."""
    name = path.lower()
    return name.endswith((".csv", *ARROW_SUFFIXES, *_COMPRESSED)) or (Path(path).is_dir() and _is_folder(Path(path)))


def read_table(path: str, opened: Opener = opened_file) -> Table:
    """The columns of a file or folder, read on demand.

    Files of numpy and CSV need no other package; other formats and compressed text need pyarrow. A file with another
    suffix is read as numpy's, or as CSV if ``opened`` is given and its first bytes are not numpy's. Raises
    ``InvalidCall`` for unreadable files.
    """
    name = path.lower()
    if name.endswith(".csv") or (path == "-" and not opened(path).read(8).startswith((b"PK", b"\x93NUMPY"))):
        return CsvTable(path, opened)
    if is_table(path):
        return _arrow(path)
    if Path(path).is_dir():
        raise InvalidCall(f"{path} holds no files of data", given="a folder", available=FORMATS)
    return ArrayTable(path, opened)


def _arrow(path: str) -> Table:
    otherwise = "give a .csv or .npz file"
    import_optional("pyarrow", f'read "{path}"', install="tenonnx-data[arrow]", otherwise=otherwise)
    from tenonnx_data.arrow_files import ArrowTable

    return ArrowTable(path)


def _is_folder(path: Path) -> bool:
    """Whether a folder is a dataset, or contains tables at any depth."""
    return is_dataset(path) or any(
        each.name.lower().endswith((".csv", ".npz", *ARROW_SUFFIXES)) for each in path.rglob("*") if each.is_file()
    )
