"""The test suites of the onnx package, run case by case through ``tenonnx.backend``."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import tenonnx as tx
import tenonnx.backend
from tenonnx import FallbackWarning
from tenonnx.op.op import Opaque

PACKAGE = Path(onnx.__file__).parent.parent

#: Number of runs of a model with random outputs.
RUNS = 300


#: One thread for models of one node, since starting threads takes longer than the rest.
OPTIONS = {"onnxruntime": {"session_options": {"intra_op_num_threads": 1}}}


#: Cases with outputs of another random generator, which only have to run.
DRAWN = ("bernoulli", "training_dropout")


class Expected(NamedTuple):
    """Known failure of a case on some backends, and why we cannot fix it. The test fails once the case passes."""

    backends: tuple[str, ...]
    reason: str


def load(case):
    """The model of a case and its data sets, each a list of inputs and a list of outputs."""
    if case.model is not None:
        return case.model, [tuple(_arrays(side) for side in data_set) for data_set in case.data_sets]
    if case.url is not None:
        return _light(PACKAGE / case.url)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    stored = [
        (_stored(data, "input", model.graph.input), _stored(data, "output", model.graph.output))
        for data in sorted(folder.glob("test_data_set_*"))
    ]
    return model, stored


def not_provided(model):
    """Ops of a model that no installed package defines."""
    return sorted({f"{n.domain}::{n.op_type}" for n in tx.load(model).walk() if isinstance(n.op, Opaque)})


def skip_if_not_provided(case):
    missing = not_provided(load(case)[0])
    if missing:
        pytest.skip(f"{', '.join(missing)} is not provided yet")


def _light(path):
    """A real network with synthetic weights: its input is a ramp, its expected first output is in a file."""
    model = onnx.load(path)
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(info) for info in model.graph.input if info.name not in given]
    stored = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
    return model, [(inputs, [onnx.numpy_helper.to_array(stored)])]


def _stored(folder, kind, infos):
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [_read(folder / f"{kind}_{k}.pb", info.type) for k, info in zip(range(count), infos, strict=False)]


def _read(path, kind):
    messages = {
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
        "tensor_type": (onnx.TensorProto, onnx.numpy_helper.to_array),
    }
    message, decode = messages[kind.WhichOneof("value")]
    proto = message()
    proto.ParseFromString(path.read_bytes())
    return decode(proto)


def _arrays(contents):
    return [onnx.numpy_helper.to_array(c) if isinstance(c, onnx.TensorProto) else c for c in contents]


def check(case, backend, *, judge=None):
    """Run a case and compare outputs by its tolerances. A fallback to numpy is an error if onnxruntime runs the model.

    For random outputs, ``judge(inputs, runs)`` checks the outputs of many runs.
    """
    model, stored = load(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepared = tenonnx.backend.with_backend(backend).prepare(model, **OPTIONS.get(backend, {}))
        result = [[prepared.run(inputs) for _ in range(RUNS if judge else 1)] for inputs, _ in stored]
    others = [w.message for w in caught if not issubclass(w.category, FallbackWarning)]
    assert not others, f"warns: {others[0]}"
    if caught and takes(model, stored):
        raise AssertionError(f"onnxruntime itself runs the model, yet: {caught[0].message}")
    for runs, (inputs, theirs) in zip(result, stored, strict=True):
        ours = runs[0]
        assert len(ours) >= len(theirs)
        for one, other in zip(ours, theirs, strict=False):
            if judge:
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
            else:
                compare(one, other, case.rtol, case.atol)
        if judge:
            judge(inputs, runs)


def compare_outputs(case, found, stored):
    """Compare the outputs of a case, unless they are random."""
    for ours, theirs in zip(found, stored, strict=False):
        if not any(word in case.name for word in DRAWN):
            compare(ours, theirs, case.rtol, case.atol)


def compare_program(case, graph, program, stored):
    """Run a compiled case on all its data sets, and compare the outputs."""
    names = [value.name for value in graph.inputs]
    for inputs, outputs in stored:
        compare_outputs(case, program(dict(zip(names, inputs, strict=False))).values(), outputs)


def takes(model, stored):
    """Whether plain onnxruntime runs a model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for inputs, _ in stored:
            session.run(None, {info.name: array for info, array in zip(session.get_inputs(), inputs, strict=False)})
    except Exception:
        return False
    return True


def compare(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Raise ``AssertionError`` if two outputs differ in kind, dtype or shape, or by more than the tolerance."""
    if theirs is None:
        assert ours is None
    elif isinstance(theirs, list | tuple):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            compare(one, other, rtol, atol)
    elif isinstance(theirs, dict):
        assert ours == theirs
    else:
        theirs = np.asarray(theirs)
        assert isinstance(ours, np.ndarray)
        assert ours.shape == theirs.shape
        if theirs.dtype.kind in "OUST":
            np.testing.assert_array_equal(ours.astype(object), theirs.astype(object))
            return
        assert ours.dtype == theirs.dtype
        if theirs.dtype.kind in "fc":
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
        elif theirs.dtype.isbuiltin == 2:  # numpy cannot promote the element types of ml_dtypes
            least = max(rtol, 2.0**-6) if theirs.dtype.name == "bfloat16" else rtol
            np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=least, atol=atol)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


@functools.cache
def node_cases():
    """The cases of kind ``node`` by name; onnx takes seconds to compute them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}
