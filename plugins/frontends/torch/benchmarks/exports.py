"""Exports of every test module at opsets 13, 17 and 21, by tenonnx-torch and by PyTorch's exporter.

``python exports.py results.json [ours] [theirs]`` writes the result of each: ``right``, or the error. Results that the
file contains already are kept. The exporter is called with the opset as its documentation says, and its file is
compared with the module in the same way.
"""

import json
import logging
import sys
import time
from pathlib import Path

import onnx
import sides
import torch
from sides import OPSETS, modules, verify_against, wrong

import tenonnx as tx
from tenonnx_torch.examples import Examples
from tenonnx_torch.exporter import operations


def ours(case, module, examples, path):
    write = sides.ours(case, module, examples, path)

    def to(opset):
        write(opset)
        return "right"

    return to


def theirs(case, module, examples, path):
    given = Examples.of(module, examples, None, case.dims)
    write = sides.theirs(case, module, examples, path)

    def to(opset):
        write(opset)
        found = next(o.version for o in onnx.load(path).opset_import if not o.domain)
        if found != opset:
            return f"left at opset {found}"
        graph = tx.load(path)
        variables = {value.name for value in graph.variables}
        verify_against(module, given, graph).raise_if_failed()
        lost = [name for name, _ in module.named_parameters() if name not in variables]
        return "right" + (f", without {len(lost)} parameters by name" if lost else "")

    return to


def tried(who, name, path):
    """Results of a module at each opset."""
    try:
        to = who(*sides.made(name), path)
    except Exception as error:
        return {f"{who.__name__} {opset}": wrong(error) for opset in OPSETS}
    result = {}
    for opset in OPSETS:
        try:
            result[f"{who.__name__} {opset}"] = to(opset)
        except Exception as error:
            result[f"{who.__name__} {opset}"] = wrong(error)
    return result


def main():
    from modules import architectures, functions, layers, programs, sequences  # noqa: F401  (they register cases)

    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    operations()  # cached for all forked processes
    path = Path(sys.argv[1])
    found = json.loads(path.read_text()) if path.exists() else {}
    cases = sorted(modules.CASES.items(), key=lambda item: (item[1].component != "architectures", not item[1].quick))
    exporters = [who for who in (ours, theirs) if who.__name__ in (sys.argv[2:] or ("ours", "theirs"))]
    for name, case in cases:
        entry = found.get(name, {"component": case.component})
        missing = [who for who in exporters if f"{who.__name__} {OPSETS[0]}" not in entry]
        if not missing:
            continue
        start = time.monotonic()
        for who in missing:
            ended = {f"{who.__name__} {opset}": "ends the process" for opset in OPSETS}
            entry |= sides.apart(tried, who, name) or ended
        found[name] = entry
        path.write_text(json.dumps(found, indent=1))
        print(f"{time.monotonic() - start:.0f} s {name}: {list(entry.values())[1:]}", flush=True)


if __name__ == "__main__":
    main()
