"""A case of every op that is installed, with its types, on the backends that are."""

import pytest

pytest.importorskip("tenonnx_testing", reason="tenonnx-testing, of the extra test of a family, is not installed")

from tenonnx.extend.testing import plugins
from tenonnx_testing import conformance
from tenonnx_testing.backends import backend_conformance

FAMILIES = sorted({plugin.distribution for plugin in plugins("tenonnx.conformance")})
DOMAINS = tuple(sorted({plugin.name for plugin in plugins("tenonnx.ops")}))
BACKENDS = {plugin.name for plugin in plugins("tenonnx.backends")}

for family in FAMILIES:
    globals()[f"test_{family.replace('-', '_')}"] = conformance(family)
if "onnxruntime" in BACKENDS and FAMILIES:
    test_onnxruntime = backend_conformance("onnxruntime", domains=DOMAINS)
