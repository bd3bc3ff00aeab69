"""Finding the line of a module at which a graph first diverges from it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

import tenonnx as tx
from tenonnx.extend import Graph
from tenonnx.extend.checks import Allowed, Verification, accumulation, compare
from tenonnx.extend.transforms import copy_graph
from tenonnx_frontends import sizes_to_compare
from tenonnx_torch import lines
from tenonnx_torch.examples import Examples, to_numpy
from tenonnx_torch.lowerings import Forms
from tenonnx_torch.programs import call_of
from tenonnx_torch.tracing import converted, traced
from tenonnx_torch.verification import coarsest, verify_against


def verified(
    module: torch.nn.Module, examples: Examples, written: Graph, graph: Graph, allowed: Allowed, forms: Forms
) -> Verification:
    """``verify_against`` for ``written``. Raises ``VerificationFailed`` with a line of the module where it is found.

    ``graph`` is the same graph with the exporter's names.
    """
    found = verify_against(module, examples, written, allowed)
    try:
        return found.raise_if_failed()
    except tx.VerificationFailed as error:
        if call_of(module) is not None:
            raise
        with contextlib.suppress(Exception):  # the difference is reported even without a line
            error.also = first_difference(module, examples, graph, allowed, forms)
        raise


def first_difference(module: torch.nn.Module, examples: Examples, graph: Graph, allowed: Allowed, forms: Forms) -> str:
    """The line of the module that computes the first differing value, empty if unknown."""
    with forms.for_modules(module):
        program = traced(module, examples)
    program = converted(program, forms).program
    names = {value.name: value.name for node in graph.nodes for value in node.outputs if value is not None}
    given = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    names |= {name: value.name for name, value in zip(given, graph.outputs, strict=True)}
    for sizes in sizes_to_compare(examples.sizes):
        resized = examples.resized(sizes)
        watched = _RecordingInterpreter(program.graph_module)
        with torch.no_grad():
            watched.run(*program._graph_module_flat_inputs(*resized.copied()))
        nodes = [node for node in watched.tensors if node.name in names]
        shown = copy_graph(graph)
        values = {value.name: value for node in shown.nodes for value in node.outputs if value is not None}
        shown.outputs = list(dict.fromkeys(values[names[node.name]] for node in nodes))
        actual = shown.run(resized.feeds([value.name for value in shown.all_inputs]))
        terms, coarse = accumulation(graph), coarsest(graph)
        for node in nodes:
            expected = to_numpy(watched.tensors[node])
            near = allowed.around(expected, terms, coarse)
            if not compare(actual[names[node.name]], expected, accumulation=terms, tolerance=near).equal:
                return f"the first numbers that differ are those of\n{lines.of_node(node)}"
    return ""


class _RecordingInterpreter(torch.fx.Interpreter):
    """Interpreter that keeps all tensors that a program computes."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.tensors: dict[torch.fx.Node, torch.Tensor] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        result = super().run_node(node)
        if isinstance(result, torch.Tensor) and node.op == "call_function":
            self.tensors[node] = result.detach().clone()
        return result
