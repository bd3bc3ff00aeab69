"""Lowerings of ONNX ops to builtin operators of LiteRT."""

import numpy as np
import pytest
from litert_graphs import check, graph_of, operators

import tenonnx_standard as ops
from tenonnx.errors import NotRepresentable
from tenonnx.extend import DType, constant
from tenonnx_litert.conversion import builtin_graph
from tenonnx_quantized.quantize import dequantize_linear

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((2, 6, 9, 8)).astype(np.float32)
ROWS = RNG.standard_normal((3, 5, 4)).astype(np.float32)


def weights(*shape):
    return constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


IMAGES = {
    "conv": lambda x: ops.conv(x, weights(4, 6, 3, 3), weights(4), pads=[1, 1, 1, 1]),
    "conv-uneven": lambda x: ops.conv(x, weights(4, 6, 3, 2), strides=[2, 2], pads=[0, 1, 2, 0]),
    "conv-groups": lambda x: ops.conv(x, weights(4, 3, 3, 3), group=2, dilations=[2, 1]),
    "conv-depthwise": lambda x: ops.conv(x, weights(12, 1, 3, 3), weights(12), group=6, strides=[2, 2], pads=[1] * 4),
    "conv-1d": lambda x: ops.conv(ops.reshape(x, [2, 6, -1]), weights(4, 6, 5), weights(4), strides=[2], pads=[2, 2]),
    "conv-transpose": lambda x: ops.conv_transpose(x, weights(6, 4, 4, 4), weights(4), strides=[2, 2], pads=[1] * 4),
    "conv-transpose-further": lambda x: ops.conv_transpose(
        x, weights(6, 4, 3, 3), weights(4), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1]
    ),
    "conv-transpose-groups": lambda x: ops.conv_transpose(x, weights(6, 2, 3, 3), weights(4), group=2),
    "conv-transpose-1d": lambda x: ops.conv_transpose(ops.reshape(x, [2, 6, -1]), weights(6, 4, 3), strides=[2]),
    "max-pool": lambda x: ops.max_pool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "max-pool-ceil": lambda x: ops.max_pool(x, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
    "max-pool-dilated": lambda x: ops.max_pool(x, kernel_shape=[2, 2], dilations=[2, 2]),
    "average-pool": lambda x: ops.average_pool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "average-pool-ceil": lambda x: ops.average_pool(x, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
    "average-pool-padding": lambda x: ops.average_pool(x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
    "global-pools": lambda x: (ops.global_average_pool(x), ops.global_max_pool(x)),
    "batch-norm": lambda x: ops.batch_normalization(x, *(ops.absolute(weights(6)) for _ in range(4))),
    "instance-norm": lambda x: ops.instance_normalization(x, weights(6), weights(6)),
    "group-norm": lambda x: ops.group_normalization(x, weights(6), weights(6), num_groups=3),
    "lrn": lambda x: ops.lrn(x, size=3),
    "prelu": lambda x: ops.prelu(x, weights(6, 1, 1)),
    "softmax-channels": lambda x: ops.softmax(x, axis=1),
    "depth-to-space": lambda x: ops.depth_to_space(ops.concat(x, x, axis=1), blocksize=2),
    "pixel-shuffle": lambda x: ops.depth_to_space(ops.concat(x, x, axis=1), blocksize=2, mode="CRD"),
    "pad-reflect": lambda x: ops.pad(x, [0, 0, 1, 2, 0, 0, 3, 1], mode="reflect"),
    "pad-edge": lambda x: ops.pad(x, [0, 0, 1, 2, 0, 0, 3, 1], mode="edge"),
    "pad-crop": lambda x: ops.pad(x, [0, 0, -1, 2, 0, 0, 3, -1], 2.5),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name, tmp_path):
    check(IMAGES[name], IMAGE, folder=tmp_path)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5])
def test_resize(mode, coordinates, scale, tmp_path):
    def resized(x):
        return ops.resize(
            x,
            None,
            [1.0, 1.0, scale, scale],
            coordinate_transformation_mode=coordinates,
            mode=mode,
            nearest_mode="floor" if coordinates == "asymmetric" else "round_prefer_floor",
        )

    check(resized, IMAGE, folder=tmp_path)


OTHERS = {
    "layer-norm": lambda x: ops.layer_normalization(x, weights(4), weights(4)),
    "gelu": lambda x: (ops.gelu(x), ops.gelu(x, approximate="tanh")),
    "gelu-of-erf": lambda x: x * 0.5 * (ops.erf(x / 1.4142135) + 1.0),
    "attention": lambda x: ops.matmul(ops.softmax(ops.matmul(x, ops.transpose(x, perm=[0, 2, 1])) * 0.5), x),
    "matmul-vectors": lambda x: ops.matmul(ops.matmul(x, weights(4)), weights(5)),
    "gemm": lambda x: ops.gemm(ops.squeeze(x[:1], [0]), weights(6, 4), weights(6), alpha=0.5, beta=2.0, transB=1),
    "einsum": lambda x: ops.einsum(x, weights(4, 6), equation="bij,jk->bik"),
    "reductions": lambda x: (ops.reduce_l2(x, [1]), ops.reduce_log_sum_exp(x, [2]), ops.reduce_sum_square(x, [0, 2])),
    "slices": lambda x: (x[:, 1:-1], x[:, ::-2], x[..., -1], x[-2:, :, 1:100]),
    "gather": lambda x: (ops.gather(x, [-1, 0], axis=1), ops.gather_elements(x, ops.argmax(x, axis=2), axis=2)),
    "split": lambda x: ops.split(x, [1, 4], axis=1),
    "split-equally": lambda x: ops.split(x, num_outputs=3, axis=0),
    "top-k": lambda x: ops.top_k(x, [2], axis=1, largest=0),
    "cumsum": lambda x: ops.cumsum(x, 1, exclusive=1),
    "where": lambda x: ops.where(ops.and_(x > 0.0, ops.not_(x > 1.0)), x, -x),
    "trilu": lambda x: ops.trilu(x, upper=0),
    "expand": lambda x: ops.expand(x, [2, 3, 5, 4]),
    "scatter": lambda x: ops.scatter_nd(x, constant(np.asarray([[0], [2]])), weights(2, 5, 4)),
    "one-hot": lambda x: ops.one_hot(ops.argmax(x, axis=2, keepdims=0), 4, constant(np.float32([0, 1]))),
    "non-zero": lambda x: ops.non_zero(x > 0.5),
    "activations": lambda x: (ops.hard_sigmoid(x), ops.softplus(x), ops.mish(x), ops.selu(x), ops.elu(x, alpha=0.5)),
    "clips": lambda x: (ops.clip(x, 0.0, 6.0), ops.clip(x, -0.5, 0.25), ops.clip(x, None, 0.0)),
    "powers": lambda x: (ops.pow_(x, 2.0), ops.pow_(ops.absolute(x), 1.5), ops.reciprocal(x)),
    "trigonometry": lambda x: (ops.tan(x), ops.atan(x), ops.sinh(x), ops.asinh(x)),
    "mod": lambda x: (ops.mod(x, 0.75, fmod=1), ops.mod(ops.cast(x * 9.0, to=DType.int32), 4)),
    "many-axes": lambda x: ops.add(ops.reshape(x, [1, 3, 1, 5, 1, 4]), weights(3, 1, 5, 1, 4)),
    "copies": lambda x: (ops.identity(x), ops.identity(x)),
    "constant": lambda x: (x, ops.identity(weights(2, 3))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others(name, tmp_path):
    check(OTHERS[name], ROWS, folder=tmp_path)


RECURRENT = {
    "lstm": lambda x: ops.lstm(x, weights(1, 16, 4), weights(1, 16, 4), weights(1, 32), hidden_size=4),
    "lstm-both-ways": lambda x: ops.lstm(
        x, weights(2, 16, 4), weights(2, 16, 4), weights(2, 32), hidden_size=4, direction="bidirectional"
    ),
    "gru": lambda x: ops.gru(
        x, weights(1, 12, 4), weights(1, 12, 4), weights(1, 24), hidden_size=4, linear_before_reset=1
    ),
    "rnn": lambda x: ops.rnn(x, weights(1, 4, 4), weights(1, 4, 4), weights(1, 8), hidden_size=4),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("dims", [{}, {1: "batch"}])
def test_recurrent_networks_of_known_lengths_are_unrolled(name, dims, tmp_path):
    check(RECURRENT[name], ROWS, folder=tmp_path, dims=dims)


def test_gelu_is_fused_from_its_decomposition(tmp_path):
    result = operators(check(OTHERS["gelu-of-erf"], ROWS, folder=tmp_path))
    assert result == ["GELU"]


def test_a_dim_may_be_1_or_broadcast(tmp_path):
    def expanded(x, y):
        return ops.expand(x, ops.shape(y))

    check(expanded, ROWS[:1], ROWS, folder=tmp_path, dims={0: "n"})


def test_half_floats_are_computed_in_float32(tmp_path):
    graph = check(lambda x: ops.relu(x * 2.0), ROWS.astype(np.float16), folder=tmp_path)
    assert operators(graph)[0] == "CAST"


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int64"])
def test_integers(kind, tmp_path):
    def compared(a, b):
        return a + b, ops.equal(a, b), ops.maximum(a, b), ops.where(a < b, a, b)

    x = RNG.integers(1, 50, (3, 4)).astype(kind)
    check(compared, x, x[::-1].copy(), folder=tmp_path)


def test_transposes_are_moved_out_and_activations_fused(tmp_path):
    def network(x):
        y = ops.relu(ops.conv(x, weights(6, 6, 3, 3), pads=[1] * 4))
        y = ops.relu(ops.add(ops.conv(y, weights(6, 6, 3, 3), pads=[1] * 4), y))
        y = ops.concat(y, ops.max_pool(y, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4), axis=1)
        return ops.gemm(ops.flatten(ops.global_average_pool(y)), weights(12, 5), weights(5))

    result = operators(check(network, IMAGE, folder=tmp_path, dims={0: "batch"}))
    expected = ["TRANSPOSE", "CONV_2D", "CONV_2D", "ADD", "MAX_POOL_2D", "CONCATENATION", "MEAN", "FULLY_CONNECTED"]
    assert [name for name in result if name != "RESHAPE"] == expected


def test_large_weights_are_transposed_in_the_file(tmp_path):
    result = operators(check(lambda x: ops.conv(x, weights(64, 6, 5, 5)), IMAGE, folder=tmp_path))
    assert result == ["TRANSPOSE", "CONV_2D", "TRANSPOSE"]


@pytest.mark.parametrize("size", [1, 5])
def test_dynamic_dims_are_run_at_other_sizes(size, tmp_path):
    def network(x):
        batch, length = (ops.gather(ops.shape(x), [k]) for k in (0, 1))
        heads = ops.reshape(x, ops.concat(batch, length, constant(np.asarray([2, 2])), axis=0))
        return ops.reshape(ops.transpose(heads, perm=[0, 2, 1, 3]) * 2.0, ops.concat(batch, [-1], axis=0))

    x = RNG.standard_normal((size, size + 1, 4)).astype(np.float32)
    check(network, x, folder=tmp_path, dims={0: "batch", 1: "length"})


@pytest.mark.parametrize("options", [{"mode": "cubic"}, {"mode": "linear", "antialias": 1}, {"mode": "nearest"}])
def test_resize_to_sizes_with_a_dynamic_batch(options, tmp_path):
    def network(x):
        batch = ops.gather(ops.shape(x), [0])
        return ops.resize(x, None, None, ops.concat(batch, constant(np.asarray([6, 5, 11])), axis=0), **options)

    check(network, IMAGE, folder=tmp_path, dims={0: "batch"})


def test_resize_of_volumes(tmp_path):
    def network(x):
        return ops.resize(x, None, constant(np.asarray([1, 1, 2, 2, 1.5], np.float32)), mode="linear")

    volume = RNG.standard_normal((2, 3, 4, 5, 6)).astype(np.float32)
    check(network, volume, folder=tmp_path, dims={0: "batch"})


def test_gather_nd_and_scatter_nd_along_dynamic_axes(tmp_path):
    places = np.asarray([[0, 1], [-1, 2], [1, -1]], np.int64)

    def network(x, indices):
        result = ops.gather_nd(x, indices)
        return result, ops.scatter_nd(x, indices, result * 2.0), ops.scatter_nd(x, indices, result, reduction="add")

    check(network, ROWS, places, folder=tmp_path, dims={0: "batch", 1: "length"})


def test_an_update_that_occurs_twice_counts_once(tmp_path):
    places = np.asarray([[1], [1], [0]], np.int64)
    check(
        lambda x, indices: ops.scatter_nd(x, indices, ops.expand(constant(np.float32(3)), [3, 5, 4])),
        ROWS,
        places,
        folder=tmp_path,
    )


def test_broadcasts_of_high_rank_with_dynamic_dims(tmp_path):
    x = RNG.standard_normal((2, 3, 1, 2, 4, 1)).astype(np.float32)
    check(lambda x: ops.less(x, weights(3, 5, 2, 4, 1)), x, folder=tmp_path, dims={0: "batch"})


def test_a_slice_whose_start_has_no_known_length(tmp_path):
    def network(x, mask):
        start = ops.squeeze(ops.non_zero(mask), [0])
        return ops.slice_(x, start, [2**31 - 1], [1])

    check(network, ROWS, np.asarray([False, False, True]), folder=tmp_path)


def test_a_computed_shape_is_used_unchanged(tmp_path):
    check(lambda x, shape: ops.reshape(x, shape, allowzero=1), ROWS, np.asarray([5, 12]), folder=tmp_path)


def test_blockwise_4_bit_weights(tmp_path):
    def network(x):
        weight = constant(np.arange(32).reshape(4, 8) % 16, DType.uint4)
        scales = constant(np.linspace(0.1, 1, 8, dtype=np.float32).reshape(4, 2))
        return ops.matmul(x, dequantize_linear(weight, scales, axis=1, block_size=4))

    check(network, ROWS, folder=tmp_path)


@pytest.mark.parametrize("onesided", [0, 1])
def test_fourier_transforms_of_frames(onesided, tmp_path):
    def network(x):
        window = constant(np.hanning(16).astype(np.float32))
        return ops.stft(x, constant(np.asarray(4)), window, constant(np.asarray(16)), onesided=onesided)

    signal = RNG.standard_normal((2, 50, 1)).astype(np.float32)
    result = check(network, signal, folder=tmp_path, dims={0: "batch", 1: "time"})
    assert operators(result).count("CONV_2D") == 1


@pytest.mark.parametrize(("parts", "options"), [(1, {"onesided": 1}), (1, {}), (2, {}), (2, {"inverse": 1})])
def test_fourier_transforms(parts, options, tmp_path):
    x = RNG.standard_normal((2, 12, 3, parts)).astype(np.float32)
    check(lambda x: ops.dft(x, axis=1, **options), x, folder=tmp_path, dims={0: "batch"})


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ],
)
def test_resize_of_images_of_dynamic_sizes(options, tmp_path):
    def network(x):
        small = ops.max_pool(x, kernel_shape=[3, 2], strides=[3, 2])
        scales = constant(np.asarray([1, 1, 3, 2], np.float32))
        return ops.resize(small, None, scales, **options), ops.resize(small, None, None, ops.shape(x), **options)

    check(network, IMAGE, folder=tmp_path, dims={0: "batch", 2: "height", 3: "width"})


@pytest.mark.parametrize("center_point_box", [0, 1])
def test_boxes_that_overlap_are_suppressed(center_point_box, tmp_path):
    def network(boxes, scores):
        limits = (
            constant(np.asarray(each, kind)) for each, kind in ((3, np.int64), (0.4, np.float32), (0.2, np.float32))
        )
        return ops.non_max_suppression(boxes, scores, *limits, center_point_box=center_point_box)

    corners = RNG.random((2, 20, 2), np.float32)
    boxes = np.concatenate([corners, corners + 0.5 * RNG.random((2, 20, 2), np.float32)], -1)
    check(network, boxes, RNG.random((2, 3, 20), np.float32), folder=tmp_path)


def test_positions_are_divided(tmp_path):
    def network(x):
        _, places = ops.top_k(ops.reshape(x, [3, -1]), constant(np.asarray([4])))
        return ops.div(places, constant(np.asarray(4))), ops.mod(places, constant(np.asarray(4)))

    check(network, ROWS, folder=tmp_path)
    with pytest.raises(NotRepresentable, match="Div"):
        builtin_graph(graph_of(lambda x: ops.div(x, x), np.asarray([2**40])))


def test_a_refusal_has_the_reason():
    graph = graph_of(lambda x: ops.unique(x)[0], ROWS)
    with pytest.raises(NotRepresentable, match="Unique"):
        builtin_graph(graph)


def test_the_source_graph_is_not_changed():
    graph = graph_of(IMAGES["conv"], IMAGE)
    before = str(graph)
    builtin_graph(graph)
    assert str(graph) == before
