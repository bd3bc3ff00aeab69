"""The 1,884 single-op models of the onnx package.

Their names are in a file, so that collecting the tests computes none of them. ``python test_onnx_node_suite.py`` writes
it anew, for another version of onnx.
"""

from pathlib import Path

import onnx_suites
import pytest
from onnx_suites import Expected

import tenonnx as tx
from tenonnx.graph.graph import Graph
from tenonnx.op.op import Opaque

LIST = Path(__file__).with_name("onnx_node_cases.txt")
NAMES = LIST.read_text().split()

#: Cases that fail for reasons outside of this project. Each is expected to fail, so an entry that is out of date shows.
_ALIGN = "onnxruntime aligns corners by the whole number of output elements, the specification by scale times length"
EXPECTED: dict[str, Expected] = {
    "test_maxunpool_export_with_output_shape": Expected(
        "onnxruntime", "onnxruntime reads the indices as places in output_shape, not in the shape that was pooled"
    ),
    "test_resize_downsample_scales_linear_align_corners": Expected("onnxruntime", _ALIGN),
    "test_resize_downsample_scales_cubic_align_corners": Expected("onnxruntime", _ALIGN),
}

#: Cases whose outputs are drawn at random, by a generator that the specification leaves open.
DRAWN = {
    "test_bernoulli", "test_bernoulli_expanded", "test_bernoulli_double", "test_bernoulli_double_expanded",
    "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout", "test_training_dropout_mask",
    "test_training_dropout_default", "test_training_dropout_default_mask",
}  # fmt: skip


def not_provided(graph: Graph) -> list[str]:
    return sorted({f"{n.domain}::{n.op_type}" for n in graph.walk() if isinstance(n.op, Opaque)})


def parameters(backend):
    for name in NAMES:
        expected = EXPECTED.get(name)
        marks = []
        if expected is not None and expected.backend in (backend, "every"):
            marks = [pytest.mark.xfail(reason=expected.reason, strict=True)]
        yield pytest.param(name, id=name, marks=marks)


def run(name, backend):
    if name.startswith("test_image_decoder"):
        pytest.importorskip("PIL")
    case = onnx_suites.node_cases()[name]
    missing = not_provided(tx.load(case.model))
    if missing:
        pytest.skip(f"op {', '.join(missing)} is not provided yet")
    onnx_suites.check(case, backend, drawn=name in DRAWN)


@pytest.mark.parametrize("name", parameters("numpy"))
def test_numpy(name):
    run(name, "numpy")


@pytest.mark.parametrize("name", parameters("onnxruntime"))
def test_onnxruntime(name):
    run(name, "onnxruntime")


def test_the_list_is_complete():
    assert sorted(onnx_suites.node_cases()) == NAMES, f"run python {Path(__file__).name}"


@pytest.mark.xfail(reason="not all operators are written yet", strict=True)
def test_every_op_is_provided():
    graphs = [tx.load(case.model) for case in onnx_suites.node_cases().values()]
    assert not sorted({op for graph in graphs for op in not_provided(graph)})


def test_expected_failures_name_cases():
    assert set(NAMES) >= EXPECTED.keys() | DRAWN


if __name__ == "__main__":
    LIST.write_text("\n".join(sorted(onnx_suites.node_cases())) + "\n")
