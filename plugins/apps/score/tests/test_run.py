"""From files to files: all kinds of input, the order of rows, bad rows, and resumed runs."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from PIL import Image
from pyarrow import feather, parquet

import tenonnx as tx
from tenonnx_data.readers import Slice
from tenonnx_score import OutputFailed, ScoreConfig, Watch
from tenonnx_score.engines.engine import engine_of
from tenonnx_score.engines.on_local import PAYS
from tenonnx_score.parts import joined
from tenonnx_score.trial import LARGEST, LONGEST, MOST, Trial, at_once

ONE = {"on": "local:1", "threads": 1}


def written(folder):
    return parquet.read_table(folder)


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write(table, path):
    """Write a table in the format of the suffix."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=300)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif path.suffix == ".arrow":
        feather.write_feather(table, path, chunksize=300)
    else:
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, max_chunksize=300)
    return path


@pytest.mark.parametrize("part_rows", [250, 251, 300, 400, 999, 1000, 1001])
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".arrow", ".arrows"])
def test_a_part_has_as_many_rows_as_asked(suffix, part_rows, matrix, table, tmp_path):
    """This holds for any slices of the input: row groups and batches of 300, or one block of text."""
    path = write(table, tmp_path / f"t{suffix}")
    scores = tx.score(matrix, path, tmp_path / "out", keep=["id", "name"], part_rows=part_rows, **ONE)
    counts = [parquet.read_metadata(file).num_rows for file in scores.files]
    assert counts == [min(part_rows, 1000 - first) for first in range(0, 1000, part_rows)]
    assert written(tmp_path / "out")["id"].to_pylist() == list(range(1000))


def test_one_row_group_is_cut(matrix, table, tmp_path):
    parquet.write_table(table, tmp_path / "t.parquet")
    scores = tx.score(matrix, tmp_path / "t.parquet", tmp_path / "out", keep=["id", "name"], part_rows=250, **ONE)
    assert len(scores.files) == 4


def test_parts_of_text_end_with_rows_in_quotes(matrix, table, tmp_path):
    names = [f'line {k}\nand "another"' if k % 7 == 0 else str(k) for k in range(1000)]
    pyarrow.csv.write_csv(
        table.set_column(table.schema.get_field_index("name"), "name", pa.array(names)), tmp_path / "t.csv"
    )
    scores = tx.score(matrix, tmp_path / "t.csv", tmp_path / "out", keep=["id", "name"], part_rows=300, **ONE)
    assert [parquet.read_metadata(file).num_rows for file in scores.files] == [300, 300, 300, 100]
    assert written(tmp_path / "out")["name"].to_pylist() == names


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".arrow", ".arrows"])
def test_every_kind_of_table(suffix, matrix, table, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for k in (10, 2, 1):  # in numeric order: 1, 2, 10
        write(table.slice(0 if k == 1 else 400 if k == 2 else 700, 400 if k == 1 else 300), data / f"d{k}{suffix}")
    scores = tx.score(matrix, data, tmp_path / "out", keep=["id", "name"], part_rows=250, **ONE)
    result = written(tmp_path / "out")
    rows = np.stack([table[name].to_numpy() for name in "abcd"], axis=1).astype(np.float32)
    expected = tx.load(matrix).run({"x": rows}, backend="onnxruntime")
    assert (scores.rows, scores.bad) == (1000, 0)
    assert result["id"].to_pylist() == list(range(1000))
    assert result["name"].to_pylist() == table["name"].to_pylist()
    assert result.schema.field("id").type == pa.int64()
    assert np.array_equal(result["label"].to_numpy(), expected["label"])
    assert np.allclose(np.stack(result["p"].to_numpy()), expected["p"], atol=1e-6)
    assert len(scores.files) >= 3 if suffix in (".parquet", ".arrow", ".arrows") else len(scores.files)


def test_two_processes_give_the_same_bits_as_one(matrix, table, tmp_path):
    parquet.write_table(pa.concat_tables([table] * 10), tmp_path / "t.parquet", row_group_size=1000)
    outputs = []
    for on in ("local:1", "local:2"):
        scores = tx.score(
            matrix, tmp_path / "t.parquet", tmp_path / on, keep=["id", "name"], on=on, part_rows=1000, threads=1
        )
        outputs.append(b"".join(path.read_bytes() for path in scores.files))
    assert outputs[0] == outputs[1]


def test_arrow_output_and_the_summary(scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0, None, 3.0, np.inf]}), tmp_path / "t.parquet")
    scores = tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", format="arrow", **ONE)
    assert feather.read_table(scores.files[0])["y"].to_pylist()[2] == 7.0
    result = scores.to_dict()
    assert result["columns"]["y"] == {"count": 4, "nulls": 0, "nans": 1, "min": 3.0, "max": "inf"}
    assert result["columns"]["w"]["count"] == 8


# ----- text -----------------------------------------------------------------------------------------------------------


def scored_text(model, tmp_path, name, text, **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    scores = tx.score(model, path, tmp_path / "out", max_errors=1, **ONE, **options)
    bad = [row for path in sorted((tmp_path / "out" / "errors").glob("*")) for row in lines(path)]
    return scores, written(tmp_path / "out"), bad


def test_csv_with_quotes_semicolons_and_missing_numbers(scale, tmp_path):
    text = '\ufeffid;x;note\n1;1.5;"two\nlines; and ""quotes"""\n2;;plain\n3; 4 ;NA\n'
    scores, result, bad = scored_text(scale, tmp_path, "t.csv", text, keep=["id", "note"], outputs=["y"])
    assert result["id"].to_pylist() == [1, 2, 3]
    assert result["note"].to_pylist() == ['two\nlines; and "quotes"', "plain", "NA"]
    assert np.array_equal(result["y"].to_numpy(), [4.0, np.nan, 9.0], equal_nan=True)
    assert (scores.bad, bad) == (0, [])


def test_bad_rows_of_csv_are_reported_with_their_text(scale, tmp_path):
    text = b"id,x\n1,1\n2,two\n3,3,extra\n\xff,4\nfive,5\n6,1e300\n7,7\n" + b"".join(
        b"%d,1\n" % k for k in range(8, 40)
    )
    scores, result, bad = scored_text(scale, tmp_path, "t.csv", text, keep=["id"], outputs=["y"])
    assert result["id"].to_pylist()[:3] == ["1", "five", "7"]
    assert scores.rows + scores.bad == 39
    assert [row["row"] for row in bad] == [2, 3, 1, 5]
    assert any(row.get("text") == "3,3,extra" and "3 fields instead of 2" in row["reason"] for row in bad)
    assert any("'two' is not a value of float32" in row["reason"] for row in bad)


def test_bad_lines_of_json_are_reported_with_their_text(lengths, tmp_path):
    good = '{"x": [1, 2.5], "id": 1}\n{"x": [3], "id": 2}\n'
    text = good * 5 + '{"x": [1], "id": "three"}\n{"x": "four", "id": 4}\n{"x": [5\n[6]\n{"id": 7}\n{"x": [8], "id": 8}'
    scores, result, bad = scored_text(lengths, tmp_path, "t.jsonl", text, keep=["id"], outputs=["mean"])
    assert result["mean"].to_pylist() == [1.75, 3.0] * 5 + [8.0]
    assert [row["row"] for row in bad if "text" in row] == [10, 11, 12, 13]
    assert scores.bad == 5


def test_numbers_of_json_are_floats_if_the_model_expects_floats(scale, tmp_path):
    text = '{"x": 1}\n' * 3 + '{"x": 1.5}\n{"x": null}\n'
    _, result, bad = scored_text(scale, tmp_path, "t.jsonl", text, outputs=["y"])
    assert np.array_equal(result["y"].to_numpy(), [3.0, 3.0, 3.0, 4.0, np.nan], equal_nan=True)
    assert not bad


def test_a_text_is_cut_between_rows(scale, tmp_path, monkeypatch):
    from tenonnx_data.readers import text as reader

    monkeypatch.setattr(reader, "BLOCK", 64)
    rows = "".join(f'{k},"a ""b""\n{k}"\n' if k % 3 else f"{k},c\n" for k in range(200))
    (tmp_path / "t.csv").write_text("x,note\n" + rows)
    pieces = list(reader.Csv().slices(str(tmp_path / "t.csv"), 10))
    assert len(pieces) > 20
    assert sum(piece.rows for piece in pieces) in (200, 201)
    schema = pa.schema([("x", pa.string()), ("note", pa.string())])
    result = [chunk.batch for piece in pieces for chunk in reader.Csv().read(piece, schema, 1000)]
    assert pa.Table.from_batches(result)["x"].to_pylist() == [str(k) for k in range(200)]


# ----- files with one row each ----------------------------------------------------------------------------------------


def test_a_folder_of_images(pictures, tmp_path):
    folder = tmp_path / "images"
    (folder / "b").mkdir(parents=True)
    rng = np.random.default_rng(4)
    images = [rng.integers(0, 256, (8, 6, 3), np.uint8) for _ in range(5)]
    for k, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{k}.png")
    (folder / "b" / "broken.jpg").write_bytes(b"nothing")
    (folder / "notes.txt").write_text("not an image")
    options = {"pixels": "0:1", "keep": ["path"], "max_errors": 0.5}
    scores = tx.score(pictures, folder, tmp_path / "out", **options, **ONE)
    result = written(tmp_path / "out")
    assert (scores.rows, scores.bad) == (5, 1)
    assert [path.rpartition("/")[2] for path in result["path"].to_pylist()] == [f"{k}.png" for k in range(5)]
    expected = [(image / 255.0).mean(axis=(0, 1)) for image in images]
    assert np.allclose(np.stack(result["mean"].to_numpy()), expected, atol=1e-5)
    (bad,) = [row for path in (tmp_path / "out" / "errors").iterdir() for row in lines(path)]
    assert bad["file"].endswith("broken.jpg")


def test_npy_files_are_rows_or_contain_rows(lengths, tmp_path):
    rows = np.arange(12, dtype=np.float64).reshape(4, 3)
    np.save(tmp_path / "all.npy", rows)
    folder = tmp_path / "each"
    folder.mkdir()
    for k, row in enumerate(rows):
        np.save(folder / f"{k}.npy", row)
    for name in ("all.npy", "each"):
        tx.score(lengths, tmp_path / name, tmp_path / f"out-{name}", outputs=["mean"], **ONE)
        assert written(tmp_path / f"out-{name}")["mean"].to_pylist() == [1.0, 4.0, 7.0, 10.0]


# ----- resuming -------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(table, tmp_path):
    """4,000 rows in two files with row groups of 500."""
    for k in range(2):
        part = (
            pa.concat_tables([table] * 2)
            .drop_columns(["id", "name"])
            .append_column("id", pa.array(np.arange(2000) + 2000 * k))
        )
        parquet.write_table(part, tmp_path / f"many{k}.parquet", row_group_size=500)
    return str(tmp_path / "many*.parquet")


class Enough(Exception):
    """Ends a run."""


def stop_after(parts):
    """A watch that stops a run after this many parts."""
    seen = []

    def progress(each):
        if each.share >= parts / 8:
            seen.append(each)
            raise Enough

    return Watch(progress=progress)


def test_a_stopped_run_resumes(matrix, many, tmp_path):
    options = {"keep": ["id"], "part_rows": 500, **ONE}
    with pytest.raises(Enough):
        tx.score(matrix, many, tmp_path / "out", watch=stop_after(3), **options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert 1 <= len(before) < 8
    (tmp_path / "out" / ".part-000007.parquet.0.tmp").write_bytes(b"half")
    (tmp_path / "out" / "part-000006.parquet").write_bytes(b"written, and not told of")
    started = []
    scores = tx.score(matrix, many, tmp_path / "out", watch=Watch(started.append), **options)
    assert started[0].rows_before == 500 * scores.reused > 0
    assert scores.rows == 4000
    result = written(tmp_path / "out")
    assert result["id"].to_pylist() == list(range(4000))
    assert not list((tmp_path / "out").glob(".part*"))
    reported = dict(enumerate(scores.files))
    assert all(
        reported[k].stat().st_mtime_ns == before[reported[k]] for k in range(scores.reused) if reported[k] in before
    )
    whole = tx.score(matrix, many, tmp_path / "whole", **options)
    assert [path.read_bytes() for path in whole.files] == [path.read_bytes() for path in scores.files]
    assert whole.summary.columns == scores.summary.columns


def test_a_complete_run_writes_nothing(matrix, many, tmp_path):
    options = {"keep": ["id"], **ONE}
    tx.score(matrix, many, tmp_path / "out", **options)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    scores = tx.score(matrix, many, tmp_path / "out", **options)
    assert scores.rows == 4000
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}


def test_a_last_line_of_the_manifest_that_was_cut_does_not_count(matrix, many, tmp_path):
    options = {"keep": ["id"], "part_rows": 500, **ONE}
    tx.score(matrix, many, tmp_path / "out", **options)
    manifest = tmp_path / "out" / "_manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    scores = tx.score(matrix, many, tmp_path / "out", **options)
    assert (scores.reused, scores.rows) == (7, 4000)
    assert written(tmp_path / "out")["id"].to_pylist() == list(range(4000))
    assert len(lines(manifest)) == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out, many, model: {"outputs": ["p"]}, "the option outputs is another"),
        (lambda out, many, model: {"format": "arrow"}, "the option format is another"),
        (lambda out, many, model: os.utime(model[0].replace("*", "1"), ns=(0, 0)), "many1.parquet.* is another"),
        (lambda out, many, model: tx.export(tx.load(model[1]), model[1], tidy=True), "the model is another"),
    ],
)
def test_a_run_that_would_mix_two_is_refused_by_name(change, said, matrix, many, tmp_path):
    options = {"keep": ["id"], "part_rows": 500, **ONE}
    tx.score(matrix, many, tmp_path / "out", **options)
    more = change(tmp_path / "out", many, (many, matrix)) or {}
    more = more if isinstance(more, dict) else {}
    with pytest.raises(tx.InvalidCall, match=said):
        tx.score(matrix, many, tmp_path / "out", **{**options, **more})
    scores = tx.score(matrix, many, tmp_path / "out", overwrite=True, **{**options, **more})
    assert scores.rows == 4000


def test_a_folder_with_other_files_is_not_touched(scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "t.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(tx.InvalidCall, match="is not empty"):
        tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", overwrite=True, **ONE)
    with pytest.raises(tx.InvalidCall, match="holds input"):
        tx.score(scale, tmp_path / "t.parquet", tmp_path, **ONE)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


# ----- refused input --------------------------------------------------------------------------------------------------


def test_too_many_bad_rows_fail_and_more_may_be_allowed(scale, tmp_path):
    rows = [1.0] * 90 + [1e300] * 10
    parquet.write_table(pa.table({"x": rows}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidFeed, match="more than 1 % of the rows are bad") as raised:
        tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", **ONE)
    assert "10 of 100" in str(raised.value)
    scores = tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", max_errors=0.1, **ONE)
    assert (scores.rows, scores.bad, scores.reused) == (90, 10, 1)
    reported = lines(tmp_path / "out" / "errors" / "_part-000000.jsonl")
    assert [row["row"] for row in reported] == list(range(90, 100))


def test_first_rows_that_are_all_bad_are_refused_before_anything_is_written(scale, tmp_path):
    parquet.write_table(pa.table({"x": [1e300] * 10}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidFeed, match="is not a value of float32"):
        tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", max_errors=1, **ONE)
    assert not list((tmp_path / "out").glob("part*"))


def test_a_check_scores_rows_first(scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0] * 200}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"x": [1e300] * 200}), tmp_path / "b.parquet")
    seen = []
    watch = Watch(checked=lambda table, bad: seen.append((table.num_rows, len(bad))))
    with pytest.raises(tx.InvalidFeed, match="50 of 100 of the check"):
        tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", check=True, watch=watch, **ONE)
    assert seen == [(50, 50)]
    assert not list((tmp_path / "out").glob("part*"))


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"x": pa.array([1.0])}, 'lacks the column "id"'),
        ({"id": pa.array([1])}, 'lacks the column "x"'),
        ({"x": pa.array([1], pa.int32()), "id": pa.array([1])}, "has several types in the files"),
        ({"x": pa.array(["1"]), "id": pa.array([1])}, "has several types in the files"),
    ],
)
def test_a_schema_that_changes_between_files_is_refused_by_name(second, said, scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0], "id": [1]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table(second), tmp_path / "b.parquet")
    with pytest.raises(tx.InvalidFeed, match=said) as raised:
        tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", keep=["id"], **ONE)
    assert "b.parquet" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_columns_in_another_order_are_the_same_columns(scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0], "id": [1]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": [2], "more": ["?"], "x": [2.0]}), tmp_path / "b.parquet")
    tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", keep=["id"], outputs=["y"], **ONE)
    assert written(tmp_path / "out").to_pydict() == {"id": [1, 2], "y": [3.0, 5.0]}


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_file_that_is_cut_is_named_and_nothing_is_lost(suffix, scale, tmp_path):
    for name in "ab":
        write(pa.table({"x": np.arange(1000.0)}), tmp_path / f"{name}{suffix}")
    path = tmp_path / f"b{suffix}"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(tx.InvalidFeed, match=f'b{suffix}" as '):
        tx.score(scale, str(tmp_path / f"*{suffix}"), tmp_path / "out", **ONE)
    path.write_bytes(whole)
    assert tx.score(scale, str(tmp_path / f"*{suffix}"), tmp_path / "out", **ONE).rows == 2000


def test_a_damaged_file_stops_the_run_which_resumes_once_it_is_repaired(scale, tmp_path):
    for name, count in (("a", 20_000), ("b", 5000)):  # the trial reads the first rows, which are from a
        rows = pa.table({"x": np.random.default_rng(0).random(count)})
        parquet.write_table(rows, tmp_path / f"{name}.parquet", write_page_checksum=True)
    path = tmp_path / "b.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(20_000) + whole[20_100:])
    options = {"part_rows": 5000, **ONE}
    with pytest.raises(tx.InvalidFeed, match=r'b.parquet" as '):
        tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", **options)
    path.write_bytes(whole)
    scores = tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", **options)
    assert (scores.reused, scores.rows) == (4, 25_000)


@pytest.mark.parametrize(
    ("input", "said"),
    [
        ("none*.parquet", "no files to score"),
        ("t.xlsx", "unknown kind of file"),
        ("", "files are of several kinds"),
    ],
)
def test_invalid_input_is_refused_by_name(input, said, scale, tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"")
    (tmp_path / "a.csv").write_text("x\n1\n")
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidCall, match=said):
        tx.score(scale, tmp_path / input, tmp_path / "out", **ONE)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"max_errors": 2},
        {"format": "csv"},
        {"keep": "id"},
        {"on": "moon"},
        {"on": "local:0"},
        {"speed": 9},
    ],
)
def test_invalid_options_are_refused(options, scale, tmp_path):
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidCall):
        tx.score(scale, tmp_path / "t.parquet", tmp_path / "out", **options)


def test_rows_that_depend_on_other_rows_are_refused(tmp_path):
    import tenonnx_standard as ops

    graph = tx.Graph(opsets={"ai.onnx": 17})
    x = graph.input("x", "float32", ("rows",))
    graph.output("y", x - ops.reduce_mean(x, keepdims=1))
    parquet.write_table(pa.table({"x": np.random.default_rng(0).random(1000)}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidModel, match="depend on other rows of its batch"):
        tx.score(graph, tmp_path / "t.parquet", tmp_path / "out", **ONE)


def test_empty_tables_result_in_no_part(scale, tmp_path):
    parquet.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "a.parquet")
    with pytest.raises(tx.InvalidFeed, match="the input has no rows"):
        tx.score(scale, tmp_path / "a.parquet", tmp_path / "out", **ONE)
    parquet.write_table(pa.table({"x": [1.0]}), tmp_path / "b.parquet")
    assert tx.score(scale, str(tmp_path / "*.parquet"), tmp_path / "out", **ONE).rows == 1


def test_a_config_and_options():
    assert ScoreConfig(keep=["id"]).of_scorer()["keep"] == ["id"]
    assert issubclass(OutputFailed, tx.TenonnxError)


def test_rows_are_held_by_their_bytes_and_by_their_time():
    """A slow model reports its progress, and images do not exhaust memory."""
    result = Trial("numpy", 64, True, row_bytes=100, row_seconds=1e-6)
    assert at_once(64, result) == MOST
    assert at_once(64, result._replace(row_bytes=LARGEST // 200)) == 192
    assert at_once(64, result._replace(row_seconds=LONGEST / 130)) == 128
    assert at_once(64, result._replace(row_seconds=10.0)) == 64


def test_little_work_uses_one_process_by_default(matrix, table, tmp_path):
    parquet.write_table(table, tmp_path / "t.parquet")
    engines = {}
    for on in ("local", "local:2"):
        watch = Watch(started=lambda task, on=on: engines.update({on: task.engine}))
        options = {"keep": ["id", "name"], "part_rows": 500, "watch": watch}
        tx.score(matrix, tmp_path / "t.parquet", tmp_path / on.replace(":", ""), on=on, **options)
    assert engines == {"local": "local:1", "local:2": "local:2"}
    assert written(tmp_path / "local").equals(written(tmp_path / "local2"))


def test_much_work_uses_all_cores(monkeypatch):
    monkeypatch.setattr("tenonnx_score.engines.on_local.cores", lambda: 4)
    engine = engine_of("local")
    engine.expect(PAYS)
    assert (engine.processes, engine.title) == (4, "local:4")
    engine.expect(PAYS / 2)
    assert (engine.processes, engine.title) == (1, "local:1")


def test_slices_of_rows_that_follow_each_other_are_read_as_one():
    rows = [Slice("a", at, at + 10, at, 10, 5) for at in (0, 10, 30)]
    result = joined([*rows, Slice("b", 40, 50, 40, 10, 5), Slice("c", 0, 100, 0, 7, 5), Slice("c", 100, 200, 7, 7, 5)])
    assert [(each.path, each.start, each.stop, each.rows, each.weight) for each in result] == [
        ("a", 0, 20, 20, 10),
        ("a", 30, 40, 10, 5),
        ("b", 40, 50, 10, 5),
        ("c", 0, 100, 7, 5),  # text, in which bytes are counted
        ("c", 100, 200, 7, 5),
    ]
