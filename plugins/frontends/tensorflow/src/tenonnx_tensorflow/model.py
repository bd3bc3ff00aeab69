"""A model of TensorFlow as it is read, whatever it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenonnx_tensorflow.forms import Forms
from tenonnx_tensorflow.graphs import Library, Reference
from tenonnx_tensorflow.tracked_values import Held


@dataclass(frozen=True)
class Input:
    """Input of a model: its name, its node, the number of its type, its sizes."""

    name: str
    node: str
    dtype: int
    shape: tuple[int | None, ...] | None
    axes: Mapping[int, str] = field(default_factory=dict)


@dataclass
class Model:
    """Nodes and functions, what goes in and comes out, and what variables hold.

    ``captured`` are nodes that stand for what a function uses from outside, ``contents`` what variables of it hold.
    ``restored`` reads what a checkpoint has by a key, and ``named`` tells by the key a name and its role in training.
    ``prepared`` are nodes that run once before, such as those that restore variables and fill tables. ``run`` is the
    original, a function of arrays, where there is one to compare with. ``line_of`` tells the line of the user's code
    that made a node, or nothing. ``retrace`` gives the model for other shapes of its inputs, where the source can be
    traced again; ``freed`` are the dims that vary against the source's own types. ``forms`` are tried before the rules.
    ``refusal`` is why the original is not run. TensorFlow itself made a graph that ``is_traced``; others are of files.
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
    named: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    run: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    refusal: Callable[[], str] = str
    line_of: Callable[[str], str] | None = None
    retrace: Callable[[Sequence[Any]], Model] | None = None
    freed: Sequence[str] = ()
    forms: Forms = field(default_factory=Forms)
    is_traced: bool = False
