"""What a query reads and does, as far as its text tells.

Spark's own parser needs a session, which takes seconds. This reading takes none: it finds the names
after FROM and JOIN (through sub-queries, common table expressions, table functions and Spark's pipe
syntax), and for each SELECT whether it joins, aggregates, or uses a window function. It does not
judge expressions; `validate --deep` lets Spark do that.

It is not a parser, because a query that Spark accepts must never be refused here: the views of a
pipeline are made in the order that these names give. sqlglot refuses queries that pipelines are
made of, such as `GROUP BY window(...)` and `WATERMARK ... DELAY OF`; tests/spark/pipeline holds the
two against Spark's parser.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.spark.pipeline.file.problems import near
from tidelog.spark.pipeline.file.sql_tokens import Group, Item, Kind, SqlError, Token, tokens

# What a view cannot be called, because after FROM the word means something else.
RESERVED_NAMES = frozenset({"LATERAL", "STREAM", "TABLE", "VALUES", "SELECT", "WITH", "FROM"})

_FIRST_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
_STATEMENTS = (
    *("INSERT", "CREATE", "DROP", "ALTER", "UPDATE", "DELETE", "MERGE", "SET", "USE", "CACHE"),
    *("TRUNCATE", "SHOW", "DESCRIBE", "EXPLAIN", "BEGIN", "DECLARE"),
)
_AFTER_FROM = (
    *("SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "WINDOW", "CLUSTER"),
    *("DISTRIBUTE", "SORT", "UNION", "EXCEPT", "INTERSECT", "MINUS", "QUALIFY", "EXTEND"),
)
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")
# What may follow a literal inside an expression; another word there is an alias.
_OPERATORS = (
    *("AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "DIV"),
    *("COLLATE",),
)
_AGGREGATES = (
    *("COUNT", "SUM", "AVG", "MEAN", "MIN", "MAX", "FIRST", "LAST", "FIRST_VALUE", "LAST_VALUE"),
    *("COLLECT_LIST", "COLLECT_SET", "ARRAY_AGG", "APPROX_COUNT_DISTINCT", "STDDEV", "VARIANCE"),
    *("PERCENTILE", "PERCENTILE_APPROX", "APPROX_PERCENTILE", "MEDIAN", "MODE", "MAX_BY"),
    *("MIN_BY", "COUNT_IF", "BOOL_AND", "BOOL_OR", "ANY_VALUE", "LISTAGG", "STRING_AGG", "CORR"),
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A one-part table name that the query reads."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT: what it reads, through sub-queries and table expressions, and what it does."""

    line: int
    names: frozenset[str]  # in lower case
    is_join: bool
    is_aggregate: bool
    window_function_line: int | None


@dataclass(frozen=True, slots=True)
class SqlQuery:
    references: tuple[Reference, ...]
    selects: tuple[Select, ...]
    has_watermark: bool  # Spark's WATERMARK ... DELAY OF


def read_query(text: str) -> SqlQuery:
    """Read one query; raises SqlError for what no parser would take."""
    items = tokens(text)
    while items and _is_symbol(items[-1], ";"):
        items = items[:-1]
    if not items:
        raise SqlError("the query is empty", 0)
    _check_statement(items)
    reader = _Reader()
    reader.query(items, {})
    return SqlQuery(tuple(reader.references), tuple(reader.selects), reader.has_watermark)


def _check_statement(items: Sequence[Item]) -> None:
    for item in items:
        if _is_symbol(item, ";"):
            raise SqlError("one step is one query: this ';' begins a second statement", item.line)
    first = items[0]
    if isinstance(first, Group) or first.is_word(*_FIRST_WORDS):
        return
    if first.is_word(*_STATEMENTS):
        raise SqlError(f"a step is a query, not {first.text.upper()}: begin with SELECT", 0)
    hint = near(first.text.upper(), _FIRST_WORDS) if first.kind is Kind.WORD else ""
    raise SqlError(f"a query begins with SELECT or WITH, not with '{first.text}'.{hint}", 0)


@dataclass(slots=True)
class _Block:
    """A SELECT while it is read."""

    line: int
    names: set[str] = field(default_factory=set)
    is_join: bool = False
    is_aggregate: bool = False
    window_function_line: int | None = None


_Scope = Mapping[str, frozenset[str]]  # table expression -> the names it reads


class _Reader:
    def __init__(self) -> None:
        self.references: list[Reference] = []
        self.selects: list[Select] = []
        self.has_watermark = False

    def query(self, items: Sequence[Item], scope: _Scope) -> frozenset[str]:
        """Read one level of a query; the names that it reads."""
        at, scope = self._table_expressions(items, scope)
        return self._selects(items, at, scope, is_relation=False)

    def _table_expressions(self, items: Sequence[Item], scope: _Scope) -> tuple[int, _Scope]:
        """WITH a AS (...), b (x, y) AS (...): the names hide views for what follows."""
        if not items or not items[0].is_word("WITH"):
            return 0, scope
        known = dict(scope)
        at = 2 if len(items) > 1 and items[1].is_word("RECURSIVE") else 1
        while at < len(items):
            name = items[at]
            if isinstance(name, Group):
                raise SqlError("a name is wanted after WITH", name.line)
            at = _table_expression_body(items, at + 1)
            body = items[at] if at < len(items) else _NOTHING
            if not isinstance(body, Group):
                raise SqlError(f"WITH {name.text} needs AS ( query )", name.line)
            # A recursive expression reads itself, which is nothing from outside.
            inner = {**known, name.text.lower(): frozenset[str]()}
            known[name.text.lower()] = self.query(body.items, inner)
            at += 1
            if at < len(items) and _is_symbol(items[at], ","):
                at += 1
                continue
            break
        return at, known

    def _selects(
        self, items: Sequence[Item], at: int, scope: _Scope, *, is_relation: bool
    ) -> frozenset[str]:
        start = at
        block = _Block(items[at].line if at < len(items) else 0)
        names: set[str] = set()
        wants_relation = in_from = is_relation
        while at < len(items):
            item = items[at]
            if isinstance(item, Group):
                is_operand = at == start or _follows_set_operator(items, at)
                read = self._group(items, at, scope, block, wants_relation)
                if wants_relation or is_operand:
                    block.names |= read
                wants_relation = False
            elif item.is_word(*_SET_OPERATORS) and not wants_relation:
                names |= self._close(block)
                block = _Block(item.line)
                in_from = wants_relation = False
            elif item.is_word("FROM") and not _before(items, at).is_word("DISTINCT"):
                wants_relation = in_from = True
            elif item.is_word("JOIN"):
                wants_relation = in_from = block.is_join = True
            elif item.is_word("TABLE") and (at == start or _follows_set_operator(items, at)):
                wants_relation = True
            elif (item.is_word("LATERAL") and _after(items, at).is_word("VIEW")) or (
                item.is_word("MAP", "REDUCE") and _is_name(_after(items, at))
            ):
                in_from = False
            elif item.is_word(*_AFTER_FROM):
                if wants_relation:
                    raise SqlError(f"a table is wanted here, not {item.text.upper()}", item.line)
                in_from = False
            elif wants_relation and not item.is_word("LATERAL", "STREAM"):
                at = self._relation(items, at, scope, block)
                wants_relation = False
                continue
            elif in_from and _is_symbol(item, ","):
                wants_relation = block.is_join = True
            self._notice(items, at, block)
            at += 1
        if wants_relation:
            last = items[-1]
            raise SqlError("the query ends where a table is wanted", last.line)
        return frozenset(names | self._close(block))

    def _close(self, block: _Block) -> set[str]:
        self.selects.append(
            Select(
                block.line,
                frozenset(block.names),
                block.is_join,
                block.is_aggregate,
                block.window_function_line,
            )
        )
        return block.names

    def _notice(self, items: Sequence[Item], at: int, block: _Block) -> None:
        """What a word at this level says about its SELECT."""
        item, following = items[at], _after(items, at)
        if (
            (item.is_word("GROUP") and following.is_word("BY"))
            or (item.is_word("SELECT") and following.is_word("DISTINCT"))
            or (item.is_word("AGGREGATE") and _is_symbol(_before(items, at), "|>"))
            or (item.is_word(*_AGGREGATES) and _is_plain_call(items, at))
        ):
            block.is_aggregate = True
        elif item.is_word("DELAY") and following.is_word("OF"):
            self.has_watermark = True
        elif item.is_word("OVER"):
            block.window_function_line = item.line

    def _group(
        self, items: Sequence[Item], at: int, scope: _Scope, block: _Block, wants_relation: bool
    ) -> frozenset[str]:
        """What a parenthesis reads, if it is a query or a relation."""
        group = items[at]
        assert isinstance(group, Group)
        # TRIM(FROM text) is a call.
        if _is_query(group) and not _before(items, at).is_word("TRIM"):
            return self.query(group.items, scope)
        if wants_relation:
            return self._selects(group.items, 0, scope, is_relation=True)
        self._expression(group.items, scope, block)
        return frozenset()

    def _expression(self, items: Sequence[Item], scope: _Scope, block: _Block) -> None:
        """Inside a call or a condition only sub-queries and TABLE(name) read anything."""
        for at, item in enumerate(items):
            if not isinstance(item, Group):
                self._notice(items, at, block)
                if _is_table_clause(items, at):
                    self._relation(items, at + 1, scope, block)
            elif _before(items, at).is_word("TABLE"):
                block.names |= self._group(items, at, scope, block, wants_relation=True)
            else:
                self._group(items, at, scope, block, wants_relation=False)

    def _relation(self, items: Sequence[Item], at: int, scope: _Scope, block: _Block) -> int:
        """One name after FROM or JOIN; where reading goes on."""
        first = items[at]
        assert isinstance(first, Token)
        if first.is_word("VALUES"):
            return _inline_table_end(items, at)
        if not _is_name(first) and not first.text[0].isdigit():
            raise SqlError(f"a table is wanted here, not '{first.text}'", first.line)
        parts = 1
        at += 1
        while at + 1 < len(items) and _is_symbol(items[at], "."):
            parts += 1
            at += 2
        if parts > 1:
            return at  # of a catalog, or a file such as parquet.`/path`
        text = first.text
        arguments = _after(items, at - 1)
        if isinstance(arguments, Group):
            named = _named_by_identifier(first, arguments)
            if named is None or _is_symbol(_after(items, at), "."):
                return at  # a table function, or a name of more parts
            text = named
            at += 1
        name = text.lower()
        if name in scope:
            block.names |= scope[name]
        else:
            block.names.add(name)
            self.references.append(Reference(text, first.line))
        return at


_NOTHING = Token(Kind.SYMBOL, "", 0)


def _after(items: Sequence[Item], at: int) -> Item:
    return items[at + 1] if at + 1 < len(items) else _NOTHING


def _before(items: Sequence[Item], at: int) -> Item:
    return items[at - 1] if at > 0 else _NOTHING


def _is_symbol(item: Item, text: str) -> bool:
    return isinstance(item, Token) and item.kind is Kind.SYMBOL and item.text == text


def _is_name(item: Item) -> bool:
    return isinstance(item, Token) and item.kind in (Kind.WORD, Kind.QUOTED)


def _is_query(group: Group) -> bool:
    if not group.items:
        return False
    first = group.items[0]
    if isinstance(first, Group):
        return _is_query(first)
    return first.is_word("SELECT", "WITH", "FROM", "VALUES") or _is_table_clause(group.items, 0)


def _is_table_clause(items: Sequence[Item], at: int) -> bool:
    """Whether TABLE stands before the name of one; a column may be called `table` too."""
    name, following = _after(items, at), _after(items, at + 1)
    return (
        items[at].is_word("TABLE")
        and not _is_symbol(_before(items, at), ".")
        and _is_name(name)
        and not name.is_word("ASC", "DESC")
        and (
            following is _NOTHING
            or following.is_word(*_AFTER_FROM, "PARTITION", "WITH")
            or any(_is_symbol(following, symbol) for symbol in (",", ".", "|>"))
        )
    )


def _follows_set_operator(items: Sequence[Item], at: int) -> bool:
    before = _before(items, at)
    if before.is_word("ALL", "DISTINCT"):
        before = _before(items, at - 1)
    return before.is_word(*_SET_OPERATORS)


def _table_expression_body(items: Sequence[Item], at: int) -> int:
    """Where the query of `name (columns) MAX RECURSION LEVEL n AS (query)` stands, if anywhere."""
    following = _after(items, at)
    if isinstance(following, Group) or following.is_word("AS", "MAX"):
        at += 1 if isinstance(items[at], Group) else 0
    if at < len(items) and items[at].is_word("MAX"):
        at += 4
    if at < len(items) and items[at].is_word("AS"):
        at += 1
    return at


def _inline_table_end(items: Sequence[Item], at: int) -> int:
    """Past `VALUES row, row ...`: at its alias, or at the clause that follows."""
    at += 1
    while at < len(items):
        item, before = items[at], _before(items, at)
        if item.is_word("AS", "JOIN", *_AFTER_FROM):
            return at
        # INTERVAL 1 DAY is an operand that ends with a word.
        is_after_operand = _before(items, at - 2).is_word("INTERVAL") or (
            (isinstance(before, Group) or before.kind is Kind.LITERAL)
            and not _before(items, at - 1).is_word("INTERVAL")
        )
        if is_after_operand and _is_name(item) and not item.is_word(*_OPERATORS):
            return at
        at += 1
    return at


def _named_by_identifier(word: Token, arguments: Group) -> str | None:
    """The name that IDENTIFIER('name') stands for, if it is a name of one part."""
    if not word.is_word("IDENTIFIER") or len(arguments.items) != 1:
        return None
    (argument,) = arguments.items
    if not isinstance(argument, Token) or argument.kind is not Kind.LITERAL:
        return None
    name = argument.text[1:-1]
    return name if name.isidentifier() else None


def _is_plain_call(items: Sequence[Item], at: int) -> bool:
    """Whether the word is called, and not over a window."""
    if not isinstance(_after(items, at), Group):
        return False
    following = _after(items, at + 1)
    if following.is_word("FILTER"):
        following = _after(items, at + 3)
    return not following.is_word("OVER")
