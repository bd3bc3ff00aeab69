"""Conformance kit: generates the tests of an op from strategies for its inputs and from its declarations.

``cases``, ``call``, ``Gap``, ``Law`` and the strategies (``tensors``, ``shapes``, ``broadcastable``, ``axis_of``)
declare cases. Each of these returns a test function for pytest:

- ``conformance``: for a package of ops;
- ``backend_conformance`` and ``onnx_conformance``: for a backend;
- ``frontend_conformance``: for a front end or a file format;
- ``source_conformance``: for a front end that reads objects of a framework.

The strategies and the checks need the extra ``tenonnx[testing]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx.extend import installing
from tenonnx.extend.testing import Tolerance
from tenonnx_testing.cases import Call, Case, Gap, Law, call, cases, incomparable, unwritten

if TYPE_CHECKING:
    from tenonnx_testing.backends import backend_conformance, onnx_conformance
    from tenonnx_testing.edges import holds_negative_zero
    from tenonnx_testing.frontends import Example, frontend_conformance
    from tenonnx_testing.kit import check_case, known_gaps, replay
    from tenonnx_testing.signatures import signature_problems
    from tenonnx_testing.sources import SourceCase, component_table, source_conformance
    from tenonnx_testing.strategies import axis_of, broadcastable, shapes, tensors
    from tenonnx_testing.suite import conformance

__all__ = [
    "Call",
    "Case",
    "Example",
    "Gap",
    "Law",
    "SourceCase",
    "Tolerance",
    "axis_of",
    "backend_conformance",
    "broadcastable",
    "call",
    "cases",
    "check_case",
    "component_table",
    "conformance",
    "frontend_conformance",
    "holds_negative_zero",
    "incomparable",
    "known_gaps",
    "onnx_conformance",
    "replay",
    "shapes",
    "signature_problems",
    "source_conformance",
    "tensors",
    "unwritten",
]

#: Public names by module, imported on first use: every pytest run imports this package for its plugin.
_MODULES = {
    "backends": ("backend_conformance", "onnx_conformance"),
    "edges": ("holds_negative_zero",),
    "frontends": ("Example", "frontend_conformance"),
    "kit": ("check_case", "known_gaps", "replay"),
    "suite": ("conformance",),
    "sources": ("SourceCase", "component_table", "source_conformance"),
    "signatures": ("signature_problems",),
    "strategies": ("axis_of", "broadcastable", "shapes", "tensors"),
}


def __getattr__(name: str) -> Any:
    import importlib

    found = next((module for module, names in _MODULES.items() if name in names), None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{found}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("hypothesis", "pytest"):
            raise
        raise ImportError(f"tenonnx_testing.{name} needs {error.name}: {installing('tenonnx-testing')}") from error
