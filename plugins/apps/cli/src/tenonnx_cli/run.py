"""``tenonnx run``: compute the outputs of a model."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.deadline import not_finished, running_timeout_option, within
from tenonnx_cli.devices import DeviceOptions, device_options
from tenonnx_cli.options import (
    InputShapes,
    input_options,
    json_option,
    load_model,
    model_argument,
    seed_option,
    shapes_option,
)
from tenonnx_cli.output import complain, interruptible, results_aside, say, say_json, say_lines, working
from tenonnx_cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tenonnx.tools import Type

#: Maximum number of lines printed of one output.
MOST_LINES = 8

#: Maximum number of characters printed of one string.
LONGEST_SHOWN = 200

#: String tensors with more characters are not included in JSON.
MOST_CHARACTERS = 1_000_000

#: Tensors of more elements are only described in JSON; -o writes everything.
LARGEST_SHOWN = 1000


@click.command(
    "run",
    cls=Command,
    examples=[
        "tenonnx run model.onnx --input image=image.npy",
        "tenonnx run model.onnx --inputs samples.npz -o outputs.npz",
    ],
)
@model_argument
@input_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write outputs to a .npz, .csv or .parquet file, or one to .npy; - for a .npz file on standard output.",
)
@click.option("--backend", default="auto", metavar="NAME", help="auto (the default), numpy, onnxruntime ...")
@device_options
@shapes_option
@seed_option
@running_timeout_option
@json_option
def command(
    model: str,
    inputs: Sequence[str],
    archive: str | None,
    output: str | None,
    backend: str,
    where: DeviceOptions,
    input_shapes: InputShapes,
    seed: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Run a model and print its outputs. Inputs that are not given get random values."""
    from tenonnx import infer
    from tenonnx.tools import compile_graph
    from tenonnx_cli.arrays import read_feeds, write_arrays
    from tenonnx_cli.convert import note_replaced
    from tenonnx_cli.random_inputs import complete

    with interruptible(), within(timeout, not_finished):
        graph = load_model(model)
        feeds = read_feeds(graph, inputs, archive)
        with working(f"running {model}"):
            program = compile_graph(graph, backend, **where.options)
            _, results = complete(graph, program, feeds, seed, input_shapes)
        infer(graph, strict=False)
    kinds = {value.name: value.type for value in graph.outputs}
    results = {name: _as_declared(contents, kinds[name]) for name, contents in results.items()}
    _note_lost(results)
    if output is not None:
        if output == "-":
            results_aside()
        note_replaced(output, [model, archive or "", *(text.partition("=")[2] or text for text in inputs)])
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
        say_lines(_indented(_text(contents)))
    say(f"computed by {program.backend}")


def _note_lost(results: Mapping[str, Any]) -> None:
    """Print the names of outputs that contain NaN or infinities."""
    import numpy as np

    from tenonnx import TensorType
    from tenonnx.tools import type_of

    for name, contents in results.items():
        kind = type_of(contents)
        if isinstance(kind, TensorType) and (kind.dtype.is_float or kind.dtype.is_complex):
            shown = printable(name)
            nan, infinite = np.isnan(contents).sum(), np.isinf(contents).sum()
            if nan or infinite:
                complain(f"note: of the {contents.size:,} numbers of {shown}, {nan:,} are NaN, {infinite:,} infinite")


def _as_declared(contents: Any, kind: Type | None) -> Any:
    """Contents with map values in the element type of the graph's output, as runtimes return Python floats."""
    import numpy as np

    from tenonnx import MapType, SequenceType, TensorType

    if isinstance(contents, list) and isinstance(kind, SequenceType):
        return [_as_declared(each, kind.element) for each in contents]
    if isinstance(contents, dict) and isinstance(kind, MapType) and isinstance(kind.value, TensorType):
        return {key: np.asarray(each, kind.value.dtype.numpy)[()] for key, each in contents.items()}
    return contents


def _type(contents: Any) -> str:
    from tenonnx.tools import type_of

    return str(type_of(contents) or type(contents).__name__)


def _text(contents: Any) -> str:
    import numpy as np

    if not isinstance(contents, np.ndarray):
        return Short().repr(contents)
    if contents.dtype.kind in "OUT":
        return np.array2string(contents, threshold=100, formatter={"all": Short().repr})
    return np.array2string(contents, threshold=100)


class Short(reprlib.Repr):
    """Truncates sequences, maps and strings."""

    maxlist = maxdict = 100
    maxstring = maxother = LONGEST_SHOWN


def _indented(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], "... (-o FILE writes everything)"]
    return "\n".join(f"  {line}" for line in lines)


def _to_json(contents: Any) -> Any:
    """Tensors as their type and, unless they are large, their values; infinities and NaN as strings."""
    import numpy as np

    if isinstance(contents, np.ndarray):
        values = _values(contents) if contents.size <= LARGEST_SHOWN and _characters(contents) else None
        return {"type": _type(contents), "shape": list(contents.shape), "values": values}
    if isinstance(contents, list):
        return [_to_json(each) for each in contents]
    if isinstance(contents, dict):
        return {str(key): _to_json(np.asarray(each)) for key, each in contents.items()}
    return contents


def _characters(array: Any) -> bool:
    """Whether an array has at most ``MOST_CHARACTERS`` characters."""
    return bool(array.dtype.kind != "O" or sum(map(len, map(str, array.reshape(-1)))) <= MOST_CHARACTERS)


def _values(array: Any) -> Any:
    if array.dtype.isbuiltin != 1 and array.dtype.kind != "O":  # types that JSON lacks, such as bfloat16
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
