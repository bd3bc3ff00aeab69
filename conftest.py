"""Settings of all tests: hypothesis draws the same examples in each run, without deadlines."""

import functools
import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# pytest's worker processes share the cores, so BLAS threads would only wait for each other.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile("repository", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("repository")

#: Modules that run first, since they take long. Those that read onnx's cases are adjacent, so that few processes load
#: them, which takes ten seconds.
LONG = (
    "test_new_package",
    "test_independence",
    "test_fuzzing",
    "test_onnx_backend",
    "test_report",
    "test_type_rules",
    "test_types",
    "test_onnx_node_suite",
)


@pytest.fixture(autouse=True)
def _numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """Reset the generator ``RANDOM`` of a module before each test, so that its numbers do not depend on other tests."""
    module = getattr(request.node, "module", None)
    if hasattr(module, "RANDOM"):
        module.RANDOM = np.random.default_rng(0)


#: Reason to skip tests that need exact products of uint8 and int8 in onnxruntime.
SATURATES = "products of uint8 by int8 saturate in onnxruntime on this processor, which has no VNNI"

#: These tests by file, as parts of their names.
EXACT = {
    "plugins/compat/tests/test_quantization.py": ("test_pairs_of_weights_as_gpu_runtimes_require",),
    "quantized/tests/test_conformance.py": (
        "QAttention@1-onnxruntime",
        "[ConvInteger@10-onnxruntime",
        "[MatMulInteger@10-onnxruntime",
        "DynamicQuantizeMatMul@1-onnxruntime",
        "DynamicQuantizeMatMul@1-export",
    ),
    "quantized/tests/test_examples.py": (
        "expected_results[bert-dynamic]",
        "expected_results[resnet-qoperator]",
        "every_form[bert-dynamic-",
        "every_form[bert-static-to_qoperator]",
    ),
    "quantized/tests/test_forms.py": (
        "QOperator-tensor-QUInt8-QInt8",
        "QOperator-channel-QUInt8-QInt8",
        "-QUInt8-QInt8-to_qoperator",
        "-QUInt8-QInt8-back_and_there",
    ),
    "quantized/tests/test_oldest_versions.py": (
        "[QLinearConv and QLinearMatMul]",
        "[dynamic quantization, integer products]",
    ),
    "quantized/tests/test_quantize_loss.py": ("test_a_bias_beyond_int32_steps_is_kept",),
    "quantized/tests/test_quantized.py": ("test_digits_in_eight_bits",),
    "quantized/tests/test_values_of_onnxruntime.py": ("[ai.onnx::QLinearConv]",),
    "tests/test_default_session.py": ("plain_session[quantized/resnet-qdq]", "plain_session[quantized/bert-dynamic]"),
    "tests/test_retarget_examples.py": ("-digits/digits-int8-9]",),
    "plugins/training/tests/test_quantized_tuning.py": ("by_its_scales[onnxruntime qoperator]",),
}


@functools.cache
def saturates() -> bool:
    """Whether onnxruntime saturates products of uint8 and int8 at 16 bits, as its kernels without VNNI do."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return False
    text = '<ir_version: 8, opset_import: ["": 13]> m (uint8[1, 64] a) => (int32[1, 1] y) { y = MatMulInteger(a, b) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((64, 1), 127, np.int8), "b"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (found,) = session.run(None, {"a": np.full((1, 64), 255, np.uint8)})
    return bool(found.item() != 64 * 255 * 127)


def needs_exact_products(item: pytest.Item) -> bool:
    path = (
        item.path.relative_to(item.config.rootpath).as_posix() if item.path.is_relative_to(item.config.rootpath) else ""
    )
    return any(part in item.name for part in EXACT.get(path, ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("slow", "tests that a run without paths leaves out", type="paths")
    parser.addoption("--slow", action="store_true", help="without paths: run the tests that are left out otherwise")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Split the test files between runs with and without ``--slow``, unless the command names paths."""
    if config.args != config.getini("testpaths") or collection_path.is_dir():
        return None
    is_slow = any(collection_path.is_relative_to(each) for each in config.getini("slow"))
    return True if is_slow != config.getoption("slow") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)
    exact = [item for item in items if needs_exact_products(item)]
    if exact and saturates():
        for item in exact:
            item.add_marker(pytest.mark.skip(reason=SATURATES))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, and collect less often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
