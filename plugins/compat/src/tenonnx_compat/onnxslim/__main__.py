"""Entry point of ``python -m tenonnx_compat.onnxslim in.onnx out.onnx``."""

import sys

from tenonnx_compat.onnxslim.cli import main

sys.exit(main())
