"""Hugging Face datasets on disk, as written by ``Dataset.save_to_disk``: Arrow files with JSON metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall

_STATE, _SPLITS, _INFO = "state.json", "dataset_dict.json", "dataset_info.json"


def is_dataset(path: str | Path) -> bool:
    """Whether a folder is a dataset or contains its splits."""
    return any((Path(path) / name).is_file() for name in (_STATE, _SPLITS))


def files_of(path: str | Path) -> list[Path]:
    """The Arrow files of a dataset in order. Raises ``InvalidCall`` for several splits."""
    folder = Path(path)
    if not (folder / _STATE).is_file():
        splits = _json(folder / _SPLITS).get("splits", ())
        raise InvalidCall(
            f"{path} holds several splits of a dataset",
            given=", ".join(map(str, splits)),
            do=f"name one: {folder / str(next(iter(splits), 'train'))}",
        )
    named = [str(each.get("filename")) for each in _json(folder / _STATE).get("_data_files", ())]
    if not named or any(Path(name).name != name for name in named):
        raise InvalidCall(f"{folder / _STATE} names no files of the dataset", given=", ".join(named) or "none")
    return [folder / name for name in named]


def class_names(path: str | Path, column: str) -> list[str] | None:
    """The class names of a dataset's column of class numbers, None if it has none."""
    if not (Path(path) / _INFO).is_file():
        return None
    feature = (_json(Path(path) / _INFO).get("features") or {}).get(column)
    names = feature.get("names") if isinstance(feature, dict) else None
    return list(map(str, names)) if isinstance(names, list) and names else None


def _json(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidCall(f'cannot read "{path}"', given=str(error)) from error
    if not isinstance(result, dict):
        raise InvalidCall(f'"{path}" holds no JSON object')
    return result
