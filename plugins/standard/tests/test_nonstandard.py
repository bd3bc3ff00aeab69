"""Nonstandard ops compared with formulas, since no other implementation accepts them as ONNX."""

import numpy as np
import onnx
import pytest

import tenonnx as tx
from tenonnx_standard import nonstandard as ops
from tenonnx_standard.deformable import col2im

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(("pool", "reduce"), [(ops.adaptive_average_pool, np.mean), (ops.adaptive_max_pool, np.max)])
@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (4, 7), (7, 5), (9, 2)])
def test_adaptive_windows_cover_each_axis(pool, reduce, counts):
    x = RANDOM.random((2, 3, 7, 5))
    windows = [
        [slice(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]
        for size, count in zip(x.shape[2:], counts, strict=True)
    ]
    expected = np.stack([np.stack([reduce(x[:, :, a, b], axis=(2, 3)) for b in windows[1]], -1) for a in windows[0]], 2)
    np.testing.assert_allclose(pool(x, output_size=list(counts)), expected, rtol=1e-12)


def test_im2col_is_the_adjoint_of_col2im():
    x = RANDOM.random((2, 3, 7, 6))
    attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 1]}
    columns = ops.im2col(x, kernel_shape=[2, 3], **attributes)
    other = RANDOM.random(columns.shape)
    np.testing.assert_allclose(np.sum(columns * other), np.sum(x * col2im(other, [7, 6], [2, 3], **attributes)))


@pytest.mark.parametrize(("merge", "first"), [(0, [0, 1, 1, 1, 1]), (1, [0, 1, 1])])
def test_greedy_decoding_drops_blanks_and_repetitions(merge, first):
    x = np.eye(3)[np.array([[0, 1, 1, 2, 1, 1], [2, 2, 0, 0, 1, 1]])].transpose(1, 0, 2)
    indices, values, shape, total = ops.ctc_greedy_decoder(x, np.int32([6, 3]), merge_repeated=merge)
    assert values.tolist() == [*first, 0]
    assert indices.tolist() == [*([0, k] for k in range(len(first))), [1, 0]]
    assert shape.tolist() == [2, len(first)]
    assert total.tolist() == [[-6.0], [-3.0]]


def test_a_file_keeps_its_nodes_and_an_export_has_plain_ones():
    made = onnx.helper.make_node("Affine", ["x"], ["y"], alpha=2.0, beta=1.0)
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = onnx.helper.make_graph([made], "affine", info[:1], info[1:])
    loaded = tx.load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)]))
    assert [node.op_type for node in loaded.nodes] == ["Affine"]
    plain = tx.retarget(loaded, 13)
    assert "Affine" not in {node.op_type for node in plain.nodes}
    x = np.float32([[1, 2, 3]])
    for one in (loaded, plain):
        for backend in ("numpy", "onnxruntime"):
            assert one.compile(backend)({"x": x})["y"].tolist() == [[3, 5, 7]]
