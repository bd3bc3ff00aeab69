"""``tenonnx explain``: adds attributions to a model as outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.extend import (
    FILE,
    Command,
    complain,
    json_option,
    load_model,
    model_argument,
    names_like,
    opened,
    output_option,
    overwrite_option,
    plural,
    quiet_option,
    say,
    say_json,
    target_options,
    working,
)
from tenonnx_explain.methods import METHODS

if TYPE_CHECKING:
    import numpy as np

    from tenonnx import Graph
    from tenonnx_explain.completeness import Completeness

#: Tolerance of the completeness check, relative to the attributions: float32 rounding.
_ROUNDING = 1e-3

#: Relative error from which the command advises more steps.
_COARSE = 0.05


def sizes_like(example: str) -> Callable[[click.Context, click.Parameter, str | None], list[int] | None]:
    """A parser of comma-separated sizes; its error shows ``example``."""

    def read(ctx: click.Context, option: click.Parameter, value: str | None) -> list[int] | None:
        if value is None:
            return None
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdigit() and 0 < len(part) < 10 and int(part) for part in parts):
            raise click.BadParameter(f"{value!r} is not a list of sizes such as {example}", ctx, option)
        return [int(part) for part in parts]

    return read


@click.command(
    "explain",
    cls=Command,
    examples=[
        "tenonnx explain forest.onnx -o explained.onnx --background rows.csv",
        "tenonnx explain cnn.onnx -o explained.onnx --method grad-cam --at features --class 3",
    ],
)
@model_argument
@output_option
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="How attributions are computed. Default: tree-shap for a model with tree ensembles, else "
    "integrated-gradients.",
)
@click.option("--of", metavar="VALUE", help="The value to explain. Default: the first floating-point output.")
@click.option(
    "--wrt",
    callback=names_like("a,b"),
    metavar="A,B",
    help="The values that get attributions. Default: floating-point inputs, or token embeddings.",
)
@click.option(
    "--class",
    "target_class",
    type=click.IntRange(min=0),
    metavar="CLASS",
    help="The class to explain. Default: the one with the largest output, for each row.",
)
@click.option("--at", metavar="VALUE", help="With grad-cam: the feature map, as that of the last convolution.")
@click.option(
    "--background",
    type=FILE,
    metavar="FILE",
    help="With the methods of Shapley values: rows to compare with, a .npy file or a table. They become the default of "
    "an input; for tree-shap without --interventional they are counted in the nodes of trees.",
)
@click.option(
    "--interventional", is_flag=True, help="With tree-shap: compare with each background row, which is an input."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="With integrated-gradients: the default of the input steps.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    help="With smoothgrad: noisy inputs (default 25). With kernel-shap: coalitions (default 2048).",
)
@click.option(
    "--window",
    callback=sizes_like("3,8,8"),
    metavar="SIZES",
    help="With occlusion: sizes of a window, along the axes after the first.",
)
@click.option("--strides", callback=sizes_like("3,4,4"), metavar="SIZES", help="With occlusion: how far windows move.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of noise and random inputs.",
)
@target_options
@overwrite_option
@quiet_option
@json_option
def command(
    model: str,
    output: str,
    method: str | None,
    of: str | None,
    wrt: list[str] | None,
    target_class: int | None,
    at: str | None,
    background: str | None,
    interventional: bool,
    steps: int,
    samples: int | None,
    window: list[int] | None,
    strides: list[int] | None,
    seed: int,
    opset_version: Mapping[str, int] | None,
    domains: Sequence[str] | None,
    target: str | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Add attributions to a model: how much each feature, pixel or token adds to an output.

    The result is an ordinary ONNX model, whose outputs NAME/attribution any runtime computes. Where attributions sum to
    a difference of outputs, this is checked on random inputs before anything is written.
    """
    import tenonnx as tx
    from tenonnx_explain.completeness import completeness

    graph = load_model(model)
    before = [value.name for value in graph.outputs]
    with working(f"explaining {model}"):
        result = tx.explain(
            graph,
            method,
            of=of,
            wrt=wrt,
            target=target_class,
            at=at,
            background=None if background is None else _rows(graph, background, wrt),
            interventional=interventional,
            steps=steps,
            samples=samples,
            window=window,
            strides=strides,
            seed=seed,
        )
        sums = completeness(result, {}, seed)
        _check(sums, method)
        report = tx.export(
            result, opened(output), opset_version=opset_version, domains=domains, target=target, overwrite=overwrite
        )
    added = [value.name for value in result.outputs if value.name not in before]
    if as_json:
        error = None if sums is None else sums.share
        say_json({"file": model, "output": output, "attributions": added, "lacking": error, **report.to_dict()})
        return 0
    say(f"{output}: {plural(len(result.nodes), 'node')}, of which the model had {len(graph.nodes):,}")
    for value in result.outputs:
        if value.name in added:
            say(f"  {value.name}: {value.type}")
    if sums is not None:
        say(f"attributions sum to the difference of outputs within {sums.share:.1%}, on random inputs (seed {seed})")
        if sums.share > _COARSE:
            complain("note: --steps with a larger number comes nearer")
    return 0


def _rows(graph: Graph, path: str, wrt: list[str] | None) -> np.ndarray[Any, Any]:
    """Read background rows from a file. Raises ``InvalidCall`` unless the model has one matrix of features."""
    from tenonnx import InvalidCall
    from tenonnx_cli.extend import read_feeds

    matrices = [value for value in graph.inputs if value.rank == 2 and (wrt is None or value.name in wrt)]
    if len(matrices) != 1:
        given = ", ".join(f"{value.name}: {value.type}" for value in graph.inputs)
        raise InvalidCall("--background needs a model with one matrix of rows and features", given=given)
    name = matrices[0].name
    is_array = path.endswith((".npy", ".npz"))
    rows: np.ndarray[Any, Any] = read_feeds(graph, [f"{name}={path}" if is_array else path], None)[name]
    return rows


def _check(sums: Completeness | None, method: str | None) -> None:
    """Raise ``InvalidCall`` if attributions are NaN, or exact ones do not sum to the difference that they explain."""
    from tenonnx import InvalidCall

    if sums is None:
        return
    is_exact = method != "integrated-gradients" and method is not None
    if math.isnan(sums.share) or (is_exact and sums.share > _ROUNDING):
        raise InvalidCall(
            "attributions do not sum to the difference of outputs",
            given=f"{sums.error:.3g} lacking of attributions of {sums.size:.3g}",
            do="choose another --method or another value with --of",
        )
