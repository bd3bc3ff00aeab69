"""Computed shapes stay symbolic, and are right for all sizes."""

from __future__ import annotations

import models
import numpy as np
import onnx.parser
from hypothesis import given, settings
from hypothesis import strategies as st
from test_types import contradictions

import tenonnx as tx
from tenonnx.op.graph_inference import infer

#: Attention in the form of exporters, with shapes computed by Shape, Gather, arithmetic and Concat.
ATTENTION = """
<ir_version: 9, opset_import: ["": 18]>
attention (float[batch, sequence, 32] x, float[32, 96] w) => (float[a, b, c] y, int64[d, e] places, float[f, g] mask)
{
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  two = Constant <value_int = 2> ()
  first = Constant <value_ints = [0]> ()
  heads = Constant <value_ints = [4]> ()
  kinds = Constant <value_ints = [3]> ()
  lower = Constant <value_float = -3.0e38> ()
  shape = Shape (x)
  batch0 = Gather (shape, zero)
  length0 = Gather (shape, one)
  width0 = Gather (shape, two)
  batch = Unsqueeze (batch0, first)
  length = Unsqueeze (length0, first)
  width = Unsqueeze (width0, first)
  size = Div (width, heads)
  size32 = Cast <to = 1> (size)
  root = Sqrt (size32)
  apart = Concat <axis = 0> (batch, length, kinds, heads, size)
  qkv = MatMul (x, w)
  split = Reshape (qkv, apart)
  turned = Transpose <perm = [2, 0, 3, 1, 4]> (split)
  q = Gather <axis = 0> (turned, zero)
  k = Gather <axis = 0> (turned, one)
  v = Gather <axis = 0> (turned, two)
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  raw = MatMul (q, kt)
  scores = Div (raw, root)
  square = Concat <axis = 0> (length, length)
  all = ConstantOfShape <value = float[1] {1.0}> (square)
  seen = Trilu <upper = 0> (all)
  is_seen = Cast <to = 9> (seen)
  hidden = Expand (lower, square)
  mask = Where (is_seen, seen, hidden)
  masked = Add (scores, mask)
  weights = Softmax <axis = -1> (masked)
  context = MatMul (weights, v)
  back = Transpose <perm = [0, 2, 1, 3]> (context)
  whole = Mul (heads, size)
  together = Concat <axis = 0> (batch, length, whole)
  joined = Reshape (back, together)
  doubled = Concat <axis = -1> (joined, joined)
  last = Constant <value_ints = [2]> ()
  y = Slice (doubled, first, whole, last)
  line = Range (zero, length0, one)
  row = Unsqueeze (line, first)
  once = Constant <value_ints = [1]> ()
  times = Concat <axis = 0> (batch, once)
  places = Tile (row, times)
}
"""

#: A network for images of any size, with ops that compute lengths from lengths.
PICTURES = """
<ir_version: 9, opset_import: ["": 18]>
pictures (float[batch, 3, height, width] x, float[4, 3, 3, 3] w, float[4, 2, 2, 2] u)
=> (float[a, 4] y, float[b, c] empty)
{
  scales = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
  pads = Constant <value_ints = [0, 0, 1, 2, 0, 0, 3, 0]> ()
  starts = Constant <value_ints = [1]> ()
  ends = Constant <value_ints = [-1]> ()
  axes = Constant <value_ints = [2]> ()
  small = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  pooled = MaxPool <kernel_shape = [3, 2], strides = [2, 1], ceil_mode = 1> (small)
  upper = Resize <mode = "nearest"> (pooled, , scales)
  framed = Pad (upper, pads)
  cut = Slice (framed, starts, ends, axes)
  large = ConvTranspose <strides = [2, 2], output_padding = [1, 0]> (cut, u)
  shape = Shape <start = 2> (large)
  two = Constant <value_ints = [2]> ()
  half = Div (shape, two)
  empty = ConstantOfShape (half)
  one = GlobalAveragePool (small)
  y = Flatten (one)
}
"""


def graph_of(text):
    model = onnx.parser.parse_model(text)
    return tx.load(model)


def real(shape):
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def types(graph):
    infer(graph)
    return [str(value.type) for value in graph.outputs]


def test_attention_keeps_the_names():
    assert types(graph_of(ATTENTION)) == [
        "float32[batch, sequence, 32]",
        "int64[batch, sequence]",
        "float32[sequence, sequence]",
    ]


def test_decoder_keeps_the_names():
    graph = tx.load(models.example("decoder/decoder"))
    assert types(graph)[0] == "float32[batch, sequence, 64]"
    assert all(kind.startswith("float32[batch, 2, ") for kind in types(graph)[1:])


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(0, 3), length=st.integers(0, 6))
def test_attention_has_the_inferred_shapes(batch, length):
    feeds = [real((batch, length, 32)), real((32, 96))]
    assert not list(contradictions("attention", graph_of(ATTENTION), feeds))


def test_pictures_have_symbolic_lengths():
    graph = graph_of(PICTURES)
    infer(graph)
    kinds = {value.name: str(value.type) for node in graph.nodes for value in node.outputs}
    assert kinds["small"] == "float32[batch, 4, (height + 1)//2, (width + 1)//2]"
    assert "?" not in "".join(kinds.values())


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(1, 2), height=st.integers(5, 24), width=st.integers(4, 24))
def test_pictures_have_the_inferred_shapes(batch, height, width):
    feeds = [real((batch, 3, height, width)), real((4, 3, 3, 3)), real((4, 2, 2, 2))]
    assert not list(contradictions("pictures", graph_of(PICTURES), feeds))


def test_a_symbolic_rule_that_numpy_cannot_apply_to_dims_leaves_them_open():
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (int64[k] y)
        { s = Shape(x)  threes = Constant<value_ints = [3, 3]>()  y = Mod<fmod = 1>(s, threes) }
    """)
    graph = tx.load(model)
    infer(graph)
    assert graph.run({"x": np.zeros((5, 4), np.float32)}, backend="numpy")["y"].tolist() == [2, 1]
