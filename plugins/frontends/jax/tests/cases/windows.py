"""Convolutions and pooling."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from cases import BATCH, case, floats, integers

image, kernel = floats(2, 8, 9, 3), floats(3, 2, 3, 5)
numbers = ("NHWC", "HWIO", "NHWC")
for _padding in ("SAME", "VALID", ((1, 2), (0, 1))):
    case(
        f"conv {_padding}",
        lambda a, w, p=_padding: lax.conv_general_dilated(a, w, (1, 1), p, dimension_numbers=numbers),
        image,
        kernel,
        dims=BATCH,
    )
case(
    "conv strided",
    lambda a, w: lax.conv_general_dilated(a, w, (2, 3), "SAME", dimension_numbers=numbers),
    image,
    kernel,
    dims=BATCH,
)
case(
    "conv dilated",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=numbers),
    image,
    kernel,
    dims=BATCH,
)
case(
    "conv of a dilated image",
    lambda a, w: lax.conv_general_dilated(
        a, w, (1, 1), [(1, 2), (0, 1)], lhs_dilation=(2, 3), dimension_numbers=numbers
    ),
    image,
    kernel,
    dims=BATCH,
)
case(
    "conv with negative padding",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1), ((-1, 2), (0, -1)), dimension_numbers=numbers),
    image,
    kernel,
    dims=BATCH,
)
case(
    "conv in groups",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "SAME", feature_group_count=3, dimension_numbers=numbers),
    image,
    floats(3, 3, 1, 6),
    dims=BATCH,
)
case(
    "conv in groups of the batch",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "SAME", batch_group_count=2, dimension_numbers=numbers),
    image,
    floats(3, 3, 3, 4),
)
case("conv NCHW", lambda a, w: lax.conv(a, w, (1, 1), "SAME"), floats(2, 3, 8, 9), floats(5, 3, 3, 3), dims=BATCH)
case(
    "conv of one axis",
    lambda a, w: lax.conv_general_dilated(a, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
    floats(2, 9, 3),
    floats(3, 3, 4),
    dims=BATCH,
)
case(
    "conv of three axes",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")),
    floats(2, 4, 5, 6, 2),
    floats(2, 2, 3, 2, 3),
    dims=BATCH,
)
case(
    "conv of sizes that vary",
    lambda a, w: lax.conv_general_dilated(a, w, (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers),
    image,
    floats(3, 3, 3, 4),
    dims={0: {0: "b", 1: "h", 2: "w"}},
)
case("conv_transpose", lambda a, w: lax.conv_transpose(a, w, (2, 2), "SAME"), image, kernel, dims=BATCH)
case(
    "conv_transpose with kernel turned",
    lambda a, w: lax.conv_transpose(a, w, (2, 2), "VALID", transpose_kernel=True),
    image,
    floats(3, 3, 4, 3),
    dims=BATCH,
)
case(
    "conv of int8",
    lambda a, w: lax.conv_general_dilated(
        a, w, (1, 1), "SAME", dimension_numbers=numbers, preferred_element_type=jnp.int32
    ),
    integers(2, 5, 5, 2, dtype=np.int8),
    integers(3, 3, 2, 2, dtype=np.int8),
)
case(
    "conv gradient of the image",
    jax.grad(lambda a, w: (lax.conv_general_dilated(a, w, (2, 2), "SAME", dimension_numbers=numbers) ** 2).sum()),
    image,
    kernel,
    dims=BATCH,
)
case(
    "conv gradient of the kernel",
    jax.grad(lambda a, w: (lax.conv_general_dilated(a, w, (2, 1), "SAME", dimension_numbers=numbers) ** 2).sum(), 1),
    image,
    kernel,
)
case("max_pool", lambda a: nn.max_pool(a, (2, 2), (2, 2)), image, dims=BATCH)
case("max_pool same", lambda a: nn.max_pool(a, (3, 3), (2, 2), "SAME"), image, dims=BATCH)
case("min_pool", lambda a: nn.pooling.min_pool(a, (2, 2), (2, 2)), image, dims=BATCH)
case("avg_pool", lambda a: nn.avg_pool(a, (2, 2), (2, 2)), image, dims=BATCH)
case("avg_pool same", lambda a: nn.avg_pool(a, (3, 3), (2, 2), "SAME"), image, dims=BATCH)
case(
    "avg_pool without padding counted",
    lambda a: nn.avg_pool(a, (3, 3), (2, 2), "SAME", count_include_pad=False),
    image,
    dims=BATCH,
)
case(
    "reduce_window sum of ints",
    lambda a: lax.reduce_window(a, 0, lax.add, (1, 2), (1, 1), "SAME"),
    integers(3, 4),
    dims=BATCH,
)
case(
    "reduce_window max dilated",
    lambda a: lax.reduce_window(a, -np.inf, lax.max, (1, 2), (1, 1), "VALID", window_dilation=(1, 2)),
    floats(3, 6),
    dims=BATCH,
)
case(
    "reduce_window base dilated",
    lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3), (1, 1), "VALID", base_dilation=(1, 2)),
    floats(3, 6),
    dims=BATCH,
)
case("reduce_window over all axes", lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 2), (1, 1), "SAME"), floats(5, 6))
case(
    "reduce_window product",
    lambda a: lax.reduce_window(a, 1.0, lax.mul, (1, 2), (1, 1), "VALID"),
    floats(3, 6),
    dims=BATCH,
)
case(
    "reduce_window of a function",
    lambda a: lax.reduce_window(a, 0.0, lambda p, q: p + 2 * q, (1, 2), (1, 2), "VALID"),
    floats(3, 6),
)
case("max_pool gradient", jax.grad(lambda a: (nn.max_pool(a, (2, 2), (2, 2)) ** 2).sum()), image, dims=BATCH)
case("max_pool gradient overlapping", jax.grad(lambda a: (nn.max_pool(a, (3, 3), (2, 2), "SAME") ** 2).sum()), image)
case("avg_pool gradient", jax.grad(lambda a: (nn.avg_pool(a, (2, 2), (2, 2)) ** 2).sum()), image, dims=BATCH)
case("max_pool jvp", lambda a: jax.jvp(lambda b: nn.max_pool(b, (2, 2), (2, 2)), (a,), (a * 2,))[1], image)
case(
    "patches",
    lambda a: lax.conv_general_dilated_patches(a, (3, 3), (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    image,
    dims=BATCH,
)
for _way in ("nearest", "linear", "cubic"):
    case(f"image.resize {_way}", lambda a, w=_way: jax.image.resize(a, (2, 16, 6, 3), w), image)
case("image.resize of a batch", lambda a: jax.image.resize(a, (a.shape[0], 16, 18, 3), "bilinear"), image, dims=BATCH)
