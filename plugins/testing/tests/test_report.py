"""The certificate lists comparisons and gaps."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import strategies as st

from tenonnx.extend import op
from tenonnx_testing import call, pytest_plugin
from tenonnx_testing.cases import Case
from tenonnx_testing.kit import check_case
from tenonnx_testing.report import badge, certificate, markdown, merged, never_left_out, seen_here

CASE = {
    "op": "acme::Twice",
    "meaning": [1, None],
    "package": "acme 1.0",
    "versions": [1, 3],
    "compared": {"types": 4},
    "reached": [1],
    "drawn": ["X"],
    "drawable": ["X", "by"],
    "left_out": ["bias"],
    "optional": ["bias", "mask"],
    "gaps": {"gradient": ["it jumps"]},
}


def test_comparisons_of_several_processes_are_merged():
    other = {**CASE, "compared": {"types": 2, "layout": 1}, "reached": [3], "drawn": ["by"], "left_out": ["mask"]}
    whole = merged(
        [{"cases": {"a": CASE}, "outcomes": {"x": "passed"}}, {"cases": {"a": other}, "outcomes": {"y": "failed: z"}}]
    )
    assert whole["cases"]["a"]["compared"] == {"types": 6, "layout": 1}
    assert whole["cases"]["a"]["reached"] == [1, 3]
    assert CASE["compared"] == {"types": 4}
    made = certificate(whole)
    assert made["never_drawn"] == made["never_left_out"] == {}
    assert made["failed"] == {"y": "failed: z"}
    assert "1%20failed-red" in badge(made)


def test_the_certificate_can_be_checked_by_its_hash():
    made = certificate(merged([{"cases": {"a": CASE}, "outcomes": {"x": "passed"}}]))
    rest = {key: value for key, value in made.items() if key != "hash"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    assert made["hash"] == hashlib.sha256(text.encode()).hexdigest()
    page = markdown(made)
    assert "| acme::Twice | 1 | 1 of 2 | its own body only | types 4 | gradient: it jumps |" in page
    assert "## Never drawn\n\n- acme::Twice@3: by" in page
    assert "## Never left out\n\n- acme::Twice@3: mask" in page
    assert made["hash"] in page
    assert "1%20ops%2C%204%20calls%2C%201%20without%20reference-orange" in page
    assert "## Without a reference\n\nCompared with their own bodies only: acme::Twice" in page
    assert made["without_reference"] == ["acme::Twice"]


def test_optional_inputs_that_no_case_leaves_out_are_named(monkeypatch):
    @op("Partial", domain="kit")
    def partial(X, bias=None, mask=None):
        return X + 1.0

    x = np.ones(2, np.float32)
    case = Case(partial, lambda draw: draw(st.sampled_from([call(x, x, x), call(x, x)])))
    monkeypatch.setattr("tenonnx_testing.report.collected", lambda made=None: iter([case]))
    assert never_left_out(seen_here()) == {}, "nothing was compared yet"
    check_case(case, "types")
    assert never_left_out(seen_here()) == {"kit::Partial@1": ["bias"]}


@pytest.mark.parametrize("check", ["onnxruntime", "reference", "expected", "law"])
def test_references_besides_the_body_are_named(check):
    judged = {**CASE, "compared": {"types": 4, check: 1}}
    made = certificate(merged([{"cases": {"a": judged}, "outcomes": {"x": "passed"}}]))
    assert "calls-green" in badge(made)
    assert "alone" not in markdown(made)
    assert made["without_reference"] == []


class Terminal:
    """Stand-in for pytest's terminal reporter that records written lines."""

    def __init__(self):
        self.lines = []

    def write_line(self, line, **_):
        self.lines.append(line)


@pytest.mark.parametrize("keyword", ["", "Once"])
def test_the_summary_names_ops_without_a_reference(monkeypatch, keyword):
    judged = {**CASE, "op": "acme::Judged", "compared": {"types": 4, "expected": 2}}
    uncompared = {**CASE, "op": "acme::Uncompared", "compared": {"types": 0}}
    seen = {"cases": dict(zip("abc", (CASE, judged, uncompared), strict=True)), "outcomes": {}}
    monkeypatch.setattr(pytest_plugin, "_seen", lambda: seen)
    options = {"keyword": keyword}
    config = SimpleNamespace(stash=pytest.Stash(), getoption=lambda name, *_: options.get(name))
    terminal = Terminal()
    pytest_plugin.pytest_terminal_summary(terminal, config)
    reported = [line for line in terminal.lines if "no reference" in line]
    # a selection of tests may leave out the comparing ones
    expected = "no reference, compared with their own bodies only: acme::Twice (give their cases a reference=)"
    assert reported == ([] if keyword else [f"tenonnx conformance: {expected}"])


def test_all_reasons_of_a_check_are_listed():
    others = [{**CASE, "gaps": {"types": [reason]}} for reason in ("they are odd", "it jumps", "it jumps")]
    made = certificate(merged([{"cases": dict(zip("abc", others, strict=True)), "outcomes": {"x": "passed"}}]))
    assert "| types: it jumps; types: they are odd |" in markdown(made)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_writes_it_whether_or_not_it_is_spread_over_processes(tmp_path, processes):
    (tmp_path / "test_acme.py").write_text(
        'from tenonnx_testing import conformance\ntest = conformance("tenonnx-acme")\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-n", processes, "--tenonnx-examples=2"]
    run = subprocess.run(
        [*command, "--tenonnx-report", "made.json", "test_acme.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "no reference" not in run.stdout
    assert "made.json says so, for a README: ![tenonnx conformance]" in run.stdout
    made = json.loads((tmp_path / "made.json").read_text())
    assert made["packages"] == ["tenonnx-acme 0.1.0"]
    assert made["comparisons"]["export"] > 0
    assert {row["op"] for row in made["ops"]} == {"com.acme::Squareplus"}
    assert (tmp_path / "made.md").read_text().startswith("# Conformance")
