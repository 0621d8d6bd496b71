import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.protocol.compression import Compression
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.errors import OptionError
from tidelog.spark.schema import HEADERS_TYPE, spark_schema
from tidelog.spark.sink.options import (
    OPTION_NAMES,
    Guarantee,
    JobTransaction,
    SinkOptions,
    parse_sink_options,
)


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


VALUE = schema(value=BinaryType())


def parse(columns: StructType = VALUE, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    return parse_sink_options(given, columns, streaming=True)


def test_what_is_not_said() -> None:
    assert parse() == SinkOptions(bootstrap="localhost:9092", topic="orders")
    assert parse().guarantee is Guarantee.EXACTLY_ONCE


def test_everything_that_can_be_said() -> None:
    made = parse(
        DELIVERYGUARANTEE="at-least-once",
        transactionalIdPrefix="etl",
        partitioner="murmur2",
        includeHeaders="true",
        checkpointLocation="/tmp/x",
        kafka_acks="1",
        kafka_batch_size="5000",
        kafka_client_id="etl-1",
        kafka_compression_type="LZ4",
        kafka_delivery_timeout_ms="7000",
        kafka_linger_ms="5",
        kafka_max_block_ms="100",
        kafka_request_timeout_ms="3000",
        kafka_security_protocol="PLAINTEXT",
        kafka_transaction_timeout_ms="60000",
    )
    assert made == SinkOptions(
        bootstrap="localhost:9092",
        topic="orders",
        guarantee=Guarantee.AT_LEAST_ONCE,
        transactional_id_prefix="etl",
        checkpoint_location="/tmp/x",
        client_id="etl-1",
        acks=1,
        compression=Compression.LZ4,
        batch_bytes=5000,
        transaction_timeout_ms=60_000,
        delivery_timeout_ms=7000,
        request_timeout_ms=3000,
        max_block_ms=100,
    )


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("topc", "orders", "no option topc: did you mean topic"),
        ("deliveryGuarante", "x", "did you mean deliveryGuarantee"),
        ("path", "orders", "option topic"),
        ("topic", " ", "topic is empty"),
        ("deliveryGuarantee", "twice", "exactly-once or at-least-once"),
        ("partitioner", "crc32", "murmur2"),
        ("includeHeaders", "yes", "true or false"),
        ("kafka_acks", "1", "with exactly-once it must be all"),
        ("kafka_enable_idempotence", "false", "at-least-once"),
        ("kafka_batch_size", "0", "from 1"),
        ("kafka_batch_size", "many", "'many'"),
        ("kafka_compression_type", "brotli", "zstd"),
        ("kafka_compresion_type", "lz4", "did you mean kafka.compression.type"),
        ("kafka_security_protocol", "SSL", "PLAINTEXT"),
        ("kafka_transactional_id", "t", "transactionalIdPrefix"),
        ("kafka_value_serializer", "x", "binary or string"),
        ("transactionalIdPrefix", "", "transactionalIdPrefix is empty"),
    ],
)
def test_wrong_options_are_named(option: str, value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(VALUE, **{option: value})


def test_the_address_is_needed() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        parse_sink_options({"topic": "orders"}, VALUE, streaming=False)


@pytest.mark.parametrize(
    "columns",
    [
        schema(key=StringType(), value=StringType()),
        schema(value=BinaryType(), headers=HEADERS_TYPE, partition=IntegerType()),
        # What the source gives can be written as it is, but for the offset and the like.
        spark_schema(include_headers=True),
    ],
)
def test_columns_that_fit(columns: StructType) -> None:
    assert parse(columns)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (schema(key=BinaryType()), r"value is missing \(there are: key\)"),
        (schema(value=LongType()), "value is bigint: it must be binary or string"),
        (schema(value=BinaryType(), key=LongType()), "key is bigint"),
        (schema(value=BinaryType(), partition=LongType()), "partition is bigint: it must be int"),
        (schema(value=BinaryType(), headers=StringType()), "headers is string"),
        (schema(value=BinaryType(), headers=ArrayType(BinaryType())), "headers is array"),
    ],
)
def test_columns_that_do_not_fit(columns: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(columns)


def test_the_topic_comes_from_the_option_or_from_the_column() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(OptionError, match="option topic"):
        parse_sink_options(options, VALUE, streaming=True)
    with pytest.raises(OptionError, match="topic is int"):
        parse_sink_options(options, schema(value=BinaryType(), topic=IntegerType()), streaming=True)
    columns = schema(value=BinaryType(), topic=StringType())
    assert parse_sink_options(options, columns, streaming=True).topic is None


def test_a_checkpoint_is_for_queries() -> None:
    options = {
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "orders",
        "checkpointLocation": "/tmp/x",
    }
    assert parse_sink_options(options, VALUE, streaming=True)
    with pytest.raises(OptionError, match="no option checkpointlocation"):
        parse_sink_options(options, VALUE, streaming=False)


def test_topics_are_not_overwritten() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}
    source = TidelogDataSource(options)
    assert source.writer(VALUE, overwrite=False)
    with pytest.raises(OptionError, match="only appended to"):
        source.writer(VALUE, overwrite=True)
    # The output mode `complete` of a query is this: it appends all rows of each batch.
    assert source.streamWriter(VALUE, overwrite=True)


def test_a_job_can_say_which_one_it_is() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}
    named = options | {"txnAppId": "daily", "txnVersion": "7"}
    made = parse_sink_options(named, VALUE, streaming=False)
    assert made.transaction == JobTransaction("daily", 7)
    for wrong, words in (
        ({"txnAppId": "daily"}, "go together"),
        ({"txnAppId": "daily", "txnVersion": "-1"}, "from 0"),
        (named | {"deliveryGuarantee": "at-least-once"}, "exactly-once"),
    ):
        with pytest.raises(OptionError, match=words):
            parse_sink_options(options | wrong, VALUE, streaming=False)
    with pytest.raises(OptionError, match="no option txnappid"):
        parse_sink_options(named, VALUE, streaming=True)


def test_the_names_are_those_that_are_read() -> None:
    assert {"topic", "deliveryguarantee", "kafka.compression.type"} <= OPTION_NAMES
    assert all(name == name.lower() for name in OPTION_NAMES)
