"""Details of one node or value of the open model."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tenonnx import Graph, InvalidCall, Node, Value
from tenonnx.tools import Op
from tenonnx_cli.drawing import subgraphs
from tenonnx_cli.tools import op_row
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.broken import faults_of, named_op
from tenonnx_serve.tasks.look import Looked, model

#: Maximum length of an attribute in characters, and maximum size of a constant to print, in bytes.
_TEXT, _SMALL = 400, 512

#: Number of bars of a histogram, and maximum number of elements used for it.
_BARS, _LOOKED_AT = 40, 4_000_000

#: Maximum number of links to consumers of a value.
_LINKS = 100

#: File formats for downloads of arrays.
FORMATS = (".npy", ".csv")


def node(tell: Tell, key: str) -> dict[str, Any]:
    """Facts about a node, or about an input or output of a graph."""
    looked = model()
    graph, last = looked.scope(key)
    if last[:1] in ("i", "o"):
        values = graph.all_inputs if last[0] == "i" else graph.outputs
        if not last[1:].isdecimal() or int(last[1:]) >= len(values):
            raise InvalidCall("the drawing has no node or value with this key", given=key[:80])
        value = values[int(last[1:])]
        return {"key": key, "title": value.name, "value": _value(looked, value), "faults": _marked(looked, key)}
    found = looked.find(key)
    row = op_row(found.op, looked.graph.registry) if isinstance(found.op, Op) else None
    names = [name.strip("*?") for name in row["inputs"]] if row else []
    functions = [name[:2] for name in looked.graph.functions]
    return {
        "key": key,
        "title": found.op_type,
        "name": found.name,
        "op": named_op(found),
        "version": found.version,
        "inputs": [
            {**_value(looked, value, names[place] if place < len(names) else ""), "place": place}
            for place, value in enumerate(found.inputs)
            if value is not None
        ],
        "outputs": [_value(looked, value) for value in found.outputs if value is not None],
        "attributes": {name: _attribute(value) for name, value in found.attributes.items()},
        "defaults": row["attributes"] if row else {},
        "documentation": row["doc"] if row else "",
        "package": row["package"] if row else "",
        "subgraphs": [name for name, _ in subgraphs(found)],
        "function": functions.index((found.domain, found.op_type))
        if (found.domain, found.op_type) in functions
        else None,
        "faults": list(dict.fromkeys([*_marked(looked, key), *faults_of(found)])),
        **_file_metadata(found),
    }


def _file_metadata(found: Node) -> dict[str, Any]:
    """The doc string and the metadata of a node."""
    origin = found.origin
    if not isinstance(origin, onnx.NodeProto):
        return {"doc": "", "metadata": {}}
    metadata = {
        each.key: each.value[:_TEXT] for each in origin.metadata_props if not each.key.startswith("tenonnx.serve")
    }
    return {"doc": origin.doc_string, "metadata": metadata}


def _marked(looked: Looked, key: str) -> list[str]:
    return [looked.faults[key]] if key in looked.faults else []


def value(tell: Tell, key: str) -> dict[str, Any]:
    """Facts about the value of an edge."""
    looked = model()
    return {"key": key, **_value(looked, looked.value(key))}


def path(tell: Tell, key: str) -> dict[str, Any]:
    """The shortest path from a node or input to an output, as links."""
    looked = model()
    looked.scope(key)
    return {"steps": looked.index.path_to_output(key)}


def _value(looked: Looked, value: Value, called: str = "") -> dict[str, Any]:
    readers = looked.index.readers(value)
    return {
        "name": value.name,
        "called": called,
        "type": str(value.type or "?"),
        "constant": value.is_constant,
        "bytes": value.data.nbytes if value.data is not None else 0,
        "contents": "" if value.name in looked.missing else _contents(value),
        "missing": looked.missing.get(value.name, ""),
        "key": looked.index.key(value),
        "from": looked.index.producer(value),
        "to": readers[:_LINKS],
        "readers": len(readers),
    }


def _contents(value: Value) -> str:
    """A small constant, printed."""
    if value.data is None or value.data.nbytes > _SMALL:
        return ""
    return np.array2string(np.asarray(value.data.array()), threshold=32)[:_TEXT]


def _attribute(value: Any) -> str:
    if isinstance(value, Graph):
        return f"a graph of {len(value.nodes):,} nodes"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _weight(key: str, place: int, what: str) -> tuple[Value, np.ndarray[Any, Any]]:
    """A weight of a node and its contents. Raises ``InvalidCall``; ``what`` names the purpose in the message."""
    looked = model()
    inputs = looked.find(key).inputs
    value = inputs[place] if 0 <= place < len(inputs) else None
    if value is None or value.data is None:
        raise InvalidCall(f"{what} is constant, as a weight determines it", given=f"input {place} of {key[:80]}")
    if value.name in looked.missing:
        raise InvalidCall(f"the data of weight {value.name} is missing", given=looked.missing[value.name])
    return value, np.asarray(value.data.array())


def histogram(tell: Tell, key: str, place: int) -> dict[str, Any]:
    """Histogram of a weight of a node."""
    value, contents = _weight(key, place, "a histogram")
    contents = contents.reshape(-1)
    if contents.dtype.kind in "OSUc" or not contents.size:
        raise InvalidCall("cannot draw a histogram: the weight has no real numbers", given=str(value.type))
    looked_at = contents[:: max(1, contents.size // _LOOKED_AT)].astype(np.float64)
    finite = looked_at[np.isfinite(looked_at)]
    counts, edges = np.histogram(finite, _BARS) if finite.size else (np.zeros(1, int), np.zeros(2))
    return {
        "counts": counts.tolist(),
        "edges": [float(edges[0]), float(edges[-1])],
        "mean": _number(finite.mean()) if finite.size else None,
        "deviation": _number(finite.std()) if finite.size else None,
        "zeros": int((looked_at == 0).sum()),
        "looked_at": int(looked_at.size),
        "size": int(contents.size),
        "not_finite": int(looked_at.size - finite.size),
    }


def _number(number: Any) -> float | None:
    return float(number) if math.isfinite(number) else None


def array(tell: Tell, key: str, place: int, format: str, folder: str) -> dict[str, Any]:
    """Write a weight of a node to a file in ``folder``."""
    value, contents = _weight(key, place, "a file")
    return {"file": write_array(Path(folder), value.name, contents, format)}


def write_array(folder: Path, name: str, contents: Any, format: str) -> str:
    """Write an array; returns the file name. A .csv file has a row for each position of all axes except the last."""
    if format not in FORMATS:
        raise InvalidCall(
            "cannot write an array to a file of this format", given=format[:80], available=", ".join(FORMATS)
        )
    plain = "".join(each if each.isalnum() or each in "._-" else "-" for each in name).strip(".-")[-100:] or "array"
    path, contents = folder / f"{plain}{format}", np.asarray(contents)
    # .npy files do not support bfloat16 and other types of ml_dtypes
    if contents.dtype.kind in "OV" and format == ".npy":
        contents = contents.astype(np.str_ if contents.dtype == object else np.float32)
    if format == ".npy":
        np.save(path, contents, allow_pickle=False)
    else:
        rows = contents.reshape(-1, contents.shape[-1] if contents.ndim > 1 else 1)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows.tolist())
    return path.name
