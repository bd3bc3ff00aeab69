"""``tenonnx evaluate``: measure a model on a whole data set."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click

from tenonnx_cli.extend import (
    FILE,
    Command,
    DeviceOptions,
    device_options,
    json_option,
    load_model,
    model_argument,
    say,
    say_json,
    say_table,
)
from tenonnx_training.commands import names
from tenonnx_training.commands.data import ClassOptions, DataOptions, class_options, data_options


@click.command(
    "evaluate",
    cls=Command,
    examples=[
        "tenonnx evaluate model.onnx --data test.npz --metric accuracy",
        "tenonnx evaluate model.onnx quantized.onnx --data test.csv --loss mean_squared_error",
    ],
)
@model_argument
@click.argument("second", type=FILE, metavar="[SECOND]", required=False)
@data_options
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=names.metrics,
    help="accuracy, top_5, f1, roc_auc, perplexity or mean_absolute_error; repeatable.",
)
@click.option("--loss", metavar="NAME", shell_complete=names.losses, help="A loss as tenonnx train takes it.")
@class_options
@click.option(
    "--sample-weights", metavar="NAME", help="The array or column of --data with a weight for each sample in the loss."
)
@click.option(
    "--of", "output", metavar="VALUE", help="The value to evaluate; by default the first floating-point output."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Batch size.")
@click.option("--backend", default="auto", show_default=True, metavar="NAME", help="auto, numpy, onnxruntime ...")
@device_options
@json_option
def command(
    model: str,
    second: str | None,
    data: DataOptions,
    metrics: Sequence[str],
    loss: str | None,
    classes: ClassOptions,
    sample_weights: str | None,
    output: str | None,
    batch_size: int,
    backend: str,
    where: DeviceOptions,
    as_json: bool,
) -> None:
    """Evaluate a model in inference mode on a whole data set, or two models side by side.

    With SECOND, the same metrics of both are shown, their difference, and which model is better.
    """
    from tenonnx_training.evaluation import evaluate
    from tenonnx_training.measuring import finite
    from tenonnx_training.objective import beside

    cost = classes.loss(loss or "softmax_cross_entropy")  # without a loss, the options still apply to metrics
    measured = [beside(metric, cost) for metric in metrics] if loss is None else list(metrics)

    def evaluated(path: str) -> dict[str, float]:
        graph = load_model(path)
        return evaluate(
            graph,
            data.read(graph, loss, output=output, weights=sample_weights),
            measured,
            loss=loss and cost,
            output=output,
            sample_weights=sample_weights,
            batch_size=batch_size,
            backend=backend,
            **where.options,
        )

    found = evaluated(model)
    other = None if second is None else evaluated(second)
    if as_json:
        more = {} if other is None else {"second": {"file": second, **finite(other)}}
        say_json({"file": model, "data": data.data, **finite(found), **more})
    elif other is None:
        for name, value in found.items():
            say(f"{name} {value:.6g}")
    else:
        assert second is not None
        rows = [_side_by_side(name, value, other[name]) for name, value in found.items()]
        say_table(rows, ("", model, second, "difference", f"{second} is"))


def _side_by_side(name: str, first: float, second: float) -> list[str]:
    from tenonnx_training.stopping import better

    verdict = "equal" if first == second else "better" if better(name, second, first) else "worse"
    if math.isnan(first) or math.isnan(second):
        verdict = ""
    return [name, f"{first:.6g}", f"{second:.6g}", f"{second - first:+.3g}", verdict]
