"""An export: what ``tenonnx convert`` does with these options, told as it goes on, with the file to download."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tenonnx import ConvertConfig, Graph, NotRepresentable, VerificationFailed
from tenonnx.tools import STEPS, Change, Conversion, ending_within, options_of, plan
from tenonnx_cli.tools import convert, read_feeds, summarize, transforms_given
from tenonnx_serve.form import arguments, command_named
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.failures import described
from tenonnx_serve.tasks.keys import keyed
from tenonnx_serve.tasks.reading import read, size

#: Nodes that are named of one fate.
_NAMED = 200

#: The steps of a conversion, in words.
_STEPS = {
    "read": "Reading",
    "dims": "Setting dims",
    "functions": "Functions",
    "retarget": "Converting nodes",
    "as_functions": "Functions of packages",
    "tidy": "Types",
    "message": "Making the file",
    "hooks": "Hooks",
    "verify": "Comparing with the original",
    "write": "Writing",
}


def export(
    tell: Tell,
    source: str,
    name: str,
    folder: str,
    options: Mapping[str, Any],
    reading: Mapping[str, Any] | None = None,
    feeds: str | None = None,
) -> dict[str, Any]:
    """Convert a model with the options of the form, by command, and compare it.

    What has no form in the target is told with all its nodes, and numbers that differ with all outputs.
    """
    asked = arguments("convert", options.get("convert") or {})
    output = Path(folder) / _named(name, options)
    argv = [source, f"--output={output}", *asked]
    with click.Context(convert) as outer, convert.make_context("convert", argv, parent=outer) as context:
        config = ConvertConfig(
            transforms=transforms_given(), **{each: context.params[each] for each in options_of(ConvertConfig)}
        )
        chosen = {each: context.params[each] for each in ("task", "input_names", "output_names")}
        given = {**(reading or {}), **{each: value for each, value in chosen.items() if value is not None}}
        tell(step=_STEPS["read"])
        made = read(source, given, config.seed)
        config = replace(config, feeds=read_feeds(made.graph, (), feeds) or None)
        steps = {step: _told(step, function, tell) for step, function in STEPS.items()}
        conversion = Conversion(made.graph, str(output), config, steps, verifier=made.verifier, name=name)
        result: dict[str, Any] = {"command": shlex.join(["tenonnx", "convert", name, "-o", output.name, *asked])}
        keys = {label: key for key, label, _ in keyed(made.graph)}
        try:
            with ending_within(config.timeout):
                conversion.run(until="write")
            conversion.run()
        except NotRepresentable as error:
            return {**result, "refused": _refusals(made.graph, config, keys, error)}
        except VerificationFailed as error:
            result["error"] = described(error)
    report = conversion.report
    result |= {
        "passed": None if report.verification is None else report.verification.equal,
        "verification": None if report.verification is None else report.verification.to_json(),
        "from_source": None if report.from_source is None else report.from_source.to_json(),
        "compared_with": report.compared_with,
        "opsets": report.opsets,
        "ir_version": report.ir_version,
        "notes": [*report.notes, *report.notes_left_out],
        "nodes": _fates(report.changes, keys),
        "findings": {what: finding.to_json() for what, finding in report.findings.items()},
    }
    if "error" in result:
        return result | {"passed": False}
    if options.get("quantize"):
        tell(step="Quantizing")
        result["quantized"] = _quantized(output, arguments("quantize", options["quantize"]), feeds)
    before = size(source, made.graph)
    written = [path for path in Path(folder).iterdir() if path.is_file()]
    after = sum(path.stat().st_size for path in written)
    return {**result, "bytes": [before, after], "file": _one_file(output, written)}


def _named(name: str, options: Mapping[str, Any]) -> str:
    """The name of the file that is made of a model of that name."""
    stem = (
        re.sub(r"[^\w.-]", "-", Path(name.rpartition(":")[2] if ".py:" in name else name).stem).strip(".-") or "model"
    )
    asked = options.get("convert") or {}
    opset, target = "".join(map(str, asked.get("--opset") or ())), str(asked.get("--target") or "")
    end = f"-opset{opset}" if opset.isdigit() else f"-{target}" if target.replace("-", "").isalnum() else "-converted"
    return f"{stem[:100]}{end}.onnx"


def _told(step: str, function: Any, tell: Tell) -> Any:
    def run(graph: Any, conversion: Conversion) -> Any:
        if step not in ("read", "hooks", "as_functions", "functions"):
            tell(step=_STEPS.get(step, step))
        return function(graph, conversion)

    return run


def _refusals(graph: Graph, config: ConvertConfig, keys: Mapping[str, str], error: NotRepresentable) -> dict[str, Any]:
    """All that stands in the way, alike nodes together, each with its key in the drawing."""
    _, changes, _ = plan(graph, config)
    groups: dict[tuple[str, str, str], list[list[str]]] = {}
    for change in changes:
        if change.action == "refused":
            place = [change.node, keys.get(change.node, "")]
            groups.setdefault((change.op, change.reason, change.do), []).append(place)
    rows = [{"op": op, "reason": why, "do": do, "nodes": nodes} for (op, why, do), nodes in groups.items()]
    return {"error": described(error), "blockers": rows}


def _fates(changes: Sequence[Change], keys: Mapping[str, str]) -> dict[str, Any]:
    """How many nodes were kept, and what became of the others, alike ones together."""
    groups: dict[tuple[str, str, str, str], list[list[str]]] = {}
    for change in changes:
        if change.action != "kept":
            into = ", ".join(name if count == 1 else f"{count} {name}" for name, count in change.into.items())
            place = [change.node, keys.get(change.node, "")]
            groups.setdefault((change.op, change.action, into, change.reason), []).append(place)
    kept = sum(change.action == "kept" for change in changes)
    return {
        "kept": kept,
        "rewritten": len(changes) - kept,
        "actions": summarize(changes)["actions"],
        "groups": [
            {"op": op, "action": action, "into": into, "reason": why, "count": len(nodes), "nodes": nodes[:_NAMED]}
            for (op, action, into, why), nodes in groups.items()
        ],
    }


def _quantized(output: Path, asked: list[str], feeds: str | None) -> Any:
    """What ``tenonnx quantize`` says of the file, which it replaces."""
    command = command_named("quantize")
    assert command is not None  # its options were asked for
    printed = io.StringIO()
    given = [f"--inputs={feeds}"] if feeds else []
    with contextlib.redirect_stdout(printed):
        command.main([str(output), f"--output={output}", "--json", *asked, *given], standalone_mode=False)
    found = json.loads(printed.getvalue())
    return {name: found[name] for name in ("outputs", "reached", "quantised", "kept", "floats") if name in found}


def _one_file(output: Path, written: Sequence[Path]) -> str:
    """What is downloaded: the file, or with the data beside it an archive of all."""
    if len(written) == 1:
        return output.name
    archive = output.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        for path in written:
            file.write(path, path.name)
    for path in written:
        path.unlink()
    return archive.name
