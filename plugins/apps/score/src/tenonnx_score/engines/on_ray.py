"""Ray engine: a pool of Ray Data actors, each with its own session."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from tenonnx.extend import import_optional
from tenonnx_score.engines.engine import Made
from tenonnx_score.engines.outcomes import opened, outcome_of
from tenonnx_score.parts import Part, Task


class Engine:
    """A cluster by its address; by default the one that the program uses, or a local one."""

    threads = 1

    def __init__(self, where: str) -> None:
        self.address = where
        self.title = f"ray:{where}" if where else "ray"

    def ready(self, threads: int) -> AbstractContextManager[None]:
        return nullcontext()

    def expect(self, seconds: float) -> None:
        """Nothing to do: the cluster has a fixed number of workers."""

    def run(self, task: Task, parts: Iterable[Part], news: Callable[[int], None]) -> Made:
        """Compute parts with a pool of actors, one for each core of the cluster."""
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # workers run in this environment
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            ray.init(address=self.address or None, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield from self._computed(ray, task, {part.number: part for part in parts})
        finally:
            if ours:
                ray.shutdown()

    def _computed(self, ray: Any, task: Task, parts: dict[int, Part]) -> Made:
        threads = task.scorer.threads or 1
        cores = int(ray.cluster_resources().get("CPU", 1))
        pool = max(min(cores // threads, len(parts)), 1)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        items = [{"number": number, "part": pickle.dumps(part)} for number, part in parts.items()]
        computed = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _PartActor,
            fn_constructor_args=(pickle.dumps(task),),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=pool),
            num_cpus=threads,
        )
        for row in computed.iter_rows():
            yield parts[row["number"]], opened(pickle.loads(row["outcome"]))  # noqa: S301  of our own workers


class _PartActor:
    """Actor that computes parts."""

    def __init__(self, task: bytes) -> None:
        self._task = task

    def __call__(self, batch: pa.Table) -> pa.Table:
        outcomes = [outcome_of(self._task, part) for part in batch["part"].to_pylist()]
        return pa.table({"number": batch["number"], "outcome": pa.array(outcomes, pa.binary())})


def _ray() -> Any:
    install = "tenonnx-score[ray]"
    import_optional("ray.data", "score on Ray", install=install)
    return import_optional("ray", "score on Ray", install=install)
