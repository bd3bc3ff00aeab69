"""Exit codes of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenonnx import TenonnxError

#: Exit codes beside 0: a check or verification failed; bad use, bad input or a bug; stopped by the user or the reader.
FAILED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


def code_of(error: TenonnxError) -> int:
    """The exit code of a command that ends with this error."""
    from tenonnx import VerificationFailed

    return FAILED if isinstance(error, VerificationFailed) else REFUSED
