"""Which distribution provides which op or command: data for messages alone."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


@cache
def _hints() -> dict[str, dict[str, str]]:
    text = resources.files("tenonnx.registry").joinpath("hints.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def provider(domain: str, name: str) -> str | None:
    """The distribution that provides ``domain::name``, or None where we know of none; commands have a domain, too."""
    of_domain = _hints().get(domain, {})
    return of_domain.get(name, of_domain.get("*"))
