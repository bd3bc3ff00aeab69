"""Ray and Spark: results equal to those of local processes, recomputed parts, and user programs with a scorer."""

import importlib
import os
import signal
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_score import Scorer, Watch

#: Warnings of these libraries are not ours to fix.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning", "UserWarning")
]

ROWS, PARTS = 6000, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of numbers and text, and a table with missing values and bad rows."""
    folder = tmp_path_factory.mktemp("data")
    graph = tx.Graph(opsets={"ai.onnx": 17, "ai.onnx.ml": 3})
    x = graph.input("x", "float32", ("rows", 3))
    name = graph.input("name", "string", ("rows",))
    weight = graph.variable("weight", np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32))
    graph.output("p", ops.softmax(ops.where(ops.isnan(x), np.float32(0), x) @ weight, axis=-1))
    graph.output("same", ops.identity(name))
    tx.export(graph, folder / "model.onnx")
    rng = np.random.default_rng(2)
    columns = {each: rng.standard_normal(ROWS) for each in "abc"}
    columns["a"][::7] = np.nan
    columns["b"][ROWS // 2] = 1e300
    rows = pa.table({"id": np.arange(ROWS), **columns, "name": [f"n{k}" if k % 5 else None for k in range(ROWS)]})
    parquet.write_table(rows, folder / "t.parquet", row_group_size=ROWS // PARTS)
    return folder


OPTIONS = {"columns": {"x": ["a", "b", "c"]}, "keep": ["id"], "threads": 1, "batch": 256, "part_rows": ROWS // PARTS}


def bits(scores):
    return [path.read_bytes() for path in [*scores.files, *sorted((scores.folder / "errors").iterdir())]]


@pytest.fixture(scope="module")
def expected(folder, tmp_path_factory):
    scores = tx.score(
        folder / "model.onnx", folder / "t.parquet", tmp_path_factory.mktemp("local"), on="local:1", **OPTIONS
    )
    assert (scores.rows, scores.bad) == (ROWS - 1, 1)
    return bits(scores)


@pytest.fixture(scope="module")
def ray():
    ray = importlib.import_module("ray")
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sql = importlib.import_module("pyspark.sql")
    builder = sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


def test_results_on_ray_equal_those_of_local_processes(ray, folder, expected, tmp_path):
    scores = tx.score(folder / "model.onnx", folder / "t.parquet", tmp_path / "out", on="ray", **OPTIONS)
    assert bits(scores) == expected


def test_results_on_spark_equal_those_of_local_processes(spark, folder, expected, tmp_path):
    scores = tx.score(folder / "model.onnx", folder / "t.parquet", tmp_path / "out", on="spark", **OPTIONS)
    assert bits(scores) == expected


class Stopped(Exception):
    """Ends a run."""


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_a_stopped_run_resumes_on_another_engine(engine, folder, expected, tmp_path, request):
    request.getfixturevalue(engine)

    def stop(progress):
        if progress.share > 0.3:
            raise Stopped

    with pytest.raises(Stopped):
        tx.score(
            folder / "model.onnx",
            folder / "t.parquet",
            tmp_path / "out",
            on=engine,
            watch=Watch(progress=stop),
            **OPTIONS,
        )
    scores = tx.score(folder / "model.onnx", folder / "t.parquet", tmp_path / "out", on="local:1", **OPTIONS)
    assert scores.reused
    assert bits(scores) == expected


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_errors_of_a_part_are_our_own(engine, folder, tmp_path, request):
    request.getfixturevalue(engine)
    damaged = (folder / "t.parquet").read_bytes()
    with parquet.ParquetFile(folder / "t.parquet") as file:
        place = file.metadata.row_group(PARTS - 1).column(1).data_page_offset
    (tmp_path / "t.parquet").write_bytes(damaged[:place] + b"\xff" * 200 + damaged[place + 200 :])
    with pytest.raises(tx.InvalidFeed, match=r"cannot read .*t.parquet\" as a Parquet file"):
        tx.score(folder / "model.onnx", tmp_path / "t.parquet", tmp_path / "out", on=engine, **OPTIONS)


def test_a_worker_of_spark_that_is_killed_is_replaced(spark, folder, expected, tmp_path):
    killer = tmp_path / "killed"
    scorer = Killing(folder / "model.onnx", killer, columns=OPTIONS["columns"], keep=["id"], threads=1, batch=256)
    from tenonnx_data.readers import found
    from tenonnx_score.engines import engine_of
    from tenonnx_score.parts import Task, parts

    sources = found([str(folder / "t.parquet")], scorer.graph)
    sources = sources.checked(scorer.binding(sources.schema))
    scorer.compute(scorer.prepare(parquet.read_table(folder / "t.parquet").slice(0, 8).to_batches()[0]))
    (tmp_path / "out").mkdir()
    task = Task(scorer, "parquet", sources.schema, scorer.schema(sources.schema), str(tmp_path / "out"), "parquet", 256)
    plan = list(parts(sources.slices(ROWS // PARTS), ROWS // PARTS))
    killer.write_text("")
    done = {part.number: made for part, made in engine_of("spark").run(task, plan, lambda rows: None)}
    assert not killer.exists()
    assert sorted(done) == list(range(PARTS))
    assert [path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*"))] == expected[:PARTS]


class Killing(Scorer):
    """A scorer whose first process is killed."""

    def __init__(self, model, file, **options):
        super().__init__(model, **options)
        self.file = file

    def compute(self, ready):
        if self.file.exists():
            self.file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compute(ready)


# ----- programs of theirs ---------------------------------------------------------------------------------------------


def clean(folder):
    """The valid rows, and a scorer's results for them."""
    rows = parquet.read_table(folder / "t.parquet")
    rows = rows.filter(pa.compute.field("id") != ROWS // 2).slice(0, 1000)
    scorer = Scorer(str(folder / "model.onnx"), columns=OPTIONS["columns"], keep=["id"], batch=100, threads=1)
    return rows, scorer, scorer(rows)


def test_a_transformer_of_spark(spark, folder):
    from tenonnx_score.spark import ScoreTransformer

    rows, scorer, expected = clean(folder)
    frame = spark.createDataFrame(rows.to_pandas())
    result = ScoreTransformer(scorer).transform(frame)
    assert result.columns == ["id", "p", "same"]
    result = result.orderBy("id").toArrow()
    assert result["id"].to_pylist() == expected["id"].to_pylist()
    assert np.allclose(np.stack(result["p"].to_numpy()), np.stack(expected["p"].to_numpy()), atol=1e-6)
    whole = ScoreTransformer(scorer.keeping(())).transform(frame)
    assert whole.columns == [*rows.column_names, "p", "same"]


def test_scores_as_a_column_of_spark(spark, folder):
    from tenonnx_score.spark import scores

    rows, scorer, expected = clean(folder)
    frame = spark.createDataFrame(rows.to_pandas())
    result = frame.select("id", scores(scorer, frame).alias("s")).select("id", "s.p", "s.same").orderBy("id").toArrow()
    assert result["same"].to_pylist() == expected["same"].to_pylist()
    assert np.allclose(np.stack(result["p"].to_numpy()), np.stack(expected["p"].to_numpy()), atol=1e-6)


def test_a_scorer_is_a_class_of_ray_data(ray, folder):
    rows, _, expected = clean(folder)
    pool = ray.data.ActorPoolStrategy(size=2)
    result = ray.data.from_arrow(rows).map_batches(
        Scorer,
        fn_constructor_args=(str(folder / "model.onnx"),),
        batch_format="pyarrow",
        compute=pool,
        fn_constructor_kwargs={"columns": OPTIONS["columns"], "keep": ["id"], "batch": 100, "threads": 1},
    )
    assert pa.concat_tables(ray.get(result.to_arrow_refs())).sort_by("id").to_pydict() == expected.to_pydict()
