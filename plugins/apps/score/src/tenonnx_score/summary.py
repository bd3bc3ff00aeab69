"""Summary of output columns: shares of nulls and NaN, and ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Counts are kept for at most this many different strings.
MOST_VALUES = 20


class Summary:
    """Counts, nulls and ranges by column; for lists of their elements, for structs of each field."""

    def __init__(self, columns: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.columns: dict[str, dict[str, Any]] = {name: dict(each) for name, each in (columns or {}).items()}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for full, values in leaves(name, column):
                self.merge(Summary({full: _of(values)}))

    def merge(self, other: Summary) -> None:
        """Add the counts of another summary."""
        for name, theirs in other.columns.items():
            ours = self.columns.setdefault(name, {"count": 0, "nulls": 0})
            for key in ("count", "nulls", "nans"):
                if key in theirs:
                    ours[key] = ours.get(key, 0) + theirs[key]
            for key, better in (("min", min), ("max", max)):
                if theirs.get(key) is not None:
                    ours[key] = theirs[key] if ours.get(key) is None else better(ours[key], theirs[key])
            _merge_values(ours, theirs)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """As data for JSON; infinities are strings."""
        return {name: {key: _plain(value) for key, value in each.items()} for name, each in self.columns.items()}

    @staticmethod
    def is_json(data: Any) -> bool:
        """Whether data have the format of ``to_dict``."""
        if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
            return False
        return all(_is_column(each) for each in data.values())

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Any]]) -> Summary:
        read = {"inf": math.inf, "-inf": -math.inf}
        return cls(
            {
                name: {k: read.get(v, v) if k in ("min", "max") and isinstance(v, str) else v for k, v in each.items()}
                for name, each in data.items()
            }
        )


def _is_column(data: Mapping[str, Any]) -> bool:
    counts = [data.get("count"), data.get("nulls"), data.get("nans", 0)]
    values = data.get("values")
    if values is not None:
        if not isinstance(values, dict):
            return False
        counts += values.values()
    ends = [data[name] for name in ("min", "max") if data.get(name) not in (None, "inf", "-inf")]
    of_one_kind = all(isinstance(e, int | float) for e in ends) or all(isinstance(e, str) for e in ends)
    return of_one_kind and all(type(count) is int and count >= 0 for count in counts)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _merge_values(ours: dict[str, Any], theirs: Mapping[str, Any]) -> None:
    if "values" not in theirs and "values" not in ours:
        return
    values = ours.get("values", {} if ours["count"] == theirs["count"] else None)
    more = theirs.get("values")
    if values is None or more is None:
        ours["values"] = None
        return
    for value, count in more.items():
        values[value] = values.get(value, 0) + count
    ours["values"] = values if len(values) <= MOST_VALUES else None


def leaves(name: str, column: Any) -> Iterator[tuple[str, Any]]:
    """The leaf columns of a nested column, with their names."""
    kind = column.type
    if pa.types.is_struct(kind):
        for k, field in enumerate(kind):
            yield from leaves(f"{name}.{field.name}", column.field(k))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from leaves(name, column.flatten())
    else:
        yield name, column


def _of(column: Any) -> dict[str, Any]:
    kind = column.type
    result: dict[str, Any] = {"count": len(column), "nulls": column.null_count}
    if pa.types.is_floating(kind):
        nans = pc.sum(pc.is_nan(column)).as_py() or 0
        result["nans"] = nans
        column = column.filter(pc.invert(pc.is_nan(column))) if nans else column
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        column = column.cast(pa.float32()) if kind == pa.float16() else column
        range = pc.min_max(column)
        result |= {"min": range["min"].as_py(), "max": range["max"].as_py()}
    elif pa.types.is_string(kind) or pa.types.is_boolean(kind):
        counts = pc.value_counts(column.drop_null())
        result["values"] = (
            {str(each["values"]): each["counts"].as_py() for each in counts} if len(counts) <= MOST_VALUES else None
        )
    return result
