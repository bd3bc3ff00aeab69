"""PyTorch in a worker process, since some programs end it or keep it busy for ever.

The file is read here again, by the same checks, so that what is run is what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from tenonnx.extend import limits
from tenonnx_torch.examples import to_numpy, to_tensor
from tenonnx_torch.pt2.reader import program_of_file
from tenonnx_torch.verification import called

#: The program that was used last, with its module, by its key.
_held: dict[str, tuple[Any, Any]] = {}


def outputs(key: str, path: str, held: Mapping[str, int], leaves: list[Any], seed: int) -> list[Any]:
    """The leaves of what the program returns for the leaves of its arguments; tensors are arrays."""
    with limits.override(**held):
        if key not in _held:
            _held.clear()
            program = program_of_file(path)
            _held[key] = program, program.module()
        program, module = _held[key]
        given = [to_tensor(each) if isinstance(each, np.ndarray) else each for each in leaves]
        arguments, keywords = pytree.tree_unflatten(given, program.call_spec.in_spec)
        result = called(module, tuple(arguments), dict(keywords), seed)
        return [to_numpy(each) if hasattr(each, "detach") else each for each in pytree.tree_leaves(result)]
