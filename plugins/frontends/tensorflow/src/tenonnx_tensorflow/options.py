"""Options of reading a source of TensorFlow or Keras."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx.extend.frontends import check_takes
from tenonnx_frontends import Dims
from tenonnx_tensorflow.forms import Form


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``tx.load`` beside a source and its examples, and beside those for any source.

    A SavedModel is read by its ``signature`` (by default ``serving_default``) and ``tags``; a frozen graph (``.pb``)
    from its nodes ``inputs`` to its nodes ``outputs``, by default from all placeholders to what no node reads.
    ``shapes`` are sizes of inputs in place of those in the source, with names or None where they vary, ``dims`` (or
    ``dynamic_axes``) names for axes that vary, perhaps as JSON or a file of it; ``dynamic_batch`` names the first axis
    of every input "batch". ``training`` traces a Keras model as it trains. ``forms`` are functions by the type of an
    op, or by a name of nodes: of the node and its inputs, giving its outputs, or None for the usual rule. ``trust``
    lets what a file brings run: ops with effects to verify it, and functions and classes that its config names.
    """

    signature: str | None = None
    tags: Sequence[str] | None = None
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    shapes: Mapping[str, Sequence[int | str | None]] | None = None
    dims: Dims | str | os.PathLike[str] | None = None
    dynamic_axes: Dims | str | os.PathLike[str] | None = None
    dynamic_batch: bool = False
    input_names: Sequence[str] | None = None
    training: bool = False
    forms: Mapping[str, Form] | None = None
    trust: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Raises ``InvalidCall`` for options that there are not."""
        check_takes("the front end of TensorFlow does not take these options", cls, **given)
        return cls(**given)
