"""Operations on integers of 8 and 16 bits, in a default session of onnxruntime and on numpy."""

import numpy as np
import onnxruntime
import pytest
import torch
from modules import Apply
from torch.nn import functional

import tenonnx as tx

FUNCTIONS = {
    "extremes": lambda x: (x.amax(1), x.amin(0), *torch.aminmax(x, dim=1), *x.max(1), *x.min(0), x.max(), x.min()),
    "places": lambda x: (x.argmax(1), x.argmin(0), x.argmax(), *x.cummax(1), x.sort(1)[0], x.median(1)[0]),
    "bounds": lambda x: (x.clamp(3, 9), x.clamp(min=3), x.clamp(x[0], x[1]), functional.relu(x)),
    "pairs": lambda x: (torch.maximum(x, x.flip(0)), torch.minimum(x, x.flip(0)), -x, x**2),
    "choices": lambda x: (torch.where(x > 5, x, x + 1), torch.where(x > 5, x, 3), x.masked_fill(x > 5, 2)),
    "triangles": lambda x: (torch.tril(x), torch.triu(x, 1), functional.pad(x, (1, 2), value=3)),
    "products": lambda x: (x @ x.T, torch.bmm(x[None], x.T[None]), x.prod(1)),
    "truth": lambda x: (x.any(1), x.all(0), x.any(), x == x.flip(0)),
    "distinct": lambda x: torch.unique(x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_narrow_integers_run_on_onnxruntime(dtype, name, tmp_path):
    x = torch.tensor([[3, 90, 2, 1], [80, 9, 5, 0], [7, 70, 0, 2]], dtype=dtype)
    graph = tx.load(Apply(FUNCTIONS[name]), x)
    tx.export(graph, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    feeds = {graph.inputs[0].name: x.numpy()}
    result = FUNCTIONS[name](x)
    expected = [each.numpy() for each in (result if isinstance(result, tuple) else (result,))]
    for outputs in (session.run(None, feeds), graph.run(feeds, backend="numpy").values()):
        for ours, theirs in zip(outputs, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
