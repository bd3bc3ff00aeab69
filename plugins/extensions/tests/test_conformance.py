"""The conformance kit on every op of this package."""

from tenonnx_testing import conformance

test = conformance("tenonnx-extensions")
