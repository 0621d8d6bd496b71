"""How a command ends when it did not do what was asked."""

from typing import NoReturn

import click

EXIT_FAILED = 1
EXIT_NOT_FOUND = 3


def fail(message: str, *, exit_code: int = EXIT_FAILED) -> NoReturn:
    """End the command with a line on stderr and no traceback."""
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(exit_code)
