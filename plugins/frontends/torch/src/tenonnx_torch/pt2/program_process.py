"""Functions of the worker process for PyTorch programs, since some programs crash or hang.

The file is read and validated again here, so that exactly the validated content runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from tenonnx_torch.examples import to_numpy, to_tensor
from tenonnx_torch.pt2.reader import program_of_file
from tenonnx_torch.verification import called


def opened(path: str) -> tuple[Any, Any]:
    """The program of a file, and its module."""
    program = program_of_file(path)
    return program, program.module()


def outputs(source: tuple[Any, Any], leaves: list[Any], seed: int) -> list[Any]:
    """Run the program on the leaves of its arguments; returns the leaves of its result, with tensors as arrays."""
    program, module = source
    given = [to_tensor(each) if isinstance(each, np.ndarray) else each for each in leaves]
    arguments, keywords = pytree.tree_unflatten(given, program.call_spec.in_spec)
    result = called(module, tuple(arguments), dict(keywords), seed)
    return [to_numpy(each) if hasattr(each, "detach") else each for each in pytree.tree_leaves(result)]
