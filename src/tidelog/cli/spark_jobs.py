"""What commands that run a Spark job share: their options, the session, and its failures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli.failures import EXIT_NOT_FOUND, fail
from tidelog.cli.options import parse_pairs
from tidelog.cli.positions import Position, parse_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.topic_rows import Bound, Topic

F = TypeVar("F", bound=Callable[..., Any])


def spark_options(function: F) -> F:
    """`--master` and `--conf`."""
    function = click.option(
        "--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark."
    )(function)
    return click.option("--master", metavar="URL", help="Where Spark runs. Default: this machine.")(
        function
    )


def range_options(function: F) -> F:
    """`--from`, `--to` and `--partition`."""
    function = click.option(
        "--partition", "-p", "partitions", type=int, multiple=True, help="Only these."
    )(function)
    function = click.option(
        "--to", "end", callback=parse_position, metavar="WHERE", help="Stop before this. [end]"
    )(function)
    return click.option(
        "--from",
        "start",
        callback=parse_position,
        metavar="WHERE",
        help="beginning, end, an offset, ~N offsets before the end, a date, @milliseconds or -15m.",
    )(function)


def plot_option(function: F) -> F:
    """`--plot FILE`."""
    return click.option(
        "--plot",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Draw a picture into this PNG file.",
    )(function)


@contextmanager
def spark_packages() -> Iterator[None]:
    """Around imports of what is only in the extra `tidelog[spark]`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "tidelog":
            raise
        fail(f'this needs Spark: pip install "tidelog[spark]" ({error.name} is missing)')


def bound(position: Position | None) -> "Bound":
    """Where on the command line, as jobs take it."""
    from tidelog.spark.jobs.topic_rows import Bound

    if position is None:
        return Bound()
    if position.word is not None:
        return Bound(offset=0) if position.word == "beginning" else Bound(tail=0)
    return Bound(position.offset, position.timestamp_ms, position.tail)


def open_topic(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    *,
    uncommitted: bool,
    include_headers: bool = False,
) -> "tuple[Topic, int]":
    """A topic that exists and the number of its partitions; otherwise the end of the command."""
    from tidelog.client.errors import ClientError
    from tidelog.spark.jobs.topic_rows import Topic

    try:
        opened = Topic(
            bootstrap,
            topic,
            partitions=partitions,
            read_committed=not uncommitted,
            include_headers=include_headers,
        )
        count = opened.partition_count()
    except ClientError as error:
        fail(str(error))
    if not count:
        fail(f"the topic {topic} does not exist", exit_code=EXIT_NOT_FOUND)
    for partition in partitions:
        if not 0 <= partition < count:
            fail(f"{topic} has no partition {partition}", exit_code=EXIT_NOT_FOUND)
    return opened, count


@contextmanager
def spark_session(name: str, master: str | None, conf: Sequence[str]) -> "Iterator[SparkSession]":
    """A session for the time of a job; what fails in Spark ends the command with one line.

    A session that this process has already is used, and left as it is.
    """
    from pyspark.errors import PySparkException

    from tidelog.spark.pipeline.run.failure import failure_reason, for_people
    from tidelog.spark.runtime.session import existing_session, session

    settings = parse_pairs(conf, option="--conf")
    is_ours = existing_session() is None
    spark = session(f"tidelog {name}", master=master, conf=settings)
    try:
        yield spark
    except PySparkException as error:
        fail(for_people(failure_reason(str(error))))
    finally:
        if is_ours:
            spark.stop()
