"""What a setting is: its type, what values it takes, what it means.

Values are strings in records and on the wire, as in Kafka; `Setting.parse` makes them typed and
refuses wrong ones with INVALID_CONFIG. A `Schema` is the table of all settings of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.protocol.errors import ApiError, ErrorCode

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class ConfigType(IntEnum):
    """Types of settings, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(IntEnum):
    LOW = 0
    MEDIUM = 1
    HIGH = 2


_INTEGER_MAX = {ConfigType.SHORT: (1 << 15) - 1, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}

# Says what is wrong with a typed value, or None.
Validator = Callable[[Any], str | None]


class Synonym(NamedTuple):
    """A broker setting that stands in when the setting itself is not made; times `factor`."""

    name: str
    factor: int = 1


class Setting(NamedTuple):
    """One setting. `default` is in text form; None means there is no value."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = True  # may be changed while the broker runs

    @property
    def sensitive(self) -> bool:
        return self.type == ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """The typed value; ApiError(INVALID_CONFIG) when the text is not one or not allowed."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self._invalid(text, f"Not a {_TYPE_NAMES[self.type]}") from None
        largest = _INTEGER_MAX.get(self.type)
        if largest is not None and not -largest - 1 <= value <= largest:
            raise self._invalid(text, f"Not a {_TYPE_NAMES[self.type]}")
        problem = self.validator(value) if self.validator is not None else None
        if problem is not None:
            raise self._invalid(text, problem)
        return value

    def _invalid(self, text: str, problem: str) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration {self.name}: {problem}",
        )


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _parse_integer(text: str) -> int:
    if "_" in text:
        raise ValueError(text)
    return int(text)


def parse_list(text: str) -> list[str]:
    """The parts between commas, without the spaces around them."""
    return [part for part in (part.strip() for part in text.split(",")) if part]


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _parse_integer,
    ConfigType.SHORT: _parse_integer,
    ConfigType.LONG: _parse_integer,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}

_TYPE_NAMES = {
    ConfigType.BOOLEAN: "boolean: it is either true or false",
    ConfigType.INT: "number of type INT",
    ConfigType.SHORT: "number of type SHORT",
    ConfigType.LONG: "number of type LONG",
    ConfigType.DOUBLE: "number of type DOUBLE",
}


def at_least(minimum: int) -> Validator:
    return between(minimum, None)


def between(minimum: float, maximum: float | None) -> Validator:
    def check(value: float) -> str | None:
        if not value >= minimum:
            return f"Value must be at least {minimum}"
        if maximum is not None and value > maximum:
            return f"Value must be no more than {maximum}"
        return None

    return check


def one_of(*allowed: str) -> Validator:
    def check(value: str) -> str | None:
        return None if value in allowed else f"String must be one of: {', '.join(allowed)}"

    return check


def each_of(*allowed: str) -> Validator:
    def check(values: list[str]) -> str | None:
        if all(value in allowed for value in values):
            return None
        return f"Each item must be one of: {', '.join(allowed)}"

    return check


class Schema:
    """The settings of one kind of resource, by name."""

    def __init__(self, kind: str, settings: Iterable[Setting]) -> None:
        self.kind = kind
        self._settings = {setting.name: setting for setting in settings}

    def __getitem__(self, name: str) -> Setting:
        """The setting; ApiError(INVALID_CONFIG) with the nearest name when there is none."""
        setting = self._settings.get(name)
        if setting is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Unknown {self.kind} config name: {name}{self._suggestion(name)}",
            )
        return setting

    def __contains__(self, name: object) -> bool:
        return name in self._settings

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    def get(self, name: str) -> Setting | None:
        return self._settings.get(name)

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Typed values of the settings that are given."""
        return {name: self[name].parse(text) for name, text in values.items()}

    def _suggestion(self, name: str) -> str:
        from difflib import get_close_matches  # slow to import, and needed for mistakes only

        near = get_close_matches(name, self._settings, n=1, cutoff=0.6)
        return f". Did you mean {near[0]}?" if near else ""
