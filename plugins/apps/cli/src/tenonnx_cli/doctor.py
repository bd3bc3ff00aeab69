"""``tenonnx doctor``: versions, working backends, and reasons why a model may be slow."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenonnx_cli.command import Command
from tenonnx_cli.options import FILE, json_option, load_model, rules_option
from tenonnx_cli.output import complain, human_bytes, plural, say, say_json, say_table, working

if TYPE_CHECKING:
    from tenonnx import Graph

#: Third-party packages whose versions are reported.
LIBRARIES = [
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "torch",
    "jax",
    "jaxlib",
    "tensorflow",
    "keras",
    "scikit-learn",
    "lightgbm",
    "xgboost",
    "catboost",
    "protobuf",
    "ml-dtypes",
    "safetensors",
    "click",
    "rich",
    "cloup",
    "pyarrow",
]

#: Environment variables that affect commands.
VARIABLES = ("TENONNX_", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NO_COLOR", "FORCE_COLOR")


@click.command("doctor", cls=Command, examples=["tenonnx doctor", "tenonnx doctor model.onnx --json"])
@click.argument("model", type=FILE, metavar="[MODEL]", required=False)
@rules_option
@json_option
def command(model: str | None, as_json: bool) -> int:
    """Show versions, plugins, backends that start, and memory; of a model, what could make it slow.

    The output holds no user name and no path, so that it can be put into a report of a bug. Exit code 1 if a plugin or
    backend does not work.
    """
    with working("looking at what is installed"):
        found: dict[str, Any] = {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "system": f"{platform.system()} {platform.machine()}",
            "processors": os.cpu_count(),
            "memory_free": free_memory(),
            "versions": _versions(),
            "variables": _variables(),
            "plugins": _plugins(),
            "backends": _backends(),
        }
        slow = None if model is None else _slowdowns(load_model(model))
    sound = not found["plugins"]["problems"] and all(row["starts"] for row in found["backends"])
    if as_json:
        say_json(found | {"sound": sound} | ({} if slow is None else {"model": slow}))
        return 0 if sound else 1
    say("everything installed works" if sound else "something does not work", style="green" if sound else "red")
    rows = [(name, str(found[name])) for name in ("python", "system", "processors")]
    free = found["memory_free"]
    rows.append(("memory free", "not known" if free is None else human_bytes(free)[0]))
    rows += [*found["variables"].items(), *found["versions"].items()]
    say_table(rows)
    say()
    for row in found["backends"]:
        state = f"starts ({row['seconds']:.2f} s)" if row["starts"] else f"does not start: {row['reason']}"
        say(f"backend {row['name']}: {state}", style="" if row["starts"] else "red")
    say(f"{plural(found['plugins']['loaded'], 'plugin')} loaded")
    for problem in found["plugins"]["problems"]:
        complain(f"problem: {problem}")
    for line in slow or ():
        say(line)
    if slow == []:
        say(f"{model}: nothing found that would make it slow")
    return 0 if sound else 1


def anonymous(text: str) -> str:
    """A text without local paths and the user name."""
    places = {sys.prefix: "...", sys.base_prefix: "...", os.getcwd(): "...", str(Path.home()): "~"}  # noqa: PTH109
    for folder in sorted(places, key=len, reverse=True):
        text = re.sub(rf"{re.escape(folder)}(?![\w.-])", places[folder], text) if len(folder) > 1 else text
    return re.sub(r"(?<![\w.~/:])(?:/[\w.@+-]+){2,}/", ".../", text)


def free_memory() -> int | None:
    """Bytes of available memory on Linux; None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _versions() -> dict[str, str]:
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for each in distributions():
        name = (each.metadata["Name"] or "").lower().replace("_", "-")
        if name in LIBRARIES or name.startswith("tenonnx"):
            found.setdefault(name, each.version)
    return dict(sorted(found.items(), key=lambda each: (not each[0].startswith("tenonnx"), each[0])))


def _variables() -> dict[str, str]:
    return {name: anonymous(text) for name, text in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def _plugins() -> dict[str, Any]:
    from tenonnx_cli.plugins import installed_plugins

    rows, problems = installed_plugins(check=False)
    out = [f"{row['group']}: {row['name']} of {row['package']}" for row in rows if row["status"] == "left out"]
    loaded = sum(row["status"] == "loaded" for row in rows)
    return {"loaded": loaded, "left_out": out, "problems": [anonymous(problem) for problem in problems]}


def _backends() -> list[dict[str, Any]]:
    """The installed backends, with whether each computes a small graph."""
    from tenonnx.tools import backends

    return [_started(name) for name in ("numpy", *backends())]


def _started(name: str) -> dict[str, Any]:
    import time

    import numpy as np

    import tenonnx as tx
    from tenonnx.tools import compile_graph

    start = time.perf_counter()
    try:
        graph = tx.Graph("doctor", opsets={"ai.onnx": 17})
        graph.output("y", graph.input("x", "float32", (2,)) + np.float32(1))
        result = compile_graph(graph, name, strict=True)({"x": np.zeros(2, np.float32)})["y"]
        reason = "" if np.array_equal(result, [1, 1]) else "0 + 1 is not 1 on it"
    except (Exception, SystemExit) as error:
        reason = anonymous(" ".join(str(error).split())) or type(error).__name__
    return {"name": name, "starts": not reason, "reason": reason, "seconds": time.perf_counter() - start}


def _slowdowns(graph: Graph) -> list[str]:
    """Changes that would make a session faster, as text."""
    import tenonnx as tx
    from tenonnx.tools import find_extension

    tx.infer(graph, strict=False)
    result = []
    unknown = [node.op_type for node in graph.nodes if node.op is None]
    if unknown:
        result.append(f"{plural(len(unknown), 'node')} that no installed package knows: {_some(unknown)}")
    for name, phrase in (("simplify", "convert --simplify removes"), ("fuse", "convert --fuse merges")):
        transform = find_extension(name)
        if transform is not None and not unknown:
            try:
                after = len(transform(graph).nodes)
            except tx.TenonnxError:
                continue
            if after < len(graph.nodes):
                result.append(f"{phrase} {plural(len(graph.nodes) - after, 'node')} of {len(graph.nodes):,}")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) < (os.cpu_count() or 1):
        result.append(f"OMP_NUM_THREADS={threads} leaves processors unused ({os.cpu_count()} in all)")
    result += _failing_backends(graph)
    return result


def _failing_backends(graph: Graph) -> list[str]:
    """The backends that do not run the whole graph, with their errors."""
    from tenonnx.tools import backends, compile_graph

    result = []
    for name in backends():
        try:
            compile_graph(graph, name, strict=True)
        except (Exception, SystemExit) as error:
            text = anonymous(str(error).splitlines()[0] if str(error) else type(error).__name__)
            result.append(f"backend {name} does not run it, numpy computes it instead: {text}")
    return result


def _some(names: list[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - 5} more" if len(distinct) > 5 else ""
    return f"{', '.join(distinct[:5])}{more}"
