"""Seeds with strings, sequences, optional values and maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper
from onnx.helper import make_graph, make_node, make_sequence_type_proto, make_tensor_type_proto

if TYPE_CHECKING:
    from google.protobuf.message import Message

STRING, FLOAT, INT64, BOOL = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

_IMPORTS = {"": 21, "ai.onnx.ml": 4, "com.microsoft": 1, "local": 1}

#: Fields of a ``TypeProto`` that is not a tensor.
_TYPES = {"sequence_type", "optional_type", "map_type"}

#: Parts of the names of ops on such values.
_OPS = ("Sequence", "Optional", "String", "Map")


def of_lists(model: ModelProto) -> bool:
    """Whether a model has strings, sequences, optional values or maps."""
    return any(
        getattr(message, "data_type", None) == STRING
        or getattr(message, "elem_type", None) == STRING
        or (isinstance(message, TypeProto) and message.WhichOneof("value") in _TYPES)
        or (isinstance(message, NodeProto) and any(part in message.op_type for part in _OPS))
        for message in _messages(model)
    )


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from _messages(each)


# ----- parts ----------------------------------------------------------------------------------------------------------


def _tensor(kind: int, *dims: int | str) -> TypeProto:
    return make_tensor_type_proto(kind, list(dims))


def _value(name: str, kind: TypeProto | None = None) -> ValueInfoProto:
    return helper.make_value_info(name, kind) if kind is not None else ValueInfoProto(name=name)


def _text(name: str, *texts: str) -> TensorProto:
    return helper.make_tensor(name, STRING, [len(texts)], [text.encode() for text in texts])


def _numbers(name: str, contents: Any, dtype: type = np.int64) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(contents, dtype), name)


def _ml(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> NodeProto:
    return make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def _model(
    nodes: list[NodeProto], inputs: dict[str, TypeProto], outputs: str, *initializers: TensorProto
) -> ModelProto:
    graph = make_graph(
        nodes, "g", [_value(*item) for item in inputs.items()], [_value(name) for name in outputs.split()], initializers
    )
    imports = [helper.make_opsetid(*item) for item in _IMPORTS.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _body(nodes: list[NodeProto], carried: str, kind: TypeProto, *scanned: str) -> GraphProto:
    """The body of a loop with one carried value, ``carried``, updated as ``next``, and scan outputs."""
    inputs = [_value("n", _tensor(INT64)), _value("k", _tensor(BOOL)), _value(carried, kind)]
    outputs = [_value("k1", _tensor(BOOL)), _value("next", kind), *(_value(name, _tensor(STRING)) for name in scanned)]
    return make_graph([make_node("Identity", ["k"], ["k1"]), *nodes], "body", inputs, outputs)


# ----- seeds ----------------------------------------------------------------------------------------------------------


def lists() -> dict[str, ModelProto]:
    return {**_texts(), **_text_in_graphs(), **_sequences(), **_optionals(), **_maps()}


def _texts() -> dict[str, ModelProto]:
    t = {"t": _tensor(STRING, "N", 2)}
    found = {
        "growing": _model(
            [make_node("StringConcat", [a, a], [b]) for a, b in ("ts", "su", "uv", "vy")],
            {},
            "y",
            _text("t", "ab", "c"),
        ),
        "joined": _model(
            [
                make_node("StringConcat", ["t", "end"], ["a"]),
                make_node("StringSplit", ["a"], ["pieces", "counts"], delimiter=",", maxsplit=3),
                make_node("Gather", ["pieces", "first"], ["b"], axis=-1),
                make_node("RegexFullMatch", ["b"], ["matched"], pattern=r"[a-z]+\d*"),
                make_node("Equal", ["b", "t"], ["y"]),
            ],
            t,
            "counts matched y",
            _text("end", ",x1"),
            _numbers("first", 0),
        ),
        "numbers": _model(
            [
                make_node("Cast", ["x"], ["a"], to=STRING),
                make_node("StringConcat", ["a", "zeros"], ["b"]),
                make_node("Cast", ["b"], ["c"], to=FLOAT),
                make_node("Mul", ["c", "x"], ["y"]),
            ],
            {"x": _tensor(FLOAT, "N", 2)},
            "y",
            _text("zeros", "0", "00"),
        ),
        "normalized": _model(
            [
                make_node("Concat", ["words", "stops"], ["a"], axis=0),
                make_node(
                    "StringNormalizer",
                    ["a"],
                    ["b"],
                    case_change_action="LOWER",
                    stopwords=["The", "a"],
                    is_case_sensitive=0,
                    locale="en_US",
                ),
                make_node("Unique", ["b"], ["c", "i", "j", "counts"], sorted=1),
                make_node(
                    "TfIdfVectorizer",
                    ["b"],
                    ["y"],
                    mode="TFIDF",
                    min_gram_length=1,
                    max_gram_length=2,
                    max_skip_count=1,
                    ngram_counts=[0, 2],
                    ngram_indexes=[0, 1, 2],
                    pool_strings=["one", "two", "one", "two"],
                    weights=[1.0, 2.0, 0.5],
                ),
            ],
            {"words": _tensor(STRING, "N")},
            "c counts y",
            _text("stops", "THE", "one", "Two"),
        ),
        "moved": _model(
            [
                make_node("Reshape", ["t", "s"], ["a"]),
                make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
                make_node("Pad", ["b", "pads", "fill"], ["c"]),
                make_node("Expand", ["c", "wide"], ["d"]),
                make_node("Slice", ["d", "from", "to"], ["e"]),
                make_node("Tile", ["e", "from"], ["f"]),
                make_node("Squeeze", ["fill"], ["g"]),
                make_node("Concat", ["e", "f"], ["h"], axis=0),
                make_node("Where", ["c?", "h", "g"], ["y"]),
            ],
            t | {"c?": _tensor(BOOL)},
            "y",
            _numbers("s", [2, -1]),
            _numbers("pads", [1, 0, 0, 1]),
            _text("fill", "-"),
            _numbers("wide", [2, 1, 1]),
            _numbers("from", [0, 1, 1]),
            _numbers("to", [9, 9, 2]),
        ),
        "scattered": _model(
            [
                make_node("GatherND", ["t", "at"], ["a"]),
                make_node("ScatterND", ["t", "at", "a"], ["b"]),
                make_node("GatherElements", ["b", "at"], ["c"], axis=1),
                make_node("ScatterElements", ["b", "at", "c"], ["d"], axis=1),
                make_node("Compress", ["d", "keep"], ["e"], axis=1),
                make_node("OneHot", ["at", "depth", "pair"], ["y"]),
                make_node("Shape", ["e"], ["z"]),
            ],
            t,
            "y z",
            _numbers("at", [[0, 1], [1, 0]]),
            _numbers("keep", [True, False], bool),
            _numbers("depth", 3),
            _text("pair", "off", "on"),
        ),
        "encoded": _model(
            [
                _ml("LabelEncoder", ["t"], ["a"], keys_strings=["a", "b"], values_int64s=[1, 2], default_int64=-1),
                _ml("LabelEncoder", ["a"], ["b"], keys_int64s=[1, 2], values_strings=["x", "y"], default_string="?"),
                _ml("CategoryMapper", ["b"], ["c"], cats_int64s=[3, 4], cats_strings=["x", "y"], default_int64=0),
                _ml("OneHotEncoder", ["b"], ["y"], cats_strings=["x", "y"], zeros=1),
                _ml("ArrayFeatureExtractor", ["b", "one"], ["z"]),
            ],
            t,
            "c y z",
            _numbers("one", [1]),
        ),
        "tokens": _model(
            [
                make_node(
                    "Tokenizer",
                    ["words"],
                    ["a"],
                    domain="com.microsoft",
                    mark=1,
                    mincharnum=1,
                    pad_value="#",
                    separators=[" ", "-"],
                ),
                make_node("MurmurHash3", ["a"], ["y"], domain="com.microsoft", seed=7, positive=0),
            ],
            {"words": _tensor(STRING, "N")},
            "a y",
        ),
    }
    return {f"text-{name}": model for name, model in found.items()}


def _text_in_graphs() -> dict[str, ModelProto]:
    t, one = {"t": _tensor(STRING, "N")}, _tensor(STRING, "N")
    twice = _body(
        [make_node("StringConcat", ["v", "v"], ["next"]), make_node("Identity", ["v"], ["seen"])], "v", one, "seen"
    )
    digits = _body(
        [make_node("Cast", ["n"], ["digit"], to=STRING), make_node("StringConcat", ["v", "digit"], ["next"])], "v", one
    )
    step = make_graph(
        [make_node("StringConcat", ["h", "r"], ["h1"]), make_node("Identity", ["h1"], ["o"])],
        "step",
        [_value("h", _tensor(STRING)), _value("r", _tensor(STRING))],
        [_value("h1"), _value("o")],
    )
    upper = make_node("StringNormalizer", ["a"], ["b"])
    upper.attribute.add(name="case_change_action", type=AttributeProto.STRING, ref_attr_name="case")
    stop = make_node("StringNormalizer", ["b"], ["c"])
    stop.attribute.add(name="stopwords", type=AttributeProto.STRINGS, ref_attr_name="stops")
    imports = [helper.make_opsetid("", 21)]
    cleaned = helper.make_function("local", "Clean", ["a"], ["c"], [upper, stop], imports, ["case", "stops"])
    found = {
        "loop": _model([make_node("Loop", ["m", "", "t"], ["y", "all"], body=twice)], t, "y all", _numbers("m", 3)),
        "known_loop": _model(
            [make_node("Loop", ["m", "", "t"], ["y"], body=digits)], {}, "y", _numbers("m", 4), _text("t", "a", "b")
        ),
        "scan": _model(
            [make_node("Scan", ["b", "t"], ["last", "y"], body=step, num_scan_inputs=1)],
            t,
            "last y",
            helper.make_tensor("b", STRING, [], [b"_"]),
        ),
        "branches": _model(
            [
                make_node(
                    "If",
                    ["c"],
                    ["y"],
                    then_branch=make_graph([make_node("StringConcat", ["t", "t"], ["p"])], "then", [], [_value("p")]),
                    else_branch=make_graph(
                        [make_node("Constant", [], ["q"], value_strings=["no"])], "else", [], [_value("q")]
                    ),
                )
            ],
            t | {"c": _tensor(BOOL)},
            "y",
        ),
        "function": _model([make_node("Clean", ["t"], ["y"], domain="local", case="UPPER", stops=["a"])], t, "y"),
    }
    found["function"].functions.append(cleaned)
    return {f"text-{name}": model for name, model in found.items()}


def _sequences() -> dict[str, ModelProto]:
    x, rows = {"x": _tensor(FLOAT, "N", 4)}, make_sequence_type_proto(_tensor(FLOAT, "K"))
    texts = make_sequence_type_proto(_tensor(STRING, "K"))
    longer = _body([make_node("SequenceInsert", ["q", "row"], ["next"])], "q", rows)
    longer.node.insert(0, make_node("Gather", ["x", "n"], ["row"]))
    both = _body(
        [
            make_node("SequenceAt", ["q", "n"], ["item"]),
            make_node("StringConcat", ["item", "item"], ["both"]),
            make_node("SequenceInsert", ["q", "both"], ["next"]),
        ],
        "q",
        texts,
    )
    mapped = make_graph(
        [make_node("Mul", ["e", "f"], ["g"]), make_node("Shape", ["g"], ["h"])],
        "each",
        [_value("e", _tensor(FLOAT, "K")), _value("f", _tensor(FLOAT, "K"))],
        [_value("g"), _value("h")],
    )
    found = {
        "pieces": _model(
            [
                make_node("SplitToSequence", ["x", "sizes"], ["q"], axis=1),
                make_node("SequenceErase", ["q", "last"], ["r"]),
                make_node("SequenceInsert", ["r", "x", "zero"], ["s"]),
                make_node("SequenceLength", ["s"], ["n"]),
                make_node("ConcatFromSequence", ["s"], ["y"], axis=-1),
            ],
            x,
            "n y",
            _numbers("sizes", [1, 2, 1]),
            _numbers("last", -1),
            _numbers("zero", 0),
        ),
        "stacked": _model(
            [
                make_node("SplitToSequence", ["x"], ["q"], axis=1, keepdims=0),
                make_node("ReverseSequence", ["x", "lengths"], ["back"], batch_axis=1, time_axis=0),
                make_node("ConcatFromSequence", ["q"], ["y"], axis=0, new_axis=1),
            ],
            {"x": _tensor(FLOAT, 3, 4)},
            "y back",
            _numbers("lengths", [1, 2, 3, 1]),
        ),
        "of_text": _model(
            [
                make_node("SplitToSequence", ["t", "one"], ["q"]),
                make_node("SequenceAt", ["q", "minus"], ["a"]),
                make_node("StringConcat", ["a", "a"], ["b"]),
                make_node("SequenceInsert", ["q", "b"], ["r"]),
                make_node("ConcatFromSequence", ["r"], ["y"], axis=0),
            ],
            {"t": _tensor(STRING, 4)},
            "y",
            _numbers("one", 1),
            _numbers("minus", -1),
        ),
        "grown": _model(
            [
                make_node("SequenceEmpty", [], ["q"], dtype=FLOAT),
                make_node("Loop", ["m", "", "q"], ["r"], body=longer),
                make_node("ConcatFromSequence", ["r"], ["y"], axis=0, new_axis=1),
            ],
            {"x": _tensor(FLOAT, 2, 4)},
            "y",
            _numbers("m", 2),
        ),
        "grown_text": _model(
            [make_node("Loop", ["m", "", "q"], ["r"], body=both), make_node("SequenceAt", ["r", "m"], ["y"])],
            {"q": texts},
            "y",
            _numbers("m", 2),
        ),
        "mapped": _model(
            [
                make_node("SplitToSequence", ["x", "one"], ["q"]),
                make_node("SequenceMap", ["q", "x"], ["r", "shapes"], body=mapped),
                make_node("ConcatFromSequence", ["r"], ["y"], axis=0),
            ],
            x,
            "y shapes",
            _numbers("one", 1),
        ),
        "given": _model(
            [
                make_node("SequenceLength", ["q"], ["n"]),
                make_node("SequenceAt", ["q", "zero"], ["a"]),
                make_node("SequenceConstruct", ["a", "a", "a"], ["r"]),
                make_node("Identity", ["r"], ["y"]),
            ],
            {"q": rows},
            "n y",
            _numbers("zero", 0),
        ),
        "branches": _model(
            [
                make_node("SequenceConstruct", ["x", "x"], ["q"]),
                make_node(
                    "If",
                    ["c"],
                    ["r"],
                    then_branch=make_graph([make_node("SequenceErase", ["q"], ["p"])], "then", [], [_value("p")]),
                    else_branch=make_graph([make_node("SequenceInsert", ["q", "x"], ["s"])], "else", [], [_value("s")]),
                ),
                make_node("ConcatFromSequence", ["r"], ["y"], axis=0),
            ],
            x | {"c": _tensor(BOOL)},
            "y",
        ),
    }
    return {f"sequence-{name}": model for name, model in found.items()}


def _optionals() -> dict[str, ModelProto]:
    maybe = helper.make_optional_type_proto(_tensor(FLOAT, "N"))
    many = helper.make_optional_type_proto(make_sequence_type_proto(_tensor(STRING, "N")))
    subgraph = make_graph([make_node("OptionalGetElement", ["o"], ["p"])], "held", [], [_value("p")])
    absent = make_graph(
        [make_node("Constant", [], ["z"], value_floats=[0.0])], "absent", [], [_value("z", _tensor(FLOAT, 1))]
    )
    found = {
        "either": _model(
            [
                make_node("OptionalHasElement", ["o"], ["h"]),
                make_node("If", ["h"], ["y"], then_branch=subgraph, else_branch=absent),
            ],
            {"o": maybe},
            "h y",
        ),
        "made": _model(
            [
                make_node("Optional", ["x"], ["o"]),
                make_node("OptionalGetElement", ["o"], ["a"]),
                make_node("Optional", [], ["nothing"], type=_tensor(FLOAT, 2)),
                make_node("OptionalHasElement", ["nothing"], ["h"]),
                make_node("Neg", ["a"], ["y"]),
            ],
            {"x": _tensor(FLOAT, "N")},
            "h y",
        ),
        "texts": _model(
            [
                make_node("OptionalGetElement", ["o"], ["q"]),
                make_node("SequenceAt", ["q", "one"], ["a"]),
                make_node("StringConcat", ["a", "a"], ["b"]),
                make_node("SequenceInsert", ["q", "b"], ["r"]),
                make_node("Optional", ["r"], ["y"]),
            ],
            {"o": many},
            "y",
            _numbers("one", 1),
        ),
    }
    return {f"optional-{name}": model for name, model in found.items()}


def _maps() -> dict[str, ModelProto]:
    words = helper.make_map_type_proto(STRING, _tensor(FLOAT))
    codes = helper.make_map_type_proto(INT64, _tensor(FLOAT))
    found = {
        "zipped": _model(
            [
                make_node("Softmax", ["x"], ["p"], axis=-1),
                _ml("ZipMap", ["p"], ["y"], classlabels_strings=["a", "b", "c"]),
                _ml("ZipMap", ["p"], ["z"], classlabels_int64s=[0, 1, 5]),
            ],
            {"x": _tensor(FLOAT, "N", 3)},
            "y z",
        ),
        "cast": _model(
            [
                _ml("CastMap", ["m"], ["y"], cast_to="TO_FLOAT", map_form="SPARSE", max_map=4),
                _ml("CastMap", ["m"], ["z"], cast_to="TO_STRING", map_form="DENSE"),
            ],
            {"m": codes},
            "y z",
        ),
        "vector": _model(
            [_ml("DictVectorizer", ["m"], ["y"], string_vocabulary=["0", "1", "b"]), make_node("Neg", ["y"], ["z"])],
            {"m": words},
            "y z",
        ),
    }
    return {f"map-{name}": model for name, model in found.items()}
