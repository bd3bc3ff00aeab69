"""Generator of ``digits-nhwc.onnx``: the convolutional network for digits in NHWC layout.

Run ``python make.py [folder]``. onnxruntime's transformer optimizer replaces each convolution by ``NhwcConv``, which
only has a kernel on GPUs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
from onnxruntime.transformers.fusion_nhwc_conv import FusionNhwcConv
from onnxruntime.transformers.onnx_model import OnnxModel

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    model = OnnxModel(onnx.load(HERE.parent / "digits_cnn" / "digits-cnn.onnx"))
    FusionNhwcConv(model, update_weight=True).apply()
    model.topological_sort()
    model.prune_graph()
    model.model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model.model, folder / "digits-nhwc.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
