"""``explain``: adds attributions to a model as outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenonnx_standard as ops
from tenonnx import Graph, InvalidCall, Value
from tenonnx.extend.transforms import drop_dead_nodes, in_registry_of_graph, refuse_opaque
from tenonnx.tools import did_you_mean
from tenonnx_explain import gradients, perturbation, rollout
from tenonnx_explain.linear import linear_shap
from tenonnx_explain.methods import METHODS
from tenonnx_explain.parts import Explained, copied, free_name, with_default
from tenonnx_explain.tree_shap import tree_shap
from tenonnx_explain.trees import has_trees

Array = np.ndarray[Any, Any]

#: Methods of Shapley values, which explain all classes at once.
_SHAPLEY = ("tree-shap", "kernel-shap", "linear-shap")


@in_registry_of_graph
def explain(
    graph: Graph,
    method: str | None = None,
    *,
    of: str | Value | None = None,
    wrt: str | Value | Sequence[str | Value] | None = None,
    target: int | None = None,
    at: str | Value | None = None,
    background: Array | None = None,
    interventional: bool = False,
    steps: int = 50,
    samples: int | None = None,
    window: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    seed: int = 0,
) -> Graph:
    """``graph`` with attributions of an output as additional outputs, computed by ONNX ops.

    ``method`` is one of ``gradient-times-input``, ``integrated-gradients``, ``smoothgrad``, ``grad-cam``,
    ``occlusion``, ``attention-rollout``, ``tree-shap``, ``kernel-shap`` and ``linear-shap``; by default ``tree-shap``
    for a model with tree ensembles, else ``integrated-gradients``. ``of`` names the output to explain, by default the
    first float output, or the probabilities that ZipMap reads. Methods of Shapley values explain all its classes, the
    others the class ``target``, by default the one with the largest output in each row. ``wrt`` names the values that
    get attributions, by default the float inputs, or the embeddings of a model whose inputs are token ids.

    An output ``NAME/attribution`` has the shape of the value NAME; Shapley values have the shape ``[rows, features]``
    or ``[rows, features, outputs]``. ``NAME/delta`` is the error of the sum of the attributions, for methods whose
    attributions sum to a difference of outputs. ``NAME/expected`` is the expected output of Shapley values.

    ``background`` are rows ``float[rows, features]`` for Shapley values, which become the default of an input.
    With ``interventional``, TreeSHAP compares with each background row instead of using the training counts in the
    nodes. ``steps`` is the default of the input ``steps`` of integrated gradients, ``samples`` the number of noisy
    inputs (SmoothGrad) or coalitions (KernelSHAP). ``window`` and ``strides`` are for occlusion, ``at`` names the
    feature map for Grad-CAM, and ``seed`` is the seed of noise and coalitions.

    Raises ``InvalidCall`` for a method, name or shape that does not fit, and ``NotDifferentiable`` for ops without a
    gradient on the way from ``wrt`` to ``of``.
    """
    method = _method(graph, method)
    refuse_opaque(graph, "explained")
    result = copied(graph)
    if method == "attention-rollout":
        result = rollout.with_decomposed_attention(result)
    with result.building("explain"):
        attributions = _attributions(
            result, method, of, wrt, target, at, background, interventional, steps, samples, window, strides, seed
        )
        for name, value in attributions.items():
            if method in _SHAPLEY and value.ndim == 3 and value.shape[2] == 1:
                value = ops.squeeze(value, [2])
            result.output(free_name(result, name), value)
    drop_dead_nodes(result)
    return result


def _attributions(
    graph: Graph,
    method: str,
    of: str | Value | None,
    wrt: str | Value | Sequence[str | Value] | None,
    target: int | None,
    at: str | Value | None,
    background: Array | None,
    interventional: bool,
    steps: int,
    samples: int | None,
    window: Sequence[int] | None,
    strides: Sequence[int] | None,
    seed: int,
) -> dict[str, Value]:
    """The additional outputs of a method by name."""
    if method == "attention-rollout":
        return rollout.attention_rollout(graph)
    if method == "tree-shap":
        shown = background_input(graph, _float_input(graph, wrt), background) if interventional else None
        return tree_shap(graph, None if of is None else graph.find(of), shown, background)
    if method == "linear-shap":
        x = _float_input(graph, wrt)
        return linear_shap(graph, None if of is None else graph.find(of), x, background_input(graph, x, background))
    explained = Explained(graph, _output(graph, of), _values(graph, wrt), target)
    if method == "kernel-shap":
        shown = background_input(graph, _float_input(graph, wrt), background)
        return perturbation.kernel_shap(explained, shown, samples or 2048, seed)
    if method == "grad-cam":
        if at is None:
            raise InvalidCall("no value was given for Grad-CAM", do="name the feature map of a convolution: --at")
        return gradients.grad_cam(explained, graph.find(at))
    if method == "occlusion":
        return perturbation.occlusion(explained, window, strides)
    simple: dict[str, Callable[[], dict[str, Value]]] = {
        "gradient-times-input": lambda: gradients.gradient_times_input(explained),
        "integrated-gradients": lambda: gradients.integrated_gradients(explained, steps),
        "smoothgrad": lambda: gradients.smooth_grad(explained, samples or 25, seed),
    }
    return simple[method]()


def _method(graph: Graph, method: str | None) -> str:
    if method is None:
        return "tree-shap" if has_trees(graph) else "integrated-gradients"
    if method not in METHODS:
        do = did_you_mean(method, METHODS)
        raise InvalidCall(f'unknown method of attribution "{method}"', available=", ".join(METHODS), do=do)
    return method


def _is_float(value: Value) -> bool:
    dtype = getattr(value.type, "dtype", None)
    return dtype is not None and dtype.is_float


def _output(graph: Graph, of: str | Value | None) -> Value:
    """The value to explain. Raises ``InvalidCall`` unless it is a float tensor."""
    if of is None:
        mapped = [value for node in graph.nodes if node.op_type == "ZipMap" for value in node.inputs]
        first = next((each for each in (*graph.outputs, *mapped) if each is not None and _is_float(each)), None)
        if first is None:
            raise InvalidCall("the model has no floating-point output to explain", do="name an inner value: --of")
        return first
    value = graph.find(of)
    if not _is_float(value):
        raise InvalidCall(
            f'"{value.name}" cannot be explained: it is not a floating-point tensor', given=str(value.type)
        )
    return value


def _values(graph: Graph, wrt: str | Value | Sequence[str | Value] | None) -> list[Value]:
    """The values that get attributions. Raises ``InvalidCall`` if there is none, or one is not a float tensor."""
    if wrt is not None:
        several = [wrt] if isinstance(wrt, str | Value) else list(wrt)
        values = [graph.find(each) for each in several]
        for value in values:
            if not _is_float(value):
                raise InvalidCall(
                    f'"{value.name}" has no gradient: it is not a floating-point tensor', given=str(value.type)
                )
        return values
    values = [value for value in graph.inputs if _is_float(value)] or _embeddings(graph)
    if not values:
        raise InvalidCall(
            "the model has no floating-point input and no embedding", do="name inner values of floats: --wrt"
        )
    return values


def _embeddings(graph: Graph) -> list[Value]:
    """The first embedding lookup, a Gather from a constant table by an input; empty if there is none."""
    inputs = set(graph.inputs)
    rows = []
    for node in graph.nodes:
        if node.op_type == "Gather" and len(node.inputs) == 2:
            table, numbers = node.inputs
            value = node.outputs[0]
            if table is not None and table.is_constant and numbers in inputs and value is not None and _is_float(value):
                rows.append(value)
    return rows[:1]


def _float_input(graph: Graph, wrt: str | Value | Sequence[str | Value] | None) -> Value:
    """The matrix of features. Raises ``InvalidCall`` for several values, and for another rank than 2."""
    values = _values(graph, wrt)
    if len(values) != 1 or values[0].rank != 2:
        names = ", ".join(f"{value.name}: {value.type}" for value in values)
        raise InvalidCall("Shapley values need one matrix of rows and features", given=names, do="name it: --wrt")
    return values[0]


def background_input(graph: Graph, x: Value, rows: Array | None) -> Value:
    """Add an input for background rows, with ``rows`` as default. Raises ``InvalidCall`` for rows of another shape."""
    name, features = f"{x.name}/background", x.shape[1]
    features = features if isinstance(features, int) else None
    if rows is None:
        return graph.input(free_name(graph, name), x.dtype, ("background", features))
    rows = np.asarray(rows, x.dtype.numpy)
    if rows.ndim != 2 or not len(rows) or (features is not None and rows.shape[1] != features):
        raise InvalidCall(
            f'background rows do not have the features of "{x.name}"', given=f"the shape {list(rows.shape)}"
        )
    return with_default(graph, name, rows)
