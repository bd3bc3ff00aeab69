"""The original of a file, run in a worker process by TensorFlow or another backend of Keras, for verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tenonnx.extend.checks import SourceProcess, size_of
from tenonnx_frontends import read_dims
from tenonnx_tensorflow.options import Options

#: The functions that the worker process serves.
_FUNCTIONS = Path(__file__).with_name("original_process.py")

#: Key of a shape and type in the place of an example.
SPEC = "TensorSpec"

#: Names of the runtimes by the backends of Keras.
RUNTIMES = {"tensorflow": "TensorFlow", "jax": "Keras on JAX", "torch": "Keras on PyTorch"}


class Original:
    """A function of arrays by the names of inputs. The process starts at once, and imports the runtime meanwhile.

    ``backend`` is that of Keras for a file of Keras. A call raises ``CallFailed`` for what the runtime raises, and
    ``WorkerEnded`` where the file ended the process.
    """

    def __init__(self, path: Path, examples: Sequence[Any], options: Options, backend: str = "tensorflow") -> None:
        self.name = RUNTIMES[backend]
        chosen = {
            name: getattr(options, name)
            for name in ("signature", "tags", "inputs", "outputs", "dynamic_batch", "input_names", "training", "trust")
        }
        chosen |= {"shapes": options.shapes and {name: list(shape) for name, shape in options.shapes.items()}}
        chosen |= {"dims": read_dims(options.dims, options.dynamic_axes) or None}
        opening = str(path.absolute()), _sendable(list(examples)), chosen
        imports = [backend] if backend == "tensorflow" else [backend, "keras"]
        self._process = SourceProcess(_FUNCTIONS, self.name, size_of(path), opening, imports)
        self._process.start()

    @cached_property
    def refusal(self) -> str:
        """Reason why the runtime does not run the file; empty where it does. Raises as a call."""
        return str(self._process("refusal"))

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        outputs: list[Any] = self._process("outputs", dict(feeds))
        return outputs


def _sendable(example: Any) -> Any:
    """Examples as a message between processes takes them: arrays, and types in the place of such."""
    if isinstance(example, Mapping):
        return {key: _sendable(each) for key, each in example.items()}
    if isinstance(example, list | tuple):
        return [_sendable(each) for each in example]
    if hasattr(example, "numpy"):
        return example.numpy()
    if hasattr(example, "dtype") and not hasattr(example, "__array__"):
        return {SPEC: [list(example.shape), example.dtype.name, example.name]}
    return example
