"""Structure-aware mutations of ONNX models, so that mutants get past the parser and deep into the library."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

#: Boundary values: around zero, around the limits of integer types, and sizes that exceed memory.
INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    17,
    64,
    65,
    127,
    128,
    255,
    256,
    999,
    1 << 15,
    (1 << 16) + 1,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 36,
    1 << 40,
    1 << 48,
    (1 << 62) + 1,
    (1 << 63) - 1,
    -(1 << 31),
    -(1 << 63),
    -2,
    -7,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 1e10, 3e38, -3e38, float("inf"), float("-inf"), float("nan"), 1e-7, 1e300)
TEXTS = (
    "",
    "x",
    "y",
    "N",
    "N*M+1",
    "é\u202e",
    "a" * 300,
    "\n",
    "../canary",
    "/etc/passwd",
    "(a+)+$",
    "ai.onnx",
    "com.microsoft",
    "ai.onnx.ml",
    "linear",
    "LINEAR",
    "nearest",
    "reflect",
    "SAME_UPPER",
    "tanh",
    "Sigmoid",
    "add",
    "sum",
    "TF",
    "bhk,bkd->bhd",
    "...",
    "ii->",
    "RGB",
    "RIGHT",
    "1/0",
    "N//0",
    "M**9999",
)
LOCATIONS = ("../canary", "canary", "./../canary", "data.bin", "/dev/zero", "", "a/../../canary", "C:\\canary", "\0")

Field = tuple[Message, FieldDescriptor]


def mutant(seeds: Sequence[onnx.ModelProto], seed: int, number: int) -> tuple[bytes, str]:
    """The bytes of a mutant and the suffix of its file, which ``seeds``, ``seed`` and ``number`` determine."""
    dice = random.Random(f"{seed}/{number}")
    model = onnx.ModelProto()
    model.CopyFrom(dice.choice(seeds))
    other = dice.choice(seeds)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _mutate(model, other, dice)
    kind = dice.random()
    if kind < 0.06:
        return _junk(model.SerializePartialToString(), dice), ".onnx"
    if kind < 0.16:
        return _native(model, dice), ".safetensors"
    return model.SerializePartialToString(), ".onnx"


#: Values for each number in turn: from more than the usual number of elements to the largest int64.
HUGE = (1 << 17, 1 << 31, 1 << 40, (1 << 63) - 1)


def sites(seeds: Sequence[onnx.ModelProto]) -> list[tuple[int, int, int]]:
    """Ways to make one number of a seed huge: index of the seed, index of the number, index in ``HUGE``."""
    return [(k, n, huge) for k, seed in enumerate(seeds) for n in range(len(_numbers(seed))) for huge in HUGE]


def enlarged(seeds: Sequence[onnx.ModelProto], site: tuple[int, int, int]) -> tuple[bytes, str]:
    """The bytes of a seed with one number made huge, and the suffix of its file."""
    position, number, huge = site
    model = onnx.ModelProto()
    model.CopyFrom(seeds[position])
    _numbers(model)[number](huge)
    return model.SerializePartialToString(), ".onnx"


def _numbers(model: onnx.ModelProto) -> list[Callable[[int], None]]:
    """Setters for every number that may determine a size: attributes, dims, elements, and equal dims together."""
    result: list[Callable[[int], None]] = []
    lengths: dict[int, list[Any]] = {}
    for message, field in _fields(model):
        if isinstance(message, onnx.AttributeProto) and field.name == "i":
            result.append(partial(setattr, message, "i"))
        elif isinstance(message, onnx.AttributeProto) and field.name == "ints":
            result += [partial(message.ints.__setitem__, place) for place in range(len(message.ints))]
        elif isinstance(message, onnx.TensorShapeProto.Dimension) and field.name == "dim_value":
            result.append(partial(setattr, message, "dim_value"))
            lengths.setdefault(message.dim_value, []).append(message)
    for tensor in _of_type(model, onnx.TensorProto.DESCRIPTOR):
        if isinstance(tensor, onnx.TensorProto) and tensor.data_type == onnx.TensorProto.INT64:
            result += [partial(_set_entry, tensor, place) for place in range(min(len(tensor.raw_data) // 8, 16))]
    result += [partial(_set_all, alike) for alike in lengths.values() if len(alike) > 1]
    return result


def _set_entry(tensor: onnx.TensorProto, place: int, value: int) -> None:
    data = bytearray(tensor.raw_data)
    data[8 * place : 8 * place + 8] = value.to_bytes(8, "little")
    tensor.raw_data = bytes(data)


def _set_all(dims: Sequence[Any], value: int) -> None:
    for dim in dims:
        dim.dim_value = value


# ----- messages -------------------------------------------------------------------------------------------------------


def _fields(message: Message) -> Iterator[Field]:
    """Every field that is set, in the message and its nested messages."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _fields(each)


def _mutate(model: onnx.ModelProto, other: onnx.ModelProto, dice: random.Random) -> None:
    fields = list(_fields(model))
    special = dice.random()
    if special < 0.08:
        _structural(model, fields, dice)
        return
    message, field = dice.choice(fields)
    if special < 0.16:
        field = dice.choice(message.DESCRIPTOR.fields)  # may be unset
    if field.is_repeated:
        _mutate_list(message, field, other, fields, dice)
    elif field.message_type is not None:
        _mutate_message(message, field, other, dice)
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), fields, dice))


def _mutate_list(message: Message, field: FieldDescriptor, other: Message, fields: list[Field], dice: Any) -> None:
    values = getattr(message, field.name)
    place = dice.randrange(len(values)) if len(values) else 0
    way = dice.random()
    if not len(values) or way < 0.2:
        if field.message_type is not None:
            donors = [d for d in _of_type(other, field.message_type) if d is not message]
            values.add().CopyFrom(dice.choice(donors)) if donors else values.add()
        else:
            values.insert(place, _scalar(field, None, fields, dice))
    elif way < 0.4:
        del values[place]
    elif way < 0.5:
        copies = [values[place]] * dice.choice((1, 2, 20))
        values.extend(copies)
    elif way < 0.6:
        order = list(values)
        dice.shuffle(order)
        replaced = (
            [type(each).FromString(each.SerializePartialToString()) for each in order] if field.message_type else order
        )
        del values[:]
        values.extend(replaced)
    elif field.message_type is not None:
        inner = list(_fields(values[place]))
        if inner:
            inside, chosen = dice.choice(inner)
            if not chosen.is_repeated and chosen.message_type is None:
                setattr(inside, chosen.name, _scalar(chosen, getattr(inside, chosen.name), fields, dice))
    else:
        values[place] = _scalar(field, values[place], fields, dice)


def _mutate_message(message: Message, field: FieldDescriptor, other: Message, dice: random.Random) -> None:
    donors = list(_of_type(other, field.message_type))
    if donors and dice.random() < 0.7:
        getattr(message, field.name).CopyFrom(dice.choice(donors))
    elif not isinstance(message, onnx.ModelProto):
        message.ClearField(field.name)


def _of_type(message: Message, wanted: Any) -> Iterator[Message]:
    for holder, field in _fields(message):
        if field.message_type is wanted:
            value = getattr(holder, field.name)
            yield from value if field.is_repeated else [value]


def _scalar(field: FieldDescriptor, old: Any, fields: list[Field], dice: random.Random) -> Any:
    kind = field.cpp_type
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        value = dice.choice(INTEGERS) if old is None or dice.random() < 0.7 else old + dice.choice((-1, 1, 2))
        bits = 31 if kind == field.CPPTYPE_INT32 else 63
        unsigned = kind in (field.CPPTYPE_UINT64, field.CPPTYPE_UINT32)
        return value & ((1 << bits) - 1) if unsigned else max(-(1 << bits), min(value, (1 << bits) - 1))
    if kind == field.CPPTYPE_ENUM:
        return dice.choice([value.number for value in field.enum_type.values])
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return dice.choice(FLOATS)
    if field.type == field.TYPE_BYTES:
        way, previous = dice.random(), old or b""
        if way < 0.3:
            return dice.choice(TEXTS).encode()
        return previous[: len(previous) // 2] if way < 0.5 else _junk(previous or b"\0", dice)
    if dice.random() < 0.6:  # a name from another place of the model
        texts = [getattr(m, f.name) for m, f in fields if f.cpp_type == f.CPPTYPE_STRING and not f.is_repeated]
        texts += [
            n
            for m, f in fields
            if f.name in ("input", "output") and f.is_repeated
            for n in getattr(m, f.name)
            if isinstance(n, str)
        ]
        texts = [text for text in texts if isinstance(text, str)]
        if texts:
            return dice.choice(texts)
    return dice.choice(TEXTS)


def _structural(model: onnx.ModelProto, fields: list[Field], dice: random.Random) -> None:
    """Apply a change of several fields."""
    graphs = [model.graph, *_of_type(model, onnx.GraphProto.DESCRIPTOR)]
    graph: Any = dice.choice(graphs)
    way = dice.randrange(9)
    if way == 0 and len(graph.initializer):
        tensor = dice.choice(graph.initializer)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", dice.choice(LOCATIONS)), ("offset", "0"), ("length", "8")):
            tensor.external_data.add(key=key, value=value)
    elif way == 1 and len(graph.initializer):
        tensor = dice.choice(graph.initializer)
        sparse = graph.sparse_initializer.add(dims=[dice.choice(INTEGERS) for _ in range(dice.randrange(3))])
        sparse.values.CopyFrom(tensor)
        sparse.indices.data_type = onnx.TensorProto.INT64
        sparse.indices.int64_data.extend([0, dice.choice(INTEGERS)])
        sparse.indices.dims.append(2)
        tensor.name += "_dense"
    elif way == 2 and len(graph.node):
        name = "F" + str(dice.randrange(3))
        function = model.functions.add(name=name, domain="local")
        node = dice.choice(graph.node)
        function.input.extend(node.input)
        function.output.extend(node.output)
        function.node.add().CopyFrom(node)
        if dice.random() < 0.5:  # its nodes may call other functions or itself
            function.node.add(op_type="F" + str(dice.randrange(3)), domain="local", input=node.output, output=["z"])
        function.opset_import.extend([*model.opset_import, onnx.helper.make_opsetid("local", 1)])
        model.opset_import.add(domain="local", version=1)
        node.op_type, node.domain = name, "local"
        del node.attribute[:]
    elif way == 3 and len(graph.node):
        node = dice.choice(graph.node)
        inner = onnx.GraphProto(name="inner")
        inner.node.add().CopyFrom(node)
        inner.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
        outputs = list(node.output)
        node.Clear()
        node.op_type = "If"
        node.input.append(graph.input[0].name if len(graph.input) else "x")
        node.output.extend(outputs)
        for name in ("then_branch", "else_branch"):
            node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g.CopyFrom(inner)
    elif way == 4 and len(model.opset_import):
        dice.choice(model.opset_import).version = dice.choice((1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 18, 21, 23, 99))
    elif way == 5 and len(graph.node):
        attributes = [a for node in graph.node for a in node.attribute]
        if attributes:
            dice.choice(attributes).type = dice.randrange(15)
    elif way == 6 and len(graph.initializer):  # numbers become strings
        tensor = dice.choice(graph.initializer)
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
        tensor.data_type = onnx.TensorProto.STRING
        count = min(64, max(0, math.prod(tensor.dims)))
        tensor.string_data[:] = [dice.choice(TEXTS).encode() for _ in range(count)]
    elif way == 7:  # a value becomes a string, a sequence, an optional value or a map
        kind = dice.choice([value.type for value in (*graph.input, *graph.output)] or [onnx.TypeProto()])
        inner = onnx.TypeProto()
        inner.CopyFrom(kind)
        if dice.random() < 0.4:
            kind.tensor_type.elem_type = onnx.TensorProto.STRING
        elif dice.random() < 0.5:
            kind.sequence_type.elem_type.CopyFrom(inner)
        elif dice.random() < 0.7:
            kind.optional_type.elem_type.CopyFrom(inner)
        else:
            kind.map_type.key_type = dice.choice((onnx.TensorProto.STRING, onnx.TensorProto.INT64))
            kind.map_type.value_type.CopyFrom(inner)
    elif len(graph.initializer):  # makes an initializer an input or back, which inference treats differently
        tensor = dice.choice(graph.initializer)
        if tensor.name not in {value.name for value in graph.input}:
            value = graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            value.type.tensor_type.shape.dim.extend([])
            for dim in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=dim)
            if dice.random() < 0.8:
                graph.initializer.remove(tensor)


# ----- bytes ----------------------------------------------------------------------------------------------------------


def _junk(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        if not changed:
            break
        place = dice.randrange(len(changed))
        way = dice.randrange(4)
        if way == 0:
            changed[place] ^= 1 << dice.randrange(8)
        elif way == 1:
            del changed[place : place + dice.choice((1, 4, 100))]
        elif way == 2:
            changed[place:place] = dice.randbytes(dice.choice((1, 4, 16)))
        else:
            changed[place] = dice.choice((0, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def _native(model: onnx.ModelProto, dice: random.Random) -> bytes:
    """A native file of the model with a changed header, with changed bytes, or unchanged."""
    payload, header, end = bytearray(), {}, 0
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        header[tensor.name] = {"dtype": "F32", "shape": [len(raw) // 4], "data_offsets": [end, end + len(raw)]}
        if tensor.data_type == onnx.TensorProto.FLOAT:
            header[tensor.name]["shape"] = [max(0, d) for d in tensor.dims]
        elif tensor.data_type == onnx.TensorProto.INT64:
            header[tensor.name] |= {"dtype": "I64", "shape": [max(0, d) for d in tensor.dims]}
        tensor.ClearField("raw_data")
        payload += raw
        end += len(raw)
        if dice.random() < 0.2:
            tensor.external_data.add(key="field", value=dice.choice(("raw_data", "float_data", "int64_data", "", "no")))
    graph = base64.b64encode(model.SerializePartialToString()).decode()
    header["__metadata__"] = {"format": "tenonnx", "tenonnx.version": "1", "tenonnx.graph": graph}
    if dice.random() < 0.4:
        entries = [entry for name, entry in header.items() if name != "__metadata__"] or [header["__metadata__"]]
        entry = dice.choice(entries)
        key = dice.choice(list(entry))
        entry[key] = dice.choice(([], [0], [1 << 62, 1 << 62], "F64", "U8", -1, None, {}, [0, 1 << 40], "!", 1.5, [[]]))
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(payload)
    return _junk(data, dice) if dice.random() < 0.2 else data
