"""Detection of a file's type by its contents rather than its suffix."""

import shutil

import numpy as np
import onnx
import onnx.parser
import pytest

import tenonnx as tx
from tenonnx_cli import main

TEXT = '<ir_version: {}, opset_import: ["": {}]> g (float[n] x) => (float[n] y) {{ y = Relu(x) }}'


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("m.ort", b"\x18\x00\x00\x00ORTM" + bytes(40)),
        ("m.xml", b'<?xml version="1.0"?><net name="m" version="11"><layers/></net>'),
        ("m.stablehlo", b"ML\xefR\rStableHLO_v1.9.0" + bytes(40)),
        ("m.mlir", b"module @m { func.func public @main() { return } }"),
    ],
)
def test_formats_that_no_front_end_reads_are_refused(name, contents, tmp_path):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises((tx.InvalidModel, tx.InvalidCall)):
        tx.load(tmp_path / name)


@pytest.mark.parametrize("name", ["m.pb", "m.pbtxt", "m.model", "m.txt", "m.json", "m.h5", "m.tflite", "model"])
@pytest.mark.parametrize(("ir_version", "opset"), [(3, 8), (8, 17), (13, 24)])
def test_an_onnx_file_may_have_any_name(name, ir_version, opset, tmp_path):
    (tmp_path / name).write_bytes(onnx.parser.parse_model(TEXT.format(ir_version, opset)).SerializeToString())
    result = tx.load(tmp_path / name).run({"x": np.float32([-1, 2])}, backend="numpy")["y"]
    assert result.tolist() == [0, 2]
    assert main(["convert", str(tmp_path / name), "-o", str(tmp_path / "out.onnx")]) == 0


@pytest.mark.parametrize("contents", [b"", b"\x08", b"\x08\x01\x12\x00", b"\x0a\x03abc"])
def test_other_files_are_identified_by_their_suffix(contents, tmp_path):
    (tmp_path / "m.pb").write_bytes(contents)
    with pytest.raises(tx.TenonnxError) as caught:
        tx.load(tmp_path / "m.pb")
    assert "protobuf" not in caught.value.what


@pytest.mark.parametrize("name", ["b.model", "b.lgb", "b.pb"])
def test_text_of_lightgbm_may_have_any_name(name, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    x = np.random.default_rng(0).random((200, 3))
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(x, x[:, 0]), 3)
    booster.save_model(tmp_path / "b.txt")
    shutil.copy(tmp_path / "b.txt", tmp_path / name)
    assert [str(each.type) for each in tx.load(tmp_path / name).outputs] == [
        str(each.type) for each in tx.load(tmp_path / "b.txt").outputs
    ]


def test_binary_json_of_xgboost_may_have_the_suffix_model(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    x = np.random.default_rng(0).random((200, 3))
    booster = xgboost.train({}, xgboost.DMatrix(x, x[:, 0]), 3)
    booster.save_model(tmp_path / "b.ubj")
    shutil.copy(tmp_path / "b.ubj", tmp_path / "b.model")
    assert tx.load(tmp_path / "b.model").outputs


def test_the_old_binary_format_of_xgboost_is_named(tmp_path):
    start = np.float32(0.5).tobytes() + np.uint32([3, 0, 0, 0, 1, 7]).tobytes() + bytes(108)
    text = b"".join(len(name).to_bytes(8, "little") + name for name in (b"reg:squarederror", b"gbtree"))
    (tmp_path / "old.model").write_bytes(start + text + bytes(200))
    with pytest.raises(tx.InvalidModel, match="old binary format, which XGBoost 3"):
        tx.load(tmp_path / "old.model")
