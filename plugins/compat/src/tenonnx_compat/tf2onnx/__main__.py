"""Entry point of ``python -m tenonnx_compat.tf2onnx --saved-model FOLDER --output model.onnx``."""

from tenonnx_compat.tf2onnx.convert import main

main()
