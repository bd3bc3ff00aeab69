"""Export with the options of ``tenonnx convert``, with progress, to a file for download."""

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

from tenonnx import ConvertConfig, Graph, InvalidCall, NotRepresentable, VerificationFailed, load, verify
from tenonnx.tools import STEPS, Change, Conversion, ending_within, given_config, options_of, plan, step_options
from tenonnx_cli.tools import (
    convert,
    has_passed,
    read_feeds,
    said_of_inputs,
    said_verdict,
    summarize,
    transforms_given,
)
from tenonnx_serve.form import READING, arguments, command_named, written_formats
from tenonnx_serve.tasks import Tell
from tenonnx_serve.tasks.failures import described
from tenonnx_serve.tasks.keys import keyed
from tenonnx_serve.tasks.reading import read, size

#: Maximum number of nodes listed for one outcome.
_NAMED = 200

#: Descriptions of the steps of a conversion.
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
    """Convert a model with the options of the form, by command name, and verify the result.

    Lists all nodes that the target cannot express, and all outputs that differ.
    """
    convert_arguments = arguments("convert", options.get("convert") or {})
    quantizing = None if options.get("quantize") is None else arguments("quantize", options["quantize"])
    output = Path(folder) / _named(name, options)
    argv = [source, f"--output={output}", *convert_arguments]
    with click.Context(convert) as outer, convert.make_context("convert", argv, parent=outer) as context:
        asked_of = (*options_of(ConvertConfig), *step_options())
        given_options = {each: context.params[each] for each in asked_of}
        config: ConvertConfig = given_config(ConvertConfig, None, {"transforms": transforms_given(), **given_options})
        chosen = {argument: context.params[parameter] for parameter, argument in READING.items()}
        given = {**(reading or {}), **{name: value for name, value in chosen.items() if value is not None}}
        tell(step=_STEPS["read"])
        loaded = read(source, given, config.seed)
        config = replace(config, feeds=read_feeds(loaded.graph, (), feeds) or None)
        steps = {step: _with_progress(step, function, tell) for step, function in STEPS.items()}
        conversion = Conversion(loaded.graph, str(output), config, steps, verifier=loaded.verifier, name=name)
        result: dict[str, Any] = {"command": _command_line(name, output.name, convert_arguments, quantizing, feeds)}
        failed = None
        keys = {label: key for key, label, _ in keyed(loaded.graph)}
        try:
            with contextlib.closing(conversion):
                with ending_within(config.timeout):
                    conversion.run(until="write")
                conversion.run()
        except NotRepresentable as error:
            return {**result, "refused": _refusals(loaded.graph, config, keys, error)}
        except VerificationFailed as error:
            result["error"], failed = described(error), error.verification
    report = conversion.report
    if failed is not None:
        report.verification, report.compared_with = failed, conversion.state.compared_with
    fed = said_of_inputs(config.feeds is not None, config.seed)
    result |= {
        "passed": has_passed(report.verification),
        "verdict": said_verdict(report.verification, report.compared_with, fed),
        "verification": None if report.verification is None else report.verification.to_dict(),
        "from_source": None if report.from_source is None else report.from_source.to_dict(),
        "compared_with": report.compared_with,
        "opsets": report.opsets,
        "ir_version": report.ir_version,
        "notes": [*report.notes, *report.notes_left_out],
        "nodes": _outcomes(report.changes, keys),
        "findings": {what: finding.to_dict() for what, finding in report.findings.items()},
    }
    if "error" in result:
        return result | {"passed": False}
    if quantizing is not None:
        tell(step="Quantizing")
        result |= _quantized(output, quantizing, feeds)
        if result["passed"] is not None:
            tell(step="Comparing with the original")
            compared = verify(loaded.graph, load(output), feeds=config.feeds, seed=config.seed, structure=False)
            result["verification"] = compared.to_dict()
    before = size(source, loaded.graph)
    written = [path for path in Path(folder).iterdir() if path.is_file()]
    after = sum(path.stat().st_size for path in written)
    return {**result, "bytes": [before, after], "file": _one_file(output, written)}


def _command_line(
    name: str, output: str, convert_arguments: list[str], quantizing: list[str] | None, feeds: str | None
) -> str:
    """The commands that write the same file: ``convert``, then ``quantize`` if requested."""
    given = [f"--inputs={Path(feeds).name}"] if feeds else []
    lines = [["tenonnx", "convert", name, "-o", output, *convert_arguments, *given]]
    if quantizing is not None:
        lines.append(["tenonnx", "quantize", output, "-o", output, *quantizing, *given])
    return " && ".join(map(shlex.join, lines))


def _named(name: str, options: Mapping[str, Any]) -> str:
    """Name of the output file for a model's name."""
    stem = (
        re.sub(r"[^\w.-]", "-", Path(name.rpartition(":")[2] if ".py:" in name else name).stem).strip(".-") or "model"
    )
    convert_options = options.get("convert") or {}
    opset, target = "".join(map(str, convert_options.get("--opset") or ())), str(convert_options.get("--target") or "")
    end = f"-opset{opset}" if opset.isdigit() else f"-{target}" if target.replace("-", "").isalnum() else "-converted"
    suffix = _suffix(options)
    return f"{stem[:100]}{end if suffix == '.onnx' else ''}{suffix}"


def _suffix(options: Mapping[str, Any]) -> str:
    """Suffix of the requested format. Raises ``InvalidCall`` if it is unknown or cannot be quantized."""
    suffix = options.get("format") or ".onnx"
    if suffix not in written_formats():
        raise InvalidCall("unknown output format", given=str(suffix)[:80], available=", ".join(written_formats()))
    if suffix != ".onnx" and options.get("quantize") is not None:
        raise InvalidCall(
            "only ONNX files are quantized", given=suffix, do="export ONNX, and convert the quantized model"
        )
    return str(suffix)


def _with_progress(step: str, function: Any, tell: Tell) -> Any:
    def run(state: Any) -> Any:
        if step not in ("read", "hooks", "as_functions", "functions"):
            tell(step=_STEPS.get(step, step))
        return function(state)

    return run


def _refusals(graph: Graph, config: ConvertConfig, keys: Mapping[str, str], error: NotRepresentable) -> dict[str, Any]:
    """The obstacles, grouped by equal nodes, with the nodes' keys in the drawing."""
    _, changes, _ = plan(graph, config)
    groups: dict[tuple[str, str, str], list[list[str]]] = {}
    for change in changes:
        if change.action == "refused":
            place = [change.node, keys.get(change.node, "")]
            groups.setdefault((change.op, change.reason, change.do), []).append(place)
    rows = [{"op": op, "reason": why, "do": do, "nodes": nodes} for (op, why, do), nodes in groups.items()]
    return {"error": described(error), "blockers": rows}


def _outcomes(changes: Sequence[Change], keys: Mapping[str, str]) -> dict[str, Any]:
    """Number of kept nodes, and grouped outcomes of the others."""
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


def _quantized(output: Path, convert_arguments: list[str], feeds: str | None) -> dict[str, Any]:
    """Quantize the file in place; returns the verdict and the report of ``tenonnx quantize``. Raises its errors."""
    command = command_named("quantize")
    assert command is not None  # it is installed, as the page offers its options
    printed = io.StringIO()
    given = [f"--inputs={feeds}"] if feeds else []
    with contextlib.redirect_stdout(printed):
        command.main([str(output), f"--output={output}", "--json", *convert_arguments, *given], standalone_mode=False)
    found = json.loads(printed.getvalue())
    shown = ("outputs", "sqnr", "reached", "quantized", "unquantized", "floats")
    return {
        "passed": True if found["outputs"] else None,
        "verdict": found["verdict"],
        "quantized": {name: found[name] for name in shown},
    }


def _one_file(output: Path, written: Sequence[Path]) -> str:
    """File for download: the model, or an archive with its data files."""
    if len(written) == 1:
        return output.name
    archive = output.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        for path in written:
            file.write(path, path.name)
    for path in written:
        path.unlink()
    return archive.name
