"""Threads and parts of cheap models."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tenonnx as tx
from tenonnx_convert.options import options_of
from tenonnx_score import ScoreConfig, Watch, run, trial
from tenonnx_score.engines import on_local
from tenonnx_score.options import GROUP_ROWS, PART_ROWS
from tenonnx_score.trial import CHEAP_SECONDS, Trial


@pytest.mark.parametrize(("cheap", "counts"), [(True, [300, 300, 300, 100]), (False, [250, 250, 250, 250])])
def test_row_groups_stay_whole_for_a_cheap_model(cheap, counts, matrix, table, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "PART_ROWS", 250)
    monkeypatch.setattr(trial, "CHEAP_SECONDS", float("inf") if cheap else 0.0)
    path, options = tmp_path / "t.parquet", {"keep": ["id", "name"], "on": "local:1", "threads": 1}
    parquet.write_table(table, path, row_group_size=300)
    scores = tx.score(matrix, path, tmp_path / "out", **options)
    assert [parquet.read_metadata(file).num_rows for file in scores.files] == counts
    monkeypatch.setattr(trial, "CHEAP_SECONDS", 0.0 if cheap else float("inf"))
    scores.files[1].unlink()  # a resumed run goes by the manifest
    again = tx.score(matrix, path, tmp_path / "out", **options)
    assert [parquet.read_metadata(file).num_rows for file in again.files] == counts
    assert again.reused == len(counts) - 1


@pytest.mark.parametrize(("factor", "threads"), [(float("inf"), 1), (0.0, 2)])
def test_a_cheap_model_has_one_thread_unless_more_are_faster(factor, threads, scale, tmp_path, monkeypatch):
    parquet.write_table(pa.table({"x": np.arange(500.0)}), tmp_path / "t.parquet")
    monkeypatch.setattr(trial, "CHEAP_SECONDS", float("inf"))
    monkeypatch.setattr(trial, "FASTER", factor)
    monkeypatch.setattr(on_local, "cores", lambda: 2)
    used = []
    watch = Watch(started=lambda task: used.append(task.threads))
    tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", on="local:1", watch=watch)
    tx.score(scale, tmp_path / "t.parquet", tmp_path / "three", on="local:1", threads=3, watch=watch)
    assert used == [threads, 3]


def test_the_help_has_the_default_numbers_of_rows():
    text = options_of(ScoreConfig)["part_rows"].help
    assert f"{PART_ROWS:,}" in text
    assert f"{GROUP_ROWS:,}" in text


def test_a_model_is_cheap_by_the_time_of_a_row():
    result = Trial("numpy", 64, True, row_bytes=100, row_seconds=CHEAP_SECONDS / GROUP_ROWS)
    assert not result.is_cheap
    assert result._replace(row_seconds=result.row_seconds / 2).is_cheap
