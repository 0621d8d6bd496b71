"""`--client NAME=VALUE`: settings of Tidelog's own client, by their names in Kafka's clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog.cli.failures import fail
from tidelog.cli.options import parse_pairs

Parser = Callable[[str], Any]
"""The value of a setting; ValueError with what it has to be."""

# What every client has.
COMMON_SETTINGS = ("client.id", "security.protocol")


def read_settings(
    pairs: Sequence[str], known: Mapping[str, tuple[str, Parser]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings that a command knows, and those that are for the connection.

    `known` has for each the name under which its value is returned. The command ends for any other
    setting, and for a value that does not fit.
    """
    values: dict[str, Any] = {}
    common: dict[str, str] = {}
    for name, text in parse_pairs(pairs, option="--client").items():
        if name in COMMON_SETTINGS:
            common[name] = text
            continue
        if name not in known:
            fail(
                f"--client {name} is not supported: this command knows client.id,"
                f" {', '.join(known)}"
            )
        try:
            field, parse = known[name]
            values[field] = parse(text)
        except ValueError as error:
            fail(f"--client {name}={text}: {error}")
    return values, common


def seconds(text: str) -> float:
    """Milliseconds, as Kafka's clients take them."""
    return count(text) / 1000


def count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 2**31:
        raise ValueError("a whole number from 1 to 2147483647 is expected")
    return int(text)


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.lower() == "true"
