"""Metadata records as lines of text: their types, versions and fields.

`golden/record-fields.txt` has the lines of Kafka 4.3.1. They are taken from the schemas in its
kafka-metadata jar, by

    python -m tests.cluster.metadata.record_facts kafka-metadata-4.3.1.jar
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.protocol.fields import Array, Field, VersionRange, parse_versions
from tidelog.protocol.schema import Message, Struct

PINNED = Path(__file__).parent / "golden" / "record-fields.txt"
_SCHEMAS = "common/metadata/"
_ZERO = {"string": "", "bytes": "", "uuid": "", "bool": "false"}


def kafka_lines(jar: Path) -> list[str]:
    """The lines of all records whose schemas are in this jar, in the order of their ids."""
    schemas = []
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(_SCHEMAS) and name.endswith("Record.json"):
                text = archive.read(name).decode()
                schemas.append(json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)))
    lines = []
    for schema in sorted(schemas, key=lambda each: int(each["apiKey"])):
        lines.append(f"{schema['apiKey']} {schema['name']} {schema['validVersions']}")
        lines += _kafka_fields(schema["fields"], "  ")
    return lines


def _kafka_fields(fields: list[dict[str, Any]], indent: str) -> Iterator[str]:
    for each in fields:
        kind = each["type"]
        has_parts = "fields" in each
        yield _line(
            indent,
            re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each["name"]).lower(),
            "[]struct" if has_parts else kind,
            parse_versions(each["versions"]),
            parse_versions(each.get("nullableVersions", "")),
            each.get("tag"),
            parse_versions(each.get("taggedVersions", "")),
            each.get("default", "[]" if kind.startswith("[]") else _ZERO.get(kind, "0")),
        )
        if has_parts:
            yield from _kafka_fields(each["fields"], indent + "  ")


def own_lines(records: dict[int, type[Message]]) -> list[str]:
    lines = []
    for api_key, record in sorted(records.items()):
        lowest, highest = record.MIN_VERSION, record.MAX_VERSION
        versions = str(lowest) if lowest == highest else f"{lowest}-{highest}"
        lines.append(f"{api_key} {record.__name__} {versions}")
        lines += _own_fields(record.FIELDS, "  ")
    return lines


def _own_fields(fields: tuple[Field, ...], indent: str) -> Iterator[str]:
    for each in fields:
        kind, parts = each.type, None
        if isinstance(kind, Array):
            element = kind.element
            if isinstance(element, type) and issubclass(element, Struct):
                name, parts = "[]struct", element
            else:
                name = f"[]{element.name}"
        else:
            name = kind.name
        yield _line(
            indent,
            each.name,
            name,
            each.versions,
            each.nullable,
            each.tag,
            each.tagged,
            _own_default(each),
        )
        if parts is not None:
            yield from _own_fields(parts.FIELDS, indent + "  ")


def _own_default(field: Field) -> str:
    default = field.default
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (bytes, str)):
        return "" if not any(default) else str(default)
    if isinstance(default, float):
        return f"{default:g}"
    return "[]" if default == () else str(default)


def _line(
    indent: str,
    name: str,
    kind: str,
    versions: VersionRange,
    nullable: VersionRange,
    tag: int | None,
    tagged: VersionRange,
    default: Any,
) -> str:
    line = f"{indent}{name} {kind} from {versions.low}"
    if nullable.high >= nullable.low:
        line += f", null from {nullable.low}"
    if tagged.high >= tagged.low:
        line += f", tag {tag} from {tagged.low}"
    return f"{line}, default {default}".rstrip()


if __name__ == "__main__":
    PINNED.write_text("\n".join(kafka_lines(Path(sys.argv[1]))) + "\n")
