"""Entry point of ``python -m tenonnx_compat.onnxsim in.onnx out.onnx``."""

from tenonnx_compat.onnxsim.onnx_simplifier import main

main()
