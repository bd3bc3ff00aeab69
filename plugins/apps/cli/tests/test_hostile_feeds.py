"""Malicious files of inputs and outputs: they are refused by their headers, and written safely."""

import csv
import io
import os
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tenonnx_cli.printable import printable


@pytest.fixture
def named(tmp_path):
    """Factory of a model of Double with another output name."""

    def make(name, path="named.onnx"):
        graph = helper.make_graph(
            [helper.make_node("Double", ["x"], [name], domain="tiny")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("tiny", 5)], ir_version=10), path)
        return path

    return make


def header(shape, dtype="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_2_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


HEADERS = {
    "more than the limit": ((1 << 40,), "<f4", '"elements"'),
    "a huge element": ((1,), "<U100000000000", "valid dtype"),
    "a negative dim": ((-1, 64), "<f4", "a header of shape"),
    "65 axes": ((1,) * 65, "<f4", "a header of shape"),
    "less than it says": ((100, 3), "<f4", "0 bytes of 1,200"),
}


@pytest.mark.parametrize(("shape", "dtype", "message"), HEADERS.values(), ids=HEADERS)
def test_a_header_is_held_against_the_limit_first(tenonnx, model, shape, dtype, message):
    archive("feeds.npz", x=header(shape, dtype))
    for given in (("--inputs", "feeds.npz"), ("--input", "x=feeds.npz")):
        result = tenonnx("run", model, *given)
        assert (result.code, result.out) == (2, "")
        assert message in result.err


@pytest.mark.parametrize("text", [b"{'descr': '<f4', ", b"{'descr': ((", b"\xff", b"[" * 90])
@pytest.mark.parametrize("name", ["feeds.npz", "x.npy"])
def test_an_invalid_header(tenonnx, model, text, name):
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    if name == "feeds.npz":
        archive(name, x=data)
    else:
        Path(name).write_bytes(data)
    result = tenonnx("run", model, "--input", f"x={name}")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("InvalidCall")


def test_damaged_members_of_any_compression(tenonnx, model):
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile("feeds.npz", "w", method) as file:
            file.writestr("x.npy", header((2, 3)) + bytes(24))
        data = bytearray(Path("feeds.npz").read_bytes())
        data[45:60] = b"\xff" * 15
        Path("feeds.npz").write_bytes(data)
        result = tenonnx("run", model, "--inputs", "feeds.npz")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("InvalidCall")


def test_only_members_that_the_model_reads_are_read(tenonnx, model):
    file = io.BytesIO()
    np.save(file, np.ones((2, 3), np.float32))
    archive("feeds.npz", x=file.getvalue(), other=header((1 << 50,)))
    result = tenonnx("run", model, "--inputs", "feeds.npz")
    assert result.code == 0, result.err
    assert "other left out" in result.err


def test_a_pipe_is_refused(tenonnx, model):
    os.mkfifo("pipe.npz")
    os.mkfifo("pipe.csv")
    for given in (("--inputs", "pipe.npz"), ("--input", "x=pipe.npz"), ("--inputs", "pipe.csv")):
        result = tenonnx("run", model, *given)
        assert result.code == 2
        assert "a pipe" in result.err


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "..\\evil", "a" * 65_536, "C:evil", "..", "new\nline"])
def test_members_lead_nowhere_else(tenonnx, named, name):
    result = tenonnx("run", named(name), "-o", "out.npz")
    assert result.code == 0, result.err
    (member,) = zipfile.ZipFile("out.npz").namelist()
    assert not member.startswith("/")
    assert ".." not in member.split("/")
    assert not {"\\", ":", "\n"} & set(member.replace("\\n", ""))
    assert len(member) < 2000
    assert "is written as" in result.err


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2", "@sum"])
def test_a_table_contains_no_formulas(tenonnx, named, name):
    assert tenonnx("run", named(name), "-o", "out.csv").code == 0
    with Path("out.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    assert all(each.startswith("'" + name) for each in columns)


# ----- names ----------------------------------------------------------------------------------------------------------

FORGED = ["a\nnamed.onnx: valid", "a\u202egnihton", "a\u2028b", "a\x1b[2Jb", "a\ufffeb", "a\uffffb", "a\u2066b"]


@pytest.mark.parametrize("name", FORGED)
def test_a_name_forges_no_line_and_steers_no_terminal(tenonnx, named, name):
    path = named(name)
    for command in (["inspect", path], ["inspect", path, "--nodes"], ["run", path], ["check", path]):
        result = tenonnx(*command)
        shown = result.out + result.err
        assert name not in shown
        assert "\nnamed.onnx: valid" not in shown or command[0] == "check"
    assert printable(name) in tenonnx("inspect", path).out


@pytest.mark.parametrize("name", FORGED)
def test_a_drawing_is_well_formed_with_any_names(tenonnx, named, name):
    drawn = tenonnx("inspect", named(name), "--svg").out
    ElementTree.fromstring(drawn)
    assert name not in drawn
    for kind in ("--dot", "--html"):
        assert name not in tenonnx("inspect", named(name), kind).out
