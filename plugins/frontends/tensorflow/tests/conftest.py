"""Skip collection without TensorFlow: these tests have an environment of their own, see README.md.

Tests in ``backends`` run where Keras has the backend JAX or PyTorch. TensorFlow's log is quiet and its kernels are
deterministic; warnings of Keras's own code are no errors.
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
    # onnxruntime's StringNormalizer requires a locale that may be missing, and regular expressions find nothing if
    # TensorFlow's RE2 replaces the library's
    config.addinivalue_line("filterwarnings", "ignore:numpy runs the (graph|ops):UserWarning")
