"""How many nodes the file of a module has: by tenonnx-torch, and by the exporter after onnxslim's pass.

``python nodes.py nodes.json [names]`` measures, ``python nodes.py nodes.json --table`` prints what it holds. It takes
``onnxslim`` and ``transformers`` beside this package. Ours is counted as it is written by default, where each parameter
has its name and contents, and with ``simplify=True``, which computes new weights. Theirs, for which parameters are
merged and renamed as the exporter likes, is counted at the opset that the exporter reaches: it leaves many at 18.
"""

import contextlib
import io
import json
import logging
import multiprocessing
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import larger
import modules
import onnx
import onnxslim
import torch
from modules import architectures  # noqa: F401  (it registers cases)

import tenonnx_torch
from tenonnx_torch.examples import Examples

OPSETS = (13, 17, 21)


def count(path):
    """The nodes of a file, those of subgraphs included, also of one that no opset allows."""
    graphs, found = [onnx.load(path, load_external_data=False).graph], 0
    while graphs:
        nodes = graphs.pop().node
        found += len(nodes)
        graphs += [a.g for node in nodes for a in node.attribute if a.HasField("g")]
    return found


def ours(case, module, examples, path):
    found = {}
    for simplify, title in ((False, "ours"), (True, "simplified")):
        for opset in OPSETS:
            tenonnx_torch.export(
                module,
                examples,
                path,
                opset_version=opset,
                dims=case.dims,
                simplify=simplify,
                verify=opset == OPSETS[1],
            )
            found[f"{title} {opset}"] = count(path)
            if not simplify:
                held = {tensor.name for tensor in onnx.load(path, load_external_data=False).graph.initializer}
                lost = [name for name, _ in module.named_parameters() if name not in held]
                if lost:
                    found[f"lost {opset}"] = lost
    return found


def theirs(case, module, examples, path):
    given = Examples.of(module, examples, None, case.dims)
    shapes = given.shapes(module) if case.dims else None
    found = {}
    for opset in OPSETS:
        torch.onnx.export(
            module, examples, path, dynamo=True, opset_version=opset, verbose=False, dynamic_shapes=shapes,
            external_data=False,
        )  # fmt: skip
        slim = onnxslim.slim(onnx.load(path))
        onnx.save(slim, path)
        found[f"theirs {opset}"] = count(path)
        reached = next(o.version for o in slim.opset_import if not o.domain)
        if reached != opset:
            found[f"reached {opset}"] = reached
    return found


def measured(who, name, folder):
    case = modules.CASES[name]
    module, examples = case.make()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            return who(case, module.eval(), examples, str(Path(folder) / "model.onnx"))
        except Exception as error:
            return {f"{who.__name__} failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"}


def apart(who, name, folder):
    """In a process of its own, which some of what the exporter writes ends."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(measured, who, name, folder).result()
        except BrokenProcessPool:
            return {f"{who.__name__} failed": "ends the process"}


def table(found):
    """A line for each architecture, its three opsets beside each other."""
    lines = ["| architecture | ours | with `simplify=True` | exporter and onnxslim |", "| --- | --- | --- | --- |"]
    for name, held in found.items():
        cells = []
        for title in ("ours", "simplified", "theirs"):
            failed = held.get(f"{'ours' if title == 'simplified' else title} failed")
            numbers = dict.fromkeys(str(held.get(f"{title} {opset}")) for opset in OPSETS)
            cells.append("refused" if failed else ", ".join(numbers))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    path = Path(sys.argv[1])
    found = json.loads(path.read_text()) if path.exists() else {}
    if sys.argv[2:] == ["--table"]:
        print(table(found))
        return
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    larger.register()
    modules.remember_operations()
    names = [name for name, case in modules.CASES.items() if case.component in ("architectures", "larger")]
    for name in sys.argv[2:] or [name for name in names if name not in found]:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = {**apart(ours, name, folder), **apart(theirs, name, folder)}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(name, found[name], flush=True)


if __name__ == "__main__":
    main()
