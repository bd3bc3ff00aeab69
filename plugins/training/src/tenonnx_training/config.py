"""Options of a training with their help, shared by the Python keywords and the command line."""

from __future__ import annotations

import fnmatch
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

from tenonnx.extend import InvalidCall, did_you_mean
from tenonnx.extend.options import option
from tenonnx_training.names import LOSS_NAMES, METRIC_NAMES, OPTIMIZER_NAMES

if TYPE_CHECKING:
    from tenonnx import Graph
    from tenonnx_training.callbacks import Callback
    from tenonnx_training.data import Data
    from tenonnx_training.losses import Loss
    from tenonnx_training.metrics import Metric
    from tenonnx_training.optimizers import Optimizer
    from tenonnx_training.recipe import Group
    from tenonnx_training.stopping import Patience

Function = TypeVar("Function", bound=Callable[..., Any])


def _alternatives(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """Options of ``TrainingStep``. None is the setting in the graph's training state, or the default.

    ``loss`` is a name, an object, a function of prediction and labels, or a scalar value of the graph. It reads the
    value ``output``, by default the first float output of the graph, and a graph input ``labels``. A mapping of outputs
    to losses trains their sum, weighted by ``loss_weights``, by default 1 each. Then ``metrics`` is a mapping, too, and
    ``labels`` may be, by default ``OUTPUT/labels``; data may use the names of outputs instead. ``sample_weights`` names
    an input with a weight for each sample: the loss is the weighted mean. ``seed`` determines all random numbers. With
    a ``teacher``, a graph or a file, the loss is ``(1 - teacher_weight)`` times the loss by labels plus
    ``teacher_weight`` times the distance from the teacher's prediction, see ``Teacher``; evaluation and validation use
    the same loss. ``Recipe`` describes the options from ``trainable`` to ``recompute``; an infinite ``clip_norm``
    disables clipping.

    Weights that an exporter merged because they were equal are separated; weights that the author tied stay tied.
    ``tied_weights`` distinguishes the two; ``untie`` True separates all, False none, and patterns of names some.
    Running statistics are never shared with weights. A graph that was exported in training mode is written back in
    inference mode unless ``keep_training_form``.
    """

    loss: str | Loss | Callable[..., Any] | Mapping[str, Any] | None = option(
        None,
        f"{', '.join(LOSS_NAMES)}, or the name of a scalar value of the model. Required unless --resume is given.",
        "--loss",
        kind="loss",
        metavar="NAME",
    )
    output: str | None = option(
        None,
        "The value that goes into the loss; by default the first floating-point output.",
        "--of",
        kind="text",
        metavar="VALUE",
    )
    labels: str | Mapping[str, str] = "labels"
    loss_weights: Mapping[str, float] | None = None
    sample_weights: str | None = option(
        None,
        "The array or column of --data with a weight for each sample.",
        "--sample-weights",
        kind="text",
        metavar="NAME",
    )
    metrics: Sequence[str | Metric] | Mapping[str, Sequence[str | Metric]] = option(
        (),
        f"{_alternatives(METRIC_NAMES)}; repeatable.",
        "--metric",
        kind="metrics",
        metavar="NAME",
    )
    optimizer: Optimizer | str | None = option(
        None,
        f"{_alternatives(OPTIMIZER_NAMES)}.  [default: adam, or that of --resume]",
        "--optimizer",
        kind="optimizer",
        metavar="NAME",
    )
    teacher: Graph | str | os.PathLike[str] | None = option(
        None,
        "Knowledge distillation: a model whose predictions the loss is compared with, too; its inputs are called like "
        "those of the model.",
        "--teacher",
        kind="text",
        metavar="FILE",
    )
    temperature: float | None = option(
        None,
        "Divide the scores of model and teacher by this number before they are compared.  [default: 2]",
        "--temperature",
        kind="positive",
    )
    teacher_weight: float | None = option(
        None,
        "Share of the teacher in the loss, from 0 to 1.  [default: 0.5]",
        "--teacher-weight",
        kind="whole_share",
        metavar="SHARE",
    )
    trainable: str | Sequence[str] | None = option(
        None,
        "Patterns of initializers to train, or of nodes that use them; !PATTERN excludes.  [default: all with axes]",
        "--trainable",
        kind="patterns",
        metavar="A,B",
    )
    groups: Sequence[Group] | None = option(
        None,
        "Parameter group: multiply the learning rate of the matching initializers by N, or give them their own "
        "weight decay. Repeatable; the first match applies.",
        "--group",
        kind="groups",
        metavar="PATTERN:rate=N,weight_decay=N",
    )
    clip_norm: float | None = option(None, "Clip gradients by their global norm.", "--clip-norm", kind="positive")
    clip_value: float | None = option(None, "Clip every element of the gradients.", "--clip-value", kind="positive")
    accumulate: int | None = option(
        None,
        "Gradient accumulation: update with the mean gradient of this many batches.",
        "--accumulate",
        kind="number",
        metavar="BATCHES",
    )
    average: float | None = option(
        None,
        "Exponential moving average of the weights with this decay, such as 0.999, for validation and --output.",
        "--average",
        kind="share",
        metavar="SHARE",
    )
    precision: str | None = option(
        None,
        "Mixed precision: compute matrix products and convolutions in float32, bfloat16 or float16.",
        "--precision",
        kind="text",
        metavar="TYPE",
    )
    loss_scale: float | None = None
    frozen_statistics: bool | None = option(
        None,
        "BatchNormalization uses its running statistics and does not update them.  [default: if neither its scale "
        "nor its bias is trained]",
        "--frozen-statistics/--no-frozen-statistics",
    )
    unbiased_statistics: bool | None = option(
        None,
        "Update running variances with the unbiased variance of a batch, divided by n - 1, or with the biased one, "
        "divided by n, as ONNX specifies.  [default: unbiased, as in PyTorch]",
        "--unbiased-statistics/--no-unbiased-statistics",
    )
    recompute: Sequence[str] | None = option(
        None,
        "Activation checkpointing: patterns of nodes, such as */layer.0/*,*/layer.1/*, whose values are computed "
        "again in the backward pass, which saves memory and takes time.",
        "--recompute",
        kind="patterns",
        metavar="A,B",
    )
    untie: bool | str | Sequence[str] | None = option(
        None,
        "Train a weight for each module that reads a shared initializer, or keep all tied.  [default: separate what an "
        "exporter merged because it was equal]",
        "--untie/--no-untie",
    )
    keep_training_form: bool = option(
        False,
        "Write BatchNormalization and Dropout in training mode if the file was exported so. By default they are "
        "written in inference mode.",
        "--keep-training-form",
    )
    seed: int | None = option(
        None, "Seed for shuffling and random ops.  [default: 0, or that of --resume]", "--seed", kind="count"
    )
    backend: str = option("auto", "auto, numpy, onnxruntime ...", "--backend", kind="shown", metavar="NAME")

    def __post_init__(self) -> None:
        if self.seed is not None and not (isinstance(self.seed, Integral) and 0 <= self.seed < 2**63):
            raise InvalidCall("the seed is not an integer from 0 to 2**63 - 1", given=repr(self.seed))


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(StepConfig):
    """Options of ``fit``: those of ``StepConfig``, and those of the loop over epochs.

    Arrays are cut into shuffled batches of ``batch_size``, by default 32. ``validation`` data are measured after each
    epoch; then the graph is written to ``checkpoint``: a native file, or a folder ``*.shards`` into which each process
    writes the parts on its devices. ``checkpoint_every`` writes it also after that many batches; a file is written in a
    background thread, and a crash loses the batches after the last complete one. ``callbacks`` are ``Callback``
    objects, or functions of an epoch's results: returning True ends the training. ``patience`` ends it after that many
    epochs without a better loss and restores the best epoch. ``allow_divergence`` continues where the loss is not
    finite or a thousand times the first. ``progress`` shows a line for each epoch and a bar on stderr, by default on a
    terminal.
    """

    epochs: int = option(1, "Number of epochs to train; with --resume, further ones.", "--epochs", kind="epochs")
    batch_size: int | None = option(
        None, "Batch size.  [default: 32, or that of --resume]", "--batch-size", kind="number"
    )
    shuffle: bool | None = None
    validation: Data = option(
        None,
        "Validation data, in the format of --data, evaluated after each epoch.",
        "--validation",
        kind="text",
        metavar="PATH",
    )
    callbacks: Sequence[Callback | Callable[[dict[str, float]], bool | None]] = ()
    patience: Patience | int | None = option(
        None,
        "Early stopping: stop after this many epochs without a better (validation) loss, and restore the best weights.",
        "--patience",
        kind="number",
        metavar="EPOCHS",
    )
    checkpoint: str | os.PathLike[str] | None = option(
        None,
        "Write a .safetensors checkpoint after each epoch, or one in parts, a folder *.shards.",
        "--checkpoint",
        kind="text",
        metavar="PATH",
    )
    checkpoint_every: int | None = option(
        None,
        "Write the checkpoint after so many batches, too, so that a training that is killed goes on from there.",
        "--checkpoint-every",
        kind="number",
        metavar="BATCHES",
    )
    allow_divergence: bool = option(
        False,
        "Go on where the loss is not finite, or a thousand times the first (of a loss below 0.1: above 100).",
        "--allow-divergence",
        kind="flag",
    )
    progress: bool | None = None


Config = TypeVar("Config", bound=StepConfig)


def takes(kind: type[StepConfig]) -> Callable[[Function], Function]:
    """A decorator that adds the fields of ``kind`` to the signature of a function, for ``help`` and notebooks."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = signature.parameters
        keywords = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(kind)
            if each.name not in own
        ]
        *first, rest = own.values()
        function.__signature__ = signature.replace(parameters=[*first, *keywords, rest])  # type: ignore[attr-defined]
        return function

    return decorate


def configured(
    kind: type[Config], config: StepConfig | None, options: Mapping[str, Any], taker: str
) -> tuple[Config, dict[str, Any]]:
    """Split ``options`` into fields, set on top of ``config``, and options of the backend.

    Raises ``InvalidCall``, before compiling anything, for an option that neither ``taker`` nor the backend has.
    """
    names = [each.name for each in fields(kind)]
    base = {} if config is None else {each.name: getattr(config, each.name) for each in fields(config)}
    own = {name: value for name, value in {**base, **options}.items() if name in names}
    configured_object = kind(**own)
    left = {name: value for name, value in options.items() if name not in names}
    if left:
        _refuse_unknown(left, configured_object.backend, names, taker)
    return configured_object, left


#: Names of these options in other frameworks.
_ELSEWHERE = {
    "learning_rate": "optimizer=tt.Adam(1e-3)",
    "lr": "optimizer=tt.Adam(1e-3)",
    "weight_decay": "optimizer=tt.AdamW(1e-3, weight_decay=0.01)",
    "momentum": "optimizer=tt.Momentum(1e-2, momentum=0.9)",
    "x": "data=(inputs, labels)",
    "y": "data=(inputs, labels)",
    "validation_data": "validation=(inputs, labels)",
    "verbose": "progress=True",
}


def _refuse_unknown(options: Mapping[str, Any], backend: str, known: Sequence[str], taker: str) -> None:
    """Raise ``InvalidCall`` for options that the backend does not have either."""
    try:
        _nothing().compile(backend, **for_another(_nothing(), options))
    except InvalidCall as error:
        said = str(error.given or error.what)
        wrong = next((name for name in options if name in said), None)
        if wrong is None:
            raise
        raise InvalidCall(
            f'{taker} has no option "{wrong}"',
            given=f"{wrong}={options[wrong]!r}"[:80],
            available=f"{', '.join(sorted(known))}; of the backend: {error.available}",
            do=_ELSEWHERE.get(wrong) or did_you_mean(wrong, known),
        ) from error


def for_another(graph: Graph, options: Mapping[str, Any]) -> dict[str, Any]:
    """Backend options for another graph: without the sharding of arrays that this graph lacks."""
    sharding, names = options.get("sharding"), [value.name for value in (*graph.all_inputs, *graph.variables)]
    if not isinstance(sharding, Mapping):
        return dict(options)
    return {**options, "sharding": {key: axes for key, axes in sharding.items() if fnmatch.filter(names, key)}}


def _nothing() -> Graph:
    """A trivial graph, for validating options of a backend by compiling it."""
    import tenonnx as tx
    import tenonnx_standard as ops

    graph = tx.Graph(opsets={"ai.onnx": 21})
    graph.output("y", ops.identity(graph.input("x", "float32", ())))
    return graph
