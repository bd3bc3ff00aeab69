"""Files of Keras, which Keras itself loads, on whatever backend it has."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidCall


def loaded(source: Any) -> Any:
    """The model of a ``.keras`` or ``.h5`` file, whose code is never run (``safe_mode``); anything else as it is."""
    if not isinstance(source, str | os.PathLike) or Path(source).suffix not in (".keras", ".h5", ".hdf5"):
        return source
    if find_spec("keras") is None:
        raise InvalidCall(
            "a file of Keras is read by Keras, which must be installed",
            given=f'"{source}"',
            do="pip install tensorflow, or give a SavedModel, a frozen graph or a .tflite file, which need none",
        )
    import keras

    try:
        return keras.saving.load_model(source, compile=False, safe_mode=True)
    except Exception as error:
        raise InvalidCall(f'"{source}" must be a model that Keras loads', given=str(error).split("\n")[0]) from error
