"""A bound of the weights that Keras creates for a file, so that a small config cannot take all memory."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenonnx.extend import InvalidModel, TenonnxError

#: Layers may create more elements than the file holds: quantized weights are packed, and the state of random numbers
#: is small.
_RATIO, _MORE = 4, 1 << 20

#: One thread at a time replaces the method of ``keras.Layer``.
_LOCK = threading.RLock()


@contextmanager
def bounded_weights(path: Path, saved_count: int | None) -> Iterator[None]:
    """Refuse weights of layers before they are created, if they have many more elements than the saved ones.

    None is no bound. Raises ``InvalidModel`` at the end, whatever Keras raised or caught.
    """
    if saved_count is None:
        yield
        return
    import keras

    most, made, refused = _RATIO * saved_count + _MORE, 0, list[TenonnxError]()
    layer, add_weight, thread = keras.Layer, keras.Layer.add_weight, threading.get_ident()

    def bounded(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal made
        if threading.get_ident() == thread:
            shape = arguments[0] if arguments else keywords.get("shape")
            made += _elements(shape)
            if made > most:
                refused.append(
                    InvalidModel(
                        f'the layers of "{path}" have more weights than the file holds',
                        given=f'"{self.name}" needs weights of shape {shape}, and the file has {saved_count} elements',
                        do="save the model again",
                    )
                )
                raise refused[0]
        return add_weight(self, *arguments, **keywords)

    with _LOCK:
        layer.add_weight = bounded
        try:
            yield
        except Exception as error:
            if refused:
                raise refused[0] from error
            raise
        finally:
            layer.add_weight = add_weight
    if refused:
        raise refused[0]


def _elements(shape: Any) -> int:
    """Number of elements of a shape; 1 for what Keras refuses."""
    sizes = shape if isinstance(shape, list | tuple) else [shape]
    return math.prod(max(operator.index(size), 0) for size in sizes if hasattr(size, "__index__"))
