"""Scorers in Spark programs: a transformer for pipelines, and a column expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.ml import Transformer
from pyspark.sql.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_schema

from tenonnx import InvalidCall
from tenonnx_score.scorer import Scorer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Number of rows for inference of output types.
FIRST = 64


class ScoreTransformer(Transformer):  # type: ignore[misc]
    """Pipeline stage that adds the outputs of a model to a frame.

    If the scorer names columns to keep, only these are kept, else all. Bad rows fail the job; the command ``tenonnx
    score --on spark`` writes them to a separate file.
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer

    def _transform(self, frame: DataFrame) -> DataFrame:
        keep = self.scorer.keep or tuple(frame.columns)
        scorer = self.scorer.keeping(keep)
        schema = _spark_schema(_first(scorer, frame))

        def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield _with_lists(scorer(batch))

        return frame.mapInArrow(score, schema)


def scores(scorer: Scorer, frame: DataFrame) -> Column:
    """The outputs of a model for the rows of a frame, as a column of structs: a pandas UDF of the input columns."""
    scorer = scorer.keeping(())
    first = _first(scorer, frame)
    columns = scorer.binding(frame.limit(1).toArrow().schema).columns_to_read

    def score(batches: Iterator[Any]) -> Iterator[Any]:
        for series in batches:
            several = series if isinstance(series, tuple) else (series,)
            table = pa.table([pa.Array.from_pandas(each) for each in several], names=columns)
            yield pa.table(_with_lists(scorer(table))).to_pandas()

    series: Any = pd.Series if len(columns) == 1 else tuple[(pd.Series,) * len(columns)]  # type: ignore[misc]
    score.__annotations__ = {"batches": Iterator[series], "return": Iterator[pd.DataFrame]}
    return pandas_udf(score, _spark_schema(first))(*columns)


def _first(scorer: Scorer, frame: DataFrame) -> Any:
    """Results of the first rows. Raises ``InvalidCall`` for a frame without rows."""
    rows = frame.limit(FIRST).toArrow()
    if not rows.num_rows:
        raise InvalidCall("cannot find the types of outputs: the frame has no rows")
    result = scorer(rows)
    scorer.use(scorer.program.backend, scorer.threads or 1)  # the same in all tasks
    return result


def _spark_schema(table: Any) -> Any:
    return from_arrow_schema(_with_lists(table.slice(0, 0)).schema)


def _with_lists(rows: Any) -> Any:
    """Record batches or tables with fixed-size lists converted to lists, as Spark has no such type."""
    return rows.cast(pa.schema([field.with_type(_plain(field.type)) for field in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if kind == pa.float16():
        return pa.float32()
    return kind
