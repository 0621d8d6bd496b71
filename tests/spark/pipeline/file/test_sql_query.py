"""What can be seen in SQL without Spark."""

import pytest

from tidelog.spark.pipeline.file.sql_query import read_query
from tidelog.spark.pipeline.file.sql_tokens import SqlError


def _names(sql: str) -> list[str]:
    return [each.name for each in read_query(sql).references]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select a from `my view` where x = 'from nowhere'", ["my view"]),
        ("SELECT 1 -- FROM a\n/* FROM b /* FROM c */ */ FROM d", ["d"]),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x)", ["a", "b", "c"]),
        ("SELECT * FROM a x, b AS y (k, v), c", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT * FROM a) t CROSS JOIN (b JOIN c ON true)", ["a", "b", "c"]),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (FROM c)", ["a", "b", "c"]),
        ("SELECT (SELECT max(x) FROM b) FROM a", ["b", "a"]),
        ("WITH t AS (SELECT * FROM a), u (k) AS (SELECT * FROM t) SELECT * FROM u, b", ["a", "b"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r", []),
        ("SELECT * FROM a UNION ALL (SELECT * FROM b) EXCEPT SELECT * FROM c", ["a", "b", "c"]),
        ("SELECT EXTRACT(year FROM ts), trim(BOTH 'x' FROM n), trim(FROM n) FROM a", ["a"]),
        ("SELECT * FROM a WHERE x IS NOT DISTINCT FROM y", ["a"]),
        ("SELECT substring(n FROM 2), a.b FROM range(10), a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(xs) e AS x, y WHERE x > 1", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)", ["a", "b"]),
        ("SELECT * FROM STREAM a JOIN STREAM(b) ON true", ["a", "b"]),
        ("SELECT * FROM spark_catalog.db.t, parquet.`/x/y`, a", ["a"]),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (x) |> AGGREGATE count(*) GROUP BY x", ["a", "b"]),
        ("TABLE a;", ["a"]),
        ("VALUES (1), (2)", []),
        ("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(id, name) JOIN a USING (id)", ["a"]),
        ("SELECT * FROM a PIVOT (sum(x) FOR y IN ('p', 'q'))", ["a"]),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT) WINDOW w AS (ORDER BY x)", ["a"]),
        ("SELECT r'\\' AS x, \"it's\", 'it''s', 'a\\'b' FROM a", ["a"]),
        ("SELECT * FROM my_function(TABLE(a), 3)", ["a"]),
        ("SELECT * FROM my_function(TABLE(SELECT * FROM a), TABLE b PARTITION BY x)", ["a", "b"]),
        ("SELECT * FROM VALUES 1, 2 AS t (id), a", ["a"]),
        ("SELECT * FROM VALUES INTERVAL 1 DAY, INTERVAL 2 DAYS t, a", ["a"]),
        ("SELECT table, struct(table AS t) FROM a ORDER BY table", ["a"]),
        ("TABLE a UNION ALL TABLE b EXCEPT (TABLE c)", ["a", "b", "c"]),
        ("WITH t (x) (SELECT * FROM a), u AS (VALUES (1)) TABLE t", ["a"]),
        ("SELECT * FROM IDENTIFIER('a'), IDENTIFIER('db').b, IDENTIFIER(c)", ["a"]),
        ("FROM a MAP x, y USING 'cat' AS (p, q)", ["a"]),
        ("SELECT x -- goes on \\\n FROM b\nFROM a", ["a"]),
    ],
)
def test_the_views_that_a_query_reads(sql: str, names: list[str]) -> None:
    assert _names(sql) == names


def test_a_reference_knows_its_line() -> None:
    (first, second) = read_query("SELECT *\nFROM a\n\n  JOIN b USING (x)").references
    assert (first.line, second.line) == (1, 3)


@pytest.mark.parametrize(
    ("sql", "message", "line"),
    [
        ("", "empty", 0),
        ("-- nothing\n", "empty", 0),
        ("SELECT 'x FROM a", "string is not closed", 0),
        ("SELECT 1\nFROM `a", "quoted name is not closed", 1),
        ("SELECT (1 FROM a", r"'\(' is not closed", 0),
        ("SELECT 1)\nFROM a", r"'\)' closes nothing", 0),
        ("SELECT 1 /* FROM a", "comment is not closed", 0),
        ("SELEC 1", "Did you mean 'SELECT'", 0),
        ("INSERT INTO a SELECT 1", "not INSERT", 0),
        ("SELECT 1;\nSELECT 2", "second statement", 0),
        ("SELECT * FROM a,\nWHERE x", "not WHERE", 1),
        ("SELECT *\nFROM", "ends where a table", 1),
        ("SELECT * FROM 'a'", "a table is wanted here", 0),
        ("WITH t AS SELECT 1 SELECT 2", "needs AS", 0),
    ],
)
def test_what_is_no_query_is_refused_at_its_line(sql: str, message: str, line: int) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        read_query(sql)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("sql", "is_aggregate"),
    [
        ("SELECT x FROM a", False),
        ("SELECT x, count(*) FROM a GROUP BY x", True),
        ("SELECT round(sum(x), 2) FROM a", True),
        ("SELECT DISTINCT x FROM a", True),
        ("SELECT sum(x) OVER (PARTITION BY y) FROM a", False),
        ("SELECT sum(x) FILTER (WHERE x > 1) OVER (ORDER BY y) FROM a", False),
        ("SELECT * FROM a WHERE x = (SELECT max(x) FROM b)", False),
        ("SELECT a.count, a.max FROM a", False),
        ("FROM a |> AGGREGATE count(*)", True),
    ],
)
def test_aggregations_of_the_outer_select(sql: str, is_aggregate: bool) -> None:
    (outer,) = [each for each in read_query(sql).selects if "a" in each.names]
    assert outer.is_aggregate is is_aggregate


def test_each_select_knows_what_it_reads_through_table_expressions() -> None:
    query = read_query(
        "WITH t AS (SELECT * FROM a), u AS (SELECT x FROM b) "
        "SELECT x, count(*) FROM t JOIN u USING (x) GROUP BY x"
    )
    (joined,) = [each for each in query.selects if each.is_join]
    assert joined.names == {"a", "b"}
    assert joined.is_aggregate


def test_window_functions_and_watermarks_are_seen() -> None:
    query = read_query("SELECT *,\nrow_number() OVER (ORDER BY x) FROM a")
    assert query.selects[-1].window_function_line == 1
    assert not query.has_watermark
    assert read_query("SELECT * FROM a WATERMARK ts DELAY OF INTERVAL 10 SECONDS").has_watermark
