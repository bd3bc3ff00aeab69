"""Exports for comparison: files of a module by tenonnx-torch, and by PyTorch's exporter.

Each traces a module once for all opsets, in a separate process, since onnxruntime crashes on some of the exporter's
files.
"""

import contextlib
import io
import multiprocessing
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import modules
import torch

import tenonnx as tx
from tenonnx_torch.examples import Examples
from tenonnx_torch.verification import verify_against

OPSETS = (13, 17, 21)


def ours(case, module, examples, path, **options):
    """A function that writes a verified file of a module at an opset."""
    given = Examples.of(module, examples, None, case.dims)
    graph = tx.load(module, *examples, dims=case.dims, verify=False, **options)
    return lambda opset: tx.export(
        graph, path, opset_version=opset, verify=lambda g: verify_against(module, given, g).raise_if_failed()
    )


def theirs(case, module, examples, path):
    """The same by PyTorch's exporter, without verification."""
    given = Examples.of(module, examples, None, case.dims)
    program = torch.export.export(
        module, examples, dynamic_shapes=given.shapes(module) if case.dims else None, strict=False
    )
    return lambda opset: torch.onnx.export(
        program, f=path, dynamo=True, opset_version=opset, verbose=False, external_data=False
    )


def wrong(error):
    """First line of an error."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:160]} {str(getattr(error, 'given', ''))[:300]}".strip()


def apart(function, *arguments):
    """Result of a function in a separate process, with a temporary folder; None if the process crashes."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(_quietly, function, *arguments, Path(folder) / "model.onnx").result()
        except BrokenProcessPool:
            return None


def _quietly(function, *arguments):
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return function(*arguments)


def made(name):
    """A case with its module and examples; initial ones and zeros are perturbed, as training would."""
    case = modules.CASES[name]
    module, examples = case.make()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    return case, module, examples
