"""String ops: in ``ai.onnx`` where possible, else rejected without the domain of onnxruntime-extensions."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf

import tenonnx as tx

TEXT = np.asarray(["A b,c", "", " d  e ", "\u00e9"], object)


def _read(function: Callable[..., Any]) -> tx.Graph:
    return tx.load(tf.function(function), TEXT)


def _exported(graph: tx.Graph, **options: Any) -> onnx.ModelProto:
    stream = io.BytesIO()
    tx.export(graph, stream, opset_version=21, **options)
    return onnx.load_from_string(stream.getvalue())


@pytest.mark.parametrize(
    "function",
    [
        tf.strings.lower,
        lambda x: tf.strings.split(x).to_tensor(""),
        lambda x: tf.strings.regex_replace(x, "[,.]", ""),
        lambda x: tf.strings.regex_replace(x, "b,", "B"),
        lambda x: tf.strings.reduce_join(x, separator="-"),
        lambda x: tf.strings.regex_full_match(x, "[a-d ]+"),
        lambda x: tf.strings.as_string(tf.cast(tf.equal(x, ""), tf.float32)),
    ],
    ids=["lower", "split", "replace_characters", "replace_literal", "reduce_join", "full_match", "as_string"],
)
def test_ai_onnx_can_express(function: Callable[..., Any]) -> None:
    graph = _read(function)
    assert "ai.onnx.contrib" not in graph.opsets
    model = _exported(graph, domains=["ai.onnx"])
    assert {node.domain for node in model.graph.node} == {""}
    expected = function(tf.constant(TEXT)).numpy()
    result = next(iter(tx.load(model).run({graph.inputs[0].name: TEXT}).values()))
    assert result.tolist() == np.vectorize(lambda t: t.decode() if isinstance(t, bytes) else t)(expected).tolist()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: tf.strings.regex_replace(x, "a+", "b"), "StringRegexReplace"),
        (lambda x: tf.strings.length(x), "StringLength"),
        (lambda x: tf.strings.to_hash_bucket_fast(x, 7), "StringToHashBucketFast"),
    ],
    ids=["pattern", "length", "hash"],
)
def test_without_the_domain_it_is_refused_with_a_hint(function: Callable[..., Any], name: str) -> None:
    graph = _read(function)
    with pytest.raises(tx.NotRepresentable, match=rf"(?s){name}.*allow domain ai.onnx.contrib"):
        _exported(graph, domains=["ai.onnx"])
    model = _exported(graph, domains=["ai.onnx", "ai.onnx.contrib"])
    assert name in [node.op_type for node in model.graph.node]


def test_substrings_after_the_end_are_empty() -> None:
    graph = tx.load(tf.function(lambda x: tf.strings.substr(x, 3, 2)), np.asarray(["abcdef"], object))
    assert next(iter(graph.run({graph.inputs[0].name: np.asarray(["ab"], object)}).values())).tolist() == [""]


def test_a_part_of_a_character_is_refused() -> None:
    graph = tx.load(tf.function(lambda x: tf.strings.substr(x, 0, 1)), np.asarray(["abc"], object))
    with pytest.raises(tx.TenonnxError, match="not UTF-8"):
        graph.run({graph.inputs[0].name: np.asarray(["\u00e9"], object)}, backend="numpy")
