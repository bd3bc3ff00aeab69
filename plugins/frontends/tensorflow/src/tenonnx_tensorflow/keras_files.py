"""Keras files: checked, and then built by Keras with its current backend.

Keras reads rewritten files: the checked config, and weights that a worker process read (``hdf5_files``).
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall, InvalidModel, UnsafePath, limits
from tenonnx.tools import import_optional, installing
from tenonnx_frontends import read_below
from tenonnx_tensorflow import hdf5_files
from tenonnx_tensorflow.hdf5_files import Object, check_size, read_hdf5, write_hdf5
from tenonnx_tensorflow.keras_config import layers_of, refused_objects, texts_in
from tenonnx_tensorflow.weight_bound import bounded_weights

#: Older versions of Keras open external files of an HDF5 file, regardless of our checks.
OLDEST = (3, 13, 2)

#: Advice if TensorFlow is missing.
WITHOUT_TENSORFLOW = "give a SavedModel, a frozen graph or a .tflite file, which need none"

_SUFFIXES = (".keras", ".h5", ".hdf5")

#: Files in a ``.keras`` archive.
_CONFIG, _WEIGHTS, _ARRAYS = "config.json", "model.weights.h5", "model.weights.npz"


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
    hdf5_files.start()
    keras = import_optional("keras", f'read "{source}"', install="tensorflow", otherwise=WITHOUT_TENSORFLOW)
    _check_version(keras.__version__)
    try:
        text, members, weights = _parts(path)
    except OSError as error:
        raise InvalidCall(f'cannot read "{path}"', given=error.strerror or str(error)) from error
    config, checked = _config_of(text, path)
    is_apart = _check_names(path, config, trust)
    with tempfile.TemporaryDirectory() as folder, bounded_weights(path, None if trust else _held(members, weights)):
        written = _written(Path(folder), path, checked, members, weights)
        try:
            return keras.saving.load_model(str(written), compile=False, safe_mode=not trust), is_apart
        except Exception as error:
            given = str(error).split("\n")[0].replace(str(written), str(path))
            raise InvalidCall(f'Keras cannot load "{source}"', given=given) from error


def _check_version(version: str) -> None:
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if parts < OLDEST:
        raise InvalidCall(
            "this version of Keras is not safe with untrusted files",
            given=f"Keras {version}",
            available=f"Keras {'.'.join(map(str, OLDEST))} and later",
            do=installing(f"keras>={'.'.join(map(str, OLDEST))}"),
        )


def _check_names(path: Path, config: Any, trust: bool) -> bool:
    """Check the names in a config; returns whether all of them are Keras's own."""
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


def _parts(path: Path) -> tuple[Any, dict[str, bytes] | None, list[Object]]:
    """The config of a model as text, the other files of a folder or archive, and the objects of its HDF5 file.

    None stands for a single HDF5 file.
    """
    if path.suffix != ".keras" and not path.is_dir():
        weights = read_hdf5(path)
        return weights[0][1].get("model_config"), None, weights
    members, weights = _folder(path) if path.is_dir() else _archive(path)
    if _CONFIG not in members or not (weights or _ARRAYS in members):
        missing = _WEIGHTS if _CONFIG in members else _CONFIG
        raise InvalidModel(f'"{path}" is not a model of Keras', given=f'it has no file "{missing}"')
    return members.pop(_CONFIG), members, weights


def _folder(path: Path) -> tuple[dict[str, bytes], list[Object]]:
    _check_links(path)
    names = [each.relative_to(path).as_posix() for each in sorted(path.rglob("*")) if each.is_file()]
    members = {name: read_below(path, name, limits.current().memory) for name in _needed(names)}
    return members, read_hdf5(path / _WEIGHTS) if _WEIGHTS in names else []


def _check_links(folder: Path) -> None:
    for each in folder.rglob("*"):
        if each.is_symlink() or not (each.is_dir() or each.is_file()):
            raise UnsafePath(
                "a file of Keras contains a link, a device or a pipe", given=str(each), do="copy the file itself"
            )


def _archive(path: Path) -> tuple[dict[str, bytes], list[Object]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
            packed = sum(each.compress_size for each in archive.infolist())
            check_size(path, size, packed)
            members = {name: archive.read(name) for name in _needed(archive.namelist())}
            has_weights = _WEIGHTS in archive.namelist()
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error, lzma.LZMAError, RuntimeError) as error:
        raise InvalidModel(f'"{path}" is not a model of Keras', given=f"{type(error).__name__}: {error}") from error
    return members, read_hdf5(path, _WEIGHTS) if has_weights else []


def _needed(names: Sequence[str]) -> list[str]:
    """The files that Keras reads, other than the HDF5 file."""
    return [
        name
        for name in names
        if name in (_CONFIG, "metadata.json")
        or (name == _ARRAYS and _WEIGHTS not in names)
        or (name.startswith("assets/") and not {"", ".", ".."} & set(name.split("/")))
    ]


def _held(members: Mapping[str, bytes] | None, weights: Sequence[Object]) -> int:
    """Number of elements of the weights in a file."""
    return hdf5_files.elements(weights) + len((members or {}).get(_ARRAYS, b""))


def _written(
    folder: Path, path: Path, config: str, members: Mapping[str, bytes] | None, weights: Sequence[Object]
) -> Path:
    """Files of the same format in ``folder``, for Keras to read. Raises ``InvalidModel`` for names that no file has."""
    if members is None:
        weights[0][1]["model_config"] = config
        write_hdf5(folder / f"model{path.suffix}", weights)
        return folder / f"model{path.suffix}"
    for name, contents in {**members, _CONFIG: config.encode()}.items():
        place = folder / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents)
        except (OSError, ValueError) as error:
            raise InvalidModel(f'cannot copy "{name[:80]}" of "{path}"', given=str(error)[:200]) from error
    if weights:
        write_hdf5(folder / _WEIGHTS, weights)
    return folder


def _config_of(text: Any, path: Path) -> tuple[Any, str]:
    """The config without its compile section, which is not read, and its JSON."""
    if not isinstance(text, str | bytes):
        raise InvalidModel(f'"{path}" is not a model of Keras', given="it has no config")
    try:
        config = json.loads(text)
        if isinstance(config, dict):
            config.pop("compile_config", None)
        return config, json.dumps(config)
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f'the config of "{path}" is not JSON', given=f"{type(error).__name__}: {error}") from error
