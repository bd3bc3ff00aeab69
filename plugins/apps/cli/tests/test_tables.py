"""Tables of text as inputs and outputs."""

from pathlib import Path

import numpy as np
import pytest

from tenonnx.errors import InvalidCall
from tenonnx.graph.graph import Graph
from tenonnx_cli.arrays import read_feeds
from tenonnx_cli.tables import write_table


def columns(**types):
    """A graph with an input of one column for each name."""
    graph = Graph()
    for name, dtype in types.items():
        graph.input(name, dtype, (None, 1))
    return graph


def read_table(graph, path):
    return read_feeds(graph, (), path)


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "rows.csv"
        path.write_text(text, "utf-8")
        return str(path)

    return write


def test_columns_by_name(table, capsys):
    graph = columns(age="float32", town="string", count="int64", member="bool")
    path = table('town,member,age,count,ignored\n"Bern, CH",true,41.5,-3,x\nUlm,0,,7,y\n')
    result = read_table(graph, path)
    assert list(result) == ["age", "town", "count", "member"]
    assert result["town"].tolist() == [["Bern, CH"], ["Ulm"]]
    np.testing.assert_array_equal(result["age"], np.float32([[41.5], [np.nan]]))
    assert result["count"].dtype == np.int64
    assert result["member"].tolist() == [[True], [False]]
    assert "rows.csv: ignored left out, as the model has no such input" in capsys.readouterr().err


def test_a_column_of_a_default_replaces_it(table):
    graph = columns(age="float32")
    graph.all_inputs.append(graph.variable("bonus", np.zeros((1, 1), np.float32)))
    assert list(read_table(graph, table("age\n1\n"))) == ["age"]
    assert read_table(graph, table("age,bonus\n1,2\n"))["bonus"].tolist() == [[2]]


def test_a_table_may_have_a_sign_of_equality_in_its_name(table, tmp_path):
    path = str(tmp_path / "run=3.csv")
    Path(table("age\n1\n")).rename(path)
    for inputs, archive in (([path], None), ([], path)):
        assert read_feeds(columns(age="float32"), inputs, archive)["age"].tolist() == [[1]]
    with pytest.raises(InvalidCall, match="without pickled objects"):
        read_feeds(columns(age="float32"), [f"age={path}"], None)


def test_all_columns_as_the_features_of_one_input(table):
    graph = Graph()
    graph.input("x", "float32", ("n", 3))
    assert read_table(graph, table("a,b,c\n1,2,3\n4,5,6\n"))["x"].tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(InvalidCall, match="3 columns"):
        read_table(graph, table("a,b\n1,2\n"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_integral_floats_and_other_delimiters(table, delimiter):
    graph = columns(age="float32", count="int64")
    text = "age,count\n1.5,2.0\n\n3,-4\n".replace(",", delimiter)
    result = read_table(graph, table(text))
    assert result["age"].reshape(-1).tolist() == [1.5, 3]
    assert result["count"].reshape(-1).tolist() == [2, -4]


def test_integers_keep_all_their_digits(table):
    text = "n\n9007199254740993.0\n9.007199254740993e15\n1e3\n"
    assert read_table(columns(n="int64"), table(text))["n"].reshape(-1).tolist() == [2**53 + 1, 2**53 + 1, 1000]


@pytest.mark.parametrize("field", ["1.5", "1e999999999", "nan", "inf", "1e-3", "word", "1e20", "1_0", "٣", "0x1"])
def test_other_than_integers_are_refused(field, table):
    with pytest.raises(InvalidCall, match='column "n" is not a value of int64'):
        read_table(columns(n="int64"), table(f"n\n{field}\n"))


@pytest.mark.parametrize(
    ("text", "message", "given"),
    [
        ("age\n1\n", 'no column "count"', "age"),
        ("age,count\n1,2\n\nold,3\n", 'line 4, column "age" is not a value of float32', "'old'"),
        ("age,count\n1_000,1\n", "float32", "'1_000'"),
        ("age,count\n٣,1\n", "float32", "'٣'"),
        ("age,count\n1e400,1\n", "float32", "'1e400'"),
        ("age,count\n1e39,1\n", "float32", "'1e39'"),
        ("age,count\n1,2.5\n", 'line 2, column "count" is not a value of int64', "'2.5'"),
        ("age,count\n1,\n", "int64", "''"),
        ("age,count\n1,99999999999999999999\n", "int64", "99999999999999999999"),
        ("age,count\n1\n", "rows of different lengths", "line 2 has 1 fields"),
        ("age,age\n1,2\n", "two columns of one name", "age, age"),
        ("age,count\n", "rows of different lengths", "0 rows"),
        ("", "names the columns", ""),
    ],
)
def test_mismatched_columns_are_named(table, text, message, given):
    with pytest.raises(InvalidCall, match=message) as caught:
        read_table(columns(age="float32", count="int64"), table(text))
    assert given in caught.value.given


def test_an_empty_line_of_one_column_is_an_empty_field(table):
    np.testing.assert_array_equal(read_table(columns(n="float32"), table("n\n1\n\n2\n"))["n"].ravel(), [1, np.nan, 2])
    with pytest.raises(InvalidCall, match='line 3, column "n" is not a value of int64'):
        read_table(columns(n="int64"), table("n\n1\n\n2\n"))


def test_invalid_files(tmp_path):
    with pytest.raises(InvalidCall, match="cannot read"):
        read_table(columns(a="float32"), str(tmp_path / "no.csv"))
    (tmp_path / "binary.csv").write_bytes(b"a\n\xff\xfe\n")
    with pytest.raises(InvalidCall, match="UTF-8"):
        read_table(columns(a="float32"), str(tmp_path / "binary.csv"))


def test_outputs_as_rows(tmp_path):
    path = tmp_path / "out.csv"
    results = {
        "label": np.array(["cat", "dog"], object),
        "scores": np.float32([[0.25, 0.75], [1, 0]]),
        "map": [{"cat": 1.0}, {"dog": 2.0}],
        "one": np.int64([[1], [2]]),
    }
    write_table(str(path), results)
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "label,scores[0],scores[1],map[cat],map[dog],one"
    assert lines[1:] == ["cat,0.25,0.75,1.0,,1", "dog,1.0,0.0,,2.0,2"]


@pytest.mark.parametrize("wrong", [np.float32(1), np.zeros((1, 2, 3)), []])
def test_outputs_without_rows(tmp_path, wrong):
    with pytest.raises(InvalidCall, match="no rows"):
        write_table(str(tmp_path / "out.csv"), {"y": np.asarray(wrong) if not isinstance(wrong, list) else wrong})
    with pytest.raises(InvalidCall, match="different numbers of rows"):
        write_table(str(tmp_path / "out.csv"), {"a": np.zeros(2), "b": np.zeros(3)})
    assert not (tmp_path / "out.csv").exists()
