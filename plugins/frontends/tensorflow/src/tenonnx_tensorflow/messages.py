"""TensorFlow's protobuf messages, as far as needed for graphs, without TensorFlow.

Numbers and types of fields are those of ``tensorflow/core/framework/*.proto`` and ``core/protobuf/*.proto``; unknown
fields are skipped. Maps are lists of entries, ``key`` and ``value``.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tenonnx.extend import InvalidModel

#: Fields by message: number, name and type, with a star for repeated ones.
_FIELDS = {
    "Dim": "1 size int64, 2 name string",
    "Shape": "2 dim Dim*, 3 unknown_rank bool",
    "Tensor": "1 dtype int32, 2 tensor_shape Shape, 4 tensor_content bytes, 5 float_val float*, 6 double_val double*, "
    "7 int_val int32*, 8 string_val bytes*, 9 scomplex_val float*, 10 int64_val int64*, 11 bool_val bool*, "
    "12 dcomplex_val double*, 13 half_val int32*, 16 uint32_val uint32*, 17 uint64_val uint64*, 18 float8_val bytes",
    "Function": "1 name string, 2 attr Attribute*",
    "List": "2 s bytes*, 3 i int64*, 4 f float*, 5 b bool*, 6 type int32*, 7 shape Shape*, 8 tensor Tensor*, "
    "9 func Function*",
    "Content": "1 list List, 2 s bytes, 3 i int64, 4 f float, 5 b bool, 6 type int32, 7 shape Shape, 8 tensor Tensor, "
    "9 placeholder string, 10 func Function",
    "Attribute": "1 key string, 2 value Content",
    "Node": "1 name string, 2 op string, 3 input string*, 4 device string, 5 attr Attribute*",
    "Argument": "1 name string, 3 type int32, 4 type_attr string, 5 number_attr string, 6 type_list_attr string",
    "Signature": "1 name string, 2 input_arg Argument*, 3 output_arg Argument*, 17 is_stateful bool",
    "Result": "1 key string, 2 value string",
    "ArgumentAttributes": "1 attr Attribute*",
    "ArgumentEntry": "1 key uint32, 2 value ArgumentAttributes",
    "FunctionDef": "1 signature Signature, 3 node_def Node*, 4 ret Result*, 5 attr Attribute*, 6 control_ret Result*, "
    "7 arg_attr ArgumentEntry*",
    "Library": "1 function FunctionDef*",
    "GraphDef": "1 node Node*, 2 library Library",
    "TensorInfo": "1 name string, 2 dtype int32, 3 tensor_shape Shape",
    "InfoEntry": "1 key string, 2 value TensorInfo",
    "SignatureDef": "1 inputs InfoEntry*, 2 outputs InfoEntry*, 3 method_name string",
    "SignatureEntry": "1 key string, 2 value SignatureDef",
    "Saver": "1 filename_tensor_name string, 2 save_tensor_name string, 3 restore_op_name string",
    "AssetFile": "1 tensor_info TensorInfo, 2 filename string",
    "MetaInfo": "4 tags string*",
    "Child": "1 node_id int32, 2 local_name string",
    "SavedVariable": "1 dtype int32, 2 shape Shape, 3 trainable bool, 6 name string",
    "SavedObject": "1 children Child*, 7 variable SavedVariable",
    "SavedObjects": "1 nodes SavedObject*",
    "MetaGraph": "1 meta_info_def MetaInfo, 2 graph_def GraphDef, 3 saver_def Saver, 5 signature_def SignatureEntry*, "
    "6 asset_file_def AssetFile*, 7 object_graph_def SavedObjects",
    "SavedModel": "1 saved_model_schema_version int64, 2 meta_graphs MetaGraph*",
    "BundleHeader": "1 num_shards int32, 2 endianness int32",
    "BundleEntry": "1 dtype int32, 2 shape Shape, 3 shard_id int32, 4 offset int64, 5 size int64, 6 crc32c fixed32, "
    "7 slices Slice*",
    "Extent": "1 start int64, 2 length int64",
    "Slice": "1 extent Extent*",
    "Attachment": "1 local_name string, 2 checkpoint_key string",
    "ObjectAttribute": "1 name string, 2 full_name string, 3 checkpoint_key string",
    "ObjectNode": "1 children Child*, 2 attributes ObjectAttribute*",
    "Objects": "1 nodes ObjectNode*",
}


def _classes() -> dict[str, Any]:
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tenonnx_tensorflow.proto", package="tenonnx", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            number, label, kind = field.split()
            new_field = message.field.add(name=label, number=int(number))
            new_field.label = types.LABEL_REPEATED if kind.endswith("*") else types.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _FIELDS:
                new_field.type, new_field.type_name = types.TYPE_MESSAGE, f".tenonnx.{kind}"
            else:
                new_field.type = getattr(types, f"TYPE_{kind.upper()}")
            if name == "Content":
                new_field.oneof_index = 0
        if name == "Content":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tenonnx.{n}")) for n in _FIELDS}


_CLASSES = _classes()


def parse(kind: str, contents: bytes, what: str) -> Any:
    """Parse a message. Raises ``InvalidModel`` naming ``what`` if the bytes are invalid."""
    message = _CLASSES[kind]()
    try:
        message.ParseFromString(contents)
    except DecodeError as error:
        raise InvalidModel(f"{what} is not a {kind} message of TensorFlow", given=str(error)) from error
    return message
