"""The application that commands register with."""

from typing import Annotated

import typer

from vicinal.cli.output import output
from vicinal.version import __version__

app = typer.Typer(
    name="vicinal",
    help="Learn from neighbors: predictions are weighted means of the labels of real rows.",
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Examples:  vicinal demo  |  vicinal fit houses.csv --target price --image photo  |  "
    "vicinal predict houses-model new.csv --explain 3  |  vicinal compare houses.csv --target price --splits 10\n\n"
    "Exit codes:  0 it is done  |  2 wrong input or too little memory, told in one sentence  |  "
    "130 stopped by Ctrl-C  |  1 a fault of vicinal",
)


def _version(flag: bool) -> None:  # noqa: FBT001  typer's form of a callback
    if flag:
        output.print(f"vicinal {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: FBT002
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        output.print(context.get_help())
