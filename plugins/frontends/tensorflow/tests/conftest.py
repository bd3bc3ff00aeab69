"""Without TensorFlow nothing here is collected: these tests have an environment of their own, see README.md.

Those in ``backends`` run where Keras computes on JAX or PyTorch.
TensorFlow says less, and computes alike everywhere; what Keras's own code is warned of is no error.
"""

import importlib.util
import os
from pathlib import Path

import pytest

if importlib.util.find_spec("tensorflow"):
    collect_ignore = ["backends"]
elif importlib.util.find_spec("keras"):
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py")]
else:
    collect_ignore_glob = ["*"]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "filterwarnings", "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
    )
    config.addinivalue_line("filterwarnings", r"ignore:\s*(Warning. )?tf.lite.Interpreter is deprecated:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:Statistics for quantized inputs were expected:UserWarning")
    # onnxruntime's StringNormalizer wants a locale that a machine may not have, and patterns find nothing where
    # TensorFlow's RE2 takes the place of the library's
    config.addinivalue_line("filterwarnings", "ignore:numpy runs the (graph|ops):UserWarning")
