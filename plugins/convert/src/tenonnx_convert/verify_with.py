"""Verification of the converted model with a user's runner before writing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tenonnx.errors import InvalidCall, VerificationFailed
from tenonnx.formats.onnx.messages import read_back
from tenonnx.formats.onnx.messages import write as write_model
from tenonnx.graph.graph import Graph
from tenonnx_convert.conversion import ConversionState
from tenonnx_convert.file_limits import data_threshold
from tenonnx_convert.output_formats import Run, WrittenFile
from tenonnx_convert.verifying.verification import Verification
from tenonnx_convert.verifying.verify import verify
from tenonnx_run.runner import CommandRunner, FunctionRunner, runner_of
from tenonnx_run.worker import CallFailed, NoAnswer, ProcessCrashed


def compared_in_runner(state: ConversionState, name: str) -> Verification:
    """Compare the outputs of the file in a runner with the expected ones.

    Raises ``VerificationFailed`` if the runner fails or outputs differ.
    """
    if state.format is not None:
        raise InvalidCall("a runner was given for an output file that is not ONNX", given=f"verify_with {name}")
    with (
        closing(runner_of(name, state.options.timeout)) as runner,
        TemporaryDirectory(prefix="tenonnx-") as folder,
        read_back(state.model, state.initializers, state.graph.registry) as written,
    ):
        path = Path(folder, "model.onnx")
        write_model(path, state.model, state.initializers, data_threshold(state))
        runner.start()
        options = state.options
        result = verify(
            state.expected if state.as_before is None else written,
            written,
            feeds=options.feeds,
            input_shapes=state.input_shapes,
            seed=options.seed,
            atol=options.atol,
            rtol=options.rtol,
            structure=False,
            cover=False,
            file=WrittenFile(name, _program(runner, path, written)),
        )
    result.raise_if_failed()
    return result


def _program(runner: FunctionRunner | CommandRunner, path: Path, written: Graph) -> Run:
    names = [value.name for value in written.outputs]

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(zip(names, runner(path, feeds, names), strict=True))
        except (CallFailed, ProcessCrashed, NoAnswer) as error:
            raise VerificationFailed(f"the file does not run in {runner.name}", given=str(error)) from error

    return run
