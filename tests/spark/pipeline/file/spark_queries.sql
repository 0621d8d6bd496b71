SELECT * FROM orders

select a from `my view` where x = 'from nowhere'

SELECT 1 /* FROM b /* FROM c */ */ FROM d

SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x)

SELECT * FROM a x, b AS y (k, v), c

SELECT * FROM (SELECT * FROM a) t CROSS JOIN (b JOIN c ON true)

SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (FROM c)

SELECT * FROM a WHERE x IN (SELECT y FROM b) AND EXISTS (SELECT 1 FROM c)

SELECT (SELECT max(x) FROM b) FROM a

WITH t AS (SELECT * FROM a), u (k) AS (SELECT * FROM t) SELECT * FROM u, b

WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r

WITH RECURSIVE r(n) MAX RECURSION LEVEL 10 AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r

SELECT * FROM a UNION ALL (SELECT * FROM b) EXCEPT SELECT * FROM c

SELECT * FROM a MINUS SELECT * FROM b

SELECT EXTRACT(year FROM ts), trim(BOTH 'x' FROM n), trim(FROM n) FROM a

SELECT * FROM a WHERE x IS NOT DISTINCT FROM y

SELECT substring(n FROM 2), a.b FROM range(10), a

SELECT substring(n FROM 2 FOR 3) FROM a

SELECT * FROM a LATERAL VIEW explode(xs) e AS x, y WHERE x > 1

SELECT * FROM a LATERAL VIEW OUTER explode(xs) e AS x LATERAL VIEW posexplode(ys) f AS p, q

SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)

SELECT * FROM a, LATERAL explode(a.xs) AS t(x)

SELECT * FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.x = a.x) ON true

SELECT * FROM STREAM a JOIN STREAM(b) ON true

SELECT * FROM STREAM a

SELECT * FROM STREAM(a)

SELECT * FROM spark_catalog.db.t, parquet.`/x/y`, a

FROM a |> WHERE x > 1 |> JOIN b USING (x) |> AGGREGATE count(*) GROUP BY x

FROM a |> EXTEND x + 1 AS y |> SET x = 2 |> DROP z |> AS t |> ORDER BY x |> LIMIT 3

FROM a |> SELECT x |> UNION ALL (SELECT * FROM b)

TABLE a |> WHERE x > 1

FROM a |> PIVOT (sum(x) FOR y IN ('p', 'q'))

FROM a |> TABLESAMPLE (10 PERCENT)

FROM a |> AGGREGATE sum(x) AS s

FROM a |> SELECT x, sum(x) OVER (PARTITION BY y)

TABLE a

VALUES (1), (2)

VALUES 1, 2, 3

SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(id, name) JOIN a USING (id)

SELECT * FROM VALUES 1, 2 AS t(id)

SELECT * FROM (VALUES (1), (2)) AS t(id)

SELECT * FROM a PIVOT (sum(x) FOR y IN ('p', 'q'))

SELECT * FROM a PIVOT (sum(x) AS s, avg(x) AS v FOR (y, z) IN (('p', 1) AS p1, ('q', 2) AS q2))

SELECT * FROM a UNPIVOT (v FOR k IN (x, y, z))

SELECT * FROM a UNPIVOT INCLUDE NULLS (v FOR k IN (x AS p, y AS q)) AS t

SELECT * FROM a UNPIVOT ((v, w) FOR k IN ((x, y) AS p, (z, u) AS q))

SELECT * FROM a TABLESAMPLE (10 PERCENT) WINDOW w AS (ORDER BY x)

SELECT * FROM a TABLESAMPLE (10 ROWS) REPEATABLE (42)

SELECT * FROM a TABLESAMPLE (BUCKET 4 OUT OF 10)

SELECT r'\' AS x, "it's", 'it''s', 'a\'b' FROM a

SELECT R"raw\n" FROM a

SELECT * FROM my_function(TABLE(a), 3)

SELECT * FROM my_function(TABLE(a) PARTITION BY x ORDER BY y, n => 3)

SELECT * FROM my_function(TABLE(a) WITH SINGLE PARTITION)

SELECT * FROM my_function(TABLE(SELECT * FROM a))

SELECT * FROM my_function(arg => TABLE(a))

SELECT * FROM explode(collection => array(1, 2))

SELECT explode(collection => array(1, 2)) FROM a

SELECT mask('ab', lowerChar => 'x') FROM a

SELECT * FROM a WATERMARK ts DELAY OF INTERVAL 10 SECONDS

SELECT window, count(*) FROM a WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY window(ts, '1 minute')

SELECT * FROM STREAM a WATERMARK ts DELAY OF INTERVAL 10 SECONDS AS t

SELECT * FROM STREAM a WITH (maxFiles = 1)

SELECT * FROM a WATERMARK to_timestamp(s) AS ts DELAY OF INTERVAL 10 SECONDS

SELECT *, row_number() OVER (ORDER BY x) FROM a

SELECT sum(x) OVER w FROM a WINDOW w AS (PARTITION BY y ORDER BY z ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)

SELECT sum(x) OVER (PARTITION BY y ORDER BY z RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND 2 FOLLOWING) FROM a

SELECT lag(x) IGNORE NULLS OVER (ORDER BY y), first_value(x) RESPECT NULLS OVER (ORDER BY y) FROM a

SELECT nth_value(x, 2) OVER (ORDER BY y) FROM a QUALIFY row_number() OVER (ORDER BY x) = 1

SELECT /*+ BROADCAST(b), COALESCE(3) */ * FROM a JOIN b USING (x)

SELECT /*+ REPARTITION(3, c) REBALANCE */ * FROM a

SELECT /*+ MAPJOIN(b) */ /*+ COALESCE(1) */ * FROM a JOIN b USING (x)

SELECT transform(xs, x -> x + 1), filter(xs, (x, i) -> i > 1), aggregate(xs, 0, (acc, x) -> acc + x, acc -> acc * 10) FROM a

SELECT map_filter(m, (k, v) -> k > v), exists(xs, x -> x > 1), forall(xs, x -> true), zip_with(xs, ys, (x, y) -> x + y) FROM a

FROM a SELECT x WHERE y > 1

FROM a SELECT x

FROM a JOIN b USING (x) SELECT y GROUP BY z

FROM (SELECT * FROM a) t SELECT t.x

SELECT a.count, a.max FROM a

SELECT x FROM a LEFT SEMI JOIN b ON a.x = b.x

SELECT x FROM a LEFT ANTI JOIN b ON a.x = b.x

SELECT x FROM a ANTI JOIN b USING (x)

SELECT x FROM a NATURAL FULL OUTER JOIN b

SELECT x FROM a CROSS JOIN b

SELECT x FROM a SEMI JOIN b USING (x)

SELECT x FROM a RIGHT JOIN b ON a.x <=> b.x

SELECT x FROM a ORDER BY x NULLS LAST LIMIT 3 OFFSET 2

SELECT x FROM a LIMIT ALL

SELECT x FROM a DISTRIBUTE BY x SORT BY y

SELECT x FROM a CLUSTER BY x

SELECT x, count(*) FROM a GROUP BY GROUPING SETS ((x), (y), ())

SELECT x, count(*) FROM a GROUP BY x, y WITH ROLLUP

SELECT x, count(*) FROM a GROUP BY x, y WITH CUBE

SELECT x, count(*) FROM a GROUP BY ROLLUP(x, y), CUBE(z)

SELECT x, count(*) FROM a GROUP BY ALL

SELECT x, count(*) FROM a GROUP BY x HAVING count(*) > 1

SELECT x, y, count(*) FROM a GROUP BY x, y GROUPING SETS ((x), (y))

SELECT count(*) FILTER (WHERE x > 1), count(DISTINCT x, y) FROM a

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM a

SELECT listagg(x, ',') WITHIN GROUP (ORDER BY y DESC) FROM a

SELECT percentile_approx(x, array(0.5, 0.9), 100) FROM a

SELECT DISTINCT x FROM a

SELECT ALL x FROM a

SELECT * EXCEPT (x) FROM a

SELECT a.* EXCEPT (x, y.z) FROM a

SELECT a.b.c.d[0]['k'].e FROM a

SELECT m['k'], xs[0], s.f, (s).f FROM a

SELECT value:a.b FROM a

SELECT cast(x AS STRUCT<a: INT, b: ARRAY<MAP<STRING, DECIMAL(10, 2)>>>) FROM a

SELECT cast(x AS STRUCT<a: INT NOT NULL COMMENT 'hi'>) FROM a

SELECT try_cast(x AS TIMESTAMP_NTZ), x::int, x::struct<a:int> FROM a

SELECT cast(x AS INTERVAL DAY TO SECOND), cast(x AS INTERVAL YEAR), cast(y as variant) FROM a

SELECT cast(x AS STRING COLLATE UTF8_LCASE), x COLLATE UNICODE_CI FROM a

SELECT INTERVAL 1 DAY, INTERVAL '1' DAY, INTERVAL '1 2:03:04' DAY TO SECOND, INTERVAL 1 DAY 2 HOURS, INTERVAL '3 days 2 hours', INTERVAL -1 MONTH FROM a

SELECT ts + INTERVAL 5 MINUTES, ts - INTERVAL (x + 1) DAYS FROM a

SELECT DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP_NTZ '2020-01-01', X'1F', TIME '10:00:00' FROM a

SELECT 1L, 2S, 3Y, 1.5D, 1.5F, 1.5BD, 1E3, .5, 1e-3D, 0x1F FROM a

SELECT 'a' 'b', "c" 'd' FROM a

SELECT U&'x' FROM a

SELECT 'tab\tnew\nline \u0041 \x41 \101 \%' FROM a

SELECT x AS `a ``b`, y `c` FROM a

SELECT x AS (p, q) FROM a

SELECT stack(2, 1, 2) AS (p, q) FROM a

SELECT inline(xs) AS (p, q), y FROM a

SELECT CASE x WHEN 1 THEN 'a' ELSE 'b' END, CASE WHEN x > 1 THEN 2 END FROM a

SELECT x RLIKE 'a+', x NOT RLIKE 'b', x REGEXP 'c', x LIKE 'a%' ESCAPE '!', x ILIKE ANY ('a', 'b'), x LIKE ALL ('a%', '%b'), NOT x LIKE SOME ('a') FROM a

SELECT x IS TRUE, x IS NOT FALSE, x IS UNKNOWN, x IS NULL, x IS NOT NULL FROM a

SELECT x !> y FROM a

SELECT x || 'b', -x, +x FROM a

SELECT position('a' IN x), overlay(x PLACING 'b' FROM 2 FOR 1), trim(LEADING FROM x), trim(x), ltrim('x', y) FROM a

SELECT ceil(x, 1), floor(x, 2), timestampadd(HOUR, 1, ts), timestampdiff(DAY, a, b), dateadd(DAY, 1, ts), datediff(a, b), date_add(HOUR, 1, ts), date_diff(DAY, a, b) FROM a

SELECT current_date, current_timestamp, current_user, session_user, user, current_catalog(), current_time, localtimestamp FROM a

SELECT first(x IGNORE NULLS), last(x) IGNORE NULLS, any_value(x IGNORE NULLS) FROM a

SELECT from_json(x, 'a INT').a, to_json(struct(*)), get_json_object(x, '$.a') FROM a

SELECT session_window(ts, '5 minutes').start, window(ts, '10 minutes', '5 minutes').end, window_time(window) FROM a

SELECT window.start, window.end, count(*) FROM a GROUP BY window(ts, '1 minute'), x

SELECT key, value, topic, partition, offset, timestamp, timestampType FROM a

SELECT order_id AS order, count AS from_, user, type, table, index, option, position FROM a

SELECT x AS end, y AS date, z AS values FROM a

SELECT * FROM a AS end

SELECT left, right FROM a

SELECT left(x, 1), right(x, 2), if(x, 1, 2), replace(x, 'a', 'b'), format_string('%s', x), char_length(x) FROM a

SELECT array(1, 2), map('a', 1), struct(x AS a, y), named_struct('a', x) FROM a

SELECT parse_json(x):a.b[0]::int FROM a

SELECT variant_get(v, '$.a', 'int') FROM a

SELECT :param, ? FROM a

SELECT * FROM IDENTIFIER('a')

SELECT IDENTIFIER('x') FROM IDENTIFIER(:t)

SELECT `count`(*) FROM a

SELECT system.builtin.count(*) FROM a

SELECT db.f(x) FROM a

SELECT * FROM db.f(1)

SELECT * FROM range(0, 10, 1, 2) AS t(id)

SELECT * FROM a TIMESTAMP AS OF '2020-01-01'

SELECT * FROM a VERSION AS OF 3

SELECT * FROM a FOR SYSTEM_VERSION AS OF 3

SELECT * FROM (a)

SELECT * FROM ((SELECT * FROM a))

SELECT * FROM (a CROSS JOIN b) t

SELECT * FROM (SELECT * FROM a UNION SELECT * FROM b)

SELECT * FROM (FROM a SELECT x)

SELECT * FROM (TABLE a)

SELECT * FROM (WITH t AS (SELECT * FROM a) SELECT * FROM t)

(SELECT * FROM a)

(SELECT * FROM a) UNION ALL (SELECT * FROM b) ORDER BY x

((SELECT * FROM a)) LIMIT 3

SELECT * FROM a UNION DISTINCT SELECT * FROM b INTERSECT ALL SELECT * FROM c

SELECT * FROM a EXCEPT ALL SELECT * FROM b

TABLE a UNION ALL TABLE b

WITH t AS (FROM a SELECT x) FROM t SELECT x

WITH t (VALUES (1)) SELECT * FROM t

WITH t AS (SELECT 1) TABLE t

SELECT * FROM a WHERE (x, y) IN (SELECT p, q FROM b)

SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)

SELECT * FROM a WHERE x IN (TABLE b)

SELECT TRANSFORM(x, y) USING 'cat' AS (p, q) FROM a

FROM a MAP x, y USING 'cat' AS (p, q)

MAP x USING 'cat' FROM a

REDUCE x USING 'cat' AS (p STRING) FROM a

SELECT TRANSFORM(x) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'cat' AS (p) FROM a

SELECT * FROM a b JOIN c d ON b.x = d.x AND d.y BETWEEN b.y AND b.y + INTERVAL 1 HOUR

SELECT count(*), count(DISTINCT x), sum(DISTINCT x), approx_count_distinct(x, 0.1) FROM a

SELECT max_by(x, y), min_by(x, y), collect_list(x), collect_set(x), array_agg(x), bool_and(x), every(x), some(x), any(x) FROM a

SELECT hll_sketch_agg(x), kurtosis(x), skewness(x), regr_slope(x, y), histogram_numeric(x, 5), mode() WITHIN GROUP (ORDER BY x) FROM a

SELECT grouping(x), grouping_id(x, y) FROM a GROUP BY CUBE(x, y)

SELECT x FROM a WHERE y LIKE '%\_%'

SELECT "double ""quoted"" x" FROM a

SELECT x -- comment FROM b

SELECT 1 AS a, 2 AS b

SELECT 1

SELECT * FROM a WHERE ts > current_timestamp() - INTERVAL 1 HOUR

SELECT x.`y z`.`w` FROM a x

SELECT * FROM a LEFT JOIN b

SELECT * FROM a JOIN b

SELECT * FROM a, b LATERAL VIEW explode(xs) e

SELECT *, x + 1 AS y FROM a

SELECT max(struct(ts, x)).x FROM a GROUP BY k

SELECT k, max(x) FILTER (WHERE y) AS m FROM a GROUP BY k

SELECT date_trunc('HOUR', ts), date_format(ts, 'yyyy'), to_timestamp(x), unix_timestamp() FROM a

SELECT decode(x, 'UTF-8'), encode(x, 'UTF-8'), CAST(value AS STRING), cast(key as binary) FROM a

SELECT from_avro(value, 'x'), to_protobuf(x, 'y', 'z') FROM a

SELECT explode(xs) AS x, posexplode(ys) AS (p, q) FROM a

SELECT kll_sketch_agg_bigint(x) FROM a

SELECT 1 ORDER BY 1

SELECT date '2020-01-01' + 1

SELECT e.x FROM a e WHERE e.x = 1 AND e.`from` = 2

SELECT a.from FROM a

SELECT a.select, a.order, a.end, a.group FROM a

SELECT * FROM 1a

SELECT 1a FROM a

SELECT * FROM a.1b

SELECT * FROM orders_2024, `2024_orders`

SELECT 1 -- FROM a
/* FROM b /* FROM c */ */ FROM d

SELECT x -- c\
 FROM b
 FROM a

/* a */ -- b
SELECT 1 FROM a -- x

SELECT 'multi
line' FROM a

SELECT r'raw
' FROM a

SELECT * FROM a;

SELECT * FROM a;;

SELECT * FROM a; -- done

SELECT cast(x AS tinyint), cast(x AS long), cast(x AS byte), cast(x AS dec(3, 1)), cast(x AS void) FROM a

SELECT cast(x AS timestamp_ltz), cast(x AS time(3)), cast(x AS char(3)), cast(x AS varchar(5)) FROM a

SELECT start, end, date, time, timestamp, year, hour, values, value, key, headers FROM a

SELECT window, count(*) FROM a GROUP BY window(ts, '1 minute')

SELECT x, window.end, sum(y) AS total FROM a GROUP BY x, window(ts, '10 minutes', '5 minutes')

SELECT count(*) FROM a GROUP BY session_window(ts, '5 minutes')

SELECT * FROM VALUES INTERVAL 1 DAY, INTERVAL 2 DAYS t JOIN a ON true

SELECT * FROM VALUES (1), (2) t, a

VALUES (1) UNION ALL TABLE a

SELECT DISTINCT table, x FROM a

SELECT struct(table AS t, 1), row_number() OVER (ORDER BY table DESC, x) FROM a

SELECT * FROM IDENTIFIER('db').t, a

FROM a |> WHERE EXISTS (TABLE b |> WHERE b.x = a.x)

FROM a |> UNION ALL TABLE b

SELECT x FROM a JOIN b APPROX NEAREST 1 BY SIMILARITY a.x

SELECT shuffle(xs, 42), x >>> 2, decode(x, 1, 'a', 2, 'b') FROM a
