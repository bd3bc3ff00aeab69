"""Public names and signatures of the last release still exist, or a changelog note names the change."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))  # for imports of the tool
SPEC = importlib.util.spec_from_file_location("public_api", ROOT / "tools/public_api.py")
public_api = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(public_api)


def name_of(line):
    return line.split("(")[0]


def untold(before, now, notes):
    """Names of removed lines that no note mentions."""
    removed = sorted({name_of(line) for line in set(before) - set(now)})
    return [name for name in removed if name.removeprefix("tenonnx.") not in notes]


def test_public_names_still_exist_or_a_note_mentions_them():
    before = public_api.FILE.read_text("utf-8").splitlines()
    assert len(before) > 300
    notes = "".join(file.read_text("utf-8") for file in (ROOT / "changes").glob("*.md"))
    missing = untold(before, public_api.lines(), notes)
    assert not missing, f"changes/NAME.changed.md or .removed.md must tell of {', '.join(missing)}"


def test_a_changed_signature_is_found():
    before = ["tenonnx.load(source)", "tenonnx.Graph", "tenonnx.Graph.run(self, feeds)"]
    now = ["tenonnx.load(source, *, rules=)", "tenonnx.Graph", "tenonnx.new"]
    assert untold(before, now, "") == ["tenonnx.Graph.run", "tenonnx.load"]
    assert untold(before, now, "`Graph.run` went") == ["tenonnx.load"]


def test_lines_show_the_parameters_of_a_name():
    result = public_api.lines()
    assert any(line.startswith("tenonnx.verify(graph, other=, *, feeds=") for line in result)
    assert any(line.startswith("tenonnx.Graph.run(self, feeds") for line in result)
    assert "tenonnx.ConversionPlan(target, changes, ir_version)" in result


def test_only_our_own_names_are_listed():
    """They include attributes set by a constructor, but not members of ``int``, ``tuple`` and Python's exceptions."""
    result = {name_of(line) for line in public_api.lines()}
    assert {"tenonnx.Graph.nodes", "tenonnx.DType.bits", "tenonnx_training.History.losses"} <= result
    assert not {"tenonnx.DType.to_bytes", "tenonnx.ConversionPlan.count", "tenonnx.TenonnxError.add_note"} & result


def test_a_key_of_json_is_a_name():
    before = public_api.lines()
    key = "tenonnx check --json: problems[].found_by"
    assert key in before
    assert untold(before, [line for line in before if line != key], "") == [key]
