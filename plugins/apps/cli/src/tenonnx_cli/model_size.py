"""Size of a model before and after a command that writes it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx_cli.output import human_bytes, say, say_table

if TYPE_CHECKING:
    from tenonnx import Graph


@dataclass(frozen=True)
class ModelSize:
    """Counts of one model; ``bytes`` and ``multiplications`` are None if unknown.

    ``is_partial`` means that multiplications of some nodes are unknown; ``sizes`` are those assumed for symbols.
    """

    opsets: Mapping[str, int]
    ir_version: int | None
    ops: Mapping[str, int]
    parameters: int
    bytes: int | None = None
    multiplications: int | None = None
    is_partial: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        return sum(self.ops.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "parameters": self.parameters,
            "bytes": self.bytes,
            "multiplications": self.multiplications,
            "ops": dict(self.ops),
        }


def model_size(
    graph: Graph,
    file: str | None = None,
    *,
    ir_version: int | None = None,
    costs: bool = False,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
) -> ModelSize:
    """Count nodes by type, parameters, the bytes of ``file`` and, with ``costs``, multiplications."""
    from tenonnx.tools import extension
    from tenonnx_cli.describe import op_name

    spent = extension("costs")(graph, input_shapes) if costs else None
    shapes = [value.data.type.shape or () for value in graph.values() if value.data is not None]
    return ModelSize(
        graph.opsets,
        ir_version or graph.ir_version,
        Counter(map(op_name, graph.walk())),
        sum(math.prod(n for n in shape if isinstance(n, int)) for shape in shapes),
        None if file is None else _file_bytes(file, graph),
        None if spent is None else spent.multiplications,
        spent is not None and any(each.multiplications is None for each in spent.nodes),
        {} if spent is None else spent.sizes,
    )


def _file_bytes(file: str, graph: Graph) -> int | None:
    """Total size of a model file and its data files; None for anything but a file."""
    path = Path(file)
    if not path.is_file() or path.suffix.lower() not in (".onnx", ".safetensors"):
        return None
    names = {path.name, f"{path.name}.data"}
    for tensor in getattr(getattr(graph.origin, "graph", None), "initializer", ()):
        names |= {each.value for each in tensor.external_data if each.key == "location"}
    return sum(each.stat().st_size for name in names if (each := path.parent / name).is_file())


def say_sizes(before: ModelSize, after: ModelSize) -> None:
    """Print one line with nodes and bytes, then a table of all changes."""
    line = f"{before.nodes:,} -> {after.nodes:,} nodes"
    if before.bytes is not None and after.bytes is not None:
        line += f", {' -> '.join(human_bytes(before.bytes, after.bytes))}"
    say(line)
    say()
    domains = dict.fromkeys([*before.opsets, *after.opsets])
    rows: list[tuple[str, str, str]] = [
        (f"opset {name}", _count(before.opsets.get(name)), _count(after.opsets.get(name))) for name in domains
    ]
    rows.append(("IR version", _count(before.ir_version), _count(after.ir_version)))
    rows.append(("nodes", _count(before.nodes), _count(after.nodes)))
    rows.append(("parameters", _count(before.parameters), _count(after.parameters)))
    if before.bytes is not None or after.bytes is not None:
        rows.append(("bytes", _count(before.bytes), _count(after.bytes)))
    if before.multiplications is not None or after.multiplications is not None:
        found = [("at least " if each.is_partial else "") + _count(each.multiplications) for each in (before, after)]
        rows.append(("multiply-adds", found[0], found[1]))
    rows += _op_rows(before.ops, after.ops)
    say_table(rows, ("", "before", "after"))
    if after.sizes:
        say(f"multiply-adds where {', '.join(f'{name} is {size}' for name, size in after.sizes.items())}")


def _op_rows(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """A row for each op whose count changed, most frequent first, and one for all others."""
    names = sorted({*before, *after}, key=lambda name: (-max(before.get(name, 0), after.get(name, 0)), name))
    changed = [name for name in names if before.get(name, 0) != after.get(name, 0)]
    rows = [(name, _count(before.get(name)), _count(after.get(name))) for name in changed]
    if same := sum(before[name] for name in names if name not in changed):
        rows.append(("other ops" if changed else "ops, unchanged", _count(same), _count(same)))
    return rows


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
