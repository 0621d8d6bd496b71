"""Schemas as DDL text, without Spark's JVM."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.spark.formats.ddl import DdlError, parse_ddl


def test_columns_are_read_in_both_spellings() -> None:
    expected = StructType(
        [
            StructField("id", LongType()),
            StructField("tags", ArrayType(StringType())),
            StructField("price", DecimalType(10, 2)),
            StructField("at", TimestampType()),
        ]
    )
    assert parse_ddl("id long, tags array<string>, price decimal(10,2), at timestamp") == expected
    assert parse_ddl("id: BIGINT,tags:Array<String>,price: numeric( 10 , 2 ),at:TIMESTAMP") == (
        expected
    )
    assert parse_ddl("struct<id: long, tags array<string>, price dec(10,2), at timestamp>") == (
        expected
    )


def test_types_nest() -> None:
    parsed = parse_ddl("m map<string, array<struct<x: int, `y z` timestamp_ntz>>>, n struct<a int>")
    inner = StructType([StructField("x", IntegerType()), StructField("y z", TimestampNTZType())])
    assert parsed == StructType(
        [
            StructField("m", MapType(StringType(), ArrayType(inner))),
            StructField("n", StructType([StructField("a", IntegerType())])),
        ]
    )


def test_not_null_and_comments_are_let_be() -> None:
    parsed = parse_ddl("""comment string NOT NULL COMMENT 'it''s', `a``b` int COMMENT "x, y" """)
    assert parsed == StructType(
        [StructField("comment", StringType()), StructField("a`b", IntegerType())]
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a column name is missing"),
        ("id", "a type is missing"),
        ("id lung", "'lung' is no type"),
        ("id int,", "a column name is missing"),
        ("id int name string", "'name' was not expected"),
        ("a array<int", "'>' is missing"),
        ("a map<string>", "',' was expected, not '>'"),
        ("d decimal(39, 2)", "1 to 38 digits"),
        ("d decimal(5, 6)", "1 to 38 digits"),
        ("a int; b int", "is not understood"),
        ("'a' int", "is no column name"),
        ("a struct<>", "is no column name"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(DdlError) as caught:
        parse_ddl(text)
    assert told in str(caught.value)
