"""``If`` and ``Loop`` with data-dependent conditions, in programs of ``torch.export`` and ``.pt2`` files."""

import numpy as np
import onnx.parser
import pytest
import torch

import tenonnx as tx
import tenonnx_torch
from tenonnx_cli import main

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'

BRANCH = """
g (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w, float[2] b> {
  sum = ReduceSum <keepdims = 0> (x)
  zero = Constant <value = float {0}> ()
  positive = Greater (sum, zero)
  y = If (positive) <
    then_branch = t () => (float[n, 2] a) { m = MatMul (x, w)  a = Add (m, b) },
    else_branch = e () => (float[n, 2] c) { k = MatMul (x, w)  c = Neg (k) }
  >
}"""

WHILE = """
g (float[4] x) => (float[4] y) <float[4] w> {
  most = Constant <value = int64 {20}> ()
  yes = Constant <value = bool {1}> ()
  y = Loop (most, yes, x) <
    body = b (int64 i, bool c, float[4] v) => (bool again, float[4] u) {
      u = Add (v, w)
      sum = ReduceSum <keepdims = 0> (u)
      end = Constant <value = float {30}> ()
      again = Less (sum, end)
    }
  >
}"""

ROWS = """
g (float[4] x) => (float[4] y, float[rounds, 4] rows) <float[4] w> {
  most = Constant <value = int64 {ROUNDS}> ()
  y, rows = Loop (most, , x) <
    body = b (int64 i, bool c, float[4] v) => (bool again, float[4] u, float[4] r) {
      again = Identity (c)
      k = Cast <to = 1> (i)
      s = Mul (w, k)
      u = Add (v, s)
      r = Neg (u)
    }
  >
}"""


def read(text):
    model = onnx.parser.parse_model(HEAD + text)
    random = np.random.default_rng(0)
    for value in model.graph.value_info:  # the weights
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        tensor = onnx.numpy_helper.from_array(random.random(shape, np.float32), value.name)
        model.graph.initializer.append(tensor)
    del model.graph.value_info[:]
    return tx.load(model)


CASES = {
    "branch": (BRANCH, [np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[-1, -2, -3]])]),
    "while": (WHILE, [np.float32([0, 0, 0, 0]), np.float32([9, 9, 9, 9]), np.float32([-99, 0, 0, 0])]),
    "few rounds": (ROWS.replace("ROUNDS", "5"), [np.float32([1, 2, 3, 4])]),
    "many rounds": (ROWS.replace("ROUNDS", "200"), [np.float32([1, 2, 3, 4])]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_computes_what_the_model_does(name, tmp_path, capsys):
    text, feeds = CASES[name]
    graph = read(text)
    source, path = tmp_path / "m.onnx", tmp_path / "m.pt2"
    tx.export(graph, source)
    assert main(["convert", str(source), "-o", str(path)]) == 0, capsys.readouterr().err
    module = torch.export.load(path).module()
    for feed in feeds:
        result = module(torch.from_numpy(feed))
        wanted = graph.run({"x": feed}, backend="numpy")
        for each, expected in zip(result if isinstance(result, tuple) else (result,), wanted.values(), strict=True):
            np.testing.assert_allclose(each.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["branch", "while"])
def test_modules_are_exported_strictly_too(name, strict):
    text, feeds = CASES[name]
    graph = read(text)
    x = torch.from_numpy(feeds[0])
    program = torch.export.export(tenonnx_torch.module(graph), (x,), strict=strict)
    targets = {str(node.target) for node in program.graph.nodes}
    assert targets & {"cond", "while_loop"}
    torch.testing.assert_close(program.module()(x), tenonnx_torch.module(graph)(x))


def test_rows_of_which_contents_say_how_many_are_refused(tmp_path, capsys):
    text = ROWS.replace("ROUNDS", "9").replace(
        "again = Identity (c)", "t = ReduceSum <keepdims = 0> (v)  again = Less (t, t)"
    )
    tx.export(read(text), tmp_path / "m.onnx")
    assert main(["convert", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.pt2")]) == 2
    assert "data-dependent trip count" in capsys.readouterr().err
    assert not (tmp_path / "m.pt2").exists()
