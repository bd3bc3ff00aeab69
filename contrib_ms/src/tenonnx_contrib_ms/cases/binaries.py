"""Operators without cases: compiled binaries for certain devices."""

from __future__ import annotations

from tenonnx_contrib_ms.binaries import ep_context, snpe, speculative_prefix_commit
from tenonnx_testing import incomparable

incomparable(ep_context, snpe, reason="what they compute is compiled for one device, and runs nowhere else")
incomparable(speculative_prefix_commit, reason="it writes to an address in the memory of a device, which no tensor is")
