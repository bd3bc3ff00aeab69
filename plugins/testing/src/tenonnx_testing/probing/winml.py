"""Target files from the measurements in the wheel winml-cli: a parquet file per op, version and provider."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tenonnx.extend import DType, InvalidCall, import_optional
from tenonnx_testing.probing import summary
from tenonnx_testing.probing.target_text import target_table

#: Paths of the tables of calls that are not quantized.
_TABLE = re.compile(
    r".*/runtime_check_rules/\w+/(?P<op>[A-Za-z0-9]+)_(?P<provider>\w+)ExecutionProvider_(?P<device>[A-Z]+)"
    r"_(?P<domain>[a-z.]+)_opset(?P<version>\d+)\.parquet"
)

#: Column of booleans: whether a provider compiled a call, and ran it.
_OUTCOME = "compile_run_success"

#: Number of results generated per kind of call, which approximate its share of failures.
_PARTS = 5


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the wheel, with the op, provider and first version that it is about."""

    member: str
    op: str
    provider: str
    version: int


def winml_targets(wheel: Path) -> dict[str, dict[str, Any]]:
    """Return contents of target files by name, one for each provider and device. Needs pyarrow.

    Raises ``InvalidCall`` for a file that is not a winml-cli wheel.
    """
    parquet = import_optional("pyarrow.parquet", f'read "{wheel}"')
    try:
        with zipfile.ZipFile(wheel) as archive:
            tables = list(_tables(archive.namelist()))
            if not tables:
                raise InvalidCall(f'"{wheel}" has no tables of measured support', do="give a wheel of winml-cli")
            found = {name: list(rows) for name, rows in _results(archive, tables, parquet).items()}
    except OSError as error:
        raise InvalidCall(f'cannot read "{wheel}": {error.strerror or error}') from error
    except zipfile.BadZipFile as error:
        raise InvalidCall(f'"{wheel}" is not a wheel', given=str(error), do="give a wheel of winml-cli") from error
    newest = max(table.version for table in tables)
    return {name: _target(name, wheel.name, rows, newest) for name, rows in sorted(found.items())}


def _tables(members: Sequence[str]) -> Iterator[_Table]:
    """Yield the tables of ai.onnx ops; those of multi-op patterns are left out."""
    for member in members:
        match = _TABLE.fullmatch(member)
        if match is None or match["domain"] != "ai.onnx" or not _has_schema(match["op"]):
            continue
        yield _Table(member, match["op"], f"winml-{match['provider']}-{match['device']}".lower(), int(match["version"]))


def _has_schema(op: str) -> bool:
    return bool(onnx.defs.has(op, ""))


def _results(archive: zipfile.ZipFile, tables: Sequence[_Table], parquet: Any) -> dict[str, list[dict[str, Any]]]:
    """Results by provider."""
    starts: dict[tuple[str, str], list[int]] = {}
    for table in tables:
        starts.setdefault((table.provider, table.op), []).append(table.version)
    newest = max(table.version for table in tables)
    result: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        later = [version for version in starts[table.provider, table.op] if version > table.version]
        span = {"first": table.version, "last": min(later, default=newest + 1) - 1}
        rows = parquet.read_table(io.BytesIO(archive.read(table.member)))
        result.setdefault(table.provider, []).extend(span | each for each in _rows(table, rows))
    return result


def _rows(table: _Table, rows: Any) -> Iterator[dict[str, Any]]:
    """Yield ``_PARTS`` results per kind of call in a table, with its rounded share of successes."""
    schema = onnx.defs.get_schema(table.op, table.version, "")
    names = [name for name in _columns(table, schema) if name in rows.schema.names]
    encoded = [rows.column(name).combine_chunks().dictionary_encode() for name in names]
    known = [[_plain(text) for text in each.dictionary.to_pylist()] for each in encoded]
    succeeded = map(all, rows.column(_OUTCOME).to_pylist())
    kinds = Counter(zip(*(each.indices.to_pylist() for each in encoded), succeeded, strict=True))
    counts: dict[tuple[Any, ...], Counter[bool]] = {}
    for (*places, success), count in kinds.items():
        row = {
            name: values[place] for name, values, place in zip(names, known, places, strict=True) if place is not None
        }
        facts = _facts(table, schema, row)
        if facts is not None:
            counts.setdefault(facts, Counter())[success] += count
    for (dtype, rank, attributes, computed), held_counts in counts.items():
        kind = {
            "op": f"ai.onnx::{table.op}",
            "dtype": dtype,
            "rank": rank,
            "attributes": dict(attributes),
            "computed": list(computed),
        }
        right = round(_PARTS * held_counts[True] / held_counts.total())
        for part in range(_PARTS):
            is_right = part < right
            outcome, reason = (summary.RIGHT, "") if is_right else (summary.REFUSED, "not compiled or not run")
            yield {**kind, "outcome": outcome, "reason": reason}


def _columns(table: _Table, schema: Any) -> Iterator[str]:
    """Names of the columns that limits of a target depend on."""
    for each in schema.inputs:
        yield from (f"{each.name}_{part}" for part in ("dim", "is_none", "is_fixed_shape", "is_constant"))
    yield from (f"{each.type_str}_{table.op}" for each in schema.inputs[:1])
    yield from (f"attr_{name}{part}" for name in schema.attributes for part in ("", "_is_none"))


def _plain(text: str) -> Any:
    """Parse a cell: JSON with a type and a value."""
    cell = json.loads(text)
    return cell.get("v") if cell.get("t") in ("int", "str", "bool") else None


def _facts(table: _Table, schema: Any, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Facts for the limits of a target; None for calls with dynamic shapes or an unknown dtype."""
    inputs = [each for each in schema.inputs if not row.get(f"{each.name}_is_none")]
    if any(row.get(f"{each.name}_is_fixed_shape") is False for each in inputs):
        return None
    dtype = _dtype(table, schema, row)
    rank = max((rank for each in inputs if (rank := row.get(f"{each.name}_dim")) is not None), default=None)
    computed = [
        each.name
        for each in inputs[1:]
        if each.type_str == "tensor(int64)" and row.get(f"{each.name}_is_constant") is False
    ]
    attributes = [
        (name, value)
        for name in schema.attributes
        if not row.get(f"attr_{name}_is_none") and (value := row.get(f"attr_{name}")) is not None
    ]
    return None if dtype is None else (dtype, rank, tuple(attributes), tuple(computed))


def _dtype(table: _Table, schema: Any, row: Mapping[str, Any]) -> str | None:
    """Dtype of the first input; empty for an op without inputs, None if unknown."""
    if not schema.inputs:
        return ""
    kind = schema.inputs[0].type_str
    named = row.get(f"{kind}_{table.op}") if not kind.startswith("tensor(") else kind[len("tensor(") : -1]
    if named is None:
        return None
    number = dict(onnx.TensorProto.DataType.items()).get({"double": "DOUBLE"}.get(named, str(named).upper()))
    return None if number is None else DType(number).name


def _target(name: str, wheel: str, rows: Sequence[Mapping[str, Any]], newest: int) -> dict[str, Any]:
    provider, device = name.removeprefix("winml-").rsplit("-", 1)
    keys = {
        "title": f"{provider} on {device.upper()}, as winml-cli measured it",
        "source": f"the tables of {wheel}, which are under the MIT license",
        "note": "calls of single ops that are not quantized, of fixed shapes",
        "opsets": {"ai.onnx": newest},
        "static_shapes": True,
    }
    ops = summary.entries(rows, {"ai.onnx": newest}, common={"float": "float32"})  # the tables cover other types
    return target_table(keys, ops, summary.failures(rows))
