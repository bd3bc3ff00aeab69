"""Strings in scalars, slices and optional values, fed and static."""

import numpy as np
import onnx
import pytest

import tenonnx as tx
import tenonnx_standard as ops

HEAD = '<ir_version: 10, opset_import: ["": 21]> g (string[3] t) => (y)'
WORDS = np.array(["a", "b", "c"], object)

SCAN = """
{ empty = Constant<value_string="">()
  last, y = Scan<num_scan_inputs=1, body=body (string[] held, string[] word) => (string[] longer, string[] seen) {
    longer = StringConcat(held, word)
    seen = Identity(longer)
  }>(empty, t) }
"""
SCATTERED = """
{ one = Constant<value_int=1>()
  two = Constant<value_ints=[2]>()
  word = Gather(t, one)
  s = ScatterND(t, two, word)
  y = StringConcat(s, s) }
"""
OPTIONAL = """
{ o = Optional(t)
  s = OptionalGetElement(o)
  y = StringConcat(s, s) }
"""


@pytest.mark.parametrize("static", [False, True], ids=["fed", "static"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [(SCAN, ["a", "ab", "abc"]), (SCATTERED, ["aa", "bb", "bb"]), (OPTIONAL, ["aa", "bb", "cc"])],
    ids=["words of a scan", "one word scattered", "text that may be absent"],
)
def test_text_is_computed_with(text, expected, static):
    model = onnx.parser.parse_model(HEAD + text)
    if static:
        del model.graph.input[:]
        model.graph.initializer.add(
            name="t", data_type=onnx.TensorProto.STRING, dims=[3], string_data=[b"a", b"b", b"c"]
        )
    result = tx.load(model).run({} if static else {"t": WORDS}, backend="numpy")
    assert result["y"].tolist() == expected


@pytest.mark.parametrize(
    ("locale", "lower", "upper"),
    [
        ("C", "ÄÉ straße ab", "ÄÉ STRAßE AB"),
        ("POSIX", "ÄÉ straße ab", "ÄÉ STRAßE AB"),
        (None, "äé straße ab", "ÄÉ STRASSE AB"),
    ],
)
def test_cases_are_of_the_locale(locale: str | None, lower: str, upper: str) -> None:
    for action, expected in (("LOWER", lower), ("UPPER", upper)):
        graph = tx.Graph("cases", opsets={"ai.onnx": 21})
        with graph.building():
            x = graph.input("x", "string", (1,))
            graph.output("y", ops.string_normalizer(x, case_change_action=action, locale=locale))
        result = graph.run({"x": np.asarray(["ÄÉ straße AB"], object)}, backend="numpy")
        assert result["y"].tolist() == [expected]
