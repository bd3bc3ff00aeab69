"""The 1,884 single-op models of the onnx package.

Their names are in a file, so that collecting the tests does not compute them. ``python test_onnx_node_suite.py``
updates it for another version of onnx.
"""

import functools
from pathlib import Path

import numpy as np
import onnx_suites
import pytest
from onnx_suites import Expected

LIST = Path(__file__).with_name("onnx_node_cases.txt")
NAMES = LIST.read_text().split()

#: Cases that fail for external reasons. They are strict expected failures, so outdated entries fail.
EXPECTED: dict[str, Expected] = {}


def expect(backends, reason, *names):
    EXPECTED.update({name: Expected(tuple(backends.split()), reason) for name in names})


_ROUNDING = (
    "the stored outputs round float16 after each step of Softmax; rounding once, 2 of 192 differ by 1 ulp. "
    "Rounding the sum as they do would overflow in rows of more than 65504 equal elements"
)
expect("numpy onnxruntime", _ROUNDING, "test_attention_4d_causal_fp16")
expect("numpy", _ROUNDING, "test_attention_4d_causal_fp16_expanded")
expect(
    "onnxruntime",
    "onnxruntime sums in float32 and misses zeros by up to 1e-4, where the suite allows 1e-7",
    "test_dft",
    "test_dft_axis",
    "test_dft_axis_opset19",
    "test_dft_inverse",
    "test_dft_inverse_opset19",
    "test_dft_irfft",
    "test_dft_irfft_opset19",
    "test_dft_opset19",
    "test_dft_rfft",
    "test_dft_rfft_opset19",
    "test_stft",
    "test_stft_with_window",
)
expect(
    "onnxruntime",
    "onnxruntime gives the lowest finite number where a score is masked, the specification -inf",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
)
expect(
    "onnxruntime",
    "onnxruntime reads the indices as places in output_shape, not in the shape that was pooled",
    "test_maxunpool_export_with_output_shape",
)
expect(
    "onnxruntime",
    "onnxruntime aligns corners by the whole number of output elements, the specification by scale times length",
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)


def occurs(found, probability):
    """Assert the overall frequency of events; returns whether each element's frequency matches its probability.

    The latter only holds without a seed, since seeded runs may be equal or correlated.
    """
    deviation = np.sqrt(np.broadcast_to(probability * (1 - probability), found[0].shape))
    assert abs(found.mean() - np.mean(probability)) <= 6 * np.sqrt((deviation**2).sum()) / deviation.size
    return (abs(found.mean(0) - probability) <= 7 * deviation / np.sqrt(len(found))).all()


def draws_bernoulli(inputs, runs, *, flipped=False, seeded=False):
    result = np.stack([outputs[0] for outputs in runs])
    assert set(np.unique(result)) == {0, 1}
    assert occurs(result == 1, 1 - inputs[0] if flipped else inputs[0]) or seeded


def drops(inputs, runs):
    x, ratio, _ = inputs
    for y, *mask in runs:
        np.testing.assert_allclose(y, np.where(mask[0] if mask else y != 0, x / (1 - ratio), 0), rtol=1e-6)
    occurs(np.stack([y == 0 for y, *_ in runs]), ratio)


#: Checks of cases with random outputs, since the specification does not define the generator. Seeded Dropout cases use
#: the same generator as ours. Bernoulli's body in the specification swaps ones and zeros.
DRAWN = {
    f"test_bernoulli{kind}{form}": functools.partial(draws_bernoulli, flipped=bool(form), seeded=kind == "_seed")
    for kind in ("", "_double", "_seed")
    for form in ("", "_expanded")
}
DRAWN_BY_ONNXRUNTIME = dict.fromkeys(
    (
        "test_training_dropout",
        "test_training_dropout_mask",
        "test_training_dropout_default",
        "test_training_dropout_default_mask",
    ),
    drops,
)


def parameters(backend):
    return [pytest.param(name, id=name, marks=marks(EXPECTED.get(name), backend)) for name in NAMES]


def marks(expected, backend):
    if expected is None or backend not in expected.backends:
        return ()
    return pytest.mark.xfail(reason=expected.reason, strict=True)


def run(name, backend):
    if name.startswith("test_image_decoder"):
        pytest.importorskip("PIL")
    case = onnx_suites.node_cases()[name]
    onnx_suites.skip_if_not_provided(case)
    judges = DRAWN if backend == "numpy" else DRAWN | DRAWN_BY_ONNXRUNTIME
    onnx_suites.check(case, backend, judge=judges.get(name))


@pytest.mark.parametrize("name", parameters("numpy"))
def test_numpy(name):
    run(name, "numpy")


@pytest.mark.parametrize("name", parameters("onnxruntime"))
def test_onnxruntime(name):
    run(name, "onnxruntime")


def test_the_list_is_complete():
    assert sorted(onnx_suites.node_cases()) == NAMES, f"run python {Path(__file__).name}"


def test_every_op_is_provided():
    assert not {op for case in onnx_suites.node_cases().values() for op in onnx_suites.not_provided(case.model)}


def test_expected_failures_name_cases():
    assert set(NAMES) >= EXPECTED.keys() | DRAWN.keys() | DRAWN_BY_ONNXRUNTIME.keys()


if __name__ == "__main__":
    LIST.write_text("\n".join(sorted(onnx_suites.node_cases())) + "\n")
