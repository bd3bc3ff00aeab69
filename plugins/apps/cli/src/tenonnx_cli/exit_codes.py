"""Exit codes of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenonnx import TenonnxError

#: Exit codes other than 0: a check or verification failed; bad arguments, bad input or a bug; interrupted by the user;
#: broken pipe.
FAILED, REFUSED, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


def code_of(error: TenonnxError) -> int:
    """The exit code of a command that fails with this error."""
    from tenonnx import VerificationFailed

    return FAILED if isinstance(error, VerificationFailed) else REFUSED
