"""Protocol of the limits of a runtime, implemented by packages of targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tenonnx.graph.containers import Operator
from tenonnx.graph.dtypes import DType
from tenonnx.graph.graph import Value
from tenonnx.graph.types import Type

#: Ways to express a call, each an action and a function that returns the results.
Ways = Sequence[tuple[str, Callable[[], Any]]]


class Runtime(Protocol):
    """Limits of one runtime.

    ``opsets`` are the domains that it knows, each with its newest version, None where no limit is documented.
    ``dtypes`` are the element types of graph inputs and outputs. ``ops`` lists all ops that it takes, None where there
    is no such list. ``unspecified`` are ops, by name, that it takes at any version although the specification of their
    domain has them later or never. ``file_size`` is the most bytes of a model, ``external_data`` whether its tensors
    may lie in files of their own.
    """

    name: str
    opsets: Mapping[str, int | None]
    ir_version: int | None
    dtypes: frozenset[DType] | None
    ops: Mapping[tuple[str, str], Any] | None
    unspecified: frozenset[str]
    file_size: int | None
    external_data: bool

    def nearest(self, domain: str, version: int) -> int:
        """The version of a domain that is nearest to ``version``."""

    def versions(self, domain: str) -> str:
        """The versions of a domain in words."""

    def problem(
        self, op: Operator, version: int, inputs: Sequence[Value | None], outputs: Sequence[Type | None], given: Any, /
    ) -> str:
        """Reason why this runtime does not take an op on these values, with these attributes, or nothing."""

    def interface_problem(self, what: str, value: Value) -> tuple[str, str]:
        """Reason why this runtime does not take a "graph input" or "graph output", and what to do; empty else."""

    def ways(self, retargeting: Any, call: Any, ways: Ways) -> Ways:
        """The ways to try for a call that the runtime does not take, best first."""
