"""Serialization of a graph of builtin operators as a flatbuffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tflite

from tenonnx.extend import Graph, InvalidCall, NotRepresentable
from tenonnx_litert.reading.reader import VERIFICATION
from tenonnx_litert.running import READ_STATE, WRITE_STATE
from tenonnx_litert.state import STATE, Signature
from tenonnx_litert.subgraphs import Interface, Subgraph
from tenonnx_litert.tables import Tables

#: The version of the schema.
_SCHEMA = 3

#: Bytes that the metadata reserves for the verdict of the comparison, which runs after the file is written.
VERIFICATION_SIZE = 128

#: Operator versions other than 1; the interpreter lacks version 1 of these.
_VERSIONS = {"BROADCAST_TO": 2}


def contents(signatures: Mapping[str, Signature]) -> bytes:
    """Serialize graphs of builtin operators, keyed by signature name, to the bytes of a ``.tflite`` file.

    Raises ``NotRepresentable`` for an element type that a file cannot hold and for more than 2 GiB; ``InvalidCall``
    if two signatures give a state of the same name different initial contents.
    """
    names = {value.name for each in signatures.values() for value in each.source.values()}
    return _File(names).finished(signatures)


def with_verification(contents: bytes, verdict: str) -> bytes:
    """Write a verdict into the metadata of a file, truncated to ``VERIFICATION_SIZE`` bytes."""
    file = bytearray(contents)
    model = tflite.Model.GetRootAsModel(file, 0)
    for place in range(model.MetadataLength()):
        entry = model.Metadata(place)
        if entry.Name() == VERIFICATION.encode():
            text = verdict.encode()[:VERIFICATION_SIZE].decode(errors="ignore").encode().ljust(VERIFICATION_SIZE)
            model.Buffers(entry.Buffer()).DataAsNumpy()[:] = np.frombuffer(text, np.uint8)
    return bytes(file)


class _File(Tables):
    def finished(self, signatures: Mapping[str, Signature]) -> bytes:
        variables = {id(v): v for each in signatures.values() for v in each.graph.variables if v.data is not None}
        size = sum(v.data.nbytes for v in variables.values())  # type: ignore[union-attr]
        if size > 2**31 - 2**20:
            raise NotRepresentable("the model is larger than a LiteRT file can be (2 GiB)", given=f"{size:,} bytes")
        first = first_contents_of(signatures.values())
        self.subgraphs = [0] * (len(signatures) + bool(first))
        self.first = len(signatures) if first else None
        entries = []
        for place, (key, each) in enumerate(signatures.items()):
            entries.append((key, place, Subgraph(self, each.graph).written_with_state(place, each)))
        if first:
            self.subgraphs[len(signatures)] = Subgraph(self, Graph("first_state")).assigned(first)
            for key, is_read in ((READ_STATE, True), (WRITE_STATE, False)):
                entries.append((key, len(self.subgraphs), Subgraph(self, Graph(key)).accessed(first, is_read)))
        builder = self.builder
        subgraphs = self.vector(tflite.ModelStartSubgraphsVector, self.subgraphs)
        listed = [self.signature(*each) for each in entries]
        signatures_at = self.vector(tflite.ModelStartSignatureDefsVector, listed)
        codes = self.vector(tflite.ModelStartOperatorCodesVector, [self.code(name) for name in self.codes])
        texts = {k: text for each in signatures.values() for k, text in each.source.metadata.items() if k != STATE}
        texts[VERIFICATION] = " " * VERIFICATION_SIZE
        metadata = self.vector(tflite.ModelStartMetadataVector, [self.entry(*each) for each in texts.items()])
        buffers = self.vector(tflite.ModelStartBuffersVector, [self.buffer(raw) for raw in self.data])
        description = builder.CreateString("tenonnx")
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, _SCHEMA)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, subgraphs)
        tflite.ModelAddDescription(builder, description)
        tflite.ModelAddBuffers(builder, buffers)
        tflite.ModelAddSignatureDefs(builder, signatures_at)
        tflite.ModelAddMetadata(builder, metadata)
        builder.Finish(tflite.ModelEnd(builder), b"TFL3")
        return bytes(builder.Output())

    # ----- parts ------------------------------------------------------------------------------------------------------

    def entry(self, name: str, text: str) -> int:
        """A metadata entry; its text gets a separate buffer."""
        label = self.builder.CreateString(name)
        self.data.append(text.encode())
        return self.table("Metadata", {"Name": label, "Buffer": len(self.data) - 1})

    def code(self, name: str) -> int:
        number = getattr(tflite.BuiltinOperator, name)
        fields = {
            "DeprecatedBuiltinCode": min(number, 127),
            "Version": _VERSIONS.get(name, 1),
            "BuiltinCode": number,
        }
        return self.table("OperatorCode", fields)

    def signature(self, key: str, place: int, interface: Interface) -> int:
        maps = []
        for start, tensors in (
            (tflite.SignatureDefStartInputsVector, interface.inputs),
            (tflite.SignatureDefStartOutputsVector, interface.outputs),
        ):
            entries = []
            for name, tensor in tensors:
                label = self.builder.CreateSharedString(name)
                tflite.TensorMapStart(self.builder)
                tflite.TensorMapAddName(self.builder, label)
                tflite.TensorMapAddTensorIndex(self.builder, tensor)
                entries.append(tflite.TensorMapEnd(self.builder))
            maps.append(self.vector(start, entries))
        label = self.builder.CreateString(key)
        fields = {"Inputs": maps[0], "Outputs": maps[1], "SignatureKey": label, "SubgraphIndex": place}
        return self.table("SignatureDef", fields)


def first_contents_of(signatures: Iterable[Signature]) -> dict[str, np.ndarray[Any, Any]]:
    """Initial contents of the variables by name; signatures share variables of the same name.

    Raises ``InvalidCall`` if two signatures initialize the same variable differently.
    """
    contents: dict[str, np.ndarray[Any, Any]] = {}
    for each in signatures:
        for name, array in each.first.items():
            other = contents.setdefault(name, array)
            if other.dtype != array.dtype or not np.array_equal(other, array):
                raise InvalidCall(
                    f'signatures have different first contents of the state "{name}"',
                    given=f"{other.dtype.name}{list(other.shape)} and {array.dtype.name}{list(array.shape)}",
                    do="give one of them another name",
                )
    return contents
