"""The fuzzer of the repository: a short run, and files that once revealed defects."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tenonnx as tx

ROOT = Path(__file__).parent.parent
FILES = ROOT / "tests" / "hostile"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of processor time and memory are Linux's")


def fuzz(folder, *arguments):
    result = folder / "summary.json"
    limits = ["--jobs", "1", "--seconds", "60"]  # generous, so that only mutants that hang exceed it on a slow machine
    command = [sys.executable, str(ROOT / "tools" / "fuzz.py"), *limits, "--json", str(result), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.exists(), done.stderr
    return json.loads(result.read_text("utf-8"))


def test_mutants_only_raise_our_errors_within_the_limits(tmp_path):
    summary = fuzz(tmp_path, "--seed", "0", "--count", "600")
    assert summary["mutants"] == 600
    assert summary["kinds"] == []
    assert summary["steps"]["run"]["ok"] > 100  # the mutants get past the parser
    assert summary["steps"]["load"]["InvalidModel"] > 100


def test_mutants_with_strings_sequences_and_maps_only_raise_our_errors(tmp_path):
    summary = fuzz(tmp_path, "--lists", "--seed", "0", "--count", "200")
    assert summary["mutants"] == 200
    assert summary["kinds"] == []
    assert summary["steps"]["run"]["ok"] > 40


def test_files_that_revealed_defects_pass(tmp_path):
    summary = fuzz(tmp_path, "--files", str(FILES))
    assert summary["mutants"] == len(list(FILES.iterdir())) > 0
    assert summary["kinds"] == []


def with_bytes_for_text(model):
    """Copies of the model, each with invalid UTF-8 bytes in one string field, set or unset."""
    count = len(list(messages(model)))
    for place in range(count):
        for field in list(messages(model))[place].DESCRIPTOR.fields:
            if field.type == field.TYPE_STRING:
                changed = type(model)()
                changed.CopyFrom(model)
                holder = list(messages(changed))[place]
                value = ["qqzzqq"] if field.is_repeated else "qqzzqq"
                holder.MergeFrom(type(holder)(**{field.name: value}))
                yield field.full_name, changed.SerializePartialToString().replace(b"qqzzqq", b"qq\xcc\xffqq")


def messages(message):
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from messages(each)


@pytest.mark.parametrize("name", ["functions", "sparse", "scan"])
def test_invalid_utf_8_is_refused_or_preserved(name, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from fuzzing.handmade import handmade

    refused = 0
    for field, data in with_bytes_for_text(handmade()[name]):
        try:
            graph = tx.load(data)
        except tx.InvalidModel:
            refused += 1
            continue
        try:
            tx.export(graph, io.BytesIO(), opset_version=23, tidy=True)
            graph.save(tmp_path / "m.safetensors")
        except tx.TenonnxError:
            continue
        except Exception as error:
            raise AssertionError(f"{field}: {error!r}") from error
    assert refused > 20


def test_seed_and_number_determine_a_mutant(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from fuzzing.handmade import handmade
    from fuzzing.mutations import mutant

    seeds = list(handmade().values())
    assert [mutant(seeds, 1, n) for n in range(50)] == [mutant(seeds, 1, n) for n in range(50)]
    assert mutant(seeds, 1, 0) != mutant(seeds, 2, 0)


def test_forbidden_actions_are_found(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
import os, subprocess, time
from fuzzing import trial
def attempt(path, seed=0):
    way = path.read_bytes().decode()
    if way == "crash": os.abort()
    if way == "time":
        while True: pass
    if way == "audit": subprocess.run(["true"])
    outcomes = {{}}
    trial._step(outcomes, "load", lambda: 1 / 0)
    return outcomes
trial.attempt = attempt
import fuzz
fuzz.warm_up = lambda models: None
sys.argv = ["fuzz.py", "--files", {str(tmp_path)!r}, "--seconds", "4", "--jobs", "1"]
sys.exit(fuzz.main())
"""
    for name in ("audit", "crash", "error", "time"):
        (tmp_path / f"{name}.onnx").write_text(name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    kinds = " ".join(kind["what"] for kind in json.loads(done.stdout)["kinds"])
    for expected in ("subprocess.Popen", "crash by SIGABRT", "ZeroDivisionError", "!process: time"):
        assert expected in kinds
