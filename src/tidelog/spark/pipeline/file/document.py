"""A TOML file with its variables replaced, and typed access that reports what is wrong with it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.spark.pipeline.file.durations import DurationError, parse_duration_ms
from tidelog.spark.pipeline.file.problems import Problems, near
from tidelog.spark.pipeline.file.toml_lines import Path as KeyPath
from tidelog.spark.pipeline.file.toml_lines import TomlLines, toml_lines
from tidelog.spark.pipeline.file.variables import FromVariable, Unknown, names_in, substitute

_SYNTAX_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Document:
    file: Path
    tree: dict[str, Any]
    lines: TomlLines
    problems: Problems

    def section(self) -> Section:
        return Section(self, (), self.tree)

    def resolve(self, path: str) -> str:
        """Paths are relative to the file they stand in, or to a home with `~`; addresses stay."""
        if _SCHEME.match(path):
            return path
        return str(self.file.parent / os.path.expanduser(path))


def read_document(
    file: Path, variables: Mapping[str, str], problems: Problems, given: Collection[str] = ()
) -> Document | None:
    """The file, or None with a problem that says why it cannot be read.

    `given` are variables that somebody set for this file: one that it does not use is reported.
    """
    try:
        text = file.read_text(encoding="utf-8")
        tree = tomllib.loads(text)
    except OSError as error:
        problems.error(file, 1, f"cannot be read: {error.strerror}")
        return None
    except UnicodeDecodeError as error:
        problems.error(file, 1, f"is not UTF-8: {error.reason} at byte {error.start}")
        return None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _SYNTAX_LINE.search(message)
        last_line = max(1, text.count("\n") + (not text.endswith("\n")))
        line = int(place[1]) if place else last_line
        problems.error(file, line, f"is not TOML: {_SYNTAX_LINE.sub('', message)}")
        return None
    # tomllib counts lines after it made all line ends alike; so do we.
    lines = toml_lines(text.replace("\r\n", "\n"))

    def report(path: KeyPath, message: str) -> None:
        problems.error(file, lines.line(path), message)

    used = set(names_in(tree))
    for name in given:
        if name not in used:
            problems.warning(file, 1, f"nothing here uses the variable {name}.{near(name, used)}")
    return Document(file, substitute(tree, variables, report), lines, problems)


class Section:
    """One table. Each key that is asked for is known; `finish` reports the others.

    A value of the wrong type is reported and read as if it were absent.
    """

    def __init__(self, document: Document, path: KeyPath, table: Mapping[str, Any]) -> None:
        self.document = document
        self.path = path
        self._table = table
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._table

    @property
    def label(self) -> str:
        """As the header of the table is written."""
        return f"[{'.'.join(str(part) for part in self.path)}]"

    def names(self) -> tuple[str, ...]:
        return tuple(self._table)

    def line(self, key: str | None = None) -> int:
        return self.document.lines.line(self.path if key is None else (*self.path, key))

    def error(self, message: str, key: str | None = None) -> None:
        self.document.problems.error(self.document.file, self.line(key), message)

    def warning(self, message: str, key: str | None = None) -> None:
        self.document.problems.warning(self.document.file, self.line(key), message)

    def raw(self, key: str) -> Any:
        """The value as TOML gives it, or None."""
        self._known.append(key)
        return self._table.get(key)

    def missing(self, key: str, why: str = "") -> None:
        self.error(f"{self.label} needs '{key}'{why}")

    def text(self, key: str) -> str | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self._wrong(key, "a text", value)
            return None
        if not value.strip() and not isinstance(value, Unknown):
            self.error(f"'{key}' is empty", key)
            return None
        return value

    def required_text(self, key: str, why: str = "") -> str:
        if key not in self._table:
            self._known.append(key)
            self.missing(key, why)
            return ""
        return self.text(key) or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.raw(key)
        if value is None:
            return ()
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._wrong(key, "a text or a list of texts", value)
            return ()
        if not value or not all(each.strip() for each in value):
            self.error(f"'{key}' is empty", key)
            return ()
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw(key)
        if isinstance(value, FromVariable):
            value = _BOOLEANS.get(value.lower(), value)
        if isinstance(value, bool):
            return value
        if value is not None and not isinstance(value, Unknown):
            self._wrong(key, "true or false", value)
        return default

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        value = self.optional_integer(key, least=least)
        return default if value is None else value

    def optional_integer(self, key: str, *, least: int = 0) -> int | None:
        value = self.raw(key)
        if isinstance(value, FromVariable) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if value is None or isinstance(value, Unknown):
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self._wrong(key, "a whole number", value)
            return None
        if value < least:
            self.error(f"'{key}' is {value}, but must be at least {least}", key)
            return None
        return value

    def duration_ms(self, key: str, default: int) -> int:
        text = self.text(key)
        if text is None or isinstance(text, Unknown):
            return default
        try:
            return parse_duration_ms(text)
        except DurationError as error:
            self.error(f"'{key}': {error}", key)
            return default

    def choice(self, key: str, choices: Collection[str], default: str) -> str:
        text = self.text(key)
        if text is None or isinstance(text, Unknown):
            return default
        if text not in choices:
            self.error(
                f"'{key}' cannot be '{text}'; choose from {', '.join(choices)}."
                f"{near(text, choices)}",
                key,
            )
            return default
        return text

    def section(self, key: str) -> Section:
        """A table inside this one; an absent one is empty."""
        value = self.raw(key)
        if value is not None and not isinstance(value, dict):
            self._wrong(key, "a table", value)
            value = None
        return Section(self.document, (*self.path, key), value or {})

    def has_table(self, key: str) -> bool:
        return isinstance(self._table.get(key), dict)

    def options(self, key: str) -> dict[str, str]:
        """A table of options as Spark takes them: values become texts, dots part of the name."""
        section = self.section(key)
        made: dict[str, str] = {}
        for name, value in section._table.items():
            if isinstance(value, dict):
                inner = section.options(name)
                made |= {f"{name}.{rest}": text for rest, text in inner.items()}
            elif (text := section.option(name)) is not None:
                made[name] = text
        return made

    def option(self, key: str) -> str | None:
        """One value as the text of an option: a list is comma-separated, a table is JSON."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return str(value)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if isinstance(value, dict):
            return json.dumps(value)
        self._wrong(key, "a text, a number, true, false or a table", value)
        return None

    def path_text(self, key: str) -> str:
        text = self.required_text(key)
        return self.document.resolve(text) if text else ""

    def kind(self, kinds: Collection[str], by_key: Mapping[str, str]) -> str | None:
        """What `kind` says, or what a key tells that only one kind has; None after an error."""
        given = self.text("kind")
        if given is None and "kind" not in self:
            given = next((by_key[key] for key in by_key if key in self), None)
            if given is None:
                hints = (
                    f" For '{key}':{hint}" for key in self._table if (hint := near(key, by_key))
                )
                self.missing("kind", f": one of {', '.join(kinds)}.{''.join(hints)}")
        if given is None or given in kinds:
            return given
        return self.choice("kind", kinds, "") or None

    def finish(self) -> None:
        """Report keys that nobody asked for."""
        for key in self._table:
            if key not in self._known:
                where = f" in {self.label}" if self.path else ""
                self.error(f"unknown key '{key}'{where}.{near(key, self._known)}", key)

    def _wrong(self, key: str, wanted: str, value: Any) -> None:
        self.error(f"'{key}' must be {wanted}, not {_type_name(value)}", key)


def _type_name(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", dict: "a table"}
    if isinstance(value, str):
        return f"the text {str(value)!r}"
    return names.get(type(value), "a list" if isinstance(value, list) else type(value).__name__)
