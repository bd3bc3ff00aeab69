"""A sample of the matrix of ``benchmarks/retarget_matrix.py``: node cases of the onnx package at lower opsets."""

import sys

import onnx_suites
import pytest
from models import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import retarget_matrix

TARGETS = (11, 13, 18, 21)

#: By case, the target opsets that refuse it, and a part of the message.
SAMPLE = {
    "affine_grid_2d_expanded": ((), ""),
    "attention_4d_with_past_and_present": ((), ""),
    "bitcast_float32_to_int32": (TARGETS, "ai.onnx::BitCast"),
    "bitcast_uint16_to_int16": ((), ""),
    "center_crop_pad_crop_and_pad": ((), ""),
    "col2im_pads": ((), ""),
    "cumprod_2d_negative_axis": ((), ""),
    "dequantizelinear_e4m3fn": ((11, 13, 18), 'graph input "x": float8e4m3fn does not exist'),
    "dft_axis": ((), ""),
    "equal_string_broadcast": ((), ""),
    "gelu_tanh_1": ((), ""),
    "group_normalization_example": ((), ""),
    "linear_attention_gated_expanded": ((), ""),
    "logsoftmax_axis_0": ((), ""),
    "loop13_seq": ((11,), "ai.onnx::Loop at version 11 does not take sequence(float32[])"),
    "mod_mixed_sign_float64": ((), ""),
    "optional_has_element_optional_input": ((11, 13), "ai.onnx::OptionalHasElement"),
    "reduce_max_empty_set": ((), ""),
    "resize_upsample_sizes_nearest_axes_2_3": ((), ""),
    "sequence_map_add_2_sequences": ((11,), "ai.onnx::Loop at version 11 does not take sequence(float32[...])"),
    "string_split_maxsplit": ((11, 13, 18), "ai.onnx::StringSplit"),
    "unsqueeze_unsorted_axes": ((), ""),
}


@pytest.mark.parametrize("name", SAMPLE)
def test_exports_are_correct_and_refusals_name_the_reason(name):
    case = onnx_suites.node_cases()[f"test_{name}"]
    targets = [target for target in TARGETS if target < retarget_matrix.own_opset(case)]
    assert targets
    refused, reason = SAMPLE[name]
    for target in targets:
        outcome = retarget_matrix.attempt(case, target)
        assert outcome.kind == ("refused" if target in refused else "right"), outcome
        if outcome.kind == "refused":
            assert reason in outcome.detail
            assert retarget_matrix.reason(outcome.detail) != "other"
