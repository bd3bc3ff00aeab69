"""Errors as JSON data."""

from __future__ import annotations

from typing import Any

import click

from tenonnx import TenonnxError


def described(error: Exception) -> dict[str, Any]:
    """The parts of an error, as the page shows them."""
    if isinstance(error, TenonnxError):
        parts = {part: getattr(error, part) for part in ("what", "given", "available", "do", "also")}
        return {"kind": type(error).__name__, **parts}
    if isinstance(error, click.ClickException):
        return {"kind": "InvalidCall", "what": error.format_message()}
    text = " ".join(str(error).split()) or "no message"
    return {"kind": type(error).__name__, "what": f"{text} (unexpected)"}
