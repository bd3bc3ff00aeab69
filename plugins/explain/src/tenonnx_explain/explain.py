"""Models with attributions as additional outputs."""

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

#: Methods that explain all outputs at once.
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
    """``graph`` with attributions of an output as additional outputs, in ops of ONNX.

    ``method`` is one of ``gradient-times-input``, ``integrated-gradients``, ``smoothgrad``, ``grad-cam``,
    ``occlusion``, ``attention-rollout``, ``tree-shap``, ``kernel-shap`` and ``linear-shap``; by default ``tree-shap``
    for a model with tree ensembles, else ``integrated-gradients``. ``of`` names the output to explain, by default the
    first of floats, or the probabilities that ZipMap reads. Methods of Shapley values explain all its classes, the
    others the class ``target``, or the one with the largest output in each row. ``wrt`` names the values that get
    attributions, by default the float inputs or, for a model of token numbers, their embeddings.

    An output ``NAME/attribution`` has the shape of the value that it explains; of Shapley values it is
    ``[rows, features]`` or ``[rows, features, outputs]``. ``NAME/delta`` is the error of attributions that should sum
    to a difference of outputs, and ``NAME/expected`` the expected output, from which they start.

    ``background`` are rows ``float[rows, features]`` for Shapley values, which become the default of an input.
    With ``interventional``, TreeSHAP compares with each of them, instead of using the numbers of training rows in the
    nodes. ``steps`` is the default of the input ``steps`` of integrated gradients, ``samples`` the number of
    noisy inputs (SmoothGrad) or coalitions (KernelSHAP), ``window`` and ``strides`` those of occlusion, ``at`` the
    value for Grad-CAM; ``seed`` draws noise and coalitions.

    Raises ``InvalidCall`` for a method, name or shape that does not fit, and ``NotDifferentiable``.
    """
    method = _method(graph, method)
    refuse_opaque(graph, "explained")
    made = copied(graph)
    if method == "attention-rollout":
        made = rollout.with_attention_written_out(made)
    with made.building("explain"):
        found = _attributions(
            made, method, of, wrt, target, at, background, interventional, steps, samples, window, strides, seed
        )
        for name, value in found.items():
            if method in _SHAPLEY and value.ndim == 3 and value.shape[2] == 1:
                value = ops.squeeze(value, [2])
            made.output(free_name(made, name), value)
    drop_dead_nodes(made)
    return made


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
    """The additional outputs of a method by their names."""
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
    """The value to explain. Raises ``InvalidCall`` unless it is of floats."""
    if of is None:
        mapped = [value for node in graph.nodes if node.op_type == "ZipMap" for value in node.inputs]
        found = next((each for each in (*graph.outputs, *mapped) if each is not None and _is_float(each)), None)
        if found is None:
            raise InvalidCall("the model has no floating-point output to explain", do="name an inner value: --of")
        return found
    value = graph.find(of)
    if not _is_float(value):
        raise InvalidCall(
            f'"{value.name}" cannot be explained: it is not a floating-point tensor', given=str(value.type)
        )
    return value


def _values(graph: Graph, wrt: str | Value | Sequence[str | Value] | None) -> list[Value]:
    """The values that get attributions. Raises ``InvalidCall`` where there is none, or one that is not of floats."""
    if wrt is not None:
        several = [wrt] if isinstance(wrt, str | Value) else list(wrt)
        found = [graph.find(each) for each in several]
        for value in found:
            if not _is_float(value):
                raise InvalidCall(
                    f'"{value.name}" has no gradient: it is not a floating-point tensor', given=str(value.type)
                )
        return found
    found = [value for value in graph.inputs if _is_float(value)] or _embeddings(graph)
    if not found:
        raise InvalidCall(
            "the model has no floating-point input and no embedding", do="name inner values of floats: --wrt"
        )
    return found


def _embeddings(graph: Graph) -> list[Value]:
    """Rows of tables that are chosen by an input, such as embeddings of tokens."""
    inputs = set(graph.inputs)
    found = []
    for node in graph.nodes:
        if node.op_type == "Gather" and len(node.inputs) == 2:
            table, numbers = node.inputs
            value = node.outputs[0]
            if table is not None and table.is_constant and numbers in inputs and value is not None and _is_float(value):
                found.append(value)
    return found[:1]


def _float_input(graph: Graph, wrt: str | Value | Sequence[str | Value] | None) -> Value:
    """The one table of features. Raises ``InvalidCall`` where there are several, or one of another rank."""
    found = _values(graph, wrt)
    if len(found) != 1 or found[0].rank != 2:
        names = ", ".join(f"{value.name}: {value.type}" for value in found)
        raise InvalidCall("Shapley values need one matrix of rows and features", given=names, do="name it: --wrt")
    return found[0]


def background_input(graph: Graph, x: Value, rows: Array | None) -> Value:
    """An input for background rows, with these as default. Raises ``InvalidCall`` for rows of other features."""
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
