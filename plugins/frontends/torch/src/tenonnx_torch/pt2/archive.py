"""The archive format: a zip file with stored members in one folder, and weights as raw bytes."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from tenonnx import limits
from tenonnx.extend import InvalidCall, InvalidModel

#: Advice for a file that is rejected.
TRUST = "give trust=True (--trust) for a file of your own: PyTorch then runs what it brings"

#: Element types by their number in a file.
DTYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
    28: torch.uint16,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
    31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz,
    34: torch.uint32,
    35: torch.uint64,
}

_STRIDED = 7

#: Names of parameters, buffers and modules. PyTorch generates Python code with them, so quotes are not allowed.
DOTTED = re.compile(r"[\w.:/+@ \-]{0,512}")


class Archive:
    """Members of a file by path.

    Raises ``InvalidModel`` for another kind of file. Raises ``InvalidCall`` for an older format, for pickled weights,
    and for a file that contains only compiled code.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._zip = zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise InvalidModel(f'cannot read "{self.path}" as a zip archive', given=str(error)) from error
        try:
            self._members = self._checked_members()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        if "serialized_exported_program.json" in self._zip.namelist():
            raise InvalidCall("the file of torch.export before 2.9 stores its weights as pickles", do=TRUST)
        result: dict[str, zipfile.ZipInfo] = {}
        folders = set()
        for member in self._zip.infolist():
            folder, _, name = member.filename.partition("/")
            if name in result:
                raise InvalidModel("the archive contains a member twice", given=name[:200])
            folders.add(folder)
            result[name] = member
        if len(folders) != 1:
            raise InvalidModel("the members of the archive are not in one folder", given=str(sorted(folders))[:200])
        size = self.path.stat().st_size
        if any(member.compress_type != zipfile.ZIP_STORED for member in result.values()):
            raise InvalidModel("the archive contains compressed members", do="write it with torch.export.save")
        if sum(member.file_size for member in result.values()) > size:
            raise InvalidModel("the members of the archive are longer than the file", given=f"{size} bytes")
        if "constants.pkl" in result:
            raise InvalidCall("a TorchScript file contains code", do=TRUST)
        return result

    def program(self) -> tuple[str, dict[str, Any]]:
        """Name and JSON of the only program."""
        names = [name for name in self._members if re.fullmatch(r"models/[^/]+\.json", name)]
        if any(name.startswith("data/aotinductor/") for name in self._members) and not names:
            raise InvalidCall("the archive contains compiled code but no program", do="save it with torch.export.save")
        if len(names) != 1:
            given = ", ".join(names)[:200] or "none"
            raise InvalidModel("the archive does not contain exactly one program of torch.export", given=given)
        order = self._bytes("byteorder") if "byteorder" in self._members else b"little"
        if order != b"little":
            raise InvalidModel("the archive is not little-endian", given=repr(order)[:80])
        return names[0].removeprefix("models/").removesuffix(".json"), self.json(names[0])

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a member."""
        try:
            result = json.loads(self._bytes(name))
        except (ValueError, RecursionError) as error:
            raise InvalidModel(f'member "{name}" of the archive is not JSON', given=str(error)[:200]) from error
        if not isinstance(result, dict):
            raise InvalidModel(f'member "{name}" of the archive is not a mapping')
        return result

    def _bytes(self, name: str) -> bytes:
        if name not in self._members:
            raise InvalidModel("the archive lacks a member", given=name[:200])
        try:
            return self._zip.read(self._members[name])
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise InvalidModel(f'cannot read member "{name[:200]}" of the archive', given=str(error)[:200]) from error

    def tensors(self, folder: str, config: str) -> dict[str, torch.Tensor]:
        """The tensors that a config lists; tensors of one member share memory. Raises ``InvalidCall`` for pickles."""
        listed = self.json(f"data/{folder}/{config}").get("config")
        if not isinstance(listed, dict):
            raise InvalidModel(f'the archive lists no "{folder}"')
        pickled = [
            name
            for name, entry in listed.items()
            if not isinstance(entry, dict) or entry.get("use_pickle") is not False or entry.get("tensor_meta") is None
        ]
        if pickled:
            raise InvalidCall(f"the file stores {folder} as pickles", given=", ".join(pickled)[:300], do=TRUST)
        raw: dict[str, bytearray] = {}
        result: dict[str, torch.Tensor] = {}
        for name, entry in listed.items():
            place, meta = entry.get("path_name"), entry["tensor_meta"]
            if not DOTTED.fullmatch(name) or not isinstance(place, str):
                raise InvalidModel("a tensor of the archive has no usable name", given=repr(name)[:200])
            if place not in raw:
                raw[place] = bytearray(self._bytes(f"data/{folder}/{place}"))
            try:
                tensor = _strided(raw[place], meta)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise InvalidModel(f'tensor "{name}" of the archive is not valid', given=str(error)[:200]) from error
            is_trained = entry.get("is_param") is True and tensor.is_floating_point()
            result[name] = torch.nn.Parameter(tensor, meta.get("requires_grad") is True) if is_trained else tensor
        return result


def _strided(data: bytearray, meta: Mapping[str, Any]) -> torch.Tensor:
    """A view of raw elements. Raises ``ValueError`` where it exceeds them."""
    if meta["layout"] != _STRIDED or meta["dtype"] not in DTYPES:
        raise ValueError(f"layout {meta['layout']}, element type {meta['dtype']}")
    dtype = DTYPES[meta["dtype"]]
    sizes, strides = [_number(each) for each in meta["sizes"]], [_number(each) for each in meta["strides"]]
    offset = _number(meta["storage_offset"])
    if len(sizes) != len(strides):
        raise ValueError("sizes and strides are not as many")
    limits.check_elements(sizes, "a tensor of the archive")
    if 0 in sizes:
        return torch.zeros(sizes, dtype=dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    whole = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    if (last + 1) * dtype.itemsize > len(data):
        raise ValueError(f"elements up to {last} of {len(data) // dtype.itemsize}")
    elements = whole[: len(data) // dtype.itemsize * dtype.itemsize].view(dtype)
    return torch.as_strided(elements, sizes, strides, offset)


def _number(size: Mapping[str, Any]) -> int:
    number = size["as_int"]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= np.iinfo(np.int64).max:
        raise ValueError(f"the size {number!r}")
    return number
