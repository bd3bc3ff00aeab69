"""``python -m tenonnx`` is the command line."""

import sys

from tenonnx.cli import main

sys.exit(main())
