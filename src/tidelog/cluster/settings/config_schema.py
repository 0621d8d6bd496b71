"""What a setting is: its type, what values it takes, what it means.

Values are strings in records and on the wire, as in Kafka; `Setting.parse` makes them typed and
refuses wrong ones with INVALID_CONFIG. A `Schema` is the table of all settings of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from tidelog.protocol.errors import ApiError, ErrorCode

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class ConfigType(IntEnum):
    """Types of settings, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Verdict(Enum):
    """What becomes of a setting that somebody makes."""

    USED = "used"
    CONSTANT = "constant"
    """Taken, but the default is what holds whatever was set."""
    MEANINGLESS = "meaningless"
    """Taken and told back, but nothing here corresponds to it."""
    REFUSED = "refused"
    """Only the default is taken: any other value asks for what the node does not have."""


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
    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = True
    """May be changed while the broker runs."""
    per_broker: bool = False
    """May be changed for one broker only, not for all at once."""
    hidden: bool = False
    """Described only when it was set."""
    verdict: Verdict = Verdict.USED
    reason: str = ""
    """Why it is not used, as the rest of a sentence."""

    @property
    def sensitive(self) -> bool:
        return is_sensitive(self.type)

    @property
    def description(self) -> str:
        """What it means, and what becomes of it here."""
        match self.verdict:
            case Verdict.CONSTANT:
                return f"{self.documentation} It is always {self.default} here: {self.reason}."
            case Verdict.MEANINGLESS:
                return f"{self.documentation} It has no effect here: {self.reason}."
            case Verdict.REFUSED:
                return f"{self.documentation} It cannot be changed here: {self.reason}."
        return self.documentation

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


def is_sensitive(kind: ConfigType) -> bool:
    """Whether a value of this type is kept to ourselves; who knows what an unknown one holds."""
    return kind in (ConfigType.PASSWORD, ConfigType.UNKNOWN)


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


def parse_pairs(items: Iterable[str], mark: str, form: str) -> dict[str, int]:
    """Names with their numbers and `mark` between; ValueError when an item is not of that form."""
    pairs = {}
    for item in items:
        name, _, number = item.rpartition(mark)
        if not name or not number.isdecimal():
            raise ValueError(f"{item} is not {form}")
        pairs[name] = int(number)
    return pairs


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.UNKNOWN: str,
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


def numbers_by_name(text: str) -> str | None:
    """Whether a text is a list of NAME:NUMBER pairs."""
    try:
        parse_pairs(parse_list(text), ":", "NAME:NUMBER")
    except ValueError as error:
        return str(error)
    return None


class Schema:
    """The settings of one kind of resource, by name.

    `others` knows settings whose names cannot be listed, such as those with a listener's name in
    them; iteration leaves them out.
    """

    def __init__(
        self,
        kind: str,
        settings: Iterable[Setting],
        others: Callable[[str], Setting | None] = lambda name: None,
    ) -> None:
        self.kind = kind
        self._settings = {setting.name: setting for setting in settings}
        self._others = others

    def __getitem__(self, name: str) -> Setting:
        """The setting; ApiError(INVALID_CONFIG) with the nearest name when there is none."""
        setting = self.get(name)
        if setting is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Unknown {self.kind} config name: {name}{self._suggestion(name)}",
            )
        return setting

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    @property
    def names(self) -> KeysView[str]:
        """The names of the settings that are listed."""
        return self._settings.keys()

    def get(self, name: str) -> Setting | None:
        return self._settings.get(name) or self._others(name)

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Typed values of the settings that are given."""
        return {name: self[name].parse(text) for name, text in values.items()}

    def _suggestion(self, name: str) -> str:
        from difflib import get_close_matches  # slow to import, and needed for mistakes only

        near = get_close_matches(name, self._settings, n=1, cutoff=0.6)
        return f". Did you mean {near[0]}?" if near else ""
