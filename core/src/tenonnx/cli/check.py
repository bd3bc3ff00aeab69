"""``tenonnx check``: everything that is wrong with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenonnx.cli.options import InputShapes, json_option, model_argument, shapes_option
from tenonnx.cli.output import plural, say, say_json, working

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph


@click.command("check")
@model_argument
@shapes_option
@json_option
def command(model: str, input_shapes: InputShapes, as_json: bool) -> int:
    """List everything that is wrong with a model.

    onnx.checker judges the file, with full shape inference; then the types of all values are inferred here. Ops that no
    installed package provides are no fault of the model, and are listed apart. Exit code 1 if anything is wrong.
    """
    from tenonnx.errors import InvalidModel
    from tenonnx.formats.loaders import load

    problems: list[dict[str, str]] = []
    unknown: list[str] = []
    with working(f"checking {model}"):
        try:
            graph = load(model)
        except InvalidModel as error:
            problems.append({"found_by": "reading", "problem": str(error)})
        else:
            problems, unknown = _problems(graph, model, input_shapes)
    if as_json:
        say_json({"file": model, "valid": not problems, "problems": problems, "unknown_ops": unknown})
        return 1 if problems else 0
    for entry in problems:
        say(f"{entry['found_by']}: {entry['problem']}")
    for op in unknown:
        say(f"not judged, as no installed package provides it: {op}")
    say(f"{model}: {plural(len(problems), 'problem') if problems else 'valid'}")
    return 1 if problems else 0


def _problems(graph: Graph, model: str, input_shapes: InputShapes) -> tuple[list[dict[str, str]], list[str]]:
    from tenonnx.checks.structure import structure_problems
    from tenonnx.cli.describe import describe
    from tenonnx.formats.loaders import is_onnx_file
    from tenonnx.op.graph_inference import infer

    inferred = infer(graph, input_shapes, strict=False)
    objections = structure_problems(model if is_onnx_file(model) else graph, inferred=not inferred)
    problems = [{"found_by": "onnx.checker", "problem": text} for text in objections]
    problems += [{"found_by": "inference", "problem": str(error)} for error in inferred]
    unknown = [
        f"{op['op']}@{op['version']}, {plural(op['count'], 'node')}; {op['missing']}"
        for op in describe(graph)["ops"]
        if not op["known"]
    ]
    return problems, unknown
