"""Pooling with windows that reach beyond the end, or that lie in the padding."""

import numpy as np
import pytest
import torch
from modules import Apply
from torch.nn import functional

import tenonnx as tx

#: A last window that would begin in the padding, along all axes or along one of them, and one that lies in it.
LATE, MIXED = {"kernel_size": 2, "stride": 3, "padding": 1}, {"stride": (3, 2), "padding": (1, 1)}
CASES = {
    "a length": ((4,), LATE),
    "an image": ((4, 5), LATE),
    "a volume": ((4, 5, 6), LATE),
    "one axis of an image": ((4, 6), {"kernel_size": (2, 3), **MIXED}),
    "a dilated length": ((9,), {**LATE, "dilation": 2}),
    "a dilated image": ((9, 8), {**LATE, "dilation": 2}),
    "a window in the padding": ((2, 2), {"kernel_size": 2, "stride": 1, "dilation": 3, "padding": 1}),
}


def check(function, x, *other, **options):
    graph = tx.load(Apply(function), x, input_names=["x"], **options)
    for each in (x, *other):
        result = function(each)
        expected = result if isinstance(result, tuple) else (result,)
        for backend in ("numpy", "onnxruntime"):
            for ours, theirs in zip(graph.run({"x": each.numpy()}, backend=backend).values(), expected, strict=True):
                np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "a window in the padding"])
def test_maxima_leave_out_windows_that_begin_in_the_padding(name, indexed):
    size, options = CASES[name]
    pool = getattr(functional, f"max_pool{len(size)}d")
    function = lambda x: pool(x, ceil_mode=True, return_indices=indexed, **options)  # noqa: E731
    check(function, torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if "dilat" not in name and "window" not in name])
def test_means_leave_out_windows_that_begin_in_the_padding(name, inside):
    size, options = CASES[name]
    pool = getattr(functional, f"avg_pool{len(size)}d")
    function = lambda x: pool(x, ceil_mode=True, count_include_pad=inside, **options)  # noqa: E731
    check(function, torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", ["a dilated length", "a window in the padding"])
def test_windows_in_the_padding_are_minus_infinity_at_any_length(name):
    size, options = CASES[name]
    pool = getattr(functional, f"max_pool{len(size)}d")
    function = lambda x: pool(x, ceil_mode=name == "a dilated length", **options)  # noqa: E731
    other = [torch.randn(2, 3, length, *size[1:]) for length in (1, 3, 7)] if len(size) == 1 else []
    check(function, torch.randn(2, 3, *size), *other, **({"dims": {"x": {2: "length"}}} if other else {}))


def test_a_divisor_of_its_own_with_windows_beyond_the_end():
    function = lambda x: functional.avg_pool2d(x, 3, 2, 1, True, divisor_override=5)  # noqa: E731
    check(function, torch.randn(2, 3, 5, 6))
