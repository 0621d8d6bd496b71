"""Spark SQL as tokens, nested by parentheses: enough to see which tables a query names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    WORD = auto()
    QUOTED = auto()  # an identifier in backticks, without them
    LITERAL = auto()
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    line: int  # of the SQL text, from 0

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, in any case; they are given in capitals."""
        return self.kind is Kind.WORD and self.text.upper() in words


@dataclass(frozen=True, slots=True)
class Group:
    """What stands between two parentheses."""

    items: tuple[Item, ...]
    line: int

    def is_word(self, *words: str) -> bool:
        return False


Item = Token | Group


class SqlError(ValueError):
    """The text is not SQL; `line` counts from 0."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--(?:\\\n|[^\n])*)
  | (?P<block>/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<literal>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>\d[\w.]*)
  | (?P<word>[^\W\d]\w*)
  | (?P<open>\()
  | (?P<close>\))
  | (?P<unclosed>['"`])
  | (?P<symbol>\|>|->|=>|::|<=>|[<>!=]=|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_UNCLOSED = {"'": "string", '"': "string", "`": "quoted name"}


def tokens(text: str) -> tuple[Item, ...]:
    """The items of a text; raises SqlError for what never closes."""
    stack: list[tuple[int, list[Item]]] = [(0, [])]
    at = line = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, "the last alternative takes any character"
        kind, taken = str(found.lastgroup), found[0]
        at = found.end()
        items = stack[-1][1]
        if kind == "block":
            end = _comment_end(text, at, line)
            taken, at = text[found.start() : end], end
        elif kind == "unclosed":
            raise SqlError(f"this {_UNCLOSED[taken]} is not closed", line)
        elif kind == "open":
            stack.append((line, []))
        elif kind == "close":
            if len(stack) == 1:
                raise SqlError("this ')' closes nothing", line)
            opened, inner = stack.pop()
            stack[-1][1].append(Group(tuple(inner), opened))
        elif kind == "quoted":
            items.append(Token(Kind.QUOTED, taken[1:-1].replace("``", "`"), line))
        elif kind in ("raw", "literal", "number"):
            items.append(Token(Kind.LITERAL, taken, line))
        elif kind in ("word", "symbol"):
            items.append(Token(Kind.WORD if kind == "word" else Kind.SYMBOL, taken, line))
        line += taken.count("\n")
    if len(stack) > 1:
        raise SqlError("this '(' is not closed", stack[-1][0])
    return tuple(stack[0][1])


def _comment_end(text: str, at: int, line: int) -> int:
    depth = 1
    while depth:
        close, again = text.find("*/", at), text.find("/*", at)
        if close < 0:
            raise SqlError("this comment is not closed", line)
        is_nested = 0 <= again < close
        depth += 1 if is_nested else -1
        at = (again if is_nested else close) + 2
    return at
