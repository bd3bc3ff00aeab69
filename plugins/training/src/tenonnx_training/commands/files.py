"""Files from which ``tenonnx train`` reads its state, and to which it writes the trained model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tenonnx_cli.extend import FILE, gathered, in_order, opened, overwrite_option

if TYPE_CHECKING:
    from tenonnx.extend import Graph
    from tenonnx_training.callbacks import Callback


@dataclass(frozen=True)
class TrainingFiles:
    """Files that a training resumes from, and those that it writes."""

    output_file: str | None
    checkpoint: str | None
    resume: str | None
    include_training_state: bool
    emit_step: str | None
    log: str | None
    best: str | None
    monitor: str | None
    rates: str | None
    overwrite: bool

    @property
    def written(self) -> dict[str, str | None]:
        """Paths of the files to write, by their content."""
        return {
            "output": self.output_file,
            "checkpoint": self.checkpoint,
            "step": self.emit_step,
            "log": self.log,
            "best": self.best,
            "rates": self.rates,
        }

    @property
    def callbacks(self) -> list[Callback]:
        """The callbacks that write the log and the best model."""
        from tenonnx_training.callbacks import BestCheckpoint, Log

        result: list[Callback] = [] if self.log is None else [Log(self.log)]
        if self.best is not None:
            result.append(BestCheckpoint(self.best, self.monitor))
        return result

    def check(self) -> None:
        """Raise ``InvalidCall`` before a long training where its results would be lost or cannot be written."""
        from tenonnx.extend import InvalidCall
        from tenonnx.extend.formats import check_output
        from tenonnx_cli.extend import SUFFIXES, results_aside
        from tenonnx_training.shards import SUFFIX, is_sharded

        kinds = {
            "--output": (self.output_file, SUFFIXES),
            "--checkpoint": (self.checkpoint, (*SUFFIXES[1:], SUFFIX)),
            "--emit-step": (self.emit_step, ("",)),
            "--best": (self.best, SUFFIXES),
            "--log": (self.log, (".csv", ".jsonl")),
            "--find-learning-rate": (self.rates, (".svg",)),
        }
        if self.rates is not None and (others := [o for o, (path, _) in kinds.items() if path and path != self.rates]):
            raise InvalidCall(
                "an output file was given with --find-learning-rate, which trains no model", given=", ".join(others)
            )
        if self.monitor is not None and self.best is None:
            raise InvalidCall(
                "--monitor was given without --best", given=f"--monitor {self.monitor}", do="--best best.onnx"
            )
        if not any(path for option, (path, _) in kinds.items() if option != "--log"):
            raise InvalidCall(
                "no output file is given",
                given="none of these options",
                available="--output, --checkpoint, --emit-step, --best, --find-learning-rate",
                do="name a file: -o tuned.onnx",
            )
        for option, (path, suffixes) in kinds.items():
            if path is None:
                continue
            if option == "--output" and path == "-":
                results_aside()
                continue
            if not path.lower().endswith(suffixes):
                raise InvalidCall(f"{option}: unknown file format", given=path, available=", ".join(suffixes))
            if not is_sharded(path):
                check_output(path, overwrite=self.overwrite and option in ("--output", "--find-learning-rate"))

    def take_state(self, graph: Graph) -> None:
        """Copy the weights and the training state of the file to resume from, if any, to ``graph``."""
        from tenonnx.extend import InvalidCall
        from tenonnx_cli.extend import load_model
        from tenonnx_data import ClassNames
        from tenonnx_training.state import assign_changed

        if self.resume is None:
            return
        source = load_model(self.resume)
        if source.training_state is None:
            raise InvalidCall(
                "cannot resume: the file has no training state",
                given=f"{self.resume}, which has none",
                do="train with --checkpoint, or with --include-training-state",
            )
        variables = {value.name: value for value in graph.variables}
        taken = {v.name: v.data.array() for v in source.variables if v.name in variables and v.data is not None}
        assign_changed(graph, taken)
        graph.training_state = source.training_state
        ClassNames(graph).keep_all(source)

    def write(self, graph: Graph) -> None:
        """Write the trained graph, with averaged weights where the file has no training state."""
        import tenonnx as tx
        from tenonnx_training.state import averaged

        if self.output_file is None:
            return
        if self.output_file.lower().endswith(".safetensors"):
            graph.save(self.output_file, overwrite=self.overwrite)
            return
        state = graph.training_state
        if not self.include_training_state and state is not None and state.settings.get("average"):
            graph = averaged(graph)
        state_too = self.include_training_state
        tx.export(graph, opened(self.output_file), overwrite=self.overwrite, include_training_state=state_too)


file_options = in_order(
    click.option(
        "-o",
        "--output",
        "output_file",
        type=FILE,
        metavar="FILE",
        help="The trained model: a .onnx file, or a .safetensors file in the native format of tenonnx; - for standard "
        "output.",
    ),
    click.option(
        "--resume",
        type=FILE,
        metavar="FILE",
        help="Continue training from this model or checkpoint, which must hold training state, with the same settings "
        "unless options override them.",
    ),
    click.option(
        "--include-training-state",
        is_flag=True,
        help="Also write the training state into --output, so that --resume can continue from it.",
    ),
    click.option(
        "--emit-step",
        type=FILE,
        metavar="FILE",
        help="Write the training step as an ONNX model, for --opset and --domains.",
    ),
    click.option(
        "--best",
        type=FILE,
        metavar="FILE",
        help="Write the best model so far after each epoch, by the (validation) loss or --monitor: a .onnx or "
        ".safetensors file.",
    ),
    click.option(
        "--find-learning-rate",
        "--find-lr",
        "rates",
        type=FILE,
        metavar="FILE",
        help="Instead of training, raise the learning rate from batch to batch, print the rate at which the loss falls "
        "fastest, and draw the loss by rate to a .svg file.",
    ),
    click.option(
        "--monitor",
        metavar="NAME",
        help='The number by which --best chooses, such as validation_accuracy.  [default: "validation_loss" with '
        '--validation, else "loss"]',
    ),
    click.option(
        "--log",
        type=FILE,
        metavar="FILE",
        help="Write a row for each epoch to a .csv file or a .jsonl file; --resume adds to it.",
    ),
    overwrite_option,
    gathered("files", TrainingFiles),
)
