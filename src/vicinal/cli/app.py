"""The program ``vicinal``: its commands, and how errors end it."""

import logging
import os
import sys
from typing import Annotated

import typer

import vicinal
from vicinal.cli.output import out, progress

app = typer.Typer(
    name="vicinal",
    help="Learn from neighbors: predictions that are weighted means of labels of real rows.",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Examples:  vicinal demo  |  vicinal fit houses.csv --target price --image photo  |  "
    "vicinal predict houses-model new.csv --explain 3  |  vicinal compare houses.csv --target price --splits 10",
)


def _version(wanted: bool) -> None:  # noqa: FBT001  typer's form of a callback
    if wanted:
        out.print(f"vicinal {vicinal.__version__}")
        raise typer.Exit


INTERRUPTED = 130
"""Exit code of a program that was stopped by Ctrl-C."""

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong use of the command line; typer names it only as the base of this one."""


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: FBT002
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        out.print(context.get_help(), markup=False)


def main() -> None:
    """Run the program; errors of the user end it with one sentence and exit code 2."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with ``arguments``; gives the exit code."""
    from vicinal.cli import compare, demo, fit, links, predict  # noqa: F401  each adds its command to the app

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
