"""The file `partition.metadata`, which says to which topic a partition directory belongs."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.protocol.uuids import format_uuid, parse_uuid
from tidelog.storage.files import CorruptFileError, read_file, replace_file
from tidelog.world.files import Files

FILE_NAME = "partition.metadata"
_WHAT_TO_DO = "Delete the file: it is made again from the metadata of the cluster"


def read_topic_id(files: Files, directory: Path) -> bytes | None:
    """The topic id in the file, or None without one. Raises CorruptFileError."""
    path = directory / FILE_NAME
    try:
        content = read_file(files, path)
    except FileNotFoundError:
        return None
    fields = {}
    for line in content.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptFileError(path, f"it is not of version 0 with a topic id. {_WHAT_TO_DO}")
    try:
        return parse_uuid(fields["topic_id"])
    except ValueError as error:
        raise CorruptFileError(
            path, f"bad topic id {fields['topic_id']!r}. {_WHAT_TO_DO}"
        ) from error


def write_topic_id(files: Files, directory: Path, topic_id: bytes, *, durable: bool = True) -> None:
    content = f"version: 0\ntopic_id: {format_uuid(topic_id)}"
    replace_file(files, directory / FILE_NAME, content.encode(), durable=durable)


def sync_topic_id(files: Files, directory: Path) -> None:
    """Makes durable what the file says; its name is a matter of the directory."""
    fd = files.open(directory / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)
