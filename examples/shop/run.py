"""`make demo`: a shop's day through a pipeline into a lake and back.

It starts a broker, streams a day of orders and payments through `pipeline.toml`, archives the
orders, deletes them from the broker, reads broker and lake as one, and compares every number with
what the events say. It ends by itself, within three minutes, with exit code 1 if a check fails.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from examples.shop import topics
from examples.shop.archiving import keep_in_lake, look_into_lake, show_sales
from examples.shop.deadline import Deadline, OutOfTime, alarm
from examples.shop.demo import Demo
from examples.shop.events import make_day, truth
from examples.shop.produce import SendError
from examples.shop.streaming import stream
from examples.shop.tables import check_table
from tidelog.errors import TidelogError
from tidelog.spark import session
from tidelog.testing import Broker


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 110)
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="tidelog-shop-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        console.print(f"{folder} is not empty: give --keep a new folder")
        return 2
    day = make_day(arguments.seed, arguments.orders)
    deadline = Deadline(arguments.limit)
    demo = Demo(folder, day, truth(day), arguments.seconds, deadline, console)
    picture = (folder if arguments.keep else Path("build/demo")) / "shop.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            Broker(mode="process", data=folder / "broker") as broker,
            alarm(deadline.left_s, give_up=_giving_up(broker)),
        ):
            run(demo, broker.bootstrap_servers, picture)
    except (OutOfTime, SendError, TidelogError) as error:
        console.print(f"[bold red]The demo failed:[/] {error}", highlight=False)
        return 1
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return verdict(demo, picture, is_kept=bool(arguments.keep))


def run(demo: Demo, bootstrap: str, picture: Path) -> None:
    demo.say(f"a broker runs at {bootstrap}")
    topics.create_topics(bootstrap)
    spark = session("shop")
    try:
        demo.say(f"Spark {spark.version} runs")
        stream(demo, spark, bootstrap, picture)
        show_sales(demo, spark)
        lake = keep_in_lake(demo, spark, bootstrap)
        look_into_lake(demo, spark, lake)
    finally:
        spark.stop()


def _giving_up(broker: Broker) -> Callable[[], None]:
    def give_up() -> None:
        # Spark's Java process ends when this one does.
        os.kill(broker.pid, 9)
        os._exit(1)

    return give_up


def verdict(demo: Demo, picture: Path, *, is_kept: bool) -> int:
    demo.console.print(check_table(demo.checks))
    wrong = sum(not each.holds for each in demo.checks)
    demo.say(f"the picture of throughput and latency is {picture}")
    if is_kept:
        demo.say(f"everything else is in {demo.folder}")
    if wrong:
        demo.console.print(f"[bold red]{wrong} of {len(demo.checks)} checks failed.[/]")
        return 1
    demo.console.print(f"[bold green]All {len(demo.checks)} checks hold.[/]")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another day")
    parser.add_argument("--orders", type=int, default=20_000, help="orders of the day")
    parser.add_argument("--seconds", type=float, default=35, help="how long the day takes")
    parser.add_argument("--limit", type=float, default=165, help="seconds for everything")
    parser.add_argument("--keep", metavar="DIR", help="keep all data in this new folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
