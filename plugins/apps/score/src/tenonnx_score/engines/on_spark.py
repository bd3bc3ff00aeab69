"""Spark engine: one job per part, as many at a time as the cluster has task slots."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from tenonnx import InvalidCall
from tenonnx.extend import import_optional
from tenonnx_score.engines.engine import Made
from tenonnx_score.engines.outcomes import opened, outcome_of
from tenonnx_score.parts import Done, Part, Task

#: Attempts per task; local Spark makes only one by default.
TRIES = 4


class Engine:
    """A cluster by its master; by default the program's session, or a local one."""

    threads = 1

    def __init__(self, where: str) -> None:
        self.master = where
        self.title = f"spark:{where}" if where else "spark"

    def ready(self, threads: int) -> AbstractContextManager[None]:
        return nullcontext()

    def expect(self, seconds: float) -> None:
        """Nothing to do: the cluster has a fixed number of workers."""

    def run(self, task: Task, parts: Iterable[Part], news: Callable[[int], None]) -> Made:
        """Compute parts as Spark tasks."""
        session = _session(self.master)
        before = session[0].sparkContext.defaultParallelism
        pool = ThreadPoolExecutor(before)
        pickled = pickle.dumps(task)
        try:
            waiting = {pool.submit(_computed, session[0], pickled, part): part for part in parts}
            for each in as_completed(waiting):
                yield waiting[each], each.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if session[1]:
                session[0].stop()
            pool.shutdown(wait=True)


def _computed(spark: Any, task: bytes, part: Part) -> Done:
    frame = spark.createDataFrame([(bytearray(pickle.dumps(part)),)], "part binary").coalesce(1)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            outcomes = [outcome_of(task, each) for each in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], names=["outcome"])

    ((found,),) = frame.mapInArrow(make, "outcome binary").collect()
    return opened(pickle.loads(bytes(found)))  # noqa: S301  of our own workers


def _session(master: str) -> tuple[Any, bool]:
    """The session of a master, and whether it was created for this run."""
    sql = import_optional("pyspark.sql", "score on Spark", install="tenonnx-score[spark]")
    if (active := sql.SparkSession.getActiveSession()) is not None:
        return active, False
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = re.sub(r"^local\[([0-9*]+)\]$", rf"local[\1,{TRIES}]", master or "local[*]")
    builder = sql.SparkSession.builder.master(where).appName("tenonnx score")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise InvalidCall(
            "Spark did not start",
            given=" ".join(str(error).split())[:300],
            do="install Java 17, or correct the master (--on spark:MASTER)",
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark, True
