"""README examples and tests of other tools, run against tenonnx-compat: passed, failed and refused.

``python benchmarks/own_tests.py --output docs/why/own-tests.md`` downloads the distributions of each tool from PyPI,
makes an environment with the requirements of its examples and tests, runs them with the tool's imports redirected to
tenonnx-compat, and writes the table. ``--python tool=PATH`` names an existing environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("own_tests_worker.py")

#: Packages of this repository for the environment of every tool.
OURS = [
    "core",
    "plugins/standard",
    "plugins/run",
    "plugins/convert",
    "plugins/optimize",
    "plugins/compat",
    "plugins/testing",
    "plugins/targets",
    "plugins/data",
    "contrib_ms",
    "onnx_ml",
    "quantized",
    "plugins/training",
    "plugins/backends/onnxruntime",
    "plugins/frontends/common",
]


@dataclass(frozen=True)
class Tool:
    """A tool: a pattern of its test files, excluded ones or ``only`` these, and code before its README examples.

    ``packages`` are the requirements of its tests, ``ours`` the front end that its functions need. ``wheel`` tells that
    PyPI only has a wheel. Examples with a word of ``elsewhere`` need a program, a model or a device that is not on
    PyPI: they are skipped, with the reason. Examples with a word of ``inside`` use internals. ``after`` is code that
    checks the results after a Python example, and after a command, whose arguments are in ``words``.
    """

    tests: str = ""
    without: Sequence[str] = ()
    only: Sequence[str] = ()
    before: str = ""
    after: str = ""
    packages: Sequence[str] = ()
    ours: str = ""
    wheel: bool = False
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[str] = ()


#: Code that writes a small model with a convolution.
MODEL = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
def write_model(path, shape=(1, 3, 8, 8)):
    weight = numpy_helper.from_array(np.full((4, shape[1], 3, 3), 0.1, np.float32), "w")
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Conv", ["input", "w"], ["c"]), helper.make_node("Relu", ["c"], ["output"])]
    sizes = [shape[0], 4, shape[2] - 2, shape[3] - 2]
    inputs, outputs = [info("input", 1, list(shape))], [info("output", 1, sizes)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
"""

#: Code that compares two models on random inputs in onnxruntime.
SAME = """
def same(first, second):
    import numpy as np, onnx, onnxruntime
    first, second = (onnx.load(m) if isinstance(m, str) else m for m in (first, second))
    one, two = (onnxruntime.InferenceSession(m.SerializeToString()) for m in (first, second))
    generator = np.random.default_rng(0)
    feeds = {i.name: generator.random(i.shape).astype(np.float32) for i in one.get_inputs()}
    for a, b in zip(one.run(None, feeds), two.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
"""

#: Code that compares the input and output models of a simplifier.
SIMPLIFIED = (
    SAME
    + """
found = globals()
if words and len([w for w in words if not w.startswith("-")]) > 1:
    same(words[0], words[1])
for result in ("model_simp", "slimmed_model", "model_opt"):
    if isinstance(found.get(result), onnx.ModelProto) and len(found["model"].graph.input) == 1:
        same(model, found[result])
import os
if words and "--emit-tflite" in words or "tflite_model" in found:
    path = next((w for w in words if w.endswith(".tflite")), "simplified.tflite") if words else "model.tflite"
    assert open(path, "rb").read(8)[4:] == b"TFL3"
"""
)

#: Code that replaces a download of an example by a small model of transformers.
TINY_T5 = """
import os
name = "hf-internal-testing/tiny-random-t5"
if not os.path.exists(name):
    import transformers
    config = transformers.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        decoder_start_token_id=0)
    transformers.T5ForConditionalGeneration(config).save_pretrained(name)
"""

TOOLS: Mapping[str, Tool] = {
    "onnxsim": Tool(
        before=MODEL
        + "import onnxsim\n"
        + 'for filename in "model_pruned.onnx", "input.onnx", "input_onnx_model", "model.onnx": write_model(filename)\n'
        + 'model, my_op_schema = onnx.load(filename), onnx.defs.OpSchema("MyOp", "com.example", 1)\n'
        + "batches = [np.ones((1, 3, 8, 8), np.float32)]\n"
        + TINY_T5,
        after=SIMPLIFIED,
        packages=("onnxruntime", "torch", "onnxscript", "coremltools", "matplotlib", "transformers", "sentencepiece"),
        ours="torch",
        wheel=True,
        elsewhere={
            "emit-mlir": "torch-mlir and onnx-mlir",
            "export_mlir": "torch-mlir",
            "edgetpu": "the compiler of Edge TPUs",
            "quark": "AMD Quark and its NPU",
            "export_diffusion": "a model to download",
            "export_detectron": "detectron2 and a model to download",
            "export_sam2": "SAM 2 and a model to download",
            "export_drivetransformer": "DriveTransformer",
        },
    ),
    "onnxslim": Tool(
        tests="tests/test_*.py",
        without=["amd", "benchmark", "modelzoo", "nvidia", "ultralytics", "onnx_nets", "folder"],
        before=MODEL + 'for filename in ("your_onnx_model", "model.onnx"): write_model(filename)\n',
        after=SIMPLIFIED,
        packages=("onnxruntime", "torch", "onnxscript"),
        ours="torch",
    ),
    "onnx2torch": Tool(
        before=MODEL
        + "import os, torch\ntorch.Tensor.cuda = lambda self: self\n"
        + 'os.makedirs("some/path", exist_ok=True); write_model("model.onnx")\n'
        + 'write_model("some/path/mobile_net_v2.onnx", (1, 2, 224, 224))\n',
        after="""
import onnxruntime
for path, found in ((globals().get("onnx_model_path"), globals().get("torch_model_1")), ("model.onnx", None)):
    found = found if path and found is not None else globals().get("torch_model")
    if found is not None and os.path.exists(path or ""):
        session = onnxruntime.InferenceSession(path)
        array = np.random.default_rng(0).random(session.get_inputs()[0].shape).astype(np.float32)
        expected = session.run(None, {session.get_inputs()[0].name: array})[0]
        np.testing.assert_allclose(found(torch.from_numpy(array)).detach().numpy(), expected, rtol=1e-3, atol=1e-4)
if os.path.exists("model.pt"):
    torch.load("model.pt", weights_only=False)(torch.zeros(1, 3, 8, 8))
""",
        packages=("onnxruntime", "torch"),
        ours="torch",
    ),
    "skl2onnx": Tool(
        tests="tests/test_*.py",
        without=["documentation"],
        after="assert (pred_onx == clr.predict(X_test)).all()\n",
        packages=("onnxruntime", "scikit-learn", "pandas", "sympy"),
        ours="sklearn",
    ),
    "onnxruntime": Tool(packages=("onnxruntime",), wheel=True),
    "onnx": Tool(wheel=True),
    "tf2onnx": Tool(
        tests="tests/test_*.py",
        only=["api", "convert"],
        before="""
import shutil
import tensorflow as tf
class Module(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def serve(self, x):
        return {"y": tf.nn.relu(x) * 2}
module = Module()
tf.saved_model.save(module, "tensorflow-model-path", signatures=module.serve)
with tf.Graph().as_default() as graph:
    a, b = (tf.compat.v1.placeholder(tf.float32, [2], name=f"input{k}") for k in range(2))
    weight = tf.compat.v1.get_variable("w", initializer=tf.ones([2]), use_resource=False)
    tf.identity(a * weight + b, name="output0")
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, "./tensorflow-model-meta-file-path")
        shutil.copy("tensorflow-model-meta-file-path.meta", "tensorflow-model-meta-file-path")
with tf.Graph().as_default() as graph:
    a, b = (tf.compat.v1.placeholder(tf.float32, [2], name=f"input{k}") for k in range(2))
    tf.identity(a + b, name="output0")
    open("tensorflow-model-graphdef-file", "wb").write(graph.as_graph_def().SerializeToString())
converter = tf.lite.TFLiteConverter.from_concrete_functions([module.serve.get_concrete_function()], module)
open("tflite-file", "wb").write(converter.convert())
model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(2)])
function, tflite_path, output_path = module.serve, "tflite-file", None
input_signature = [tf.TensorSpec([None, 4], tf.float32, name="x")]
graph_def = graph.as_graph_def()
""",
        after="""
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
shape = [2] if "--graphdef" in words or "--checkpoint" in words else [1, 4]
feeds = {each.name: np.full(shape, 3, np.float32) for each in session.get_inputs()}
assert (session.run(None, feeds)[0] == 6).all()
""",
        inside=["process_tf_graph"],
        packages=("onnxruntime", "tensorflow", "parameterized", "pyyaml"),
        ours="tensorflow",
    ),
}

#: Texts of failures that count as refused.
REFUSED = ("NotSupported", "tenonnx-compat does not have", "does not support")

#: Texts of failures of tests that lack a program, or a file that no distribution has.
FILES = r"No such file or directory: '/data|\"/data/\S+: No such file|Failed to spawn|tests/models/regression"

#: Texts of failures of tests that use internals of the tool, or functions that register converters in it.
INTERNAL = ("internal of the tool: ", "work on Scope and Operator", "own classes", "work on the graph of tf2onnx")


@dataclass
class Outcomes:
    """Counts of outcomes, and a line per failure and refusal."""

    counts: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: str, message: str) -> None:
        self.counts[outcome] += 1
        if outcome in ("failed", "refused") or message.startswith("needs "):
            first_line = next((line for line in message.strip().splitlines() if line.strip()), "no message")
            self.lines.append(f"{outcome}: {re.sub(r'0x[0-9a-f]+', '0x', first_line)[:140]}\t{name}")

    @property
    def share(self) -> str:
        public = sum(self.counts[name] for name in ("passed", "failed", "refused"))
        return f"{self.counts['passed'] / public:.0%}" if public else "-"


def fetched(tool: str, folder: Path, wheel: bool) -> Path:
    """Download the newest source distribution or wheel of a tool; returns its path."""
    pattern = f"{tool}-*.whl" if wheel else f"{tool}-*.tar.gz"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), tool]
        subprocess.run([*command, *([] if wheel else ["--no-binary", ":all:"])], check=True)
    (archive,) = folder.glob(pattern)
    if not wheel and not (folder / archive.name.removesuffix(".tar.gz")).exists():
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return archive


def readme(archive: Path) -> str:
    """The README of a distribution, from its long description."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            name = next(each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
            return opened.read(name).decode()
    return (archive.with_name(archive.name.removesuffix(".tar.gz")) / "README.md").read_text()


def environment(tool: Tool, folder: Path) -> str:
    """Make an environment with the packages of a tool and ours; returns the path of its interpreter."""
    subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    python = str(folder / "bin" / "python")
    places = [*OURS, *(["plugins/litert", "plugins/extensions"] if tool.ours == "tensorflow" else [])]
    places += [f"plugins/frontends/{tool.ours}"] if tool.ours else []
    editable = [part for place in places for part in ("-e", str(ROOT / place))]
    command = ["uv", "pip", "install", "--quiet", "--python", python, "pytest", "numpy", "onnx", *tool.packages]
    subprocess.run([*command, *editable], check=True)
    return python


def tests(python: str, files: Sequence[Path], seconds: int) -> Outcomes:
    """Run test files in one process. If a test ends the process, a new one runs the remaining tests."""
    result, left = Outcomes(), list(files)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        lines: dict[str, dict[str, str]] = {}
        while left:
            command = [python, str(WORKER), str(log), str(seconds), *map(str, left)]
            environment_ = {**os.environ, "MPLBACKEND": "agg"}
            ended = subprocess.run(command, cwd=folder, env=environment_, capture_output=True, check=False).returncode
            for text in log.read_text().splitlines() if log.exists() else ():
                line = json.loads(text)
                lines[line["test"]] = line
            log.unlink(missing_ok=True)
            if ended in range(6):  # exit codes of pytest
                break
            begun = [name for name, line in lines.items() if line["outcome"] == "started"]
            left = left[1 + max((k for k, path in enumerate(left) if any(path.name in n for n in begun)), default=0) :]
        for name, line in lines.items():
            outcome, message = line["outcome"], line.get("message", "the process ended")
            result.add(name, kind(outcome, f"{message} {line.get('text', '')}"), message)
    return result


def kind(outcome: str, text: str) -> str:
    """Passed, failed, skipped, refused, or internal: the test uses internals of the tool."""
    if outcome in ("passed", "skipped"):
        return outcome
    lacking = re.search(r"No module named '([^']*)'", text)
    if re.search(FILES, text) or (lacking and lacking[1].partition(".")[0] not in TOOLS):
        return "skipped"
    if lacking or any(words in text for words in INTERNAL):
        return "internal"
    return "refused" if any(words in text for words in REFUSED) else "failed"


def examples(text: str, tool: str) -> Iterator[tuple[str, str]]:
    """The code blocks of a README that use a tool, each with its kind, ``python`` or ``command``."""
    for block in re.findall(r"```[ \t]*(?:\w+[ \t]*\n|\n)?(.+?)```", text, re.DOTALL):
        lines = [line.removeprefix("$ ").strip() for line in re.sub(r"\\\s*\n", " ", block).strip().splitlines()]
        commands = [line for line in lines if re.match(rf"(python3? -m )?{tool}(\.\w+)* +\S", line)]
        if commands:
            yield from (("command", line) for line in commands if not re.search(r"[\[(]", line))
        elif re.search(rf"^(import|from) {tool}\b", block, re.MULTILINE) and "Args:" not in block:
            yield "python", block


def readme_outcomes(python: str, text: str, name: str, tool: Tool) -> Outcomes:
    """Run the examples of a README, each after code that writes its files and before code that checks results."""
    result = Outcomes()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "before.py").write_text(tool.before)
        run = [python, "-W", "ignore", "-m", "tenonnx_compat", "run"]
        subprocess.run([*run, "before.py"], cwd=folder, check=True, capture_output=True)
        for place, (form, code) in enumerate(examples(text, name)):
            title = code.splitlines()[0]
            if lacking := next((why for word, why in tool.elsewhere.items() if word in code), None):
                result.add(title, "skipped", f"needs {lacking}")
                continue
            script = Path(folder) / f"example_{place}.py"
            if form == "python":
                absolute = code.replace('"/some', '"some')  # makes the path of a model relative
                script.write_text(f"words = []\nexec(open('before.py').read())\n{absolute}\n{tool.after}")
                commands = [[*run, script.name]]
            else:
                module, *words = re.sub(r"^python3? -m ", "", code).split()
                script.write_text(f"import onnx\nwords = {words}\n{tool.after}")
                commands = [[*run, "-m", module, *words], [python, script.name]]
                commands = commands[:1] if words == ["-h"] else commands
            for command in commands:
                ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
                if ended.returncode:
                    break
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            lines = ended.stderr.splitlines()
            reason = next((line for line in lines if "does not" in line and "raise" not in line), last)
            outcome = "passed" if not ended.returncode else kind("failed", reason)
            inside = outcome != "passed" and any(word in code for word in tool.inside)
            result.add(title, "internal" if inside else outcome, reason)
    return result


def page(rows: Sequence[Sequence[str]], outcomes: Mapping[str, Outcomes]) -> str:
    """The table and the reasons as Markdown."""
    header = ["tool", "what", "passed", "failed", "refused", "internal", "skipped", "passed of public"]
    lines = [
        "# Examples and tests of other tools",
        "",
        f"Written by `python benchmarks/own_tests.py` on {datetime.now(UTC).date()}.",
        "",
        "The examples of the READMEs and the tests of the source distributions on PyPI, with the imports of the tool",
        "answered by tenonnx-compat. *Internal* tests use what is no public interface of the tool, or register",
        "converters inside it; *refused* ones an argument or function without a translation; *skipped* ones lack a",
        "file or a package.",
        "",
        *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)),
    ]
    for title, found in outcomes.items():
        counted = Counter(line.partition("\t")[0] for line in found.lines)
        if counted:
            lines += ["", f"## {title}", "", "| tests | outcome | message |", "| --- | --- | --- |"]
        for line, count in counted.most_common():
            outcome, _, message = line.partition(": ")
            text = re.sub(r"/\S+/(?=bin/python|\S+/tests/)", "", message)  # without folders of this machine
            lines.append(f"| {count} | {outcome} | `{text.replace('|', '/').replace('`', chr(39))}` |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS), help="names, separated by commas")
    parser.add_argument("--downloads", type=Path, default=Path(tempfile.gettempdir()) / "own-tests")
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=PATH", help="interpreter for a tool")
    parser.add_argument("--seconds", type=int, default=30, help="limit for a test, of processor time")
    parser.add_argument("--files", default="", help="only files whose names have one of these in them")
    parser.add_argument("--output", type=Path, help="page to write")
    given = parser.parse_args()
    downloads = given.downloads.resolve()
    downloads.mkdir(parents=True, exist_ok=True)
    pythons = {name: str(Path(path).absolute()) for name, path in (each.split("=", 1) for each in given.python)}
    rows, outcomes = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.tools.split(","):
            tool = TOOLS[name]
            archive = fetched(name, downloads, tool.wheel)
            python = pythons.get(name) or environment(tool, Path(folder) / name)
            available = (
                []
                if tool.wheel or not tool.tests
                else sorted(downloads.joinpath(archive.name.removesuffix(".tar.gz")).glob(tool.tests))
            )
            files = [path for path in available if not any(part in path.stem for part in tool.without)]
            files = [path for path in files if not tool.only or path.stem.removeprefix("test_") in tool.only]
            files = [path for path in files if any(part in path.name for part in given.files.split(","))]
            version = "-".join(archive.name.removesuffix(".tar.gz").split("-")[:2])
            text = readme(archive)
            parts = {"examples": readme_outcomes(python, text, name, tool)} if list(examples(text, name)) else {}
            if files:
                parts[f"tests, {len(files)} of {len(available)} files"] = tests(python, files, given.seconds)
            elif not given.files:
                parts[f"tests: the {'wheel' if tool.wheel else 'source distribution'} ships none"] = Outcomes()
            for what, found in parts.items():
                columns = [str(found.counts[each]) for each in ("passed", "failed", "refused", "internal", "skipped")]
                rows.append([version, what, *columns, found.share])
                outcomes[f"{version}: {what.partition(',')[0]}"] = found
                print(rows[-1], *found.lines, sep="\n  ", flush=True)
    if given.output:
        given.output.write_text(page(rows, outcomes))


if __name__ == "__main__":
    main()
