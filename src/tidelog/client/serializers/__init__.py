"""Typed serialisers: what a key or value is in Python, and what it is as bytes.

JSON is always there; Avro and Protobuf come with the extras `tidelog[avro]` and
`tidelog[protobuf]` and are imported from their own modules.
"""

from tidelog.client.serializers.json import JsonSerializer
from tidelog.client.serializers.plain import BytesSerializer, Serializer, StringSerializer

__all__ = ["BytesSerializer", "JsonSerializer", "Serializer", "StringSerializer"]
