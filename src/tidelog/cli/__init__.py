"""The `tidelog` command.

Each subcommand is a module of its own, imported only when it is called: `tidelog --help` and
`tidelog up` must not wait for client libraries that they do not use.

Exit codes: 0 done, 1 it failed and the reason is on stderr, 2 the command line is wrong, 3 what
was asked for does not exist or a check did not pass.
"""

import sys
from importlib import import_module

import click

from tidelog import __version__
from tidelog.cli.failures import EXIT_FAILED, fail
from tidelog.errors import TidelogError

# name -> (module, one line of help). The line stands here so that --help imports no module.
_COMMANDS = {
    "up": ("tidelog.cli.up", "Start one node, or join it to a cluster."),
    "cluster": ("tidelog.cli.cluster", "Run a cluster on this machine; show how a cluster is."),
    "node": ("tidelog.cli.node", "List, describe and remove the nodes of a cluster."),
    "topic": ("tidelog.cli.topic", "Create, list, describe, alter and delete topics."),
    "produce": ("tidelog.cli.produce", "Publish lines or JSON from standard input."),
    "consume": ("tidelog.cli.consume", "Print the records of a topic."),
    "group": ("tidelog.cli.group", "List, describe, reset and delete consumer groups."),
    "txn": ("tidelog.cli.txn", "List, describe and abort transactions."),
    "pipeline": ("tidelog.cli.pipeline", "Run pipelines on Spark that TOML files describe."),
    "lake": ("tidelog.cli.lake", "Keep topics in tables, and bring them back."),
    "audit": ("tidelog.cli.audit", "Check topics and lakes for gaps, duplicates and order."),
    "hotkeys": ("tidelog.cli.hotkeys", "Show the heaviest keys and what splitting them gives."),
    "bench": ("tidelog.cli.bench", "Measure producing, consuming and end-to-end latency."),
    "log": ("tidelog.cli.log", "Look into the files of a log and check them."),
    "simulate": ("tidelog.cli.simulate", "Run a node in a simulated world full of faults."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            command = import_module(entry[0]).command
        except ModuleNotFoundError as error:
            if error.name != "confluent_kafka":
                raise
            fail(f'tidelog {cmd_name} needs confluent-kafka: pip install "tidelog[client]"')
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in _COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, _COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidelog")
def tidelog() -> None:
    """A Kafka-compatible commit log: run a node, and work with any Kafka broker."""


def main() -> None:
    """Run the command; errors that a user can cause end in one line and an exit code."""
    try:
        tidelog(standalone_mode=True)
    except TidelogError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_FAILED)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does.
        sys.stderr.close()
        sys.exit(EXIT_FAILED)
