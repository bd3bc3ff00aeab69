"""Numbers of nodes in exported files: by tenonnx-torch, and by PyTorch's exporter with onnxslim.

``python nodes.py nodes.json [names]`` measures, ``python nodes.py nodes.json --table`` prints the results. It needs
``onnxslim`` and ``transformers``. Ours is counted with default options, verified against the module, and with
``simplify=False``. For parameters without an initializer of their name, the initializer that absorbed them is looked
up. Theirs is counted at the opset that the exporter reaches: it leaves many files at 18, with ops that 13 lacks.
"""

import json
import logging
import sys
from pathlib import Path

import larger
import onnx
import onnxslim
import sides
import torch
from sides import OPSETS, modules, wrong

import tenonnx as tx


def count(path):
    """Number of nodes of a file, including subgraphs; the file may be invalid."""
    graphs, result = [onnx.load(path, load_external_data=False).graph], 0
    while graphs:
        nodes = graphs.pop().node
        result += len(nodes)
        graphs += [a.g for node in nodes for a in node.attribute if a.HasField("g")]
    return result


def ours(name, path):
    result = {}
    for title, simplify in (("ours", None), ("whole", False)):
        case, module, examples = sides.made(name)
        write = sides.ours(case, module.eval(), examples, path, simplify=simplify)
        for opset in OPSETS:
            write(opset)
            result[f"{title} {opset}"] = count(path)
        roles = {value.name: value.role for value in tx.load(path).variables}
        merged = {each for role in roles.values() if role is not None for each in role.made_of}
        removed = [each for each, _ in module.named_parameters() if each not in roles]
        result[f"{title}, merged"] = sum(each in merged for each in removed)
        result[f"{title}, lost"] = [each for each in removed if each not in merged]
    return result


def theirs(name, path):
    case, module, examples = sides.made(name)
    write, result = sides.theirs(case, module.eval(), examples, path), {}
    for opset in OPSETS:
        write(opset)
        slim = onnxslim.slim(onnx.load(path))
        onnx.save(slim, path)
        result[f"theirs {opset}"] = count(path)
        reached = next(o.version for o in slim.opset_import if not o.domain)
        if reached != opset:
            result[f"reached {opset}"] = reached
    initializers = {tensor.name for tensor in slim.graph.initializer}
    result["theirs, lost"] = sum(each not in initializers for each, _ in module.named_parameters())
    return result


def measured(who, name, path):
    try:
        return who(name, path)
    except Exception as error:
        return {f"{who.__name__} failed": wrong(error)}


def table(found):
    """A row for each architecture, with three opsets side by side."""
    lines = [
        "| architecture | ours | parameters merged into others | with `simplify=False` | exporter and onnxslim "
        "| names gone |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, counts in found.items():
        cells = [
            _counts(counts, "ours"),
            counts.get("ours, merged"),
            _counts(counts, "whole"),
            _counts(counts, "theirs"),
            counts.get("theirs, lost"),
        ]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _counts(counts, title):
    if f"{title} {OPSETS[0]}" not in counts:
        return "refused"
    numbers = [
        (counts[f"{title} {opset}"], counts.get(f"reached {opset}") if title == "theirs" else None) for opset in OPSETS
    ]
    return ", ".join(str(n) + (f" (at {reached})" if reached else "") for n, reached in numbers)


def main():
    path = Path(sys.argv[1])
    found = json.loads(path.read_text()) if path.exists() else {}
    if sys.argv[2:] == ["--table"]:
        print(table(found))
        return
    from modules import architectures  # noqa: F401  (it registers cases)

    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    larger.register()
    names = [name for name, case in modules.CASES.items() if case.component in ("architectures", "larger")]
    for name in sys.argv[2:] or [name for name in names if name not in found]:
        found[name] = {}
        for who in (ours, theirs):
            found[name] |= sides.apart(measured, who, name) or {f"{who.__name__} failed": "ends the process"}
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(name, found[name], flush=True)


if __name__ == "__main__":
    main()
