"""``module.py:make_model``: a model returned by a user's function, with options for reading it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tenonnx import InvalidCall
from tenonnx_cli.code import called
from tenonnx_cli.options import Decorated, names_like, rules_given
from tenonnx_cli.output import working

if TYPE_CHECKING:
    from tenonnx import Graph

_NAMED = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def is_made(model: str) -> bool:
    """Whether a command was given a function instead of a file."""
    return _NAMED.fullmatch(model) is not None


class Made(NamedTuple):
    """The graph of a function's result, and the front end's function to compare with the source, if any."""

    graph: Graph
    verifier: Callable[..., Any] | None


def made_options(command: Decorated) -> Decorated:
    """``--example`` and names of inputs, outputs and dims, which describe a function's result, as ``reading``."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--example",
            "examples",
            multiple=True,
            metavar="DIMS",
            help="For FILE.py:FUNCTION: the shape of one argument of the returned model, such as 1,3,224,224, or "
            "with element type and dynamic dims, int64:batch=2,16; or a .npy file. Repeatable, in the order of the "
            "arguments.",
        ),
        click.option(
            "--dims",
            "--dynamic-axes",
            metavar="JSON",
            help="For FILE.py:FUNCTION: the dynamic axes of each input, as JSON or a JSON file: "
            '{"image": {"0": "batch"}}.',
        ),
        click.option(
            "--task",
            metavar="TASK",
            help="For FILE.py:FUNCTION: name the outputs as is usual for a task, such as detection.",
        ),
        click.option(
            "--input-names",
            callback=names_like("image,mask"),
            metavar="NAMES",
            help="For FILE.py:FUNCTION: names of the inputs, such as image,mask.",
        ),
        click.option(
            "--output-names",
            callback=names_like("image,mask"),
            metavar="NAMES",
            help="For FILE.py:FUNCTION: names of the outputs, such as boxes,scores.",
        ),
        click.option(
            "--fold/--no-fold",
            "fold",
            default=None,
            help="For FILE.py:FUNCTION, a PyTorch module: fold BatchNormalization and transposed weights into weights "
            "and merge weights, or keep every parameter as it is. By default, weights are folded as long as no two "
            "parameters are merged, unless the module is in training mode.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


#: Flags whose names differ from the option of ``load``.
_FLAGS = {"simplify": "fold"}


def check_reading(model: str, examples: Sequence[str], reading: Mapping[str, Any]) -> None:
    """Raise ``InvalidCall`` for options of functions that are given for a file."""
    given = ["--example"] if examples else []
    given += [f"--{_FLAGS.get(name, name).replace('_', '-')}" for name, value in reading.items() if value is not None]
    if given and not is_made(model):
        raise InvalidCall(
            f"{given[0]} was given for something other than a function that returns a model",
            given=model,
            do="name it FILE.py:FUNCTION",
        )


def load_made(model: str, examples: Sequence[str], seed: int, reading: Mapping[str, Any] | None = None) -> Made:
    """Load the result of ``FILE.py:NAME`` as a graph. The file is executed as code that the user trusts."""
    from tenonnx import Graph
    from tenonnx.tools import generate_feeds, load_and_verifier
    from tenonnx_cli.arrays import read_array

    named = _NAMED.fullmatch(model)
    assert named is not None
    created = called(named["path"], named["name"])
    options = {name: value for name, value in (reading or {}).items() if value is not None}
    inputs = Graph()
    dims: dict[int, dict[int, str]] = {}
    arrays: dict[str, Any] = {}
    for position, text in enumerate(examples):
        if text.lower().endswith(".npy"):
            arrays[f"x{position}"] = read_array(text)
            continue
        dtype, sizes, names = _parsed(text)
        arrays[f"x{position}"] = None
        inputs.input(f"x{position}", dtype, sizes)
        dims.update({position: names} if names else {})
    arrays.update(generate_feeds(inputs, seed))
    if isinstance(created, Graph) and not examples and not options:
        return Made(created, None)
    options |= rules_given()
    if dims and "dims" in options:
        raise InvalidCall("dynamic dims were given both by --example and by --dims")
    options |= {"dims": dims} if dims else {}
    with working(f"reading {model}"):
        return Made(*load_and_verifier(created, *arrays.values(), **options))


def _parsed(text: str) -> tuple[str, tuple[int, ...], dict[int, str]]:
    """Parse ``int64:batch=2,16`` as element type, sizes, and names of dynamic axes."""
    from tenonnx import DType

    dtype, _, dims = text.rpartition(":")
    parts = [re.fullmatch(r"(?:([A-Za-z_]\w*)=)?(\d{1,9})", part.strip()) for part in dims.split(",")]
    known = [str(each) for each in DType if each is not DType.undefined]
    if (dtype and dtype not in known) or not all(parts):
        raise InvalidCall(
            "an example is neither the shape of an input nor a .npy file",
            given=f"--example {text}",
            available="1,3,224,224, or int64:batch=2,16 with an element type and names of dynamic dims, or x.npy",
        )
    found = [part for part in parts if part is not None]
    names = {axis: part[1] for axis, part in enumerate(found) if part[1]}
    return dtype or "float32", tuple(int(part[2]) for part in found), names
