"""Files with several signatures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tenonnx as tx
from tenonnx.extend import Graph, InvalidCall
from tenonnx.extend.checks import Verification, WrittenFile
from tenonnx.extend.formats import check_output
from tenonnx_litert.conversion import signature_of
from tenonnx_litert.format import annotate, unrounded
from tenonnx_litert.running import READ_STATE, WRITE_STATE, opened_signature
from tenonnx_litert.writing import contents, first_contents_of


def convert_signatures(
    sources: Mapping[str, Any], path: str | os.PathLike[str], *, verify: bool = True, overwrite: bool = False
) -> dict[str, Verification]:
    """Write models as signatures of one ``.tflite`` file, and return the comparison of each in the interpreter.

    ``sources`` maps names of signatures to graphs, or to what ``tenonnx.load`` takes. The first is what the interpreter
    runs without a signature. Equal weights are stored once, and inputs of the state that have the same name are one
    variable. Without ``verify``, nothing is compared.

    Raises ``InvalidCall`` for no sources, a reserved name, states of one name that differ, and an existing file without
    ``overwrite``; ``NotRepresentable`` naming every node that has no form; ``VerificationFailed`` where outputs differ.
    In all these cases nothing is written.
    """
    _check_names(sources)
    path = Path(path)
    check_output(path, overwrite=overwrite)
    graphs = {key: each if isinstance(each, Graph) else tx.load(each) for key, each in sources.items()}
    signatures = {key: signature_of(graph) for key, graph in graphs.items()}
    first = first_contents_of(signatures.values())
    found: dict[str, Verification] = {}
    with TemporaryDirectory(prefix=".tenonnx-", dir=path.absolute().parent) as folder:
        made = Path(folder, path.name)
        made.write_bytes(contents(signatures))
        for key, graph in graphs.items() if verify else ():
            run = opened_signature(made, key, signatures[key].state, first)
            file = WrittenFile(f'LiteRT, signature "{key}"', run, unrounded=unrounded(graph))
            found[key] = tx.verify(graph, graph, structure=False, file=file)
            found[key].raise_if_failed()
        if found:
            annotate(made, "; ".join(f"{key}: {each.verdict}" for key, each in found.items()))
        made.replace(path)
    return found


def _check_names(sources: Mapping[str, Any]) -> None:
    if not sources:
        raise InvalidCall("no signatures were given", do="map names of signatures to models")
    for name in sources:
        if not name or name in (READ_STATE, WRITE_STATE):
            raise InvalidCall("a signature cannot have this name", given=f'"{name}"', do="choose another name")
