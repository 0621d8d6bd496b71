"""Protobuf messages of a type that a descriptor set names (`protoc --include_imports -o FILE`)."""

from enum import Enum
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import StructType

from tidelog.spark.formats.decoding import Decoded, decode_rows
from tidelog.spark.formats.framing import confluent_message_start
from tidelog.spark.formats.protobuf_schema import has_required_fields, message_columns


class ProtobufFraming(Enum):
    """What stands before the message in a value."""

    NONE = "none"
    CONFLUENT = "confluent"


class ProtobufDecoder:
    """Decodes messages of one type. Raises ValueError if the set does not have it, or Spark has no
    columns for it."""

    def __init__(
        self,
        descriptor_set: bytes,
        message: str,
        framing: ProtobufFraming = ProtobufFraming.NONE,
    ) -> None:
        self._source = (descriptor_set, message, framing)
        self._framing = framing
        descriptor = _find(descriptor_set, message)
        self._class = GetMessageClass(descriptor)
        self._place = _place(descriptor)
        self._has_required_fields = has_required_fields(descriptor)
        self._columns = message_columns(descriptor)
        assert isinstance(self._columns.spark_type, StructType)
        self.schema = self._columns.spark_type

    def __reduce__(self) -> tuple[Any, ...]:
        return ProtobufDecoder, self._source

    def decode(self, values: pa.Array) -> Decoded:
        return decode_rows(values, self._parse, (DecodeError, ValueError), self._columns)

    def _parse(self, data: bytes) -> Any:
        if self._framing is ProtobufFraming.CONFLUENT:
            data = data[confluent_message_start(data, self._place) :]
        message = self._class.FromString(data)
        if self._has_required_fields and not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
            raise ValueError(f"required fields are missing: {missing}")
        return message


def _find(descriptor_set: bytes, name: str) -> Descriptor:
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
    except DecodeError as error:
        raise ValueError(f"not a descriptor set (protoc -o): {error}") from error
    pool = DescriptorPool()
    by_name = {file.name: file for file in files}
    for file in files:
        _add(file, by_name, pool)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = ", ".join(
            f"{file.package}.{each.name}".lstrip(".")
            for file in files
            for each in file.message_type
        )
        raise ValueError(f"there is no message {name!r}; there are {known or 'none'}") from None


def _add(
    file: FileDescriptorProto, files: dict[str, FileDescriptorProto], pool: DescriptorPool
) -> None:
    """Add a file to the pool after those it imports, whatever their order in the set."""
    try:
        pool.FindFileByName(file.name)
    except KeyError:
        pass
    else:
        return
    for name in file.dependency:
        if name not in files:
            raise ValueError(f"{file.name} imports {name}, which is missing: --include_imports")
        _add(files[name], files, pool)
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(f"{file.name}: {error}") from error


def _place(message: Descriptor) -> tuple[int, ...]:
    """The indexes of a message in its file, outermost first."""
    outer = message.containing_type
    if outer is None:
        return (list(message.file.message_types_by_name.values()).index(message),)
    return (*_place(outer), list(outer.nested_types).index(message))
