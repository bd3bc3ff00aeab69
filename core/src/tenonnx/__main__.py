"""``python -m tenonnx`` is the command line, which is a package."""

import sys
from importlib.util import find_spec

from tenonnx.errors import installing

if find_spec("tenonnx_cli") is None:
    sys.exit(f"the command line is in tenonnx-cli, which is not installed: {installing('tenonnx-cli')}")

from tenonnx_cli import main

sys.exit(main())
