"""``python -m tenonnx`` is the command line, which is a package."""

import sys
from importlib.util import find_spec

if find_spec("tenonnx_cli") is None:
    sys.exit("the command line is in tenonnx-cli, which is not installed: pip install tenonnx-cli")

from tenonnx_cli import main

sys.exit(main())
