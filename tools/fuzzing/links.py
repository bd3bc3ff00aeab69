"""Hostile links: external data outside the model's folder, and model files that are links or pipes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Case = tuple[str, Callable[[Path], Any]]

#: Contents of a file next to a model's folder.
SECRET = b"SECRET-OF-ANOTHER-FILE" * 8


def secret(folder: Path) -> Path:
    """Write the file next to a model's folder; returns its path."""
    path = folder.parent / "secret.txt"
    path.write_bytes(SECRET)
    return path


def external_data() -> Iterator[Case]:
    """ONNX models with hostile locations of external data."""
    places: dict[str, Callable[[Path], str]] = {
        "absolute path": lambda f: str(secret(f)),
        "path that leaves": lambda f: f"../{secret(f).name}",
        "path that leaves behind a folder": lambda f: f"a/../../{secret(f).name}",
        "path with backslashes": lambda f: f"..\\{secret(f).name}",
        "address of a file": lambda f: f"file://{secret(f)}",
        "address": lambda f: "http://127.0.0.1:9/w",
        "symbolic link": lambda f: _link(f, lambda path: path.symlink_to(secret(f))),
        "link to a link": lambda f: _link(f, lambda path: path.symlink_to("other") or _to_other(f)),
        "hard link": lambda f: _link(f, lambda path: os.link(secret(f), path)),
        "folder that is a link": lambda f: _folder(f),
        "pipe": lambda f: _link(f, os.mkfifo),
        "device": lambda f: "/dev/zero",
        "process": lambda f: "/proc/self/environ",
        "no name": lambda f: "",
        "folder": lambda f: ".",
        "name with a zero": lambda f: "w\0.bin",
        "long name": lambda f: "w" * 5000,
    }
    for name, place in places.items():
        yield name, lambda folder, place=place: _model(folder, place(folder))
    lies = {"negative offset": "-8", "offset beyond": str(1 << 40), "no number": "x", "huge number": "9" * 400}
    for name, offset in lies.items():
        yield name, lambda folder, offset=offset: _model(folder, _written(folder), offset)
    for name, length in {"length beyond": str(1 << 50), "negative length": "-1"}.items():
        yield name, lambda folder, length=length: _model(folder, _written(folder), "0", length)


def linked(seeds: dict[str, bytes]) -> Iterator[Case]:
    """Copies of a model in which one file is a link to a file outside, or a pipe."""
    for name in sorted(seeds):
        for kind in ("link", "pipe", "link to a device"):

            def write(folder: Path, name: str = name, kind: str = kind) -> None:
                for each, data in seeds.items():
                    path = folder / each
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if each != name:
                        path.write_bytes(data)
                    elif kind == "pipe":
                        os.mkfifo(path)
                    else:
                        path.symlink_to(secret(folder) if kind == "link" else "/dev/zero")

            yield f"{name} is a {kind}", write


def _model(folder: Path, location: str, offset: str = "0", length: str = "8") -> None:
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", dims=[2], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        weight.external_data.add(key=key, value=text)
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["n", 2])] for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", inputs, outputs, [weight])
    (folder / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())


def _written(folder: Path) -> str:
    (folder / "w.bin").write_bytes(bytes(16))
    return "w.bin"


def _link(folder: Path, make: Callable[[Path], Any]) -> str:
    make(folder / "w.bin")
    return "w.bin"


def _to_other(folder: Path) -> None:
    (folder / "other").symlink_to(secret(folder))


def _folder(folder: Path) -> str:
    (folder / "d").symlink_to(secret(folder).parent)
    return "d/secret.txt"
