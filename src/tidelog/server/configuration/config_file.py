"""The file that a node takes settings from: TOML, or Kafka's server.properties.

A name that ends in `.toml` or `.properties` says which of the two it is; else the text does. In
TOML, names with dots may be nested tables or quoted keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.errors import TidelogError
from tidelog.server.configuration.properties_file import PropertiesError, parse_properties


class ConfigError(TidelogError):
    """A setting has a wrong value or there is no such setting."""


def read_file(path: Path) -> dict[str, str]:
    """The settings of a file, with dotted names."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    match path.suffix.lower():
        case ".properties":
            return _read_properties(path, content)
        case ".toml":
            return _read_toml(path, content)
    try:
        return _read_toml(path, content)
    except ConfigError:
        return _read_properties(path, content)


def _read_toml(path: Path, content: bytes) -> dict[str, str]:
    import tomllib

    try:
        return dict(_flatten("", tomllib.loads(content.decode())))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _read_properties(path: Path, content: bytes) -> dict[str, str]:
    try:
        # The format's own encoding; other characters are written as escapes.
        properties = parse_properties(content.decode("latin-1"))
    except PropertiesError as error:
        raise ConfigError(f"{path}: is not a properties file: {error}") from error
    return {name: text.strip() for name, text in properties.items()}


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flatten(f"{name}.", value)
        else:
            yield name, setting_text(value)


def setting_text(value: object) -> str:
    """A value in the form in which settings are written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(setting_text(item) for item in value)
    return str(value)
