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

    ``sources`` maps names of signatures to graphs, or to sources that ``tenonnx.load`` reads. The interpreter runs the
    first one if no signature is selected. Equal weights are stored once, and state inputs of the same name share one
    variable. ``verify=False`` skips the comparison.

    Raises ``InvalidCall`` for no sources, a reserved name, different initial contents of the same state, and an
    existing file without ``overwrite``; ``NotRepresentable`` naming every node that LiteRT cannot express;
    ``VerificationFailed`` if outputs differ. No file is written then.
    """
    _check_names(sources)
    path = Path(path)
    check_output(path, overwrite=overwrite)
    graphs = {key: each if isinstance(each, Graph) else tx.load(each) for key, each in sources.items()}
    signatures = {key: signature_of(graph) for key, graph in graphs.items()}
    first = first_contents_of(signatures.values())
    verifications: dict[str, Verification] = {}
    with TemporaryDirectory(prefix=".tenonnx-", dir=path.absolute().parent) as folder:
        temporary = Path(folder, path.name)
        temporary.write_bytes(contents(signatures))
        for key, graph in graphs.items() if verify else ():
            run = opened_signature(temporary, key, signatures[key].state, first)
            file = WrittenFile(f'LiteRT, signature "{key}"', run, unrounded=unrounded(graph))
            verifications[key] = tx.verify(graph, graph, structure=False, file=file)
            verifications[key].raise_if_failed()
        if verifications:
            annotate(temporary, "; ".join(f"{key}: {each.verdict}" for key, each in verifications.items()))
        temporary.replace(path)
    return verifications


def _check_names(sources: Mapping[str, Any]) -> None:
    if not sources:
        raise InvalidCall("no signatures were given", do="map names of signatures to models")
    for name in sources:
        if not name or name in (READ_STATE, WRITE_STATE):
            raise InvalidCall("a signature cannot have this name", given=f'"{name}"', do="choose another name")
