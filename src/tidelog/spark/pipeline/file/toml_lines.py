"""Where each key of a TOML text stands.

`tomllib` gives values without places. This scanner gives the places without the values: it walks a
text that `tomllib` has already accepted, so it need not know what is legal, only where a key, a
string, an array and an inline table begin and end.

Paths are tuples of keys, with indexes for the elements of arrays: `("sinks", "out", "topic")`.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

_BARE_END = frozenset(" \t\r\n=.,]}#")
_VALUE_END = frozenset(",]}\r\n#")
_CONTINUATION = re.compile(r"\\[ \t]*\r?\n[ \t\r\n]*")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


@dataclass(slots=True)
class TomlLines:
    """The line of each key, and those on which the lines of each text begin."""

    keys: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, tuple[int, ...]] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of a key, or of the nearest table around it that the file has."""
        while path:
            if path in self.keys:
                return self.keys[path]
            path = path[:-1]
        return 1

    def dotted_line(self, path: Path, name: str) -> int:
        """The line of a key below a table, whether its dots are in quotes or make tables."""
        for each, line in self.keys.items():
            below = each[len(path) :]
            if each[: len(path)] == path and ".".join(str(part) for part in below) == name:
                return line
        return self.line(path)


def toml_lines(text: str) -> TomlLines:
    """Scan a text that `tomllib` accepts."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.found


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0] + [at + 1 for at, char in enumerate(text) if char == "\n"]
        self._array_sizes: dict[Path, int] = {}
        self.found = TomlLines()

    def document(self) -> None:
        prefix: Path = ()
        while self._skip_blank():
            if self._text[self._at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)

    def _header(self) -> Path:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        path = self._dotted(())
        # A table under [[a]] belongs to the last element of `a`.
        resolved: Path = ()
        for key in path[:-1]:
            resolved = self._last_element((*resolved, key))
        resolved = (*resolved, path[-1])
        self._note(resolved, line)
        if is_array:
            size = self._array_sizes.get(resolved, 0)
            self._array_sizes[resolved] = size + 1
            resolved = (*resolved, size)
            self._note(resolved, line)
        self._at += 2 if is_array else 1
        return resolved

    def _last_element(self, path: Path) -> Path:
        size = self._array_sizes.get(path)
        return path if size is None else (*path, size - 1)

    def _pair(self, prefix: Path) -> None:
        line = self._line()
        path = self._dotted(prefix)
        self._note(path, line)
        self._at = self._text.index("=", self._at) + 1
        self._skip_spaces()
        self._value(path)

    def _note(self, path: Path, line: int) -> None:
        # Tables that are only implied, as `a` by `a.b = 1`, stand where they are first mentioned.
        for end in range(1, len(path)):
            self.found.keys.setdefault(path[:end], line)
        self.found.keys.setdefault(path, line)

    def _dotted(self, prefix: Path) -> Path:
        path = prefix
        while True:
            self._skip_spaces()
            path = (*path, self._key())
            self._skip_spaces()
            if self._text[self._at] != ".":
                return path
            self._at += 1

    def _key(self) -> str:
        quote = self._text[self._at]
        if quote in "\"'":
            start = self._at
            self._string()
            inner = self._text[start + 1 : self._at - 1]
            return _unescape(inner) if quote == '"' else inner
        start = self._at
        while self._text[self._at] not in _BARE_END:
            self._at += 1
        return self._text[start : self._at]

    def _value(self, path: Path) -> None:
        opening = self._text[self._at]
        if opening in "\"'":
            self.found.texts[path] = self._string()
        elif opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in _VALUE_END:
                self._at += 1

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip_blank()
            if self._text[self._at] == "]":
                break
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._note((*path, index), self._line())
            self._value((*path, index))
            index += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip_blank()
            if self._text[self._at] == "}":
                break
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1

    def _string(self) -> tuple[int, ...]:
        """Step over a string; the line on which each line of its content begins."""
        text, quote = self._text, self._text[self._at]
        is_long = text.startswith(quote * 3, self._at)
        closing = quote * 3 if is_long else quote
        self._at += len(closing)
        # A newline directly after the opening quotes is not part of the text.
        if is_long and text.startswith(("\n", "\r\n"), self._at):
            self._at = text.index("\n", self._at) + 1
        begin, lines = self._at, [self._line()]
        while not text.startswith(closing, self._at):
            is_escape = quote == '"' and text[self._at] == "\\"
            if is_escape and (skipped := _CONTINUATION.match(text, self._at)):
                is_empty_so_far = self._at == begin
                self._at = skipped.end()
                if is_empty_so_far:
                    begin, lines[-1] = self._at, self._line()
                continue
            self._at += 2 if is_escape else 1
            if text[self._at - 1] == ("n" if is_escape else "\n"):
                begin = self._at
                lines.append(self._line())
        self._at += len(closing)
        # Up to two quotes may stand directly before the closing ones.
        while is_long and self._at < len(text) and text[self._at] == quote:
            self._at += 1
        return tuple(lines)

    def _skip_spaces(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1

    def _skip_blank(self) -> bool:
        """Step over white space and comments; whether anything is left."""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif char in " \t\r\n":
                self._at += 1
            else:
                return True
        return False

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)


def _unescape(inner: str) -> str:
    made, at = [], 0
    while at < len(inner):
        if inner[at] != "\\":
            made.append(inner[at])
            at += 1
            continue
        code = inner[at + 1]
        digits = {"x": 2, "u": 4, "U": 8}.get(code, 0)
        if digits:
            made.append(chr(int(inner[at + 2 : at + 2 + digits], 16)))
        else:
            made.append(_ESCAPES.get(code, code))
        at += 2 + digits
    return "".join(made)
