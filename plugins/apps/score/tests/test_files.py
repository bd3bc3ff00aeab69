"""Files of users: compressed, in partitioned folders, empty, and with columns of every type."""

import bz2
import datetime
import decimal
import gzip
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import tenonnx as tx
import tenonnx_standard as ops
from tenonnx_data.readers import compressed
from tenonnx_score import Scorer

ONE = {"on": "local:1", "threads": 1}


def same(dtype, path, dims=()):
    """A model whose output ``y`` is its input ``x``."""
    graph = tx.Graph(opsets={"ai.onnx": 17})
    graph.output("y", ops.identity(graph.input("x", dtype, ("rows", *dims))))
    tx.export(graph, path / "same.onnx")
    return path / "same.onnx"


def scored(model, source, folder, **options):
    scores = tx.score(model, source, folder, max_errors=1.0, **{**ONE, **options})
    errors = [json.loads(line) for path in (folder / "errors").glob("*") for line in path.read_text().splitlines()]
    return parquet.read_table(folder, partitioning=None) if scores.rows else None, errors


# ----- compressed text ------------------------------------------------------------------------------------------------


def packed(text, suffix):
    """A text compressed for this suffix."""
    if suffix == ".gz":
        return gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :])  # two gzip members
    if suffix == ".bz2":
        return bz2.compress(text)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, compressed.CODECS[suffix]) as stream:
        stream.write(text)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("suffix", list(compressed.CODECS))
@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_compressed_text_is_read_as_text(kind, suffix, tmp_path, monkeypatch):
    from tenonnx_data.readers import text as reader

    monkeypatch.setattr(reader, "BLOCK", 512)
    rows = range(1000)
    lines = [f"{k}.5,{k}" for k in rows] if kind == ".csv" else [json.dumps({"x": k + 0.5, "id": k}) for k in rows]
    text = "\n".join(["x,id", *lines] if kind == ".csv" else lines).encode()
    (tmp_path / f"t{kind}{suffix}").write_bytes(packed(text, suffix))
    options = {"columns": {"x": ["x"]}, "keep": ["id"], "part_rows": 100}
    scores = tx.score(same("float32", tmp_path), tmp_path, tmp_path / "out", **options, **ONE)
    result = parquet.read_table(tmp_path / "out")
    assert result["id"].to_pylist() == list(rows)
    assert np.array_equal(result["y"].to_numpy(), np.arange(1000) + 0.5)
    assert 1 < len(scores.files) <= compressed.COMPRESSED_PIECES, "it is read from its beginning a few times only"


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[: len(whole) // 2], lambda whole: b"x\n1\n", lambda whole: whole[:20] + b"\0" * 99]
)
def test_a_truncated_damaged_or_uncompressed_file_is_named(damage, tmp_path):
    whole = gzip.compress(b"x\n" + b"".join(b"%d\n" % (k * k) for k in range(10_000)), mtime=0)
    (tmp_path / "t.csv.gz").write_bytes(damage(whole))
    with pytest.raises(tx.InvalidFeed, match=r't.csv.gz" as a CSV file'):
        tx.score(same("float32", tmp_path), tmp_path / "t.csv.gz", tmp_path / "out", **ONE)
    (tmp_path / "t.csv.gz").write_bytes(whole)
    assert tx.score(same("float32", tmp_path), tmp_path / "t.csv.gz", tmp_path / "out", **ONE).rows == 10_000


def test_only_text_is_read_compressed(tmp_path):
    (tmp_path / "t.parquet.gz").write_bytes(b"")
    with pytest.raises(tx.InvalidCall, match="unknown kind of file"):
        tx.score(same("float32", tmp_path), tmp_path / "t.parquet.gz", tmp_path / "out", **ONE)


# ----- folders and empty files ----------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    """Files of one row each, in folders of a year and a country."""
    for year in (2023, 2024):
        for country in ("de", "a%20b", "__HIVE_DEFAULT_PARTITION__"):
            folder = tmp_path / "lake" / f"year={year}" / f"country={country}"
            folder.mkdir(parents=True)
            parquet.write_table(pa.table({"x": [float(year)]}), folder / "part.parquet")
    return tmp_path / "lake"


def test_columns_that_folders_tell(lake, tmp_path):
    result, _ = scored(same("float32", tmp_path), lake, tmp_path / "out", keep=["country", "year"])
    assert result.schema.names == ["country", "year", "y"]
    assert result["country"].to_pylist() == [None, "a b", "de"] * 2
    assert result["year"].to_pylist() == [2023] * 3 + [2024] * 3
    result, _ = scored(same("int64", tmp_path), lake, tmp_path / "fed", columns={"x": ["year"]})
    assert result["y"].to_pylist() == [2023] * 3 + [2024] * 3


def test_columns_from_folder_names_are_only_fed_if_they_are_named(lake, tmp_path):
    result, _ = scored(same("float32", tmp_path), lake, tmp_path / "out")
    assert result.schema.names == ["y"]
    parquet.write_table(pa.table({"x": [1.0]}), lake / "apart.parquet")
    with pytest.raises(tx.InvalidCall, match='no column "year"'):
        tx.score(same("float32", tmp_path), lake, tmp_path / "other", keep=["year"], **ONE)


def test_images_in_folders_that_tell_their_class(pictures, tmp_path):
    for label in ("cat", "dog"):
        folder = tmp_path / "images" / f"label={label}"
        folder.mkdir(parents=True)
        for k in range(2):
            Image.fromarray(np.full((8, 6, 3), 51 * k, np.uint8)).save(folder / f"{k}.png")
    result, _ = scored(pictures, tmp_path / "images", tmp_path / "out", keep=["label"], pixels="0:255")
    assert result["label"].to_pylist() == ["cat", "cat", "dog", "dog"]
    assert result["mean"].to_pylist() == [[0.0] * 3, [51.0] * 3] * 2


@pytest.mark.parametrize(("suffix", "rows"), [(".csv", "x\n1\n"), (".jsonl", '{"x": 1}\n'), (".csv.gz", "x\n1\n")])
def test_files_of_text_that_are_empty_have_no_rows(suffix, rows, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name, text in (("a", ""), ("b", rows), ("c", "")):
        whole = gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode()
        (data / f"{name}{suffix}").write_bytes(whole)
    result, _ = scored(same("float32", tmp_path), data, tmp_path / "out")
    assert result["y"].to_pylist() == [1.0]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow", ".npy"])
def test_a_single_empty_file_is_named(suffix, tmp_path):
    (tmp_path / f"t{suffix}").write_bytes(b"")
    with pytest.raises(tx.InvalidFeed, match=f't{suffix}" as '):
        tx.score(same("float32", tmp_path), tmp_path / f"t{suffix}", tmp_path / "out", **ONE)


# ----- columns --------------------------------------------------------------------------------------------------------

BIG = 2**53 + 1  # no float can represent it


@pytest.mark.parametrize(
    ("dtype", "column", "expected", "bad"),
    [
        ("int64", pa.array([BIG, None, -(2**63)]), [BIG, -(2**63)], ["it is missing"]),
        ("float32", pa.array([1, None, 3]), [1.0, None, 3.0], []),
        ("int64", pa.array([decimal.Decimal(BIG), decimal.Decimal("1.5"), None]), [BIG], ["1.5", "it is missing"]),
        ("uint64", pa.array([decimal.Decimal(2**64 - 1), decimal.Decimal(-1)]), [2**64 - 1], ["-1 is not a value"]),
        ("int8", pa.array([decimal.Decimal(127), decimal.Decimal(128)]), [127], ["128 is not a value"]),
        ("float64", pa.array([decimal.Decimal("1.25"), None]), [1.25, None], []),
        ("string", pa.array(["a", None], pa.string_view()), ["a", ""], []),
        ("string", pa.array(["a", None], pa.large_string()), ["a", ""], []),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", "", "a"], []),
        ("float32", pa.array([3, None, 3]).dictionary_encode(), [3.0, None, 3.0], []),
        ("string", pa.array(["a" * 5_000_000]), ["a" * 5_000_000], []),
    ],
)
def test_types_of_columns(dtype, column, expected, bad, tmp_path):
    parquet.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
    result, errors = scored(same(dtype, tmp_path), tmp_path / "t.parquet", tmp_path / "out")
    values = [None if value != value else value for value in result["y"].to_pylist()]
    assert values == expected
    assert len(errors) == len(bad)
    for reason, error in zip(bad, errors, strict=True):
        assert reason in error["reason"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.date(2020, 1, 1)]),
        pa.array([datetime.datetime(2020, 1, 1)]),
        pa.array(["1.5"]),
        pa.array([{"a": 1.0}]),
        pa.array([["a"]]),
        pa.array([[1.0]], pa.list_view(pa.float64())),
    ],
)
def test_columns_of_types_that_do_not_fit_are_refused_by_name(column, tmp_path):
    parquet.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidFeed, match='column "x" does not fit the input "x"'):
        tx.score(same("float32", tmp_path), tmp_path / "t.parquet", tmp_path / "out", **ONE)


def test_kept_columns_are_written_unchanged(tmp_path):
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    kept = {
        "day": pa.array([day.date(), None]),
        "price": pa.array([decimal.Decimal("1.25"), None]),
        "time": pa.array([day, None]),
        "nested": pa.array([{"a": [1]}, None]),
        "count": pa.array([BIG, None]),
        "code": pa.array(["a", None]).dictionary_encode(),
    }
    table = pa.table({"x": [1.0, 2.0], **kept})
    parquet.write_table(table, tmp_path / "t.parquet")
    options = {"columns": {"x": ["x"]}, "keep": list(kept)}
    result, _ = scored(same("float32", tmp_path), tmp_path / "t.parquet", tmp_path / "out", **options)
    assert result.select(list(kept)).to_pylist() == table.select(list(kept)).to_pylist()
    assert result.schema.field("day").type == pa.date32()


def test_csv_text_that_a_number_would_change_stays_text(tmp_path):
    text = "x,zip,account,n,f\n1,01234,12345678901234567890,7,0.10\n2,99999,1,8,2\n"
    (tmp_path / "t.csv").write_text(text)
    options = {"columns": {"x": ["x"]}, "keep": ["zip", "account", "n", "f"]}
    result, _ = scored(same("float32", tmp_path), tmp_path / "t.csv", tmp_path / "out", **options)
    assert result["zip"].to_pylist() == ["01234", "99999"]
    assert result["account"].to_pylist() == ["12345678901234567890", "1"]
    assert (result["n"].to_pylist(), result["f"].to_pylist()) == ([7, 8], [0.1, 2.0])


def test_a_number_of_csv_that_loses_digits_far_below_makes_its_row_bad(tmp_path, monkeypatch):
    from tenonnx_data.readers import text as reader

    monkeypatch.setattr(reader, "HEAD", 64)
    (tmp_path / "t.csv").write_text("x,zip\n" + "1,12345\n" * 50 + "1,01234\n")
    result, errors = scored(
        same("float32", tmp_path), tmp_path / "t.csv", tmp_path / "out", columns={"x": ["x"]}, keep=["zip"]
    )
    assert result["zip"].to_pylist() == [12345] * 50
    assert errors[0]["reason"] == "column \"zip\": '01234' loses digits as int64"


def test_integers_of_csv_keep_all_their_digits(tmp_path):
    (tmp_path / "t.csv").write_text(f"x\n{BIG}\n{BIG}.0\n1e3\n1.5\n1e999999999\n")
    result, errors = scored(same("int64", tmp_path), tmp_path / "t.csv", tmp_path / "out")
    assert result["y"].to_pylist() == [BIG, BIG, 1000]
    assert [error["row"] for error in errors] == [3, 4]


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (["x", "x"], {}, 'several columns are called "x"'),
        (["x", "k", "k"], {"keep": ["k"]}, 'several columns are called "k"'),
        (["x", "k"], {"keep": ["k", "k"]}, 'several columns of the output are called "k"'),
        (["x", "y"], {"keep": ["y"]}, 'several columns of the output are called "y"'),
        (["x"], {"outputs": ["y", "y"]}, 'several columns of the output are called "y"'),
    ],
)
def test_ambiguous_column_names_are_refused(names, options, said, tmp_path):
    parquet.write_table(pa.table([pa.array([1.0])] * len(names), names=names), tmp_path / "t.parquet")
    with pytest.raises(tx.InvalidCall, match=said):
        tx.score(same("float32", tmp_path), tmp_path / "t.parquet", tmp_path / "out", **options, **ONE)
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_scorer_that_keeps_others_reads_others(scale):
    scorer = Scorer(scale, keep=["id"], threads=1)
    rows = pa.table({"id": [1], "x": [2.0], "k": [3]})
    assert scorer(rows).schema.names == ["id", "y", "w"]
    assert scorer.keeping(["k"])(rows).to_pydict()["k"] == [3]


def test_a_scorer_calls_itself_through_nobody(scale):
    """Ray Data overrides ``__call__`` of a class: one thread makes all calls, one at a time."""

    class Once(Scorer):
        def __call__(self, batch):
            assert not vars(self).get("_at"), "the call waits for itself"
            self._at = True
            try:
                return super().__call__(batch)
            finally:
                self._at = False

    assert Once(scale)(pa.table({"x": [1.0, 2.0]}))["y"].to_pylist() == [3.0, 5.0]


# ----- images and arrays ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "gray"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_images_of_every_mode_have_the_channels_of_the_input(channels, gray, tmp_path):
    graph = tx.Graph(opsets={"ai.onnx": 17})
    image = graph.input("image", "uint8", ("rows", channels, 8, 6))
    graph.output("same", ops.identity(image))
    tx.export(graph, tmp_path / "same.onnx")
    (tmp_path / "in").mkdir()
    drawn = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8))
    expected = []
    for k, mode in enumerate(["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"]):
        path = tmp_path / "in" / f"{k}.{'tif' if mode == 'CMYK' else 'png'}"
        drawn.convert(mode).save(path)
        pixels = np.asarray(Image.open(path).convert(gray)).reshape(8, 6, channels).transpose(2, 0, 1)
        expected.append(pixels.tolist())
    for k, (dtype, mode) in enumerate([(np.uint16, "16 bit"), (np.int32, "I"), (np.float32, "F")]):
        Image.fromarray(np.ones((8, 6), dtype)).save(tmp_path / "in" / f"{7 + k}-{mode}.tif")
    result, errors = scored(tmp_path / "same.onnx", tmp_path / "in", tmp_path / "out")
    assert result["same"].to_pylist() == expected
    assert len(errors) == 3
    assert all(each["reason"].startswith('column "content": its pixels have more than 8 bits') for each in errors)


@pytest.mark.parametrize("values", [{"std": [0.0, 1.0, 1.0]}, {"mean": [float("nan")]}, {"std": [float("inf")]}])
def test_means_and_deviations_are_numbers(values, pictures):
    with pytest.raises(tx.InvalidCall, match="is not finite"):
        Scorer(pictures, pixels="0:1", **values)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [">f8", "<f4", ">i2"])
def test_arrays_of_any_order_of_bytes_and_axes(kind, order, tmp_path):
    (tmp_path / "in").mkdir()
    array = np.arange(24).reshape(2, 3, 4).astype(kind, order=order)
    np.save(tmp_path / "in" / "a.npy", array)
    result, _ = scored(same("float32", tmp_path, (3, 4)), tmp_path / "in", tmp_path / "out")
    assert result["y"].to_pylist() == array.tolist()


def test_arrays_of_a_wrong_shape_are_named(tmp_path):
    for name, shape in (("a", (2, 3, 4)), ("b", (2, 3, 5))):
        np.save(tmp_path / f"{name}.npy", np.zeros(shape))
    with pytest.raises(tx.InvalidFeed, match='column "array" has several types'):
        tx.score(same("float32", tmp_path, (3, 4)), str(tmp_path / "*.npy"), tmp_path / "out", **ONE)
    with pytest.raises(tx.InvalidFeed, match=r'b.npy" does not hold rows of the input|no row|first rows'):
        tx.score(same("float32", tmp_path, (3, 4)), tmp_path / "b.npy", tmp_path / "out", **ONE)


WRONG = ["1_000", "٣", "1e400", "0x10", "1e", "--1"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_numbers_of_csv_are_read_by_one_rule(tmp_path, dtype):
    """The result must not depend on whether Arrow can parse all fields of a block."""
    for name, more in (("alone", []), ("others", ["word"])):
        lines = ["x,k", *(f"{field},0" for field in ["1", *WRONG, *more, "+2"])]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        result, errors = scored(same(dtype, tmp_path), tmp_path / f"{name}.csv", tmp_path / name, columns={"x": ["x"]})
        assert result["y"].to_pylist() == [1, 2]
        assert [error["row"] for error in errors] == list(range(1, 1 + len(WRONG) + len(more)))


@pytest.mark.parametrize("field", ["0x10", "1e400"])
def test_a_number_that_only_arrow_would_parse_is_a_bad_row(tmp_path, field):
    (tmp_path / "t.csv").write_text(f"x\n1\n{field}\n")
    dtype = "int64" if field.startswith("0x") else "float64"
    result, errors = scored(same(dtype, tmp_path), tmp_path / "t.csv", tmp_path / "out")
    assert result["y"].to_pylist() == [1]
    assert len(errors) == 1


def test_a_blank_line_of_one_column_is_a_row(tmp_path):
    (tmp_path / "t.csv").write_text("x\n1\n\n2\n")
    result, _ = scored(same("float32", tmp_path), tmp_path / "t.csv", tmp_path / "floats")
    np.testing.assert_array_equal(result["y"].to_numpy(), [1, np.nan, 2])
    result, errors = scored(same("int64", tmp_path), tmp_path / "t.csv", tmp_path / "integers")
    assert result["y"].to_pylist() == [1, 2]
    assert [error["row"] for error in errors] == [1]
