"""Hostile ``.pt2`` files: edits of the JSON or the members of a valid file, by the attack that they attempt."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Members = dict[str, bytes]
Edit = Callable[[dict[str, Any], Members], None]

PROGRAM = "models/model.json"


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name if name.startswith("/") else f"m/{name}", data)
    return path


def edited(honest: Path, path: Path, edit: Edit) -> Path:
    """A copy of a file with one edit."""
    members = members_of(honest)
    before = members[PROGRAM]
    program = json.loads(before)
    edit(program, members)
    if members.get(PROGRAM) == before:
        members[PROGRAM] = json.dumps(program).encode()
    return write(path, members)


class Touch:
    """An object whose pickle writes a file when loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def hostile(marker: Path) -> dict[str, Edit]:
    """Edits by name; code that they inject creates the file ``marker``."""
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    quoted = code.replace("'", '"')
    evil = pickle.dumps(Touch(marker))

    def graph(program: dict[str, Any]) -> dict[str, Any]:
        return program["graph_module"]["graph"]

    def node(program: dict[str, Any], k: int = 1) -> dict[str, Any]:
        return graph(program)["nodes"][k]

    def expression(text: str) -> Edit:
        def edit(program: dict[str, Any], members: Members) -> None:
            graph(program)["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = text

        return edit

    def target(name: str) -> Edit:
        return lambda program, members: node(program).update(target=name)

    def renamed(old: str, new: str) -> Edit:
        """Rename an item consistently in the program."""

        def edit(program: dict[str, Any], members: Members) -> None:
            text = json.dumps(program).replace(json.dumps(old), json.dumps(new))
            program.clear()
            program.update(json.loads(text))
            for name in list(members):
                if name.endswith("_config.json"):
                    members[name] = members[name].replace(json.dumps(old).encode(), json.dumps(new).encode())

        return edit

    def weights(**changes: Any) -> Edit:
        def edit(program: dict[str, Any], members: Members) -> None:
            name = "data/weights/model_weights_config.json"
            config = json.loads(members[name])
            config["config"]["l.weight"].update(changes)
            members[name] = json.dumps(config).encode()
            members["data/weights/evil"] = evil

        return edit

    def meta(**changes: Any) -> Edit:
        def edit(program: dict[str, Any], members: Members) -> None:
            name = "data/weights/model_weights_config.json"
            config = json.loads(members[name])
            config["config"]["l.weight"]["tensor_meta"].update(changes)
            members[name] = json.dumps(config).encode()

        return edit

    def structure(kind: str, context: Any) -> Edit:
        def edit(program: dict[str, Any], members: Members) -> None:
            leaf = {"type": None, "context": None, "children_spec": []}
            held = {"type": kind, "context": context, "children_spec": [leaf]}
            program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, held])

        return edit

    def member(name: str, data: bytes) -> Edit:
        return lambda program, members: members.update({name: data})

    def notes(**changes: str) -> Edit:
        return lambda program, members: [each["metadata"].update(changes) for each in graph(program)["nodes"]]

    def filled(program: dict[str, Any], members: Members) -> None:
        sizes = {"name": "size", "arg": {"as_ints": [1 << 20, 1 << 20]}, "kind": 1}
        value = {"name": "fill_value", "arg": {"as_float": 1.0}, "kind": 1}
        node(program).update(target="torch.ops.aten.full.default", inputs=[sizes, value])

    def constant(program: dict[str, Any], members: Members) -> None:
        name = "data/constants/model_constants_config.json"
        entry = {"path_name": "custom_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        members[name] = json.dumps({"config": {"c": entry}}).encode()
        members["data/constants/custom_obj_0"] = evil

    def nested(program: dict[str, Any], members: Members) -> None:
        members[PROGRAM] = b"[" * 100_000

    tower = "Symbol('s0', integer=True)"
    for _ in range(20):
        tower = f"Pow(Mul(Integer(99), {tower}), Integer(8))"
    return {
        "expression imports": expression(code),
        "expression calls": expression(f"Symbol('s0').__class__.__init__.__globals__[{quoted}]"),
        "symbol is code": expression(f'Symbol("{code}")'),
        "symbol ends a string": expression("Symbol('s0); import os')"),
        "expression of lambda": expression("Lambda(Symbol('x'), Symbol('x'))"),
        "expression of a module": expression("sympy.core.Symbol('x')"),
        "tower of powers": expression(tower),
        "power of a huge number": expression("Pow(Integer(10), Integer(1000000000))"),
        "long expression": expression("Add(" + "Integer(1), " * 100_000 + "Integer(1))"),
        "deep expression": expression("Add(" * 500 + "Integer(1)" + ")" * 500),
        "operator is a function of os": target("torch.os.system"),
        "operator loads from a hub": target("torch.hub.load"),
        "operator reads a pickle": target("torch.load"),
        "operator maps a file": target("torch.ops.aten.from_file.default"),
        "operator loads a library": target("torch.ops.load_library"),
        "operator ends in dunders": target("torch.ops.aten.add.__class__.__init__"),
        "operator calls methods": target("_operator.methodcaller"),
        "operator is an extension": target("#evil:op"),
        "operator is unknown": target("torch.ops.acme.scale.default"),
        "function is an argument": lambda p, m: node(p)["inputs"][0].update(arg={"as_operator": "torch.os.system"}),
        "value is code": renamed("linear", f"linear = {code}; linear"),
        "input is code": renamed("x", f"x={code}"),
        "input is a keyword": renamed("x", "lambda"),
        "parameter is code": renamed("l.weight", f'l.weight"), {code}, ("'),
        "argument is code": lambda p, m: p["graph_module"]["module_call_graph"][0]["signature"].update(
            forward_arg_names=[f"x={code}", "n", "more"]
        ),
        "key of a dict is code": structure("builtins.dict", json.dumps([f"'], {code}, a['"])),
        "structure imports": structure("collections.defaultdict", json.dumps(["pathlib", "Path"])),
        "structure of a class": structure("os.PathLike", "null"),
        "object": lambda p, m: node(p)["inputs"][0].update(
            arg={"as_custom_obj": {"name": "c", "class_fqn": "__torch__.torch.classes.evil"}}
        ),
        "pickled weight": weights(use_pickle=True, path_name="evil"),
        "pickled constant": constant,
        "pickled weights of old files": lambda p, m: (
            m.pop("data/weights/model_weights_config.json"),
            m.update({"data/weights/model.pt": evil}),
        ),
        "weight from above": weights(path_name="../../../../etc/passwd"),
        "weight of an absolute path": weights(path_name="/etc/passwd"),
        "member outside": member("/etc/evil", b"1"),
        "weight beyond its bytes": meta(sizes=[{"as_int": 400}, {"as_int": 3}]),
        "weight of negative strides": meta(strides=[{"as_int": -1}, {"as_int": 1}]),
        "weight of an offset": meta(storage_offset={"as_int": 1 << 62}),
        "weight without end": meta(sizes=[{"as_int": 1 << 40}, {"as_int": 3}], strides=[{"as_int": 0}, {"as_int": 0}]),
        "value without end": filled,
        "JSON without end": nested,
        "no JSON": lambda p, m: m.update({PROGRAM: b"none"}),
        "no program": lambda p, m: m.pop(PROGRAM),
        "compiled code": lambda p, m: (m.pop(PROGRAM), m.update({"data/aotinductor/model/m.so": b"\x7fELF"})),
        "two programs": lambda p, m: m.update({"models/other.json": b"{}"}),
        "big-endian": member("byteorder", b"big"),
    }


def harmless(marker: Path) -> dict[str, Edit]:
    """Edits that the reader ignores, so that the file is read as before."""
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    evil = pickle.dumps(Touch(marker))
    custom = {"custom": code, "source_fn_stack": f"x,torch.os.{code}", "from_node": "[]", "nn_module_stack": code}
    return {
        "guards are code": lambda p, m: p.update(guards_code=[code]),
        "examples are a pickle": lambda p, m: m.update({"data/sample_inputs/model.pt": evil}),
        "extra member is a pickle": lambda p, m: m.update({"extra/evil.pkl": evil}),
        "notes are code": lambda p, m: [
            each["metadata"].update(custom) for each in p["graph_module"]["graph"]["nodes"]
        ],
        "stack is code": lambda p, m: [
            each["metadata"].update(stack_trace=f'File "a.py", line 1, in f\n    x\n{code}')
            for each in p["graph_module"]["graph"]["nodes"]
        ],
        "another device": lambda p, m: [
            each.update(device={"type": "cuda", "index": 0})
            for each in p["graph_module"]["graph"]["tensor_values"].values()
        ],
    }
