"""Front end for ``.pt2`` files, and, with trust, for files of TorchScript and pickled modules."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from tenonnx.extend import Graph, InvalidCall, InvalidModel, Registry
from tenonnx.extend.frontends import Verification
from tenonnx_torch import frontend
from tenonnx_torch.calls import made_up
from tenonnx_torch.programs import module_called_by
from tenonnx_torch.pt2.program_file import ProgramFile, start
from tenonnx_torch.pt2.reader import program_of_file

for_files: Mapping[str, Any] = frontend.for_files


def read(
    path: str | os.PathLike[str],
    *examples: Any,
    registry: Registry | None = None,
    trust: bool = False,
    **options: Any,
) -> Graph:
    """Read the program or module in a file as a graph, with the options of ``tenonnx_torch.frontend.read``.

    A ``.pt2`` file from ``torch.export.save`` is read without executing code from it, provided that its operators have
    no side effects. It is verified in a worker process, by default with random inputs of the sizes in the file. Other
    files, TorchScript and pickled modules, are rejected unless ``trust`` is True, because reading them executes code.
    Raises ``InvalidCall`` for a rejected file, ``InvalidModel`` for a broken one, and the errors of
    ``tenonnx_torch.frontend.read``.
    """
    is_verified = options.get("verify", True) is not False
    program, examples, options = _with_examples(_source_in_file(path, trust, is_verified), examples, options)
    return frontend.read(program, *examples, registry=registry, **options)


def verifier(
    path: str | os.PathLike[str], *examples: Any, trust: bool = False, **options: Any
) -> Callable[..., Verification]:
    """A function that verifies a graph against the program or module in a file."""
    program, examples, options = _with_examples(_source_in_file(path, trust, True), examples, options)
    return frontend.verifier(program, *examples, **options)


def _with_examples(
    source: Any, examples: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Make examples of a scripted module from ``input_shape``, since tracing needs them first."""
    if examples or not isinstance(source, torch.jit.ScriptModule) or not options.get("input_shape"):
        return source, examples, options
    arguments, keywords, _ = made_up(source, options["input_shape"])
    return source, arguments, {**options, "input_shape": None, "keywords": keywords or None}


def _source_in_file(path: str | os.PathLike[str], trust: bool, is_verified: bool) -> Any:
    is_program = Path(path).suffix.lower() == ".pt2"
    if trust:
        return _trusted(path, is_program)
    if is_program:
        if is_verified:
            start()
        program = program_of_file(path)
        return module_called_by(program, ProgramFile(Path(path), program))
    raise InvalidCall(
        "a TorchScript file or a pickled module was not read, since reading it runs its code",
        given=f'"{os.fspath(path)}"',
        do="give trust=True (--trust) for a file of your own, or save the program with torch.export.save",
    )


def _trusted(path: str | os.PathLike[str], is_program: bool) -> Any:
    """Load a program or module by PyTorch. Raises ``InvalidModel``, and ``InvalidCall`` for bare weights."""
    try:
        with warnings.catch_warnings(action="ignore"):
            if is_program:
                return torch.export.load(path)
            if _is_script(path):
                return torch.jit.load(path, map_location="cpu").eval()
            result = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # the file may raise anything
        given = " ".join(str(error).split())[:300]
        raise InvalidModel(f'PyTorch cannot read "{os.fspath(path)}"', given=given) from error
    if not isinstance(result, torch.nn.Module | torch.export.ExportedProgram):
        raise InvalidCall(
            "the file contains no module",
            given=f'"{os.fspath(path)}", which holds a {type(result).__name__}',
            do="load the weights into their module, and give that: tx.load(module, *examples)",
        )
    return result


def _is_script(path: str | os.PathLike[str]) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())
