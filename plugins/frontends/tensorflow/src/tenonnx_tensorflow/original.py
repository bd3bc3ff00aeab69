"""The original of a file, run for verification in a worker process by TensorFlow or another backend of Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tenonnx.extend.checks import SourceProcess, size_of
from tenonnx_frontends import read_dims
from tenonnx_tensorflow.options import Options

#: Module of the functions that the worker process runs.
_FUNCTIONS = Path(__file__).with_name("original_process.py")

#: Key of a shape and type in place of an example.
SPEC = "TensorSpec"

#: Names of the runtimes, by the Keras backend.
RUNTIMES = {"tensorflow": "TensorFlow", "jax": "Keras on JAX", "torch": "Keras on PyTorch"}


class Original:
    """A function from arrays by input name to outputs. The process starts at once, and imports the runtime in parallel.

    ``backend`` is the Keras backend for a Keras file. A call raises ``CallFailed`` for errors of the runtime, and
    ``WorkerEnded`` where the process ended unexpectedly.
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
        """Reason why the file must not run; empty if it may. Raises the errors of a call."""
        return str(self._process("refusal"))

    def __call__(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        outputs: list[Any] = self._process("outputs", dict(feeds))
        return outputs


def _sendable(example: Any) -> Any:
    """Convert examples for sending to another process: arrays, and dicts in place of types."""
    if isinstance(example, Mapping):
        return {key: _sendable(each) for key, each in example.items()}
    if isinstance(example, list | tuple):
        return [_sendable(each) for each in example]
    if hasattr(example, "numpy"):
        return example.numpy()
    if hasattr(example, "dtype") and not hasattr(example, "__array__"):
        return {SPEC: [list(example.shape), example.dtype.name, example.name]}
    return example
