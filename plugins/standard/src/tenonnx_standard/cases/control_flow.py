"""Cases of control flow. The subgraphs capture nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tenonnx.extend import DType, TensorType, constant, subgraph
from tenonnx_standard.control_flow import if_, loop, scan, scan_in_batches
from tenonnx_standard.logic import less
from tenonnx_standard.shapes import identity
from tenonnx_testing import Gap, call, cases, tensors

NUMBER, TRUTH = TensorType(DType.int64, ()), TensorType(DType.bool, ())

JOINED = Gap(
    "reference", "it concatenates scan outputs along the first axis, and adds an axis of length one to scalars"
)


@cases(if_)
def if_cases(draw):
    first, second = draw(tensors(shape=(2, 3))), draw(tensors(shape=(2, 3)))
    branches = {
        name: subgraph(lambda array=array: constant(array) * 2.0, name=name)
        for name, array in (("then_branch", first), ("else_branch", second))
    }
    return call(np.asarray(draw(st.booleans())), **branches)


@cases(loop, gaps=[JOINED])
def loop_cases(draw):
    """A fixed number of steps, with a carried value and a scan output."""
    x = draw(tensors("float64", shape=(2, 3)))
    kind = TensorType(DType.float64, (2, 3))
    formals = [("step", NUMBER), ("going_on", TRUTH), ("state", kind)]
    body = subgraph(lambda step, going_on, state: (identity(going_on), state * 0.5, state + 1.0), formals)
    return call(np.asarray(draw(st.integers(0, 4)), np.int64), np.asarray(True), x, body=body, _outputs=2)


@cases(loop, gaps=[JOINED])
def loop_cases_2(draw):
    """Until the body's own condition is false."""
    formals = [("step", NUMBER), ("going_on", TRUTH), ("state", TensorType(DType.float64, ()))]
    body = subgraph(lambda step, going_on, state: (less(state, 20.0), state * 2.0, step + 1), formals)
    start = np.asarray(draw(st.sampled_from([1.0, 3.0, 30.0])), np.float64)
    return call(np.asarray(9, np.int64), np.asarray(True), start, body=body, _outputs=2)


def running_sum(element):
    return subgraph(lambda state, x: (state + x, state * x), [("state", element), ("x", element)], name="running_sum")


@cases(scan)
def scan_cases(draw):
    length, axis = draw(st.integers(1, 4)), draw(st.sampled_from([0, 1, -1]))
    shape = (length, 3) if axis == 0 else (3, length)
    return call(
        draw(tensors(shape=(3,))),
        draw(tensors(shape=shape)),
        body=running_sum(TensorType(DType.float32, (3,))),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[draw(st.integers(0, 1))],
        scan_output_axes=[draw(st.sampled_from([0, 1, -1]))],
        scan_output_directions=[draw(st.integers(0, 1))],
        _outputs=2,
    )


@cases(scan_in_batches)
def scan_in_batches_cases(draw):
    length = draw(st.integers(1, 4))
    lengths = draw(st.sampled_from([None, np.asarray([length, 1], np.int64)]))
    states, elements = draw(tensors(shape=(2, 3))), draw(tensors(shape=(2, length, 3)))
    body = running_sum(TensorType(DType.float32, (3,)))
    directions = draw(st.sampled_from([None, [0], [1]])) if lengths is None else None
    return call(lengths, states, elements, body=body, num_scan_inputs=1, directions=directions, _outputs=2)
