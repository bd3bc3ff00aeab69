"""Protocol of a runtime's limits, implemented by target packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from tenonnx.graph.containers import Operator
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.types import Type

#: Ways to express a call: actions with functions that return the results.
Ways = Sequence[tuple[str, Callable[[], Any]]]


class Runtime(Protocol):
    """Limits of one runtime.

    ``opsets`` maps each supported domain to its newest version, None if no limit is documented. ``dtypes`` are the
    element types of graph inputs and outputs. ``ops`` lists all supported ops, None if there is no such list.
    ``unspecified`` are names of ops that it supports at any version, although the specification has them later or
    never. ``file_size`` is the maximum size of a model in bytes, ``external_data`` whether tensors may be in separate
    files.
    """

    name: str
    opsets: Mapping[str, int | None]
    ir_version: int | None
    dtypes: frozenset[DType] | None
    ops: Mapping[tuple[str, str], Any] | None
    unspecified: frozenset[str]
    file_size: int | None
    external_data: bool

    def nearest(self, domain: str, version: int, ops: Collection[tuple[str, str]] = ()) -> int:
        """The supported version of a domain for a graph of ``ops``, each a domain and a name, at ``version``."""

    def versions(self, domain: str) -> str:
        """The supported versions of a domain, as text."""

    def problem(
        self, op: Operator, version: int, inputs: Sequence[Value | None], outputs: Sequence[Type | None], given: Any, /
    ) -> str:
        """Reason why this runtime does not support an op with these values and attributes, or an empty string."""

    def interface_problem(self, what: str, value: Value) -> tuple[str, str]:
        """Reason why this runtime does not support a "graph input" or "graph output", and advice; else empty."""

    def ways(self, retargeting: Any, call: Any, ways: Ways) -> Ways:
        """Ways to try for a call that the runtime does not support, best first."""
