"""SVG charts: well-formed, inside their frame, and readable on light and dark pages."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

SPEC = importlib.util.spec_from_file_location("charts", Path(__file__).parents[1] / "tools/charts.py")
CHARTS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CHARTS)

ROWS = [("tenonnx", 30, "30 of 34, time 1"), ("a < b & c", 0, "0 of 34"), ("onnxslim", 15, "15 of 34, time 2.5")]


def elements(text, kind):
    return list(ET.fromstring(text).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def test_bars_have_the_lengths_of_their_numbers():
    drawing = CHARTS.bars("Right results", ROWS, left=250.0)
    lengths = [float(r.get("width")) for r in elements(drawing, "rect") if r.get("class") == "first"]
    assert [length / lengths[0] for length in lengths] == [1, 0, 0.5]
    assert [text.text for text in elements(drawing, "text")][:3] == ["Right results", "tenonnx", "30 of 34, time 1"]
    assert "a < b & c" in [text.text for text in elements(drawing, "text")]


def test_bars_without_any_right_result():
    assert elements(CHARTS.bars("Nothing", [("tool", 0, "0 of 3")]), "rect")


def test_curves_stay_inside_the_frame():
    drawing = CHARTS.curves("Loss", "epoch", {"train": [3.0, 2.0, 1.5], "test": [2.9, 2.5, 2.4]})
    width = float(ET.fromstring(drawing).get("width"))
    assert all(0 < float(each.get("cx")) < width for each in elements(drawing, "circle"))


def test_each_color_has_a_dark_variant():
    light, dark = CHARTS.STYLE.split("@media(prefers-color-scheme:dark)")
    classes = {name for name in re.findall(r"\.(\w+)\{", light) if name != "curve"}
    assert classes <= set(re.findall(r"\.(\w+)\{", dark))
