"""Options that many commands share, and the settings they stand for."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"


def bootstrap_option(function: F) -> F:
    """`--bootstrap HOST:PORT`, also from the environment."""
    return click.option(
        "--bootstrap",
        "-b",
        default=DEFAULT_BOOTSTRAP,
        envvar="TIDELOG_BOOTSTRAP",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,...]",
        help="Where the broker is.",
    )(function)


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(
        function
    )


def client_settings_option(function: F) -> F:
    """`--client name=value`, settings of librdkafka such as security.protocol."""
    return click.option(
        "--client",
        "client_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the client library (librdkafka), for example security.protocol.",
    )(function)


def own_client_settings_option(function: F) -> F:
    """`--client name=value` of the commands that use Tidelog's own client."""
    return client_settings_of(())(function)


def client_settings_of(names: Iterable[str]) -> Callable[[F], F]:
    """The same for a command that knows settings besides the client's id."""
    return click.option(
        "--client",
        "client_settings",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"A setting of the client: {', '.join(['client.id', *names])}.",
    )


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, str]:
    """`name=value` texts as a dict; anything else is an error of the command line."""
    parsed = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        parsed[name.strip()] = value
    return parsed
