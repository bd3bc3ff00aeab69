"""Real models for tests, from the repository and from the onnx package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.backend.test

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SUITES = Path(onnx.backend.test.__file__).parent / "data"

#: The example models, each with the file of its sample inputs.
SAMPLES = {
    "digits/digits": "samples",
    "digits/digits-int8": "samples",
    "iris/iris": "samples",
    "iris/tree": "samples-tree",
    "decoder/decoder": "samples",
}


def example(name):
    return EXAMPLES / f"{name}.onnx"


def feeds(name, samples=None):
    arrays = dict(np.load(EXAMPLES / name.split("/")[0] / f"{samples or SAMPLES[name]}.npz"))
    arrays.pop("labels", None)
    return arrays


def suite_files():
    return sorted([*SUITES.glob("*/*/model.onnx"), *SUITES.glob("light/*.onnx")])
