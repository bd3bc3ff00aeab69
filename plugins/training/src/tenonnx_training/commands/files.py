"""The files that ``tenonnx train`` reads its state from and writes what it learns to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tenonnx_cli.extend import FILE, gathered, in_order, opened

if TYPE_CHECKING:
    from tenonnx.extend import Graph


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training goes on from, and where its results go."""

    output_file: str | None
    checkpoint: str | None
    resume: str | None
    include_training_state: bool
    emit_step: str | None

    @property
    def written(self) -> dict[str, str | None]:
        """The files that are written, by what they hold."""
        return {"output": self.output_file, "checkpoint": self.checkpoint, "step": self.emit_step}

    def check(self) -> None:
        """Raise ``InvalidCall``, before a long training, where its results go nowhere or to a place that takes none."""
        from tenonnx.extend import InvalidCall
        from tenonnx.extend.formats import check_output
        from tenonnx_cli.extend import SUFFIXES, results_aside
        from tenonnx_training.shards import SUFFIX, is_sharded

        kinds = {
            "--output": (self.output_file, SUFFIXES),
            "--checkpoint": (self.checkpoint, (*SUFFIXES[1:], SUFFIX)),
            "--emit-step": (self.emit_step, ("",)),
        }
        if not any(path for path, _ in kinds.values()):
            raise InvalidCall(
                "no output file is given", given="none of these options", available=", ".join(kinds),
                do="name a file: -o tuned.onnx",
            )  # fmt: skip
        for option, (path, suffixes) in kinds.items():
            if path is None:
                continue
            if option == "--output" and path == "-":
                results_aside()
                continue
            if not path.lower().endswith(suffixes):
                raise InvalidCall(
                    f"{option} must name a file of a known format", given=path, available=", ".join(suffixes)
                )
            if not is_sharded(path):
                check_output(path)

    def take_state(self, graph: Graph) -> None:
        """Give ``graph`` the trained contents and the training state of the file to resume from, if there is one."""
        from tenonnx.extend import InvalidCall
        from tenonnx_cli.extend import load_model
        from tenonnx_training.state import assign_changed

        if self.resume is None:
            return
        source = load_model(self.resume)
        if source.training_state is None:
            raise InvalidCall(
                "--resume must name a file with training state",
                given=f"{self.resume}, which has none",
                do="train with --checkpoint, or with --include-training-state",
            )
        held = {value.name: value for value in graph.variables}
        taken = {v.name: v.data.array() for v in source.variables if v.name in held and v.data is not None}
        assign_changed(graph, taken)
        graph.training_state = source.training_state

    def write(self, graph: Graph) -> None:
        """Write the trained graph to its file, with averages of its weights where no training state goes along."""
        import tenonnx as tx
        from tenonnx_training.state import averaged

        if self.output_file is None:
            return
        if self.output_file.lower().endswith(".safetensors"):
            graph.save(self.output_file)
            return
        state = graph.training_state
        if not self.include_training_state and state is not None and state.settings.get("average"):
            graph = averaged(graph)
        tx.export(graph, opened(self.output_file), include_training_state=self.include_training_state)


file_options = in_order(
    click.option(
        "-o", "--output", "output_file", type=FILE, metavar="FILE",
        help="The trained model: a .onnx file, or a .safetensors file in the native format of tenonnx; - for standard "
        "output.",
    ),
    click.option(
        "--resume", type=FILE, metavar="FILE",
        help="Continue training from this model or checkpoint, which must hold training state, with the same settings "
        "unless options override them.",
    ),
    click.option(
        "--include-training-state", is_flag=True,
        help="Also write the training state into --output, so that --resume can continue from it.",
    ),
    click.option(
        "--emit-step", type=FILE, metavar="FILE",
        help="Write the training step as an ONNX model, for --opset and --domains.",
    ),
    gathered("files", TrainingFiles),
)  # fmt: skip
