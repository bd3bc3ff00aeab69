"""Attributions of a model on given inputs: heat maps of images, bars of tables, colors of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import Graph, InvalidCall, infer
from tenonnx.tools import compile_graph, extension
from tenonnx_cli.tools import complete, read_feeds, write_arrays
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.look import image_axes
from tenonnx_serve.tasks.reading import read
from tenonnx_serve.tasks.run import number_of, stated, text_of

Array = np.ndarray[Any, Any]

#: Maximum number of rows, pixels on the longer side of an image, features of a row, and tokens.
_ROWS, _PIXELS, _FEATURES, _TOKENS = 16, 112, 30, 512

#: Options of the page for ``tx.explain``, with their types.
_OPTIONS = {"method": str, "of": str, "at": str, "wrt": str, "target": int, "steps": int, "samples": int}


def explain(
    tell: Tell,
    source: str,
    name: str,
    folder: str,
    options: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    feeds: str | None = None,
) -> dict[str, Any]:
    """Attributions for the inputs, in the format of the page; missing inputs are drawn at random by the seed."""
    tell(step="Reading")
    graph = read(source, reading).graph
    infer(graph, strict=False)
    given = read_feeds(graph, (), feeds)
    tell(step="Explaining")
    explanation = extension("explain")(graph, **_chosen_options(options))
    tell(step="Running")
    before = {value.name for value in graph.all_inputs}
    added = [value.name for value in explanation.inputs if value.name not in before]
    if added:
        raise InvalidCall(
            "this method compares with background rows, and none were given",
            given=", ".join(added),
            do="make a file with them: tenonnx explain --background",
        )
    program = compile_graph(explanation, str(options.get("backend") or "auto"))
    fed, outputs = complete(explanation, program, given, int(number_of(options, "seed") or 0), {})
    names = {value.name for value in graph.outputs}
    found = {each: np.asarray(contents) for each, contents in outputs.items() if each not in names}
    shown = [_shown(graph, each, found[each], fed) for each in found if each.endswith(("/attribution", "/rollout"))]
    written = Path(folder) / "attributions.npz"
    write_arrays(str(written), found)
    return {
        "backend": program.backend,
        "inputs": {each: {**stated(contents), "given": each in given} for each, contents in fed.items()},
        "outputs": {each: _rows(outputs[each]) for each in outputs if each in names},
        "delta": max((_largest(found[each]) for each in found if each.endswith("/delta")), default=None),
        "attributions": shown,
        "file": written.name,
    }


def _chosen_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are set. Raises ``InvalidCall`` for text where a number is expected."""
    texts = {name: (number_of if kind is int else text_of)(options, name) for name, kind in _OPTIONS.items()}
    return {name: _OPTIONS[name](text) for name, text in texts.items() if text}


def _largest(contents: Array) -> float:
    return float(np.abs(contents).max(initial=0.0))


def _rows(contents: Any) -> list[list[float]]:
    """The first numbers of the first rows of an output."""
    array = np.asarray(contents)
    if array.dtype.kind not in "fiub" or not array.size:
        return []
    rows = array.reshape(len(array) if array.ndim else 1, -1)[:_ROWS, :_FEATURES]
    result: list[list[float]] = _listed(rows)
    return result


def _listed(array: Array) -> Any:
    """An array as lists, with zero for NaN and infinities, which JSON lacks."""
    return np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0).tolist()


def _shown(graph: Graph, name: str, found: Array, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """One attribution in the format of the page; its ``kind`` is image, tokens, table or none."""
    explained = name.rpartition("/")[0]
    values = {value.name: value for value in graph.values()}
    about = {"name": name, "shape": list(found.shape)}
    if name.endswith("/rollout"):
        return {**about, **_tokens(found.mean(axis=1), feeds)}
    if found.ndim == 4:
        axes = image_axes(list(found.shape))
        own = axes is not None and explained in feeds
        image = np.asarray(feeds[explained]) if own else _image(feeds)
        channels = 3 if own and axes is not None and axes["height"] == 1 else 1
        return {**about, "kind": "image", "rows": [*map(_heat, found.sum(axis=channels)[:_ROWS], _pictures(image))]}
    value = values.get(explained)
    is_embedding = value is not None and value.producer is not None
    if found.ndim == 3 and is_embedding:
        return {**about, **_tokens(found.sum(axis=2), feeds)}
    if found.ndim in (2, 3):
        rows = np.asarray(feeds[explained]) if explained in feeds else None
        return {**about, "kind": "table", "rows": [*_bars(found[:_ROWS], rows)]}
    return {**about, "kind": "none", "rows": []}


# ----- images ---------------------------------------------------------------------------------------------------------


def _image(feeds: Mapping[str, Any]) -> Array | None:
    """The first input that is an image."""
    arrays = map(np.asarray, feeds.values())
    return next((each for each in arrays if image_axes(list(each.shape)) is not None), None)


def _pictures(image: Array | None) -> list[Array | None]:
    """The images of a batch as ``uint8[height, width, channels]``, scaled from minimum to maximum."""
    if image is None:
        return [None] * _ROWS
    axes = image_axes(list(image.shape))
    rows = image[:_ROWS] if axes is None or axes["height"] == 1 else np.moveaxis(image[:_ROWS], 1, -1)
    pictures: list[Array | None] = []
    for each in np.nan_to_num(rows.astype(np.float64)):
        small = _smaller(each[..., :3] if each.shape[-1] >= 3 else each[..., :1])
        low, high = small.min(), small.max()
        pictures.append(np.round(255 * (small - low) / (high - low or 1)).astype(np.uint8))
    return pictures


def _heat(found: Array, picture: Array | None) -> dict[str, Any]:
    return {
        "heat": _listed(_smaller(found[..., None])[..., 0]),
        "picture": None if picture is None else picture.tolist(),
    }


def _smaller(image: Array) -> Array:
    """Average-pool an image until no side is longer than ``_PIXELS``: ``[height, width, channels]``."""
    step = -(-max(image.shape[:2]) // _PIXELS)
    if step <= 1:
        return image
    rows, columns = (np.arange(0, size, step) for size in image.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(image, rows, axis=0), columns, axis=1)
    counts = np.outer(np.diff(np.append(rows, image.shape[0])), np.diff(np.append(columns, image.shape[1])))
    means: Array = sums / counts[..., None]
    return means


# ----- tables and tokens ----------------------------------------------------------------------------------------------


def _bars(found: Array, rows: Array | None) -> list[dict[str, Any]]:
    """For each row the features with the largest attributions, with their values; a list for each output."""
    bars = []
    for number, row in enumerate(found):
        largest = np.abs(row).reshape(len(row), -1).max(axis=1)
        order = np.argsort(-largest, kind="stable")[:_FEATURES]
        values = None if rows is None or rows.ndim != 2 or rows.shape[1] != len(row) else _listed(rows[number][order])
        bars.append({"features": order.tolist(), "values": values, "parts": _listed(row[order])})
    return bars


def _tokens(found: Array, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Attributions ``[rows, tokens]`` with the token IDs or strings of the input of this shape."""
    arrays = map(np.asarray, feeds.values())
    numbers = next((each for each in arrays if each.shape == found.shape and each.dtype.kind in "iuUO"), None)
    tokens = np.arange(found.shape[1])[None].repeat(len(found), 0) if numbers is None else numbers
    rows = [
        {"tokens": token[:_TOKENS].tolist(), "parts": _listed(part[:_TOKENS])}
        for token, part in zip(tokens[:_ROWS], found[:_ROWS], strict=True)
    ]
    return {"kind": "tokens", "rows": rows, "numbered": numbers is not None}
