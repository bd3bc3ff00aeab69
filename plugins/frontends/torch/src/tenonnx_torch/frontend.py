"""The front end: ``tx.load(module, *examples)`` returns the graph of a module."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tenonnx.extend import Graph, InvalidCall, NotRepresentable, Registry, formats
from tenonnx.extend.frontends import Allowed, Verification
from tenonnx.extend.rules import apply_rules
from tenonnx_frontends import Dims, chosen_names, output_names, unknown_dims, warn_unverified
from tenonnx_torch.calls import Shapes, examples_of
from tenonnx_torch.differences import verified
from tenonnx_torch.examples import Examples, to_numpy
from tenonnx_torch.lowerings import DOMAIN, Form, Forms
from tenonnx_torch.programs import as_module, borders, shapes_of
from tenonnx_torch.roles import set_roles
from tenonnx_torch.tidying import simplified, tidied
from tenonnx_torch.tracing import MOMENTUM, check_call, converted, restore_training_forms, traced
from tenonnx_torch.verification import verify_against

if TYPE_CHECKING:
    import onnx

#: Options for reading a module that is converted to a file.
for_files: Mapping[str, Any] = {"simplify": None, "share_weights": True}

#: Output names by task, in order.
TASKS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("classification", "regression", "anomaly", "segmentation"), ("output",)),
    "detection": ("boxes", "labels", "scores"),
}


def read(
    module: torch.nn.Module,
    *examples: Any,
    registry: Registry | None = None,
    keywords: Mapping[str, Any] | None = None,
    dims: Dims | str | os.PathLike[str] | None = None,
    dynamic_axes: Dims | str | os.PathLike[str] | None = None,
    dynamic_batch: bool = False,
    input_shape: Shapes | None = None,
    height: int | None = None,
    width: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    task: str | None = None,
    forms: Mapping[str, Form] | None = None,
    simplify: bool | None = False,
    share_weights: bool = False,
    verify: bool | float = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> Graph:
    """Read ``module``, in its current mode, as a graph, by example arguments and ``keywords`` of one call.

    A ``torch.export.ExportedProgram`` is used as it is, by default with its own examples; a ``torch.jit`` module is
    exported first.

    Variables have the qualified names of parameters and buffers. Inputs are named like the parameters of ``forward``,
    outputs like the keys of its result, unless ``input_names``, ``output_names`` or ``task`` are passed. ``dims`` (or
    ``dynamic_axes``) names the dynamic axes, ``{"x": {0: "batch"}}``, and may be JSON or a JSON file. ``input_shape``,
    or ``height`` and ``width`` of an image, generate random tensors instead of examples. ``forms`` maps names of
    operators (``"acme::scale"``) to lowerings made of ops; they have the operator's signature, with values for tensors.
    Lowerings of module classes get the module as first argument, with values for its parameters. ``simplify`` computes
    new weights where that removes nodes; None does so without merging weights, and not in training mode, as for a file.
    With ``share_weights``, large weights are not copied: the graph changes with the module.
    ``atol`` and ``rtol`` replace the default tolerances; ``verify`` may be a number for ``atol``. The graph has the
    exporter's opset version; ``tx.export`` converts it to any other. Raises ``NotRepresentable``, naming lines of the
    module, where it cannot be traced or has no ONNX equivalent; ``InvalidCall`` for invalid examples, dims and names;
    and ``VerificationFailed`` where the outputs of the graph differ from the module's, unless ``verify`` is False.
    """
    module = as_module(module, examples, keywords)
    given = examples_of(
        module,
        examples,
        keywords=keywords,
        dims=dims,
        dynamic_axes=dynamic_axes,
        dynamic_batch=dynamic_batch,
        input_shape=input_shape,
        height=height,
        width=width,
        input_names=input_names,
    )
    allowed = Allowed.of(verify, atol, rtol)
    known = Forms(forms)
    graph, given = graph_of(module, given, registry, input_names, output_names, task, known, share_weights)
    left = simplified(graph, simplify)
    if allowed is not None:
        warn_unverified(verified(module, given, left, graph, allowed, known))
    return left


def verifier(module: torch.nn.Module, *examples: Any, **options: Any) -> Callable[..., Verification]:
    """A function that verifies a graph against ``module``; takes the options of ``read``, and ``atol`` and ``rtol``."""
    module = as_module(module, examples, options.get("keywords"))
    parameters = inspect.signature(examples_of).parameters
    given = examples_of(module, examples, **{name: value for name, value in options.items() if name in parameters})
    return lambda graph, atol=None, rtol=None: verify_against(module, given, graph, Allowed(atol, rtol))


def graph_of(
    module: torch.nn.Module,
    examples: Examples,
    registry: Registry | None,
    input_names: Sequence[str] | None,
    outputs: Sequence[str] | None,
    task: str | None,
    forms: Forms,
    share_weights: bool = False,
) -> tuple[Graph, Examples]:
    """The unverified graph of a module, and the examples with the borders of the traced sizes."""
    check_call(module, examples)
    with forms.for_modules(module):
        program = traced(module, examples)
    model, _, weights = converted(program, forms)
    restore_training_forms(model)
    _forget_the_exporter(model)
    symbols = _names_of_dims(examples, shapes_of(program))
    _name_dims(model, symbols)
    read_graph = formats.read(model, registry=registry)
    for name, tensor in weights.items():
        shared = share_weights and isinstance(tensor, torch.nn.Parameter)  # calls may change buffers
        read_graph[name].data = to_numpy(tensor) if shared else to_numpy(tensor).copy()
    read_graph = apply_rules(read_graph, forms.rules, strict=True) if forms.rules else read_graph
    graph = tidied(read_graph, module.state_dict().keys())
    graph.opsets.pop(DOMAIN, None)
    _name_tied(graph, module)
    set_roles(graph, module, program)
    given = _chosen("inputs", input_names, list(examples.tensors))
    if len(graph.all_inputs) != len(given):
        found = ", ".join(v.name for v in graph.all_inputs)
        raise NotRepresentable(
            "an example that is a tensor is not an input of the program", given=f"{found} of {', '.join(given)}"
        )
    _name_inputs(graph, given)
    keys = _names_of_outputs(program, graph, given)
    chosen = _chosen("outputs", outputs, keys, TASKS, task)
    _name_outputs(graph, chosen)
    _check_task(graph, task)
    for name in examples.of_outputs:  # dims of outputs follow from these
        if name not in chosen:
            raise unknown_dims(name, [*given, *chosen])
    graph.name = type(module).__name__
    return graph, replace(examples, borders=borders(program, symbols))


#: Metadata keys with the modules of a node, for drawings and training.
_OF_MODULES = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", MOMENTUM)


def _forget_the_exporter(model: onnx.ModelProto) -> None:
    """Remove the exporter's metadata, which reveal paths and code of the machine, except those about modules."""
    del model.metadata_props[:]
    model.doc_string = ""
    graphs = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        values = [] if not hasattr(graph, "initializer") else [*graph.input, *graph.output, *graph.initializer]
        for part in (graph, *graph.value_info, *values, *graph.node):
            kept = [entry for entry in part.metadata_props if entry.key in _OF_MODULES]
            del part.metadata_props[:]
            part.metadata_props.extend(kept)
            part.doc_string = ""
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]


# ----- names ----------------------------------------------------------------------------------------------------------


def _names_of_dims(examples: Examples, shapes: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Map the tracer's symbols to the user's names."""
    result: dict[str, str] = {}
    for name, shape in zip(examples.tensors, shapes, strict=True):
        for axis, dim in examples.dims.get(name, {}).items():
            result.setdefault(str(shape[axis]), dim if isinstance(dim, str) else dim.__name__)
    return result


def _name_dims(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    plain = {symbol: name for symbol, name in names.items() if symbol.isidentifier()}
    if not plain:
        return
    pattern = re.compile(r"\b(" + "|".join(plain) + r")\b")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param) or pattern.sub(lambda m: plain[m[1]], dim.dim_param)


def _names_of_outputs(program: Any, graph: Graph, inputs: Sequence[str]) -> list[str]:
    """Keys and positions of each tensor in the result of the module, as names."""
    spec = program.call_spec.out_spec
    whole = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(whole)[0]]
    kept = [p for p, s in zip(paths, program.graph_signature.output_specs[-len(paths) :], strict=True) if _is_tensor(s)]
    names = output_names(kept, inputs)
    return names if len(names) == len(graph.outputs) else [v.name for v in graph.outputs]


def _is_tensor(spec: Any) -> bool:
    return type(spec.arg).__name__ == "TensorArgument"


def _chosen(
    kind: str,
    names: Sequence[str] | None,
    default: Sequence[str],
    tasks: Mapping[str, Sequence[str]] | None = None,
    task: str | None = None,
) -> list[str]:
    if names is not None and task is not None:
        raise InvalidCall("both output_names and a task were given", do="leave one of them out")
    if task is not None:
        if task not in (tasks or {}):
            raise InvalidCall("unknown task", given=repr(task), available=", ".join(tasks or ()))
        names = _by_key((tasks or {})[task], default)
    what = f'the {kind} of the task "{task}"' if task else ""
    return chosen_names(kind, names, default, what=what)


def _check_task(graph: Graph, task: str | None) -> None:
    """Raise ``InvalidCall`` where the module returns outputs in another order than the task."""
    scores = next((value for value in graph.outputs if value.name == "scores"), None) if task == "detection" else None
    if scores is not None and scores.dtype is not None and not scores.dtype.is_float:
        raise InvalidCall(
            "a module for detection does not return boxes, labels and scores, in this order or by these keys",
            given=", ".join(f"{value.name}: {value.type}" for value in graph.outputs),
            do="return a dict, or give output_names",
        )


def _by_key(names: Sequence[str], found: Sequence[str]) -> Sequence[str]:
    """Names of a task in the order of the module's outputs, if the names of those end in them: ``output_0_scores``."""
    ends = [next((name for name in names if each.rpartition("_")[2] == name), None) for each in found]
    ordered = [name for name in ends if name is not None]
    return ordered if sorted(ordered) == sorted(names) and len(ordered) == len(ends) else names


def _name_tied(graph: Graph, module: torch.nn.Module) -> None:
    """Name tied variables by the first name of their parameter."""
    named = list(module.named_parameters(remove_duplicate=False))
    first = {id(parameter): name for name, parameter in reversed(named)}
    chosen = {name: first[id(parameter)] for name, parameter in named}
    for value in graph.variables:
        name = chosen.get(value.name, value.name)
        if name not in graph.names():
            graph.rename(value, name)


def _name_inputs(graph: Graph, names: Sequence[str]) -> None:
    others = [(value, name) for value, name in zip(graph.all_inputs, names, strict=True) if value.name != name]
    for value, _ in others:
        graph.rename(value, graph.unique_name(f"{value.name}_"))
    for value, name in others:
        _make_room(graph, name)
        graph.rename(value, name)


def _name_outputs(graph: Graph, names: Sequence[str]) -> None:
    """Name the outputs; an output that is also an input, a parameter or another output gets an Identity node."""
    values, graph.outputs = list(graph.outputs), []
    for value, name in zip(values, names, strict=True):
        _make_room(graph, name)
        graph.output(name, value)


def _make_room(graph: Graph, name: str) -> None:
    """Rename an inner value with this name. Raises ``InvalidCall`` where an input, parameter or output has it."""
    if name not in graph.names():
        return
    if any(value.name == name for value in (*graph.all_inputs, *graph.variables, *graph.outputs)):
        given = "an input, parameter or output of that name"
        raise InvalidCall(f'name "{name}" is already used', given=given, do="give input_names, output_names")
    for node in graph.walk():
        if node.name == name:
            node._replace_fields(name=graph.unique_name(name))
    for inner in [graph, *(subgraph for node in graph.walk() for subgraph in node.subgraphs)]:
        for value in [value for value in inner.values() if value.name == name]:
            value._replace_fields(name=graph.unique_name(name))
    graph.names().pop(name, None)
