"""Keras files: checked, and then loaded by Keras with its current backend."""

from __future__ import annotations

import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tenonnx.extend import InvalidCall, InvalidModel, LimitExceeded, TenonnxError, UnsafePath, limits
from tenonnx.tools import import_optional, installing
from tenonnx_frontends import read_below
from tenonnx_tensorflow.keras_config import layers_of, refused_objects, texts_in

#: Older versions of Keras open external files of an HDF5 file, regardless of our checks.
OLDEST = (3, 13, 2)

#: Advice if TensorFlow is missing.
WITHOUT_TENSORFLOW = "give a SavedModel, a frozen graph or a .tflite file, which need none"

_SUFFIXES = (".keras", ".h5", ".hdf5")

#: Maximum ratio of contents to file size if the contents exceed the memory limit.
_RATIO = 10


def is_of_keras(source: Any) -> bool:
    """Whether a source is a Keras file, by its suffix."""
    return isinstance(source, str | os.PathLike) and Path(source).suffix in _SUFFIXES


def loaded(source: Any, trust: bool = False) -> tuple[Any, bool]:
    """Load a ``.keras`` or ``.h5`` file; returns the model, or another source unchanged, and whether a worker can load
    it.

    A worker process cannot if the file names objects registered in this process, or is trusted.

    Before loading, all names in the file are checked: layers, functions and classes of Keras itself, those registered
    in this process, and weights in the file. Others raise ``InvalidCall``, unless ``trust`` is True; then Keras
    executes code from the file.
    """
    if not is_of_keras(source):
        return source, isinstance(source, str | os.PathLike)
    path = Path(source)
    keras = import_optional("keras", f'read "{source}"', install="tensorflow", otherwise=WITHOUT_TENSORFLOW)
    _check_version(keras.__version__)
    try:
        is_apart = _check(path, trust)
    except OSError as error:
        raise InvalidCall(f'cannot read "{path}"', given=error.strerror or str(error)) from error
    try:
        return keras.saving.load_model(str(path.absolute()), compile=False, safe_mode=not trust), is_apart
    except Exception as error:
        raise InvalidCall(f'Keras cannot load "{source}"', given=str(error).split("\n")[0]) from error


def _check_version(version: str) -> None:
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if parts < OLDEST:
        raise InvalidCall(
            "this version of Keras is not safe with untrusted files",
            given=f"Keras {version}",
            available=f"Keras {'.'.join(map(str, OLDEST))} and later",
            do=installing(f"keras>={'.'.join(map(str, OLDEST))}"),
        )


def _check(path: Path, trust: bool) -> bool:
    """Check the names in the file, and that its weights are internal; returns whether all names are Keras's own."""
    if path.is_dir():
        config = _check_folder(path)
    else:
        with path.open("rb") as file:
            config = _check_archive(path, file) if path.suffix == ".keras" else _check_weights(path, file)
    if config is None:
        return True
    foreign = refused_objects(config)
    refused = refused_objects(config, _registered) if foreign and not trust else []
    if refused:
        more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
        raise InvalidCall(
            f'"{path}" names functions or classes that may run code',
            given=", ".join(refused[:5]) + more,
            available="layers: " + ", ".join(layers_of(config)[:50]),
            do="where you trust the file: --load FILE.py --trust, with a FILE.py that registers its classes "
            "(keras.saving.register_keras_serializable), or tx.load(path, trust=True)",
        )
    return not foreign and all(_registered(text) is None for text in texts_in(config))


def _registered(name: str) -> Any:
    import keras

    return keras.saving.get_registered_object(name)


def _check_folder(folder: Path) -> Any:
    """Check a Keras model in a folder: its config, and its weights."""
    config = _config_of(read_below(folder, "config.json", limits.current().memory), folder)
    for each in sorted(folder.rglob("*")):
        if each.is_symlink() or not (each.is_dir() or each.is_file()):
            raise UnsafePath(
                "a file of Keras contains a link, a device or a pipe", given=str(each), do="copy the file itself"
            )
        if each.suffix == ".h5":
            with each.open("rb") as file:
                _check_weights(each, file)
    return config


def _check_archive(path: Path, file: BinaryIO) -> Any:
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(each.file_size for each in archive.infolist())
            packed = sum(each.compress_size for each in archive.infolist())
            _check_size(path, size, packed)
            for each in archive.infolist():
                if each.filename.endswith(".h5"):
                    _check_weights(path, io.BytesIO(archive.read(each)))
            return _config_of(archive.read("config.json"), path)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error, lzma.LZMAError, RuntimeError) as error:
        raise InvalidModel(f'"{path}" is not a model of Keras', given=f"{type(error).__name__}: {error}") from error


def _config_of(text: bytes | str, path: Path) -> Any:
    """The config without its compile section, which is not read."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f'the config of "{path}" is not JSON', given=f"{type(error).__name__}: {error}") from error
    return (
        {key: value for key, value in config.items() if key != "compile_config"} if isinstance(config, dict) else config
    )


def _check_weights(path: Path, file: BinaryIO) -> Any:
    """Check that all data of an HDF5 file are internal; returns the model's config, if any."""
    import h5py

    try:
        with h5py.File(file, "r") as weights:
            packed = file.seek(0, io.SEEK_END)
            _check_size(path, sum(_sizes(path, weights)), packed)
            config = weights.attrs.get("model_config")
            if config is None:
                return None
            return _config_of(config, path)
    except (TenonnxError, MemoryError):
        raise
    except Exception as error:  # h5py raises many kinds of errors for broken files
        raise InvalidModel(f'"{path}" is not a complete HDF5 file', given=f"{type(error).__name__}: {error}") from error


def _sizes(path: Path, weights: Any) -> Iterator[int]:
    """Bytes of each dataset. Raises ``UnsafePath`` for external storage and external links."""
    import h5py

    pending, seen = [weights], set()
    while pending:
        group = pending.pop()
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise _outside(path, f'"{name}" is a link into "{link.filename}"')
            if isinstance(link, h5py.SoftLink):
                raise _outside(path, f'"{name}" is a link to "{link.path}"')
            each = group[name]
            place = h5py.h5o.get_info(each.id).addr
            if place in seen:
                continue
            seen.add(place)
            if isinstance(each, h5py.Group):
                pending.append(each)
            elif isinstance(each, h5py.Dataset):
                if each.external or each.is_virtual:
                    raise _outside(path, f'"{name}" is stored in other files')
                yield int(each.size or 0) * each.dtype.itemsize


def _outside(path: Path, given: str) -> UnsafePath:
    return UnsafePath("an HDF5 file holds data of other files", given=f"{path}: {given}", do="save the model again")


def _check_size(path: Path, size: int, packed: int) -> None:
    if size > limits.current().memory and size > _RATIO * packed:
        raise LimitExceeded(
            'the unpacked size of a file exceeds the limit "memory"',
            given=f"{path}: {packed} bytes, unpacked {size}",
            do="where you trust the model, raise it: tenonnx.limits.set(memory=...)",
        )
