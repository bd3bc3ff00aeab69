"""Reading the configuration files of tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidModel


def contents(path: Path) -> str:
    """The text of a file. Raises ``InvalidModel`` if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidModel(f'cannot read "{path}": {reason}') from error


def settings(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ``InvalidModel`` if it has none."""
    try:
        result = json.loads(contents(path))
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f'"{path}" is not JSON', given=str(error)) from error
    if not isinstance(result, dict):
        raise InvalidModel(f'"{path}" does not hold a JSON object', given=type(result).__name__)
    return result
