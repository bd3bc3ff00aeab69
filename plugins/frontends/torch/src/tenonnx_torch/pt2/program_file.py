"""Running the program of a file in a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tenonnx.extend.checks import SourceProcess, size_of
from tenonnx_torch.examples import to_numpy, to_tensor

#: Module of the functions that the worker process runs.
_FUNCTIONS = Path(__file__).with_name("program_process.py")


def start() -> None:
    """Start the process, which imports PyTorch in parallel to this one."""
    SourceProcess(_FUNCTIONS, "PyTorch", imports=["torch"]).start()


class ProgramFile:
    """The program of a file as a function; it runs in a worker process."""

    def __init__(self, path: Path, program: Any) -> None:
        self._process = SourceProcess(_FUNCTIONS, "PyTorch", size_of(path), [str(path.absolute())], ["torch"])
        self._structures = program.call_spec.in_spec, program.call_spec.out_spec

    def __call__(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], seed: int) -> Any:
        """Run the program.

        Raises ``TypeError`` for arguments of another structure, ``CallFailed`` for PyTorch's errors, and
        ``WorkerEnded`` where the process ended unexpectedly.
        """
        taken, given = self._structures
        names = taken.children()[1].context
        if set(names) != set(keywords):
            raise TypeError(f"the program takes the keywords {', '.join(names) or 'of none'}")
        leaves, structure = pytree.tree_flatten((tuple(arguments), {name: keywords[name] for name in names}))
        if structure != taken:
            raise TypeError("the arguments are not of the structure that the program takes")
        sent = [to_numpy(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        found = self._process("outputs", sent, seed)
        tensors = [to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in found]
        return pytree.tree_unflatten(tensors, given)
