"""What holds binaries has no cases."""

from __future__ import annotations

from tenonnx_contrib_ms.binaries import ep_context, snpe
from tenonnx_testing import incomparable

incomparable(ep_context, snpe, reason="what they compute is compiled for one device, and runs nowhere else")
