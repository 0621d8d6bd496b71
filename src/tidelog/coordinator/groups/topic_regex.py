"""Regular expressions over topic names, in the syntax of RE2 and with its guarantee.

Clients send these expressions, so matching has to be linear in the length of the name whatever the
expression is: Python's `re` backtracks and one hostile expression would stall the node. The
expression becomes a state machine whose sets of states are worked out when they are first met.
A topic name has only the letters of `ALPHABET`, so a class of characters is a small set.

Not in RE2, and refused here: back-references, look-around, possessive quantifiers. Word boundaries
and Unicode classes are not supported either. Only a match of the whole name counts.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import NoReturn

from tidelog.errors import TidelogError

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")

_REPEAT_MAX = 1_000
_STATES_MAX = 20_000
_STATE_SETS_MAX = 2_000
_DEPTH_MAX = 200

_CLASSES = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset[str](),
}
_POSIX_CLASSES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": frozenset(string.digits),
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "word": _CLASSES["w"],
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class InvalidTopicRegex(TidelogError):
    """The expression is malformed, or uses what RE2 does not have."""


@dataclass(slots=True, frozen=True)
class _Characters:
    allowed: frozenset[str]


@dataclass(slots=True, frozen=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(slots=True, frozen=True)
class _Choice:
    options: tuple[_Node, ...]


@dataclass(slots=True, frozen=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None


@dataclass(slots=True, frozen=True)
class _Anchor:
    at_end: bool


_Node = _Characters | _Sequence | _Choice | _Repeat | _Anchor


class _Parser:
    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self._text = text
        self._alphabet = alphabet
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice(ignore_case=False)
        if self._at < len(self._text):
            self._fail("unmatched )")
        return node

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidTopicRegex(f"{reason} at character {self._at} of {self._text!r}")

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        if self._at >= len(self._text):
            self._fail("unexpected end")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self, ignore_case: bool) -> _Node:
        options: list[_Node] = []
        parts: list[_Node] = []
        while (char := self._peek()) and char != ")":
            if char == "|":
                self._at += 1
                options.append(_Sequence(tuple(parts)))
                parts = []
            elif self._text.startswith("(?", self._at) and self._flag_only():
                ignore_case = self._flags(ignore_case)
            else:
                parts.append(self._repeated(ignore_case))
        options.append(_Sequence(tuple(parts)))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _flag_only(self) -> bool:
        end = self._at + 2
        while end < len(self._text) and self._text[end] in "imsU-":
            end += 1
        return end > self._at + 2 and self._text[end : end + 1] == ")"

    def _flags(self, ignore_case: bool) -> bool:
        """Reads `(?i)` or the start of `(?i:`; only i matters in a topic name."""
        self._at += 2
        on = True
        while (char := self._take()) not in "):":
            if char == "-":
                on = False
            elif char == "i":
                ignore_case = on
            elif char not in "msU":
                self._fail(f"unknown flag {char!r}")
        return ignore_case

    def _repeated(self, ignore_case: bool) -> _Node:
        node = self._atom(ignore_case)
        repeated = False
        while self._peek():
            bounds = self._bounds()
            if bounds is None:
                break
            if repeated:
                self._fail("a quantifier on a quantifier")
            repeated = True
            if self._peek() == "?":  # lazy: the same names match
                self._at += 1
            node = _Repeat(node, *bounds)
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self._peek()
        if char in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not low.isdigit() or (high and not high.isdigit()):
            return None  # a brace that is no quantifier stands for itself
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > _REPEAT_MAX or (most is not None and not least <= most <= _REPEAT_MAX):
            self._fail("invalid repeat count")
        self._at = end + 1
        return least, most

    def _atom(self, ignore_case: bool) -> _Node:
        char = self._take()
        if char == "(":
            return self._group(ignore_case)
        if char == "[":
            return _Characters(_fold(self._char_class(), ignore_case))
        if char == ".":
            return _Characters(self._alphabet)
        if char in "^$":
            return _Anchor(char == "$")
        if char in "*+?":
            self._fail("nothing to repeat")
        if char == "\\":
            return self._escape(ignore_case)
        return _Characters(_fold(frozenset(char), ignore_case))

    def _group(self, ignore_case: bool) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail("too many nested groups")
        if self._peek() == "?":
            following = self._text[self._at + 1 : self._at + 3]
            if following[:1] == "P" or (following[:1] == "<" and following[1:] not in ("=", "!")):
                self._at = self._text.find(">", self._at) + 1
                if self._at == 0:
                    self._fail("unfinished group name")
            elif following[:1] and following[0] in ":imsU-":
                self._at -= 1
                ignore_case = self._flags(ignore_case)
            else:
                self._fail("look-around and conditions are not supported")
        node = self._choice(ignore_case)
        if self._peek() != ")":
            self._fail("missing )")
        self._at += 1
        self._depth -= 1
        return node

    def _escape(self, ignore_case: bool) -> _Node:
        char = self._take()
        if char == "A":
            return _Anchor(at_end=False)
        if char == "z":
            return _Anchor(at_end=True)
        if char == "Q":
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else None]
            self._at = len(self._text) if end < 0 else end + 2
            return _Sequence(
                tuple(_Characters(_fold(frozenset(each), ignore_case)) for each in quoted)
            )
        return _Characters(_fold(self._escaped_set(char), ignore_case))

    def _escaped_set(self, char: str) -> frozenset[str]:
        if char.lower() in _CLASSES:
            chars = _CLASSES[char.lower()]
            return self._alphabet - chars if char.isupper() else chars
        if char == "x":
            digits = self._take() + self._take()
            if digits[0] == "{":
                end = self._text.find("}", self._at)
                digits = digits[1:] + self._text[self._at : end]
                self._at = end + 1
            try:
                return frozenset(chr(int(digits, 16)))
            except (ValueError, OverflowError):
                self._fail("invalid hexadecimal escape")
        if char in _ESCAPES:
            return frozenset(_ESCAPES[char])
        if char.isalnum():
            self._fail(f"the escape \\{char} is not supported")
        return frozenset(char)

    def _char_class(self) -> frozenset[str]:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        chars: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self._text.startswith("[:", self._at):
                end = self._text.find(":]", self._at)
                name = self._text[self._at + 2 : end] if end >= 0 else ""
                if name.removeprefix("^") not in _POSIX_CLASSES:
                    self._fail("unknown character class")
                named = _POSIX_CLASSES[name.removeprefix("^")]
                chars |= self._alphabet - named if name.startswith("^") else named
                self._at = end + 2
                continue
            low = self._class_item()
            following = self._text[self._at : self._at + 2]
            if len(low) == 1 and following[:1] == "-" and following[1:] not in ("", "]"):
                self._at += 1
                high = self._class_item()
                (start,), stop = low, max(high, default="")
                if len(high) != 1 or stop < start:
                    self._fail("invalid range of characters")
                chars.update(each for each in self._alphabet if start <= each <= stop)
            else:
                chars |= low
        self._at += 1
        return self._alphabet - chars if negated else frozenset(chars)

    def _class_item(self) -> frozenset[str]:
        char = self._take()
        return self._escaped_set(self._take()) if char == "\\" else frozenset(char)


def _fold(chars: frozenset[str], ignore_case: bool) -> frozenset[str]:
    if not ignore_case:
        return chars
    return chars | {c.lower() for c in chars} | {c.upper() for c in chars}


@dataclass(slots=True)
class _State:
    """Takes a character of `allowed`; or none, and then only where its anchor allows."""

    allowed: frozenset[str] | None = None
    following: list[int] = field(default_factory=list)
    anchor: bool | None = None  # None: none, False: at the beginning, True: at the end


class TopicRegex:
    """A compiled expression. Raises InvalidTopicRegex.

    `alphabet` has all letters of the names it will see, for names that are not topics'.
    Cost: one dictionary look-up per character once the state sets are known.
    """

    def __init__(self, expression: str, alphabet: frozenset[str] = ALPHABET) -> None:
        self.expression = expression
        self._states: list[_State] = [_State()]
        self._final = 0
        start = self._build(_Parser(expression, alphabet).parse(), self._final)
        self._start = self._closure([start], at_beginning=True, at_end=False)
        self._empty_matches = self._final in self._closure([start], True, True)
        self._moves: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._accepts: dict[frozenset[int], bool] = {}

    def matches(self, name: str) -> bool:
        if not name:
            return self._empty_matches
        current = self._start
        for char in name:
            moves = self._moves.get(current)
            if moves is None:
                if len(self._moves) >= _STATE_SETS_MAX:
                    self._moves.clear()
                    self._accepts.clear()
                moves = self._moves[current] = {}
            following = moves.get(char)
            if following is None:
                following = moves[char] = self._step(current, char)
            if not following:
                return False
            current = following
        accepted = self._accepts.get(current)
        if accepted is None:
            accepted = self._final in self._closure(current, False, True)
            self._accepts[current] = accepted
        return accepted

    def _add(self, state: _State) -> int:
        if len(self._states) >= _STATES_MAX:
            raise InvalidTopicRegex(f"the expression {self.expression!r} is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: _Node, following: int) -> int:
        """Adds states that match `node` and then go on to `following`; returns the first."""
        if isinstance(node, _Characters):
            return self._add(_State(node.allowed, [following]))
        if isinstance(node, _Anchor):
            return self._add(_State(None, [following], node.at_end))
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                following = self._build(part, following)
            return following
        if isinstance(node, _Choice):
            return self._add(_State(None, [self._build(each, following) for each in node.options]))
        if node.most is None:
            loop = self._add(_State())
            self._states[loop].following = [self._build(node.part, loop), following]
            start = loop
        else:
            start = following
            for _ in range(node.most - node.least):
                start = self._add(_State(None, [self._build(node.part, start), following]))
        for _ in range(node.least):
            start = self._build(node.part, start)
        return start

    def _step(self, current: frozenset[int], char: str) -> frozenset[int]:
        reached = []
        for index in current:
            state = self._states[index]
            if state.allowed is not None and char in state.allowed:
                reached += state.following
        return self._closure(reached, at_beginning=False, at_end=False)

    def _closure(
        self, starts: list[int] | frozenset[int], at_beginning: bool, at_end: bool
    ) -> frozenset[int]:
        """All states reachable without a character. An end anchor is kept in the set as it is, so
        that it can be passed when the end is there."""
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            index = todo.pop()
            if index in seen:
                continue
            seen.add(index)
            state = self._states[index]
            if state.allowed is not None or index == self._final:
                continue
            if state.anchor is None or (at_end if state.anchor else at_beginning):
                todo += state.following
        return frozenset(seen)
