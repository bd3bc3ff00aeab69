"""Error messages: headlines name the failure, and the tool finds them in the sources."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tenonnx.errors import did_you_mean, listing

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tools"))

from documenting.headlines import Headlines, packages  # noqa: E402

SOURCES = sorted(path for _, folder in packages(ROOT) for path in folder.rglob("*.py"))

#: Phrases to avoid in headlines, each with its replacement.
STUMBLES = {
    r"^(what|how|which|where|when|who)\b": "a noun, such as: a scan output",
    r"\bbeside\b": "together with, next to",
    r"\bsomething else than\b|\banother \w+ than\b": "something other than",
    r"\balone\b": "only",
    r"\bfrom \d+ on\b": "non-negative, at least",
    r"\b(is|are|or) no number\b|\b(is|are) none\b": "NaN, not a number",
    r"\btexts\b": "strings",
    r"\bfed with what\b": "got a feed that",
    r"\b(tells?|told)\b": "says, states",
}


def test_headlines_are_plain():
    """Reads the generated page of all messages."""
    page = (ROOT / "docs" / "reference" / "messages.md").read_text("utf-8")
    headlines = re.findall(r"^\| `+ ?(.+?) ?`+ \| `\w+` \|", page, re.MULTILINE)
    assert len(headlines) > 1000
    result = {
        headline: better
        for headline in headlines
        for stumble, better in STUMBLES.items()
        if re.search(stumble, headline, re.IGNORECASE)
    }
    assert result == {}


def texts(tree):
    """Strings of a module except docstrings and help texts of options."""
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg == "help":
            left_out.update(map(id, ast.walk(node.value)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def test_no_headline_states_a_requirement():
    result = {}
    for path in SOURCES:
        source = path.read_text("utf-8")
        if "must" in source:
            lines = [line for line, text in texts(ast.parse(source)) if re.search(r"\bmust\b", text)]
            result.update({f"{path.relative_to(ROOT)}:{line}": "say what failed" for line in lines})
    assert len(SOURCES) > 700
    assert result == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('raise InvalidCall("it failed")', {"it failed"}),
        (
            "raise InvalidCall(f\"{op.title}: no {counted(n, 'input')} of {names[0]!r}\")",
            {"{op.title}: no {n} inputs of {names}"},
        ),
        ('what = f"{x} is left out"\nraise InvalidCall(what, do="add it")', {"{x} is left out"}),
        ('raise InvalidCall("it is one" if x else "it is none")', {"it is one", "it is none"}),
        (
            'def refuse(why):\n  raise TypeMismatch(f"{a.title}: {why}")\nrefuse("the rank differs")',
            {"{a.title}: the rank differs"},
        ),
        ('op.requires(holds(lambda x: "x is not sorted" if x else None))', {"{op}: x is not sorted"}),
        (
            'class Lost(InvalidCall):\n  def __init__(self, name):\n    super().__init__(f"{name} is lost for good")',
            {"{name} is lost for good"},
        ),
        ('raise ValueError("of Python alone")', set()),
    ],
)
def test_headlines_are_found_where_errors_are_made(tmp_path, source, expected):
    errors = (
        "class TenonnxError(Exception): ...\nclass InvalidCall(TenonnxError): ...\nclass TypeMismatch(InvalidCall): ..."
    )
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "made.py").write_text(f"{errors}\n{source}\n")
    result = Headlines([("acme", tmp_path)]).found["acme"]
    assert {message.headline for message in result} == expected


def test_names_in_messages():
    assert listing("abc") == "a, b, c"
    assert listing(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert did_you_mean("relus", ["relu", "gelu", "conv"]) == "did you mean relu or gelu?"
    assert did_you_mean("relus", ["conv"]) == ""
