"""``tenonnx run``: compute the outputs of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tenonnx.cli.options import (
    InputShapes,
    input_options,
    json_option,
    load_model,
    model_argument,
    seed_option,
    shapes_option,
)
from tenonnx.cli.output import complain, interruptible, say, say_json, working

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx.graph.graph import Graph
    from tenonnx.graph.program import Program
    from tenonnx.graph.types import Type

#: Lines that are printed of one output.
MOST_LINES = 8

#: Tensors of more elements are described in JSON, not written out; -o writes everything.
LARGEST_SHOWN = 1000


@click.command("run")
@model_argument
@input_options
@click.option("-o", "--output", metavar="FILE", help="Write outputs to a .npz, .csv or .parquet file, or one to .npy.")
@click.option("--backend", default="auto", metavar="NAME", help="auto (the default), numpy, onnxruntime ...")
@shapes_option
@seed_option
@json_option
def command(
    model: str,
    inputs: Sequence[str],
    archive: str | None,
    output: str | None,
    backend: str,
    input_shapes: InputShapes,
    seed: int,
    as_json: bool,
) -> None:
    """Compute the outputs of a model. Inputs that are not given are made up."""
    from tenonnx.backend.base import check_feeds, compile_graph
    from tenonnx.cli.arrays import read_feeds, write_arrays
    from tenonnx.op.graph_inference import infer

    graph = load_model(model)
    feeds = read_feeds(graph, inputs, archive)
    missing = [value.name for value in graph.inputs if value.name not in feeds]
    if not missing:
        check_feeds(graph.all_inputs, feeds)
    with working(f"running {model}"), interruptible():
        program = compile_graph(graph, backend)
        results = _run_made_up(graph, program, feeds, seed, input_shapes) if missing else program(feeds)
    if missing:
        complain(f"made up from seed {seed}: {', '.join(missing)} (--input name=file.npy gives contents)")
    infer(graph, strict=False)
    kinds = {value.name: value.type for value in graph.outputs}
    results = {name: _as_declared(contents, kinds[name]) for name, contents in results.items()}
    _note_lost(results)
    if output is not None:
        write_arrays(output, results)
    if as_json:
        shown = {name: _to_json(contents) for name, contents in results.items()}
        say_json({"file": model, "backend": program.backend, "outputs": shown, "written": output})
        return
    if output is not None:
        say(f"{output}: {', '.join(results)} (by {program.backend})")
        return
    for name, contents in results.items():
        say(f"{name}: {_type(contents)}")
        say(_indented(_text(contents)))


def _run_made_up(
    graph: Graph, program: Program, feeds: Mapping[str, Any], seed: int, input_shapes: InputShapes
) -> dict[str, Any]:
    """The outputs with contents for the inputs that are not fed, in the sizes of those that are, and that run."""
    from tenonnx.backend.base import check_feeds
    from tenonnx.checks.sizes import feasible_feeds

    def run(made: Mapping[str, Any]) -> dict[str, Any]:
        given = {**made, **feeds}
        check_feeds(graph.all_inputs, given)
        return program(given)

    shapes = {name: array.shape for name, array in feeds.items() if hasattr(array, "shape")} | input_shapes
    _, results, sizes = feasible_feeds(graph, run, seed, shapes)
    if sizes:
        complain(f"note: made up with {', '.join(f'{name}={size}' for name, size in sizes.items())}")
    return results


def _note_lost(results: Mapping[str, Any]) -> None:
    """Say which outputs hold numbers that are none."""
    import numpy as np

    for name, contents in results.items():
        if isinstance(contents, np.ndarray) and contents.dtype.kind == "f":
            nan, infinite = np.isnan(contents).sum(), np.isinf(contents).sum()
            if nan or infinite:
                complain(f"note: of the {contents.size:,} numbers of {name}, {nan:,} are NaN, {infinite:,} infinite")


def _as_declared(contents: Any, kind: Type | None) -> Any:
    """The contents with the entries of maps in the element type of the graph's output: runtimes return floats."""
    import numpy as np

    from tenonnx.graph.types import MapType, SequenceType, TensorType

    if isinstance(contents, list) and isinstance(kind, SequenceType):
        return [_as_declared(each, kind.element) for each in contents]
    if isinstance(contents, dict) and isinstance(kind, MapType) and isinstance(kind.value, TensorType):
        return {key: np.asarray(each, kind.value.dtype.numpy)[()] for key, each in contents.items()}
    return contents


def _type(contents: Any) -> str:
    from tenonnx.op.evaluate import type_of

    return str(type_of(contents) or type(contents).__name__)


def _text(contents: Any) -> str:
    import numpy as np

    return np.array2string(contents, threshold=100) if isinstance(contents, np.ndarray) else repr(contents)[:2000]


def _indented(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], "... (-o FILE writes everything)"]
    return "\n".join(f"  {line}" for line in lines)


def _to_json(contents: Any) -> Any:
    """Tensors as their type and, unless they are large, their values; infinities and NaN as strings."""
    import numpy as np

    if isinstance(contents, np.ndarray):
        values = _values(contents) if contents.size <= LARGEST_SHOWN else None
        return {"type": _type(contents), "shape": list(contents.shape), "values": values}
    if isinstance(contents, list):
        return [_to_json(each) for each in contents]
    if isinstance(contents, dict):
        return {str(key): _to_json(np.asarray(each)) for key, each in contents.items()}
    return contents


def _values(array: Any) -> Any:
    if array.dtype.isbuiltin != 1 and array.dtype.kind != "O":  # types that JSON cannot have, such as bfloat16
        array = array.astype("float64")
    if array.dtype.kind == "c":
        array = array.astype(str)
    elif array.dtype.kind == "f":
        finite = array == array
        array = array if finite.all() and abs(array).max(initial=0) < float("inf") else _spelled(array)
    return array.tolist()


def _spelled(array: Any) -> Any:
    import numpy as np

    return np.where(np.isfinite(array), array.astype(object), array.astype(str).astype(object))
