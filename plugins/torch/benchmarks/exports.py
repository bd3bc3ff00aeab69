"""Every module of the tests at opsets 13, 17 and 21, by tenonnx-torch and by the exporter itself.

``python exports.py results.json [ours] [theirs]`` writes for each what came of it: ``right``, or what was wrong. What
the file holds already is left as it is. The exporter is asked for the opset as its documentation says, and what it
writes is held against the module by the same comparison. Both trace a module once for the three opsets.
"""

import contextlib
import io
import json
import logging
import multiprocessing
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import modules
import onnx
import torch
from modules import architectures, functions, layers, programs, sequences  # noqa: F401  (they register cases)
from torch.onnx._internal.exporter._registration import ONNXRegistry

import tenonnx as tx
from tenonnx_torch.examples import Examples
from tenonnx_torch.verification import verify_against

OPSETS = (13, 17, 21)


def ours(case, module, examples, path):
    given = Examples.of(module, examples, None, case.dims)
    graph = tx.load(module, *examples, dims=case.dims, verify=False)

    def to(opset):
        tx.export(graph, path, opset_version=opset, verify=lambda g: verify_against(module, given, g).raise_if_failed())
        return "right"

    return to


def theirs(case, module, examples, path):
    given = Examples.of(module, examples, None, case.dims)
    program = torch.export.export(
        module, examples, dynamic_shapes=given.shapes(module) if case.dims else None, strict=False
    )

    def to(opset):
        torch.onnx.export(program, f=path, dynamo=True, opset_version=opset, verbose=False)
        model = onnx.load(path)
        found = next(o.version for o in model.opset_import if not o.domain)
        if found != opset:
            return f"left at opset {found}"
        graph = tx.load(path)
        held = {value.name for value in graph.variables}
        verify_against(module, given, graph).raise_if_failed()
        lost = [name for name, _ in module.named_parameters() if name not in held]
        return "right" + (f", without {len(lost)} parameters by name" if lost else "")

    return to


def wrong(error):
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:160]} {str(getattr(error, 'given', ''))[:300]}".strip()


def tried(who, name, folder):
    """What comes of a module at each opset."""
    case = modules.CASES[name]
    module, examples = case.make()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            to = who(case, module, examples, str(Path(folder) / "model.onnx"))
        except Exception as error:
            return {f"{who.__name__} {opset}": wrong(error) for opset in OPSETS}
        found = {}
        for opset in OPSETS:
            try:
                found[f"{who.__name__} {opset}"] = to(opset)
            except Exception as error:
                found[f"{who.__name__} {opset}"] = wrong(error)
        return found


def apart(who, name, folder):
    """``tried`` in a process of its own, as onnxruntime ends the process on some of what the exporter writes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(tried, who, name, folder).result()
        except BrokenProcessPool:
            return {f"{who.__name__} {opset}": "ends the process" for opset in OPSETS}


def main():
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    modules.remember_operations()
    ONNXRegistry.from_torchlib()  # once for all the processes to come
    path = Path(sys.argv[1])
    found = json.loads(path.read_text()) if path.exists() else {}
    cases = sorted(modules.CASES.items(), key=lambda item: (item[1].component != "architectures", not item[1].quick))
    asked = [who for who in (ours, theirs) if who.__name__ in (sys.argv[2:] or ("ours", "theirs"))]
    for name, case in cases:
        held = found.get(name, {"component": case.component})
        missing = [who for who in asked if f"{who.__name__} {OPSETS[0]}" not in held]
        if not missing:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for who in missing:
                held |= apart(who, name, folder)
        found[name] = held
        path.write_text(json.dumps(found, indent=1))
        print(f"{time.monotonic() - start:.0f} s {name}: {list(held.values())[1:]}", flush=True)


if __name__ == "__main__":
    main()
