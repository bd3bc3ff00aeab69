"""Options of reading a model, from a file that may need trust or a function of a Python file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from tenonnx_cli.code import loaded as run_python_file
from tenonnx_cli.options import gathered, in_order, load_model, loading_options
from tenonnx_cli.python_model import Made, check_reading, is_made, load_made, made_options


@dataclass(frozen=True)
class SourceOptions:
    """Options of reading a model."""

    examples: Sequence[str]
    dims: str | None
    task: str | None
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    fold: bool | None
    trust: bool
    loading: Sequence[str]

    def read(self, model: str, seed: int) -> Made:
        """Load the graph and the function to compare with the source. Python files of ``--load`` run first."""
        reading = {
            "dims": self.dims,
            "task": self.task,
            "input_names": self.input_names,
            "output_names": self.output_names,
            "simplify": self.fold,
        }
        check_reading(model, self.examples, reading)
        files = [each for each in self.loading if each.endswith(".py") and "=" not in each]
        given = loading_options([each for each in self.loading if each not in files])
        for each in files:
            run_python_file(each)
        if is_made(model):
            return load_made(model, self.examples, seed, {**reading, **given})
        return Made(load_model(model, trust=self.trust, **given), None)


#: Options of a command that reads a model from any source, passed as ``source``.
source_options = in_order(
    made_options,
    click.option(
        "--trust",
        is_flag=True,
        help="Run what the file brings: pickles of estimators and modules, TorchScript, Lambda layers of Keras, "
        "ops with effects. Files of skops and torch.export need no trust.",
    ),
    click.option(
        "--load",
        "loading",
        multiple=True,
        metavar="NAME=VALUE | FILE.py",
        help="A Python file to run first, such as one that registers layers of Keras; or an option of the reader, "
        "as tx.load takes it, perhaps in JSON: inputs=columns, zipmap=true and dtype=float64 of an estimator, "
        "signature=score of a SavedModel. Repeatable.",
    ),
    gathered("source", SourceOptions),
)
