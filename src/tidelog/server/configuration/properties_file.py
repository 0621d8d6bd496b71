"""Java's properties format, in which Kafka's server.properties is written.

A key ends at the first `=`, `:` or space that no backslash precedes. A line that ends in an odd
number of backslashes goes on in the next one, whose leading space does not count. `\\t`, `\\n`,
`\\r`, `\\f` and `\\uXXXX` stand for a character; any other character after a backslash for itself.
"""

from __future__ import annotations

from collections.abc import Iterator

_SPACE = " \t\f"
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text is not in the properties format."""


def parse_properties(text: str) -> dict[str, str]:
    """The values by key; of a key that is there twice the last one counts."""
    properties = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split(line)
            properties[_unescape(key)] = _unescape(value)
        except PropertiesError as error:
            raise PropertiesError(f"line {number}: {error}") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines put together, without comments and leading space, with the number of their first."""
    begun, first_number = "", 0
    # Only these end a line; str.splitlines knows many more.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_SPACE)
        if not begun:
            if not line or line[0] in "#!":
                continue
            first_number = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 and number < len(lines):
            begun += line[:-1]
            continue
        yield first_number, begun + line
        begun = ""
    if begun:
        yield first_number, begun


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in _SPACE + "=:":
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_SPACE)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_SPACE)
    return line[:end], value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not set(digits) <= _HEX_DIGITS:
                raise PropertiesError(f"\\u{digits} is not \\u and four hex digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_NAMED.get(escaped, escaped))
    return "".join(parts)
