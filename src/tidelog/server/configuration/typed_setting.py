"""Settings as typed attributes of a configuration: one line names a setting and its Python type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from tidelog.cluster.settings.config_schema import parse_list, parse_pairs

Value = TypeVar("Value")


class TypedSetting(Generic[Value]):
    """Declares a setting in the body of a class; reads as its value on an instance.

    `convert` makes the attribute's value from the one that the table of settings parses.
    """

    __slots__ = ("attribute", "convert", "name")

    def __init__(self, name: str, convert: Callable[[Any], Value]) -> None:
        self.name = name
        self.convert = convert
        self.attribute = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, instance: None, owner: type) -> TypedSetting[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> TypedSetting[Value] | Value:
        # Without __set__ the value in the instance's own dict wins, so this runs for classes only.
        assert instance is None, f"{self.name} was never given a value"
        return self


def integer(name: str) -> TypedSetting[int]:
    return TypedSetting(name, int)


def boolean(name: str) -> TypedSetting[bool]:
    return TypedSetting(name, bool)


def decimal(name: str) -> TypedSetting[float]:
    return TypedSetting(name, float)


def string(name: str) -> TypedSetting[str]:
    return TypedSetting(name, str)


def optional_string(name: str) -> TypedSetting[str | None]:
    return TypedSetting(name, lambda value: value)


def words(name: str) -> TypedSetting[tuple[str, ...]]:
    """A list, with commas between its items."""
    return TypedSetting(name, _items)


def parsed_words(name: str, parse: Callable[[tuple[str, ...]], Value]) -> TypedSetting[Value]:
    """A list whose items `parse` makes something of; it raises ValueError."""
    return TypedSetting(name, lambda value: parse(_items(value)))


def numbers_by_name(name: str) -> TypedSetting[dict[str, int]]:
    """A list of NAME:NUMBER pairs."""
    return TypedSetting(name, _pairs)


def levels_by_name(name: str) -> TypedSetting[dict[str, int]]:
    """A list of NAME=LEVEL pairs."""
    return TypedSetting(name, _levels)


def _items(value: str | list[str] | None) -> tuple[str, ...]:
    return tuple(parse_list(value) if isinstance(value, str) else value or ())


def _pairs(value: str | list[str] | None) -> dict[str, int]:
    return parse_pairs(_items(value), ":", "NAME:NUMBER")


def _levels(value: str | list[str] | None) -> dict[str, int]:
    return parse_pairs(_items(value), "=", "NAME=LEVEL")
