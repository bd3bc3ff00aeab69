"""A model of TensorFlow from any source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.graphs import Library, Reference
from tenonnx_tensorflow.tracked_values import Held


@dataclass(frozen=True)
class Input:
    """Input of a model: its name, its node, its type number, its shape."""

    name: str
    node: str
    dtype: int
    shape: tuple[int | None, ...] | None
    axes: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Model:
    """Nodes and functions, inputs and outputs, and contents of variables.

    ``captured`` maps placeholder nodes to captured values, ``contents`` has the contents of variables. ``restored``
    reads an entry of a checkpoint by key, and ``names_by_key`` maps keys to names and roles in training. ``prepared``
    are nodes that run once first, such as those that restore variables and initialize tables. ``run`` is the original
    as a function of arrays, if it can run. ``line_of`` maps a node to the user's line that created it, or an empty
    string. ``retrace`` returns the model for other input shapes, if the source can be traced again; ``freed`` are dims
    that are dynamic although the source declares a size. ``forms`` are tried before the rules. ``refusal`` is the
    reason why the original must not run. ``is_traced``: TensorFlow made the graph in this process, rather than reading
    a file.
    """

    name: str
    library: Library
    inputs: Sequence[Input]
    outputs: Sequence[tuple[str, Reference]]
    captured: Mapping[str, Held] = field(default_factory=dict)
    contents: Mapping[Held, Any] = field(default_factory=dict)
    prepared: Sequence[str] = ()
    restored: Callable[[str], Any] | None = None
    asset: Callable[[str], Sequence[str]] | None = None
    assets: Mapping[str, str] = field(default_factory=dict)
    names_by_key: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    run: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    refusal: Callable[[], str] = str
    line_of: Callable[[str], str] | None = None
    retrace: Callable[[Sequence[Any]], Model] | None = None
    freed: Sequence[str] = ()
    forms: Forms = field(default_factory=Forms)
    is_traced: bool = False
