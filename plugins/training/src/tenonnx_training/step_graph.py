"""The training step as one graph: forward, backward, update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenonnx as tx
from tenonnx.extend import Graph, NotDifferentiable
from tenonnx.extend.transforms import (
    Builder,
    copy_graph,
    interpreting,
    needed_nodes,
    opened,
    refuse_opaque,
)
from tenonnx_optimize.common_subexpressions import merge_common_subexpressions
from tenonnx_standard.activation import gelu
from tenonnx_standard.casting import cast_like
from tenonnx_training.modes import (
    evaluation_form,
    statistics_of,
    training_form,
    without_functions,
    without_gradients,
)
from tenonnx_training.objective import Measured, Objective, add_objective, free_name
from tenonnx_training.optimizers import Optimizer
from tenonnx_training.parameters import chosen_notes, is_adapter, matching, not_frozen, numbers_note
from tenonnx_training.precision import narrowed
from tenonnx_training.recipe import Recipe
from tenonnx_training.recompute import check_patterns, recompute
from tenonnx_training.rng import seeded
from tenonnx_training.scales import Bias, as_floats, biases_note, biases_of
from tenonnx_training.updates import COUNT, SCALE, SEED, Updates


@dataclass
class StepGraph:
    """A training step as a plain graph.

    It maps the model's inputs, the labels and the learning rate to the loss and the metrics. ``state`` maps inputs to
    the outputs that replace them. All of these inputs have defaults.
    """

    graph: Graph
    measured: Measured
    parameters: list[str]
    statistics: list[str]
    slots: list[str]
    state: dict[str, str]
    seeded: bool
    notes: list[str] = field(default_factory=list)
    biases: list[Bias] = field(default_factory=list)


@dataclass
class Differentiated:
    """A graph in training mode, with an output ``{name}/grad`` for each of ``parameters``.

    ``statistics`` maps variables to the values that replace them. All of these variables are inputs. ``biases`` are the
    quantized biases, whose quantized values and scales depend on the parameters.
    """

    graph: Graph
    measured: Measured
    parameters: list[str]
    statistics: dict[str, str]
    seeded: bool
    notes: list[str] = field(default_factory=list)
    biases: list[Bias] = field(default_factory=list)


def step_graph(
    graph: Graph, objective: Objective, optimizer: Optimizer, recipe: Recipe, *, by_casts: bool = False
) -> StepGraph:
    """Build the step that minimizes ``objective`` on the outputs of ``graph``; see ``differentiated``."""
    forward_backward = differentiated(graph, objective, recipe, by_casts=by_casts)
    updates = _updated(forward_backward, graph, optimizer, recipe)
    names = forward_backward.parameters, list(forward_backward.statistics), updates.slots, updates.state
    return StepGraph(
        forward_backward.graph,
        forward_backward.measured,
        *names,
        forward_backward.seeded,
        forward_backward.notes,
        forward_backward.biases,
    )


def differentiated(
    graph: Graph, objective: Objective, recipe: Recipe, *, without: Collection[str] = (), by_casts: bool = False
) -> Differentiated:
    """Differentiate ``objective`` with respect to the parameters that ``recipe`` trains, except those in ``without``.

    For ``by_casts`` see ``narrowed``.

    Raises ``InvalidCall`` if no variable matches or the loss is not a scalar, and ``NotDifferentiable`` listing every
    node that interrupts the path from the loss to a parameter.
    """
    refuse_opaque(graph, "trained")
    plain = without_functions(graph)
    check_patterns(plain, recipe.recompute)
    biases, fixed = biases_of(plain), without_gradients(plain)
    fixed = {*fixed, *(bias.scale for bias in biases)}
    parameters = matching(graph, recipe.trainable, but={*fixed, *without})
    biases = [bias for bias in biases if not {*bias.factors}.isdisjoint(parameters)]
    everything = recipe.trainable is None and not any(map(is_adapter, parameters))
    trained = () if recipe.frozen_statistics else not_frozen(plain) if everything else parameters
    plain = copy_graph(plain)
    as_floats(plain, biases)
    open_graph = _with_inputs(plain, [*parameters, *statistics_of(plain, trained)])
    form = training_form(open_graph, trained=trained, unbiased=recipe.unbiased_statistics)
    ready = seeded(narrowed(form.graph, recipe.precision, by_casts=by_casts), SEED, COUNT)
    measured = add_objective(ready.graph, objective)
    notes = [*chosen_notes(graph, parameters, recipe.trainable, {*fixed, *without})]
    notes += [*numbers_note(graph, parameters), *form.notes, *measured.notes]
    notes += biases_note(biases)
    notes += _idle_note(ready.graph, measured.loss, parameters)
    statistics = {name: value.name for name, value in form.statistics.items()}
    try:
        found = _with_gradients(ready.graph, measured, parameters, statistics, recipe)
    except NotDifferentiable as error:
        if recipe.trainable is not None or not error.names or set(parameters) <= {*error.names}:
            error.do = 'take out what has none: trainable="!name" (--trainable "!name")'
            raise
        forward_backward = differentiated(graph, objective, recipe, without={*without, *error.names}, by_casts=by_casts)
        forward_backward.notes.append(f"not trained, since the loss does not depend on them: {', '.join(error.names)}")
        return forward_backward
    recompute(found, recipe.recompute, [*measured.outputs, *statistics.values()], parameters)
    return Differentiated(found, measured, parameters, statistics, ready.is_random, notes, biases)


def evaluation_graph(
    graph: Graph, objective: Objective, changing: Sequence[str], more: Sequence[str] = ()
) -> tuple[Graph, Measured]:
    """Build a graph of the loss, the metrics and the values named in ``more``, in inference mode.

    The variables in ``changing`` become inputs. Random ops become functions of two more inputs, ``SEED`` and ``COUNT``.
    """
    used = seeded(evaluation_form(_with_inputs(without_functions(graph), changing)), SEED, COUNT).graph
    measured = add_objective(used, objective)
    inputs = [v.name for v in used.all_inputs if v.data is None]
    return used.extract(inputs, [*measured.outputs, *more]), measured


def _with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """A copy in which these variables are graph inputs without contents, so that nothing is folded."""
    copy = copy_graph(graph)
    listed = {value.name for value in copy.all_inputs}
    copy.all_inputs += [v for v in copy.variables if v.name in names and v.name not in listed]
    return opened(copy, names).infer()


def _idle_note(graph: Graph, loss: str, parameters: Sequence[str]) -> list[str]:
    needed = {v.name for node in needed_nodes(graph, [graph[loss]]) for v in node.uses}
    idle = [name for name in parameters if name not in needed]
    return [f"the loss does not depend on {', '.join(idle)}"] if idle else []


def _with_gradients(
    graph: Graph, measured: Measured, parameters: Sequence[str], statistics: Mapping[str, str], recipe: Recipe
) -> Graph:
    """Add the gradients of the parameters; make all measured values and new statistics outputs."""
    of = measured.loss
    if recipe.scales or recipe.loss_scale != 1.0:
        with interpreting(Builder(graph, prefix="loss/scaled")):
            scale: Any = graph.input(SCALE, "float32", ()) if recipe.scales else recipe.loss_scale
            scale = cast_like(scale, graph[of]) if recipe.scales else scale
            of = graph.output(free_name(graph, "loss/scaled"), graph[of] * scale).name
    shown = {value.name for value in graph.outputs}
    values = {value.name: value for value in graph.values()}
    kept = dict.fromkeys([*measured.outputs, *statistics.values()])
    graph.outputs += [values[name] for name in kept if name not in shown]
    if recipe.recompute:  # patterns match node names, which simplification may change
        return merge_common_subexpressions(tx.grad(graph, of=of, wrt=parameters))
    return tx.simplify(tx.grad(tx.fuse(graph, [gelu]), of=of, wrt=parameters))


def _updated(forward_backward: Differentiated, source: Graph, optimizer: Optimizer, recipe: Recipe) -> Updates:
    """Add the new value of every input that training changes to a graph with gradients."""
    values = {value.name: value for value in forward_backward.graph.values()}
    gradients = {name: values[f"{name}/grad"] for name in forward_backward.parameters}
    forward_backward.graph.outputs = [values[name] for name in forward_backward.measured.outputs]
    with interpreting(Builder(forward_backward.graph, prefix="update", fold=True)):
        updates = Updates(forward_backward.graph, source, optimizer, recipe)
        for name, after in forward_backward.statistics.items():
            updates.replace(name, values[after])
        updates.run(gradients)
        updates.fill()
    return updates
