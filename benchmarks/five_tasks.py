"""Comparison of five tools on five tasks of the how-to pages: ``python benchmarks/five_tasks.py``.

Prints the tables of ``docs/why/five-tasks.md``. ``uv`` installs the other tools into a temporary environment. Times are
processor times of whole processes, the median of rounds in which the tools alternate, as multiples of tenonnx's time.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from measure import table

EXAMPLES = Path(__file__).parents[1] / "examples"

#: The tools, and the requirements of polygraphy for these tasks, without TensorRT, which needs a GPU.
RIVALS = ("onnxslim", "onnxsim", "polygraphy", "onnx-graphsurgeon", "colored", "onnxruntime", "onnx", "numpy")


@dataclass(frozen=True)
class Task:
    """A task: commands of each tool, a function that describes the result, and reasons why other tools cannot do it."""

    title: str
    commands: Mapping[str, tuple[str, ...]]
    result: Callable[[Outcome], str]
    cannot: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Result of a tool's commands: last exit code, printed text, and written file."""

    code: int
    text: str
    file: Path

    @property
    def lines(self) -> int:
        return sum(bool(line.strip()) for line in self.text.splitlines())

    def refusal(self) -> str:
        """The line with the reason, without the location in the tool's sources."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        line = next((line for line in lines if re.match(r"\[!\]|\w*(Error|error)\b", line)), lines[-1])
        return "no: " + re.sub(r"/\S+:\d+: |^\[!\] ", "", line)


def outputs(path: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.asarray(value, np.float64) for value in session.run(None, dict(feeds))]


def error(path: Path, original: Path, feeds: Mapping[str, np.ndarray]) -> float:
    """The largest relative error of an output."""
    pairs = zip(outputs(path, feeds), outputs(original, feeds), strict=True)
    return max(float(np.linalg.norm(given - wanted) / np.linalg.norm(wanted)) for given, wanted in pairs)


def same(path: Path, original: str, feeds: Mapping[str, np.ndarray]) -> str:
    found = error(path, EXAMPLES / original, feeds)
    return "outputs as before" if found < 1e-5 else f"outputs differ by {found:.1%}"


def lowered(outcome: Outcome) -> str:
    (version,) = (opset.version for opset in onnx.load(outcome.file).opset_import if not opset.domain)
    feeds = {"pixels": np.load(EXAMPLES / "digits/samples.npz")["pixels"]}
    return f"{'' if version == 12 else 'no: writes '}opset {version}, {same(outcome.file, 'digits/digits.onnx', feeds)}"


def simplified(outcome: Outcome) -> str:
    feeds = {"input_ids": np.arange(15).reshape(3, 5), "attention_mask": np.ones((3, 5), np.int64)}
    nodes = len(onnx.load(outcome.file).graph.node)
    return f"{nodes} nodes, {same(outcome.file, 'exports/bert-script.onnx', feeds)}"


def quantized(outcome: Outcome) -> str:
    feeds = dict(np.load(EXAMPLES / "quantized/bert.npz"))
    found = error(outcome.file, EXAMPLES / "quantized/bert.onnx", feeds)
    return f"{outcome.file.stat().st_size / 1024:.1f} KiB, error {found:.1%}"


def compared(outcome: Outcome) -> str:
    if outcome.code and "differ" not in outcome.text.lower():
        return outcome.refusal()
    if outcome.code:
        first = "first node that diverges" if "first node that diverges" in outcome.text else "outputs that differ"
        return f"names the {first}; exit code {outcome.code}"
    return "no: counts ops and bytes, compares no numbers"


def planned(outcome: Outcome) -> str:
    if outcome.code:
        return outcome.refusal()
    ops = ("RotaryEmbedding", "SkipSimplifiedLayerNormalization", "Gelu", "GroupQueryAttention", "FusedMatMul")
    named = sum(op in outcome.text for op in ops)
    runtimes = [name for name in ("tensorrt-10", "NNAPI", "CoreML") if name in outcome.text]
    return f"names {named} of {len(ops)} vendor ops, for {' and '.join(runtimes)}"


NO_OPTION = "no: has no command or option for it"
TASKS = (
    Task(
        "Lower the opset of examples/digits/digits.onnx to 12",
        {
            "tenonnx": ("tenonnx convert examples/digits/digits.onnx -o out.onnx --opset 12",),
            "tenonnx, --no-verify": ("tenonnx convert examples/digits/digits.onnx -o out.onnx --opset 12 --no-verify",),
            "onnxsim": ("onnxsim examples/digits/digits.onnx out.onnx --target-opset 12",),
            "polygraphy": ("polygraphy convert examples/digits/digits.onnx -o out.onnx --opset 12",),
            "onnxruntime": (
                "python -m onnxruntime.tools.update_onnx_opset --opset 12 examples/digits/digits.onnx out.onnx",
            ),
        },
        lowered,
        {"onnxslim": NO_OPTION},
    ),
    Task(
        "Simplify examples/exports/bert-script.onnx, of 267 nodes",
        {
            "tenonnx": ("tenonnx convert examples/exports/bert-script.onnx -o out.onnx --simplify",),
            "tenonnx, --no-verify": (
                "tenonnx convert examples/exports/bert-script.onnx -o out.onnx --simplify --no-verify",
            ),
            "onnxslim": ("onnxslim examples/exports/bert-script.onnx out.onnx",),
            "onnxsim": ("onnxsim examples/exports/bert-script.onnx out.onnx",),
            "polygraphy": (
                "polygraphy surgeon sanitize examples/exports/bert-script.onnx --fold-constants --cleanup -o out.onnx",
            ),
            "onnxruntime": (
                "python -m onnxruntime.tools.optimize_onnx_model --opt_level basic "
                "examples/exports/bert-script.onnx out.onnx",
            ),
        },
        simplified,
    ),
    Task(
        "Quantize examples/quantized/bert.onnx, of 45.0 KiB, to 8 bits, dynamically",
        {
            "tenonnx": (
                "tenonnx quantize examples/quantized/bert.onnx -o out.onnx --mode dynamic "
                "--inputs examples/quantized/bert.npz",
            ),
            "onnxsim": ("onnxsim examples/quantized/bert.onnx out.onnx --dynamic-quantize",),
            "onnxruntime": (
                "python -c 'from onnxruntime.quantization import quantize_dynamic; "
                'quantize_dynamic("examples/quantized/bert.onnx", "out.onnx")\'',
            ),
        },
        quantized,
        {
            "onnxslim": "no: float16 only (`--dtype fp16`)",
            "polygraphy": "no: float16 only (`convert --fp-to-fp16`)",
        },
    ),
    Task(
        "Compare examples/digits/digits.onnx with examples/digits/digits-int8.onnx",
        {
            "tenonnx": ("tenonnx compare examples/digits/digits.onnx examples/digits/digits-int8.onnx",),
            "onnxslim": ("onnxslim --inspect examples/digits/digits.onnx examples/digits/digits-int8.onnx",),
            "polygraphy": (
                "polygraphy run examples/digits/digits.onnx --onnxrt --save-inputs in.json --save-outputs out.json",
                "polygraphy run examples/digits/digits-int8.onnx --onnxrt --load-inputs in.json "
                "--load-outputs out.json",
            ),
        },
        compared,
        {"onnxsim": "no: compares only what it wrote with what it read", "onnxruntime": NO_OPTION},
    ),
    Task(
        "Find the ops of examples/decoder/decoder.onnx that a runtime does not support",
        {
            "tenonnx": ("tenonnx plan examples/decoder/decoder.onnx --target tensorrt-10",),
            "polygraphy": ("polygraphy inspect capability examples/decoder/decoder.onnx",),
            "onnxruntime": (
                "python -m onnxruntime.tools.check_onnx_model_mobile_usability examples/decoder/decoder.onnx",
            ),
        },
        planned,
        {"onnxslim": NO_OPTION, "onnxsim": NO_OPTION},
    ),
)


def run(commands: tuple[str, ...], environment: Mapping[str, str]) -> tuple[float, Outcome]:
    """Run commands in a new folder with the examples; returns processor seconds and outcome. The folder is kept."""
    folder = Path(tempfile.mkdtemp(dir=environment["TMPDIR"]))
    (folder / "examples").symlink_to(EXAMPLES)
    text, code, before = "", 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        done = subprocess.run(
            shlex.split(command),
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text, code = text + done.stdout, done.returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, Outcome(code, text, folder / "out.onnx")


def measure(task: Task, environments: Mapping[str, Mapping[str, str]], rounds: int) -> None:
    """Measure a task and print its table."""
    times: dict[str, list[float]] = {tool: [] for tool in task.commands}
    found: dict[str, Outcome] = {}
    for k in range(rounds + 1):
        for tool, commands in task.commands.items():
            seconds, found[tool] = run(commands, environments["ours" if tool.startswith("tenonnx") else "theirs"])
            times[tool] += [seconds] if k else []  # the first round writes bytecode
    ours = statistics.median(times["tenonnx"])
    rows: list[list[object]] = []
    for tool, outcome in found.items():
        commands = task.commands[tool]
        lost = "out.onnx" in commands[-1] and not outcome.file.exists()
        result = outcome.refusal() if lost else task.result(outcome)
        ratio = math.nan if result.startswith("no:") else float(f"{statistics.median(times[tool]) / ours:.2g}")
        rows.append([tool, len(commands), outcome.lines, ratio, result])
    rows += [[tool, math.nan, math.nan, math.nan, why] for tool, why in task.cannot.items()]
    table(task.title, ["tool", "commands", "lines", "processor time", "result"], rows)
    print(f"\n1 is {ours:.2f} s.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as folder:
        rivals = Path(folder) / "rivals"
        subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(rivals)], check=True)
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", str(rivals), *RIVALS], check=True)
        left_out = ("FORCE_COLOR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
        common = {key: value for key, value in os.environ.items() if key not in left_out}
        common |= {"COLUMNS": "100", "TMPDIR": folder}
        paths = {"ours": Path(sys.executable).parent, "theirs": rivals / "bin"}
        environments = {who: {**common, "PATH": f"{path}:{os.environ['PATH']}"} for who, path in paths.items()}
        listed = subprocess.run(
            ["uv", "pip", "list", "--quiet", "--python", str(rivals)], check=True, capture_output=True, text=True
        )
        versions = [" ".join(line.split()) for line in listed.stdout.splitlines() if line.split()[0] in RIVALS]
        print(", ".join(versions))
        for task in TASKS:
            measure(task, environments, given.rounds)


if __name__ == "__main__":
    main()
