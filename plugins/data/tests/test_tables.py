"""Tables in all formats as feeds of a model."""

import gzip
import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import tenonnx as tx
from tenonnx_data import ClassNames, is_table, read_labels, read_table

A, B, KIND = [1.5, 2.0, -3.0], [4, 5, 6], ["tulip", "rose", "rose"]


def graph_of(*inputs):
    graph = tx.Graph(opsets={"ai.onnx": 21})
    for name, dtype, shape in inputs:
        graph.input(name, dtype, shape)
    return graph


PAIR = (("x", "float32", ("n", 2)),)


def write_text(path, delimiter):
    rows = [delimiter.join(map(str, row)) for row in zip(A, B, KIND, strict=True)]
    path.write_text("\n".join([delimiter.join(["a", "b", "kind"]), *rows, ""]), "utf-8")


def write_lines(path):
    rows = [json.dumps({"a": a, "b": b, "kind": kind}) for a, b, kind in zip(A, B, KIND, strict=True)]
    path.write_text("\n".join([*rows, ""]), "utf-8")


def write_stream(path, table):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def write_dataset(path, features=None):
    """A dataset as written by Hugging Face's ``save_to_disk``, in two files."""
    path.mkdir()
    table = pa.table({"a": A, "b": B, "kind": KIND})
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (table.slice(0, 1), table.slice(1)), strict=True):
        write_stream(path / name, part)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (path / "dataset_info.json").write_text(json.dumps({"features": features or {}}))


def write(path):
    """Write the three rows in the format of the file name."""
    table = pa.table({"a": A, "b": B, "kind": KIND})
    name = path.name
    if name.endswith((".csv", ".tsv")):
        write_text(path, "," if name.endswith(".csv") else "\t")
    elif name.endswith(".csv.gz"):
        write_text(plain := path.with_name("plain.csv"), ",")
        path.write_bytes(gzip.compress(plain.read_bytes()))
    elif name.endswith(".npz"):
        np.savez(path, a=np.float32(A), b=np.int64(B), kind=KIND)
    elif name.endswith(".parquet"):
        parquet.write_table(table, path)
    elif name.endswith(".feather"):
        feather.write_feather(table, path)
    elif name.endswith(".arrow"):
        write_stream(path, table)
    elif name.endswith(".jsonl"):
        write_lines(path)
    elif name == "parts":
        path.mkdir()
        parquet.write_table(table.slice(0, 2), path / "1.parquet")
        parquet.write_table(table.slice(2), path / "2.parquet")
    else:
        write_dataset(path)
    return str(path)


NAMES = ["r.npz", "r.csv", "r.tsv", "r.csv.gz", "r.parquet", "r.feather", "r.arrow", "r.jsonl", "parts", "dataset"]


@pytest.mark.parametrize("name", NAMES)
def test_all_formats_have_the_same_rows(name, tmp_path):
    path, graph = write(tmp_path / name), graph_of(*PAIR)
    table = read_table(path)
    assert table.names == ["a", "b", "kind"]
    feeds = table.feeds(graph, {"x": ["a", "b"]}, ["kind"])
    np.testing.assert_array_equal(feeds["x"], np.float32([A, B]).T)
    assert read_labels(table, "kind", graph).tolist() == [1, 0, 0]
    assert ClassNames(graph).of("kind") == ["rose", "tulip"]


@pytest.mark.parametrize("name", NAMES)
def test_remaining_columns_are_joined_for_a_single_input(name, tmp_path):
    feeds = read_table(write(tmp_path / name)).feeds(graph_of(*PAIR), {}, ["kind"])
    np.testing.assert_array_equal(feeds["x"], np.float32([A, B]).T)


@pytest.mark.parametrize("name", NAMES)
def test_columns_by_the_names_of_inputs(name, tmp_path):
    graph = graph_of(("b", "int64", ("n", 1)), ("a", "float32", ("n",)))
    feeds = read_table(write(tmp_path / name)).feeds(graph, {}, ["kind"])
    assert feeds["b"].reshape(-1).tolist() == B
    assert feeds["b"].shape == (3, 1)
    assert feeds["a"].tolist() == A


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": ["a"]}, "columns were assigned to unknown inputs"),
        ({"x": ["c"]}, 'has no (column|array) "c"'),
        ({}, "or 2 columns"),
    ],
)
def test_missing_columns(name, columns, message, tmp_path):
    with pytest.raises(tx.InvalidCall, match=message):
        read_table(write(tmp_path / name)).feeds(graph_of(*PAIR), columns, ())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "r.npz"])
def test_an_invalid_number_is_reported_with_its_row(name, tmp_path):
    with pytest.raises(tx.InvalidCall, match='column "a" is not a value of int64') as caught:
        read_table(write(tmp_path / name)).column("a", tx.DType.int64)
    assert "1.5" in str(caught.value.given)


def test_lists_of_a_column_are_tensors(tmp_path):
    parquet.write_table(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "x.parquet")
    table = read_table(str(tmp_path / "x.parquet"))
    assert table.feeds(graph_of(*PAIR), {}, ())["x"].tolist() == [[1, 2], [3, 4]]
    parquet.write_table(pa.table({"x": [[1.0, 2.0], [3.0]]}), tmp_path / "x.parquet")
    with pytest.raises(tx.InvalidCall, match="differ in length"):
        read_table(str(tmp_path / "x.parquet")).feeds(graph_of(*PAIR), {}, ())


def test_a_bad_row_is_named(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"x": 1}\nno json\n')
    with pytest.raises(tx.InvalidCall, match=r"row 1 of .*r.jsonl cannot be read"):
        read_table(str(tmp_path / "r.jsonl")).column("x", tx.DType.float32)


def test_labels_are_numbered_by_the_classes_of_the_model(tmp_path):
    graph = graph_of(*PAIR)
    ClassNames(graph).keep("kind", ["tulip", "daisy", "rose"])
    assert read_labels(read_table(write(tmp_path / "r.csv")), "kind", graph).tolist() == [0, 2, 2]
    ClassNames(graph).keep("kind", ["daisy", "rose"])
    for name in ("r.csv", "r.parquet", "r.npz"):
        with pytest.raises(tx.InvalidFeed, match='label "tulip" is not a class of the model') as caught:
            read_labels(read_table(write(tmp_path / name)), "kind", graph)
        assert "line 2" in caught.value.given or "row 0" in caught.value.given
        assert caught.value.available == "daisy, rose"


def test_a_missing_label_is_not_a_class(tmp_path):
    (tmp_path / "r.csv").write_text("kind,a\nrose,1\n,2\n")
    with pytest.raises(tx.InvalidFeed, match="a label is missing") as caught:
        read_labels(read_table(str(tmp_path / "r.csv")), "kind", graph_of(*PAIR))
    assert "line 3" in caught.value.given


def test_a_column_of_numbers_and_text_is_not_a_label_column(tmp_path):
    (tmp_path / "r.csv").write_text("kind,a\n0,1\nx,2\n")
    with pytest.raises(tx.InvalidCall, match='line 3, column "kind" is not a value of int64'):
        read_labels(read_table(str(tmp_path / "r.csv")), "kind", graph_of(*PAIR))


def test_the_class_names_of_a_dataset_are_kept(tmp_path):
    write_dataset(tmp_path / "set", {"b": {"names": [str(k) for k in range(7)], "_type": "ClassLabel"}})
    graph, table = graph_of(*PAIR), read_table(str(tmp_path / "set"))
    assert read_labels(table, "b", graph).tolist() == B
    assert ClassNames(graph).of("b") == ["0", "1", "2", "3", "4", "5", "6"]
    ClassNames(graph).keep("b", ["4", "5", "6"])
    with pytest.raises(tx.InvalidFeed, match="has other classes than the model"):
        read_labels(table, "b", graph)


def test_damaged_class_names_are_refused(tmp_path):
    graph = graph_of(*PAIR)
    for text in ("[", "[1]", '{"kind": [1]}', "3", "[" * 100_000):
        graph.metadata["tenonnx.classes"] = text
        with pytest.raises(tx.InvalidFeed, match="is damaged"):
            ClassNames(graph).of("kind")


def test_splits_of_a_dataset_are_named(tmp_path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert is_table(str(tmp_path))
    with pytest.raises(tx.InvalidCall, match="several splits") as caught:
        read_table(str(tmp_path))
    assert caught.value.given == "train, test"
    assert caught.value.do.endswith("train")


@pytest.mark.parametrize("state", ["[]", "{", "{}", '{"_data_files": [{"filename": "../../secret.arrow"}]}'])
def test_a_damaged_state_file_is_refused(state, tmp_path):
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(tx.InvalidCall, match=r"state.json"):
        read_table(str(tmp_path))


def test_missing_pyarrow_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tx.InvalidCall, match="the package pyarrow is not installed") as caught:
        read_table(str(tmp_path / "r.parquet"))
    assert "tenonnx-data[arrow]" in caught.value.do
    (tmp_path / "r.csv").write_text("a\n1\n")
    assert read_table(str(tmp_path / "r.csv")).names == ["a"]


@pytest.mark.parametrize("name", ["r.parquet", "r.arrow", "r.jsonl", "r.npz", "r.csv", "r.txt"])
def test_invalid_files(name, tmp_path):
    with pytest.raises(tx.InvalidCall):
        read_table(str(tmp_path / name))
    (tmp_path / name).write_bytes(b"\x00\xff nothing")
    with pytest.raises(tx.InvalidCall):
        read_table(str(tmp_path / name))


def test_a_folder_without_data(tmp_path):
    with pytest.raises(tx.InvalidCall, match="holds no files of data"):
        read_table(str(tmp_path))
