"""Likely type of a file that is not an ONNX model, for error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: First bytes of files that users may confuse with models.
BEGINNINGS = {
    b"PK\x03\x04": "a zip archive, as PyTorch and numpy write them (*.pt, *.npz)",
    b"\x93NUMPY": "an array of numpy (*.npy)",
    b"\x89HDF": "an HDF5 file, as Keras writes them",
    b"GGUF": "a GGUF file",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "a gzip archive: unpack it first",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the file itself with git lfs pull",
}

#: Description of files that only older versions of XGBoost read.
OLD_XGBOOST = "XGBoost's old binary format, which XGBoost 3 does not read: load it in XGBoost 2, and save it as *.ubj"

#: Number of bytes that are examined.
LOOKED_AT = 4096


#: First bytes that determine a file's suffix, whatever its name is.
_SUFFIXES = {b"tree\n": "txt", b"{L": "ubj", b"CBM1": "cbm"}


def suffix_of_contents(path: Path) -> str:
    """The suffix that fits the first bytes of a file; empty if they are unknown or cannot be read.

    An ONNX file begins with its IR version, a SavedModel with the field tag and version 1, a TensorFlow graph with a
    node.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except (OSError, ValueError):  # the reader reports the error
        return ""
    if start[:1] == b"\x08" and start[1:2] in map(int.to_bytes, range(3, 32)):
        return "onnx"
    if start[4:] == b"TFL3":
        return "tflite"
    return next((suffix for beginning, suffix in _SUFFIXES.items() if start.startswith(beginning)), "")


def looks_like(data: bytes | memoryview) -> str:
    """Guess the type of a file from its first bytes; empty if they are unknown."""
    start = bytes(data[:LOOKED_AT])
    if not start:
        return "an empty file"
    for beginning, name in BEGINNINGS.items():
        if start.startswith(beginning):
            return name
    if start[8:9] == b"{" and start[:8].endswith(b"\0\0\0\0"):
        return "a safetensors file: name it *.safetensors"
    if b"\0" in start and any(name in start for name in (b"gbtree", b"gblinear")):
        return OLD_XGBOOST
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, which is never opened"
    return _text(start)


def _text(start: bytes) -> str:
    try:
        text = start.decode("utf-8") if len(start) < LOOKED_AT else start[:-4].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return ""
    if not all(letter.isprintable() or letter in "\r\n\t\f\ufeff" for letter in text):
        return ""
    first, *others = text.strip().splitlines() or [""]
    if first[:1] in "{[":
        return "a text file, JSON by its beginning"
    if first[:1] == "<":
        return "a text file, XML or HTML by its beginning"
    for delimiter in ",;\t":
        if first.count(delimiter) and all(line.count(delimiter) == first.count(delimiter) for line in others[:-1]):
            return f"a table as text (CSV) whose first row is {first[:60]}"
    return f"a text file that begins with {first[:60]!r}"
