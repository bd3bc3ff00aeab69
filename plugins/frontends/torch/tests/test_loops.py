"""Loops over a length in a module's Python code: each becomes a Scan for any length."""

import pytest
import torch
from modules import Apply
from torch import nn
from torch.nn import functional

import tenonnx as tx

AXES = {0: "batch", 1: "length"}
DIMS = {"inputs_0": AXES}


class Cell(nn.Module):
    """Loop with states, and a list that is stacked afterwards."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        state, rows = torch.zeros(x.shape[0], 3), []
        for t in range(x.shape[1]):
            state = torch.tanh(self.linear(x[:, t]) + state)
            rows.append(state * 2)
        return torch.stack(rows, 1)


def backward(x):
    """Reads from the end, keeps two states, and inserts rows at the front of a list."""
    length, rows = x.shape[1], []
    decayed, total = x[:, 0] * 0, torch.ones_like(x[:, 0])
    for t in range(length):
        decayed = decayed * 0.5 + x[:, length - 1 - t]
        total = total + decayed
        rows.insert(0, total)
    return torch.cat(rows, -1).sum(-1), total


def written(x):
    result, state = torch.zeros_like(x), torch.zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        state = state * 0.9 + x[:, t]
        result[:, t] = state
    return result * x + state[:, None]


def chunked(x, size=4):
    length = x.shape[1]
    more = (size - length % size) % size
    x = functional.pad(x, (0, 0, 0, more)).reshape(x.shape[0], -1, size, x.shape[2])
    result, state = torch.zeros_like(x), torch.zeros(x.shape[0], x.shape[3])
    for chunk in range((length + more) // size):
        result[:, chunk] = x[:, chunk] + state[:, None]
        state = state * 0.5 + x[:, chunk].sum(1)
    return result.reshape(x.shape[0], length + more, -1)[:, :length]


def nested(x):
    state, rows = torch.zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        inner = torch.zeros_like(state)
        for s in range(x.shape[1]):
            inner = torch.sin(inner + x[:, s] * x[:, t])
        state = state * 0.3 + inner
        rows.append(state)
    return torch.stack(rows, 1)


def two_ago(x):
    before, last, rows = x[:, 0], x[:, 0] * 2, []
    for row in x.unbind(1):
        before, last = last, torch.tanh(before + last + row)
        rows.append(last)
    return torch.stack(rows, 1)


def uneven(x):
    """Two loops by the same lines, of which the second has an iteration less."""
    for first in (0, 1):
        state = torch.zeros(x.shape[0], x.shape[2])
        for t in range(first, x.shape[1]):
            state = torch.tanh(state + x[:, t])
        x = x + state[:, None]
    return x


def while_positive(x):
    """Loop without iterations at length 1."""
    t = x.shape[1] - 1
    state = x[:, t]
    rows = [state]
    while t > 0:
        t -= 1
        state = state * 0.7 + x[:, t]
        rows.append(state)
    rows.reverse()
    return torch.stack(rows, 1)


def weighted(x):
    state = torch.zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        state = torch.sin(state + x[:, t] * t + t)
    return state


def split(x):
    state, rows = torch.zeros(x.shape[0], x.shape[2]), []
    for row in x.split(1, dim=1):
        state = torch.cos(state + row[:, 0])
        rows.append(state[:, None])
    return torch.cat(rows, 1)


MODULES = {
    "a cell": Cell(),
    "layers with a loop each": nn.Sequential(Cell(), Cell()),
    **{
        function.__name__: Apply(function)
        for function in (backward, written, chunked, nested, two_ago, uneven, while_positive, weighted, split)
    },
}


@pytest.mark.parametrize("name", MODULES)
def test_a_loop_runs_at_any_length(name):
    torch.manual_seed(0)
    module = MODULES[name].eval()
    parameter = {Cell: "x", nn.Sequential: "input", Apply: "inputs_0"}[type(module)]
    graph = tx.load(module, torch.randn(2, 5, 3), dims={parameter: AXES}, verify=False)
    assert {node.op_type for node in graph.nodes} >= {"Scan"}
    for batch, length in ((1, 1), (2, 2), (3, 9), (1, 21)):
        x = torch.randn(batch, length, 3)
        result = graph.run({graph.inputs[0].name: x.numpy()}).values()
        with torch.no_grad():
            expected = module(x)
        expected = [expected] if isinstance(expected, torch.Tensor) else expected
        for actual, wanted in zip(result, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(actual), wanted, rtol=1e-4, atol=1e-4)


class Rows(nn.Module):
    def forward(self, x):
        rows = [row * 2 for row in x]
        return torch.stack(rows[::-1])


def test_the_rows_of_a_tensor_are_looped_over():
    graph = tx.load(Rows(), torch.randn(4, 3), dims={"x": {0: "batch"}}, verify=False)
    for batch in (1, 2, 9):
        x = torch.randn(batch, 3)
        torch.testing.assert_close(torch.from_numpy(graph.run({"x": x.numpy()})[graph.outputs[0].name]), Rows()(x))


class Growing(nn.Module):
    def forward(self, x):
        return torch.stack([x[:, : t + 1].sum(1) for t in range(x.shape[1])], 1)


def triangular(x):
    state = torch.zeros(x.shape[0], x.shape[2])
    for t in range(x.shape[1]):
        for s in range(t + 1):
            state = torch.sin(state + x[:, s])
    return state


class Squares(nn.Module):
    def forward(self, x):
        state = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            state = torch.sin(state + x[:, t] * t * t)
            state = state + x[:, (t * t) % 3]
        return state


@pytest.mark.parametrize(("module", "line"), [(Growing(), "x[:, : t + 1].sum(1)"), (Squares(), "t * t")])
def test_another_loop_is_refused_by_its_line(module, line):
    with pytest.raises(tx.NotRepresentable, match='loop over dim "length"') as error:
        tx.load(module, torch.randn(2, 5, 3), dims={"x": AXES}, verify=False)
    assert "test_loops.py" in str(error.value)
    assert line in str(error.value)


def test_a_loop_in_a_triangle_is_refused():
    with pytest.raises(tx.NotRepresentable, match="length"):
        tx.load(Apply(triangular), torch.randn(2, 5, 3), dims=DIMS, verify=False)


def test_a_branch_on_the_length_is_not_lost():
    """Verification includes lengths with which the module compares."""

    def branching(x):
        state = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            state = torch.sin(state + x[:, t])
        return state * 2 if x.shape[1] > 40 else state

    with pytest.raises(tx.NotRepresentable, match="length") as error:
        tx.load(Apply(branching), torch.randn(2, 5, 3), dims=DIMS, verify=False)
    assert "at length 41 the loop computes something else" in str(error.value)


class Chunks(nn.Module):
    """The number of chunks of four is 1 at the example's length, which a trace would fix."""

    def forward(self, x):
        padded = nn.functional.pad(x, (0, 0, 0, (4 - x.shape[1] % 4) % 4))
        chunks = padded.reshape(x.shape[0], -1, 4, x.shape[2]).cumsum(2)
        before = chunks[:, :, -1, None].expand(*chunks.shape) - chunks
        return (chunks + before.cumsum(1)).reshape(x.shape[0], -1, x.shape[2])[:, : x.shape[1]]


def test_a_length_has_any_number_of_chunks():
    graph = tx.load(Chunks(), torch.randn(2, 3, 3), dims={"x": AXES}, verify=False)
    for length in (1, 4, 9):
        x = torch.randn(2, length, 3)
        torch.testing.assert_close(torch.from_numpy(graph.run({"x": x.numpy()})[graph.outputs[0].name]), Chunks()(x))
