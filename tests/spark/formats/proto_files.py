"""A descriptor set as `protoc --include_imports -o` writes it, made without protoc."""

from google.protobuf import (
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_F = descriptor_pb2.FieldDescriptorProto
_SINGLE, _REPEATED, _REQUIRED = _F.LABEL_OPTIONAL, _F.LABEL_REPEATED, _F.LABEL_REQUIRED

# name, type, label, name of the type
_ORDER_FIELDS: list[tuple[str, int, int, str]] = [
    ("id", _F.TYPE_INT64, _SINGLE, ""),
    ("small", _F.TYPE_SINT32, _SINGLE, ""),
    ("unsigned", _F.TYPE_UINT32, _SINGLE, ""),
    ("huge", _F.TYPE_UINT64, _SINGLE, ""),
    ("price", _F.TYPE_DOUBLE, _SINGLE, ""),
    ("ratio", _F.TYPE_FLOAT, _SINGLE, ""),
    ("paid", _F.TYPE_BOOL, _SINGLE, ""),
    ("who", _F.TYPE_STRING, _SINGLE, ""),
    ("hash", _F.TYPE_BYTES, _SINGLE, ""),
    ("state", _F.TYPE_ENUM, _SINGLE, ".shop.State"),
    ("first", _F.TYPE_MESSAGE, _SINGLE, ".shop.Order.Item"),
    ("items", _F.TYPE_MESSAGE, _REPEATED, ".shop.Order.Item"),
    ("states", _F.TYPE_ENUM, _REPEATED, ".shop.State"),
    ("counts", _F.TYPE_MESSAGE, _REPEATED, ".shop.Order.CountsEntry"),
    ("at", _F.TYPE_MESSAGE, _SINGLE, ".google.protobuf.Timestamp"),
    ("took", _F.TYPE_MESSAGE, _SINGLE, ".google.protobuf.Duration"),
    ("note", _F.TYPE_MESSAGE, _SINGLE, ".google.protobuf.StringValue"),
    ("cash", _F.TYPE_INT32, _SINGLE, ""),
    ("card", _F.TYPE_STRING, _SINGLE, ""),
]


def shop_file() -> descriptor_pb2.FileDescriptorProto:
    """`shop.proto`: an order with a field of every kind; the second message of its file."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(
        f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=5)
    node = file.message_type.add(name="Node")
    _add(node, "next", 1, _F.TYPE_MESSAGE, type_name=".shop.Node")
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    _add(item, "sku", 1, _F.TYPE_STRING)
    _add(item, "count", 2, _F.TYPE_INT32)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _F.TYPE_STRING)
    _add(entry, "value", 2, _F.TYPE_INT64)
    for number, (name, kind, label, type_name) in enumerate(_ORDER_FIELDS, 1):
        _add(order, name, number, kind, label=label, type_name=type_name)
    order.oneof_decl.add(name="payment")
    for field in order.field[-2:]:
        field.oneof_index = 0
    return file


def old_file() -> descriptor_pb2.FileDescriptorProto:
    """`old.proto`, of proto2: a field that must be there, and two that need not."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="shop", syntax="proto2")
    message = file.message_type.add(name="Old")
    _add(message, "id", 1, _F.TYPE_INT32, label=_REQUIRED)
    _add(message, "name", 2, _F.TYPE_STRING)
    _add(message, "from", 3, _F.TYPE_STRING)
    return file


def hollow_file() -> descriptor_pb2.FileDescriptorProto:
    """`hollow.proto`: fields of types without fields, at every place where a field may have one."""
    file = descriptor_pb2.FileDescriptorProto(name="hollow.proto", package="hollow")
    file.syntax = "proto3"
    file.dependency.append("google/protobuf/empty.proto")
    empty = ".google.protobuf.Empty"
    shell = file.message_type.add(name="Shell")
    _add(shell, "inner", 1, _F.TYPE_MESSAGE, type_name=empty)
    part = file.message_type.add(name="Part")
    _add(part, "nothing", 1, _F.TYPE_MESSAGE, type_name=empty)
    _add(part, "count", 2, _F.TYPE_INT32)
    event = file.message_type.add(name="Event")
    entry = event.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    _add(entry, "key", 1, _F.TYPE_STRING)
    _add(entry, "value", 2, _F.TYPE_MESSAGE, type_name=empty)
    _add(event, "nothing", 1, _F.TYPE_MESSAGE, type_name=empty)
    _add(event, "id", 2, _F.TYPE_INT64)
    _add(event, "many", 3, _F.TYPE_MESSAGE, label=_REPEATED, type_name=empty)
    _add(event, "named", 4, _F.TYPE_MESSAGE, label=_REPEATED, type_name=".hollow.Event.NamedEntry")
    _add(event, "shell", 5, _F.TYPE_MESSAGE, type_name=".hollow.Shell")
    _add(event, "part", 6, _F.TYPE_MESSAGE, type_name=".hollow.Part")
    _add(event, "parts", 7, _F.TYPE_MESSAGE, label=_REPEATED, type_name=".hollow.Part")
    return file


def descriptor_set(*, with_imports: bool = True) -> bytes:
    """All of the above. The files stand before those they import, which must not matter."""
    files = [shop_file(), old_file(), hollow_file()]
    if with_imports:
        for module in (timestamp_pb2, duration_pb2, wrappers_pb2, empty_pb2):
            imported = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(imported)
            files.append(imported)
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def message_class(name: str) -> type[Message]:
    pool = DescriptorPool()
    for file in reversed(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def _add(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: int,
    *,
    label: int = _SINGLE,
    type_name: str = "",
) -> None:
    message.field.add(
        name=name,
        number=number,
        type=kind,
        label=label,
        type_name=type_name or None,
    )
