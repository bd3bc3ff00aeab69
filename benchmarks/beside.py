"""Comparison of tenonnx with other tools: ``python benchmarks/beside.py`` measures, and writes ``docs/why/beside.md``
with its charts.

Each rival comes from PyPI into a temporary environment of its own, which ``uv`` makes. Models are those of the onnx
wheel and of ``examples``; estimators are those of scikit-learn, modules those of torchvision, timm and transformers
with random weights. The files of all tools are judged in the same way: ``onnx.checker``, then onnxruntime on the same
inputs, compared with the original. tenonnx itself needs scikit-learn and PyTorch here; ``--python TOOL=PATH`` names an
interpreter with the packages of a tool. ``--tasks`` repeats some tasks and keeps the rest of the page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure import geometric

import tenonnx as tx
from tenonnx.tools import feasible_feeds

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

from charts import bars

WORKER = Path(__file__).with_name("beside_worker.py")
PAGE = ROOT / "docs" / "why" / "beside.md"
PICTURES = ROOT / "docs" / "pictures"

#: For each task its rivals, with the requirements of each.
RIVALS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "convert": {"onnx.version_converter": ("onnx",)},
    "simplify": {"onnxsim": ("onnxsim", "onnxruntime"), "onnxslim": ("onnxslim", "onnxruntime")},
    "quantize": {"onnxruntime.quantization": ("onnxruntime", "onnx", "sympy")},
    "estimators": {"skl2onnx": ("skl2onnx", "scikit-learn", "onnxruntime")},
    "modules": dict.fromkeys(
        ("torch.onnx.export", "torch.onnx.export(dynamo=False)"),
        ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnxruntime"),
    ),
}

#: For each task the modules of tenonnx-compat that replace its rivals.
SHIMS: Mapping[str, Sequence[str]] = {
    "convert": ("tenonnx_compat.version_converter",),
    "simplify": ("tenonnx_compat.onnxsim", "tenonnx_compat.onnxslim"),
    "quantize": ("tenonnx_compat.quantization",),
    "estimators": ("tenonnx_compat.skl2onnx",),
    "modules": ("tenonnx_compat.torch_onnx",),
}

#: Tasks for which the worker itself makes the jobs and judges the results.
FOUND_THERE = ("estimators", "modules")

#: Tolerated relative errors: for float models, for quantized models (one step), and for quantizing a model.
TOLERANCE, STEP, QUANTIZED = 1e-3, 2e-2, 0.5

Job = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A file with inputs, the outputs of onnxruntime for them, and whether it passes ``onnx.checker``."""

    name: str
    path: Path
    opset: int
    checked: bool
    feeds: Mapping[str, np.ndarray]
    outputs: Sequence[Any]


@dataclass
class Results:
    """Results of a tool: seconds and figures of the correct jobs, and reasons for the others."""

    versions: str
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, tuple[float, ...]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    peak: float = 0.0

    @property
    def tried(self) -> set[str]:
        return {*self.seconds, *self.wrong, *self.refused}

    def among(self, names: set[str]) -> Results:
        """Only the results of these jobs, since the time limit may end tools after different numbers of jobs."""
        parts = (self.seconds, self.figures, self.wrong, self.refused)
        kept = [{name: value for name, value in part.items() if name in names} for part in parts]
        return Results(self.versions, *kept, peak=self.peak)  # type: ignore[arg-type]


def models() -> Iterator[Model]:
    """The models that onnxruntime can run, on sample inputs next to the file or else on random ones."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    paths = [*sorted(light.glob("*.onnx")), *sorted((ROOT / "examples").rglob("*.onnx"))]
    for path in paths:
        try:
            graph = tx.load(path)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            names = [each.name for each in session.get_outputs()]

            def run(feeds: Mapping[str, Any], session: Any = session, names: list[str] = names) -> dict[str, Any]:
                return dict(zip(names, session.run(None, dict(feeds)), strict=True))

            if saved := next(filter(None, (samples(graph, path) for path in sample_files(path))), None):
                feeds, outputs = saved, run(saved)
            else:
                feeds, outputs, _ = feasible_feeds(graph, run, 0, {})
        except Exception as error:
            print(f"left out: {path.name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        name = path.stem if path.parent == light else path.relative_to(ROOT / "examples").with_suffix("").as_posix()
        yield Model(name, path, graph.opsets.get("ai.onnx", 0), passes(path), feeds, list(outputs.values()))


def passes(path: Path) -> bool:
    """Whether a file passes ``onnx.checker``; files with onnxruntime's own ops in the domain of ONNX do not."""
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError:
        return False
    return True


def sample_files(path: Path) -> tuple[Path, Path]:
    return path.with_suffix(".npz"), path.with_name("samples.npz")


def samples(graph: tx.Graph, path: Path) -> dict[str, np.ndarray] | None:
    """The inputs of a graph from the sample file; None if one is missing."""
    if not path.exists():
        return None
    with np.load(path) as saved:
        names = [each.name for each in graph.inputs]
        return {name: saved[name] for name in names} if set(names) <= set(saved.files) else None


def difference(path: str, model: Model) -> float:
    """The largest relative error of an output. Raises the exceptions of the checker and of onnxruntime."""
    if model.checked:
        onnx.checker.check_model(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pairs = zip(session.run(None, dict(model.feeds)), model.outputs, strict=True)
    return max((relative_error(given, wanted) for given, wanted in pairs), default=0.0)


def relative_error(given: Any, wanted: Any) -> float:
    """Norm of the difference of two outputs divided by the norm of the second. Of ZipMap outputs, the values count."""
    if isinstance(wanted, list):  # maps of ZipMap
        given, wanted = ([list(each.values()) for each in rows] for rows in (given, wanted))
    first, second = np.asarray(given), np.asarray(wanted)
    if first.shape != second.shape:
        return float("inf")
    if second.dtype.kind not in "fiub":
        return 0.0 if (first == second).all() else float("inf")
    first, second = (np.nan_to_num(each.astype(np.float64), posinf=1e30, neginf=-1e30) for each in (first, second))
    return float(np.linalg.norm(first - second) / max(np.linalg.norm(second), 1e-12))


def nodes(path: str) -> int:
    """The number of nodes without Constant nodes, which some tools write as initializers."""

    def count(graph: Any) -> int:
        inner = (attribute for node in graph.node for attribute in node.attribute)
        subgraphs = sum(count(each.g) for each in inner if each.type == onnx.AttributeProto.GRAPH)
        return subgraphs + sum(node.op_type != "Constant" for node in graph.node)

    return count(onnx.load(path, load_external_data=False).graph)


def judge(task: str, job: Job, model: Model) -> tuple[str, tuple[float, ...]]:
    """Judge the file of a job; returns the reason why it is wrong, or an empty string, and its figures."""
    try:
        found = difference(job["output"], model)
        written = onnx.load(job["output"], load_external_data=False)
    except Exception as error:
        return str(error).strip().splitlines()[0][:200], ()
    opset = next((each.version for each in written.opset_import if each.domain in ("", "ai.onnx")), 0)
    if task == "convert" and opset != job["opset"]:
        return f"opset {opset}", ()
    tolerance = QUANTIZED if task == "quantize" else STEP if quantized(model) else TOLERANCE
    if found > tolerance:
        return f"outputs differ by {found:.2g}", ()
    sizes = [Path(path).stat().st_size for path in (job["output"], job["source"])]
    return "", (nodes(job["output"]), sizes[0] / sizes[1], found)


def work(python: str, task: str, tool: str, given: Any, rounds: int, seconds: float) -> tuple[list[Job], float]:
    """Run jobs in an environment until the time is up; returns their results and the peak memory in MiB.

    A job that ends the process counts as an error, and a new process continues with the next one.
    """
    outcomes: list[Job] = []
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [python, str(WORKER), task, tool, str(rounds)]
    until = time.monotonic() + seconds
    while True:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                printed, said = process.communicate(json.dumps(given), timeout=max(1.0, until - time.monotonic()))
                late = False
            except subprocess.TimeoutExpired:
                process.kill()
                printed, said = process.communicate()
                late = True
        results = [json.loads(line) for line in printed.splitlines() if line.endswith("}")]
        outcomes += [each for each in results if "begun" not in each and "id" in each]
        if results and "peak" in results[-1]:
            return outcomes, results[-1]["peak"] / 1024
        if late or task in FOUND_THERE or not results:
            print(f"{tool}: {'the time is up' if late else said[-1000:]}", file=sys.stderr)
            return outcomes, math.nan
        outcomes.append({"id": results[-1]["id"], "error": f"the process ended with code {process.returncode}"})
        done = {each["id"] for each in outcomes}
        given = [job for job in given if job["id"] not in done]
        if not given:
            return outcomes, math.nan


def measured(
    task: str,
    tool: str,
    python: str,
    found: Sequence[Model],
    rounds: int,
    opsets: Sequence[int],
    seconds: float,
    folder: Path,
) -> Results:
    """Measure a tool."""
    place = folder / task / tool
    place.mkdir(parents=True)
    results = Results(versions_of(python, tool, task))
    if task in FOUND_THERE:
        outcomes, results.peak = work(python, task, tool, str(place), rounds, seconds)
        for each in outcomes:
            if "error" in each:
                results.refused[each["id"]] = each["error"]
            elif each["right"]:
                results.seconds[each["id"]], results.figures[each["id"]] = each["seconds"], ()
            else:
                results.wrong[each["id"]] = each["why"]
        return results
    jobs = {job["id"]: (job, model) for model in found for job in jobs_of(task, model, place, opsets)}
    outcomes, results.peak = work(python, task, tool, [job for job, _ in jobs.values()], rounds, seconds)
    for each in outcomes:
        name = each["id"]
        if "error" in each:
            results.refused[name] = each["error"]
            continue
        why, figures = judge(task, *jobs[name])
        if why:
            results.wrong[name] = why
        else:
            results.seconds[name], results.figures[name] = each["seconds"], figures
    return results


def quantized(model: Model) -> bool:
    return any("uantize" in node.op_type or "NBits" in node.op_type for node in onnx.load(model.path).graph.node)


def jobs_of(task: str, model: Model, place: Path, opsets: Sequence[int]) -> Iterator[Job]:
    name = model.name.replace("/", "-")
    if task == "convert":
        for opset in opsets:
            if opset != model.opset:
                output = str(place / f"{name}-{opset}.onnx")
                yield {"id": f"{model.name} to {opset}", "source": str(model.path), "output": output, "opset": opset}
    elif not model.name.startswith("light_") and (task != "quantize" or not quantized(model)):
        yield {"id": model.name, "source": str(model.path), "output": str(place / f"{name}.onnx")}


def environment(packages: Sequence[str], folder: Path) -> str:
    """Make an environment with packages; returns the path of its interpreter."""
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *packages], check=True)
    return python


def versions_of(python: str, tool: str, task: str) -> str:
    """Name and version of a tool's package."""
    if tool not in RIVALS[task]:
        return f"tenonnx {version('tenonnx-core')}"
    package = RIVALS[task][tool][0]
    code = f"from importlib.metadata import version; print(version({package!r}))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return f"{package} {found}"


TITLES = {
    "convert": ("Opset conversion", "Every model to each of some opsets, but for its own."),
    "simplify": ("Simplification", "The models of `examples`. *Nodes* are those left, without Constant nodes."),
    "quantize": (
        "Dynamic quantization",
        "The float models of `examples`, with weights as 8-bit integers. Right is an error below 50 %. *Size* is that "
        "of the original as 1, *error* the relative error; both are geometric means.",
    ),
    "estimators": (
        "Estimators of scikit-learn",
        "Every estimator that can be fitted with its defaults on the rows of iris, compared on these rows.",
    ),
    "modules": (
        "Modules of PyTorch",
        "Architectures of torchvision, timm and transformers with random weights, compared on random inputs.",
    ),
}


def section(task: str, results: Mapping[str, Results]) -> list[str]:
    """The table of a task, and the jobs that tenonnx failed."""
    title, about = TITLES[task]
    tried = set.intersection(*(each.tried for each in results.values()))
    results = {tool: each.among(tried) for tool, each in results.items()}
    both = set.intersection(*(set(each.seconds) for each in results.values()))
    if any(math.isnan(each.peak) for each in results.values()):
        about += (
            f" The time of this run ended before all were tried: these are the {len(tried)} that every tool came to."
        )
    columns = ["tool", "right", "wrong", "refused", "peak memory", "time"]
    columns += {"simplify": ["nodes"], "quantize": ["size", "error"]}.get(task, [])
    what = "Time" if task in ("convert", *FOUND_THERE) else "Time and the columns after it"
    when = f"Measured on {datetime.now(UTC).date()}."
    lines = [f"## {title}", "", f"{about} {what}: the {len(both)} that all tools get right. {when}", ""]
    lines.append(f"![{title}: right results and time of each tool](../pictures/beside-{task}.svg)")
    lines += ["", f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    ours, drawn = results["tenonnx"], []
    for tool, found in results.items():
        ratio = geometric([found.seconds[name] / max(ours.seconds[name], 1e-6) for name in both])
        drawn.append((tool, len(found.seconds), f"{len(found.seconds)} of {len(tried)}, time {ratio:.2g}"))
        row = [f"{tool} ({found.versions})" if tool != "tenonnx" else found.versions]
        row += [f"{len(found.seconds)} of {len(tried)}", str(len(found.wrong)), str(len(found.refused))]
        row += ["-" if math.isnan(found.peak) else f"{found.peak:,.0f} MiB", f"{ratio:.2g}"]
        if task == "simplify":
            row.append(f"{sum(found.figures[name][0] for name in both):,.0f}")
        if task == "quantize":
            row.append(f"{geometric([found.figures[name][1] for name in both]):.2f}")
            row.append(f"{geometric([max(found.figures[name][2], 1e-9) for name in both]):.2g}")
        lines.append(f"| {' | '.join(row)} |")
    (PICTURES / f"beside-{task}.svg").write_text(bars(f"{title}: right results", drawn, left=270), "utf-8")
    for tool, found in results.items():
        lines += reasons(tool, found)
    return [*lines, ""]


def reasons(tool: str, found: Results) -> list[str]:
    """Jobs that a tool failed or refused, by reason."""
    grouped: dict[str, list[str]] = {}
    for kind, messages in (("wrong", found.wrong), ("refused", found.refused)):
        for name, why in messages.items():
            text = re.sub(r"/\S+/", "", " ".join(why.split()))  # without the temporary folders of this run
            grouped.setdefault(f"{kind}: {text[:100]}", []).append(name)
    if not grouped:
        return []
    lines = ["", f"<details><summary>{tool}: wrong and refused</summary>", ""]
    for why, names in sorted(grouped.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        text = why.replace("`", "'")
        lines.append(f"- {shown}: `{text}`")
    return [*lines, "", "</details>"]


def page(tables: Sequence[Sequence[str]], count: int, rounds: int) -> str:
    """The page as Markdown."""
    runtimes = f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}"
    text = f"""# Beside other tools

Written by `python benchmarks/beside.py`, with Python {platform.python_version()} on {os.cpu_count()} cores of
{platform.machine()}. No figure is typed by hand.

The {count} models are those of the onnx wheel (with constant weights) and of `examples`. Every other tool comes from
PyPI, in an environment of its own. Each is called by its Python interface, from reading a file to writing one.

- *right*: the written file passes `onnx.checker` if the original does, runs in onnxruntime, and its outputs are those
  of the original within a relative error of {TOLERANCE:g}, or {STEP:g} for quantized models ({runtimes}).
- *refused*: the tool ends with an error.
- `tenonnx_compat.NAME`: the module of tenonnx-compat with the interface of this tool.
- *time*: processor time as a multiple of that of tenonnx, the geometric mean over files; of each, calls after the first
  count ({rounds}, the median).
- *peak memory*: of the process that does all files, imports included.
"""
    head = [*text.splitlines(), ""]
    return "\n".join([*head, *(line for table in tables for line in table)]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--tasks", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--opsets", type=int, nargs="+", default=[9, 13, 17, 21], help="targets of conversion")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600, help="time for all tools, without their installation")
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=PATH", help="interpreter of a tool")
    given = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    tables = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = {tool: str(Path(path).absolute()) for tool, path in (each.rsplit("=", 1) for each in given.python)}
        labels: dict[Sequence[str], str] = {}
        for task in given.tasks:
            for tool, packages in RIVALS[task].items():
                if tool not in pythons:
                    labels[packages] = labels.get(packages) or environment(packages, folder / f"env-{len(labels)}")
                    pythons[tool] = labels[packages]
        found = list(models())
        until = time.monotonic() + given.seconds
        left = sum(1 + len(SHIMS[task]) + len(RIVALS[task]) for task in given.tasks)
        for task in given.tasks:
            own = pythons.get(f"tenonnx:{task}", sys.executable)
            tools = dict.fromkeys(("tenonnx", *SHIMS[task]), own) | {tool: pythons[tool] for tool in RIVALS[task]}
            results = {}
            for tool, python in tools.items():
                start = time.monotonic()
                share = (until - start) / left
                results[tool] = measured(task, tool, python, found, given.rounds, given.opsets, share, folder)
                left -= 1
                print(f"{task} {tool}: {time.monotonic() - start:.0f} s", file=sys.stderr)
            tables.append(section(task, results))
            print("\n".join(tables[-1]), flush=True)
    text = page(tables, len(found), given.rounds)
    if set(given.tasks) != set(RIVALS) and given.output.exists():
        text = with_sections(given.output.read_text("utf-8"), text)
    given.output.write_text(text, "utf-8")


def with_sections(page: str, new: str) -> str:
    """The page with its sections replaced by those of ``new``; each states the date of its measurement."""
    parts = {part.partition("\n")[0]: part.rstrip() + "\n" for part in page.split("\n## ")[1:]}
    parts |= {part.partition("\n")[0]: part.rstrip() + "\n" for part in new.split("\n## ")[1:]}
    order = [title for title, _ in TITLES.values() if title in parts]
    return "\n## ".join([new.split("\n## ")[0].rstrip() + "\n", *(parts[title] for title in order)])


if __name__ == "__main__":
    main()
