"""``tenonnx evaluate``: measure a model on a whole data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tenonnx_cli.extend import json_option, load_model, model_argument, say, say_json
from tenonnx_training.commands.data import class_options, data_options, read_data, told


@click.command("evaluate")
@model_argument
@data_options
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="accuracy, top_5, f1, roc_auc, perplexity or mean_absolute_error; repeatable.",
)
@click.option("--loss", metavar="NAME", help="A loss as tenonnx train takes it.")
@class_options
@click.option(
    "--sample-weights", metavar="NAME", help="The array or column of --data with a weight for each sample in the loss."
)
@click.option("--of", metavar="VALUE", help="The value to evaluate; by default the first floating-point output.")
@click.option("--labels", metavar="NAME", help="The array or column of --data with the labels.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Batch size.")
@click.option("--backend", default="auto", show_default=True, metavar="NAME", help="auto, numpy, onnxruntime ...")
@json_option
def command(
    model: str,
    data: str,
    metrics: Sequence[str],
    loss: str | None,
    ignore_index: int | None,
    class_axis: int | None,
    sample_weights: str | None,
    of: str | None,
    labels: str | None,
    batch_size: int,
    backend: str,
    as_json: bool,
    **images: Any,
) -> None:
    """Evaluate a model in inference mode on a whole data set."""
    from tenonnx_training.evaluation import evaluate
    from tenonnx_training.objective import beside

    graph = load_model(model)
    arrays = read_data(graph, data, labels, loss, of=of, weights=sample_weights, **images)
    cost = told(loss or "softmax_cross_entropy", ignore_index, class_axis)  # without a loss it speaks of metrics
    measured = [beside(metric, cost) for metric in metrics] if loss is None else list(metrics)
    how: dict[str, Any] = {"loss": loss and cost, "output": of, "sample_weights": sample_weights}
    found = evaluate(graph, arrays, measured, **how, batch_size=batch_size, backend=backend)
    if as_json:
        say_json({"file": model, "data": data, **found})
        return
    for name, value in found.items():
        say(f"{name} {value:.6g}")
