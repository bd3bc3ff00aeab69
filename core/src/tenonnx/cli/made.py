"""``module.py:make_model``: a model that a function of the user's makes, and the examples that it is read with."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.cli.output import working
from tenonnx.errors import InvalidCall, TenonnxError

if TYPE_CHECKING:
    from tenonnx.graph.graph import Graph

_NAMED = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def is_made(model: str) -> bool:
    """Whether a command was given a function instead of a file."""
    return _NAMED.fullmatch(model) is not None


def load_made(model: str, examples: Sequence[str], seed: int) -> Graph:
    """The graph of what the function ``FILE.py:NAME`` returns. The file is run: it is code that the user trusts."""
    from tenonnx.checks.generate import generate_feeds
    from tenonnx.cli.arrays import read_array
    from tenonnx.formats.loaders import load
    from tenonnx.graph.graph import Graph

    named = _NAMED.fullmatch(model)
    assert named is not None
    made = _called(named["path"], named["name"])
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
    if isinstance(made, Graph) and not examples:
        return made
    with working(f"reading {model}"):
        options: dict[str, Any] = {"dims": dims} if dims else {}
        return load(made, *arrays.values(), **options)


def _parsed(text: str) -> tuple[str, tuple[int, ...], dict[int, str]]:
    """``int64:batch=2,16`` as element type, sizes, and the names of axes that vary."""
    from tenonnx.graph.dtypes import DType

    dtype, _, dims = text.rpartition(":")
    parts = [re.fullmatch(r"(?:([A-Za-z_]\w*)=)?(\d{1,9})", part.strip()) for part in dims.split(",")]
    known = [str(each) for each in DType if each is not DType.undefined]
    if (dtype and dtype not in known) or not all(parts):
        raise InvalidCall(
            "an example must be the shape of an input, or a .npy file",
            given=f"--example {text}",
            available="1,3,224,224, or int64:batch=2,16 with an element type and names of dims that vary, or x.npy",
        )
    found = [part for part in parts if part is not None]
    names = {axis: part[1] for axis, part in enumerate(found) if part[1]}
    return dtype or "float32", tuple(int(part[2]) for part in found), names


def _called(path: str, name: str) -> Any:
    file = Path(path).absolute()
    if not file.is_file():
        raise InvalidCall("the file of a function must exist", given=path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))  # as for python FILE.py: it may import what lies beside it
    try:
        _run(file, spec.loader.exec_module, module)
        function = getattr(module, name, None)
        if not callable(function):
            known = [n for n, each in vars(module).items() if callable(each) and not n.startswith("_")]
            raise InvalidCall(f'"{path}" must have a function "{name}"', available=", ".join(known) or "no function")
        return _run(file, function)
    finally:
        sys.path.remove(str(file.parent))


def _run(file: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what the user wrote; what it raises is told with the line of the file."""
    try:
        return function(*arguments)
    except TenonnxError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f":{own[-1].lineno}" if own else f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InvalidCall(
            f"{file.name} must run", given=f"{type(error).__name__}: {error}", do=f"correct {file}{line}"
        ) from error
