"""The program ``vicinal``: all commands together, and how errors end it."""

import logging
import os
import sys

import typer

from vicinal.cli import compare, demo, evaluate, fit, links, losses, predict
from vicinal.cli.app import app
from vicinal.cli.output import progress

COMMANDS = (fit, predict, evaluate, compare, demo, links, losses)
"""Modules that add their command to the application."""

INTERRUPTED = 130
"""Exit code of a program that was stopped by Ctrl-C."""

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong use of the command line; typer names it only as the base of this one."""


def main() -> None:
    """Run the program; errors of the user end it with one sentence and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with ``arguments``; gives the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        result = app(arguments, standalone_mode=False)
    except UsageError as wrong:
        return _end(_sentence(wrong))
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except (ValueError, OSError) as wrong:
        if os.environ.get("VICINAL_DEBUG"):
            raise
        return _end(_sentence(wrong))
    if result == INTERRUPTED:  # what typer makes of Ctrl-C
        progress.print("stopped; nothing that was there before has changed, and the same command goes on from here")
    return result if isinstance(result, int) else 0


def _sentence(wrong: Exception) -> str:
    """The message of an error in one line."""
    if isinstance(wrong, OSError) and wrong.filename is not None:
        return f"{wrong.filename}: {(wrong.strerror or 'cannot be used').lower()}"
    tell = getattr(wrong, "format_message", wrong.__str__)  # typer's errors of use name the option
    return " ".join(tell().split())


def _end(message: str) -> int:
    progress.print(f"error: {message}", style="red", markup=False)
    return 2
