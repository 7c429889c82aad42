"""The program ``vicinal``: all commands together, and how errors end it."""

import contextlib
import gc
import importlib
import inspect
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from vicinal.cli.app import app
from vicinal.cli.output import print_progress, progress

COMMANDS = (
    "fit predict explain explore show distill compress learn search match recommend "
    "discover evaluate compare bank adapt refit export serve demo links losses"
)
"""Modules that add their commands to the application, in the order in which help lists them."""

for _name in COMMANDS.split():  # by import statements the order would be that of the alphabet
    importlib.import_module(f"vicinal.cli.{_name}")

INTERRUPTED = 130
"""Exit code of a program that was stopped by Ctrl-C."""

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong use of the command line; typer names it only as the base of this one."""


def main() -> None:
    """Run the program; errors of the user end it with one sentence and exit code 2."""
    gc.set_threshold(10_000, 10, 10)  # imports make a million objects that stay: no need to look for garbage so often
    sys.exit(run(sys.argv[1:]))


@cache
def program() -> Any:
    """The application as click runs it, made of the signatures of all commands once a process."""
    group: Any = typer.main.get_command(app)
    for command in group.commands.values():  # a terminal breaks lines, not the docstring
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
    return group


def run(arguments: list[str]) -> int:
    """Run with ``arguments``; gives the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        with contextlib.nullcontext() if "--help" in arguments else _warnings_as_sentences():
            result = program()(arguments, standalone_mode=False, obj=arguments)
    except UsageError as wrong:
        return _end(_sentence(wrong))
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except (ValueError, OSError, MemoryError, RuntimeError) as wrong:
        if os.environ.get("VICINAL_DEBUG") or (isinstance(wrong, RuntimeError) and not _is_memory(wrong)):
            raise
        return _end(_as_typed(wrong, arguments))
    if result == INTERRUPTED:  # what typer makes of Ctrl-C
        progress.print("stopped; nothing was overwritten, and the same command resumes")
    return result if isinstance(result, int) else 0


@contextlib.contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """What the library warns of columns as a line of progress, once for each sentence."""
    from vicinal.core import ColumnWarning  # imports torch, for which help need not wait

    with warnings.catch_warnings():
        warnings.simplefilter("always", ColumnWarning)
        warnings.filterwarnings("ignore", "X: expected rows like those of the fit")  # predict logs it
        others, once = warnings.showwarning, cache(print_progress)

        def show(message: Warning | str, category: type[Warning], *place: Any, **further: Any) -> None:
            if issubclass(category, ColumnWarning):
                once(str(message))
            else:
                others(message, category, *place, **further)

        warnings.showwarning = show
        yield


def _sentence(wrong: BaseException) -> str:
    """The message of an error in one line."""
    if isinstance(wrong, UsageError):  # typer's errors of use name the option
        if errors := getattr(wrong.__cause__, "errors", None):  # pydantic's, of a value that it cannot have
            first, option = errors()[0], wrong.param.opts[0]  # type: ignore[attr-defined]
            expected = first["msg"].removeprefix("Input should be ").partition(",")[0]
            return f"{option}: expected {expected}, got {str(first['input'])[:60]!r}"
        sentence = " ".join(wrong.format_message().split())  # type: ignore[attr-defined]
        missing = getattr(getattr(wrong, "param", None), "help", None) if sentence.startswith("Missing") else None
        return f"{sentence.removesuffix('.')}: {missing}" if missing else sentence
    from vicinal.core.checks import ECHO, short_text

    if isinstance(wrong, OSError) and wrong.filename is not None:
        return f"{short_text(wrong.filename, ECHO)}: {(wrong.strerror or 'cannot be used').lower()}"
    if _is_memory(wrong):
        return f"memory: expected enough for this table and these settings, got too little ({short_text(wrong, ECHO)})"
    return " ".join(str(wrong).split())


def _is_memory(wrong: BaseException) -> bool:
    """Whether memory ran out, as numpy or as torch says it."""
    return isinstance(wrong, MemoryError) or "allocate memory" in str(wrong) or "out of memory" in str(wrong)


_PARAMETERS = {
    "coverage": "--interval",
    "ids": "--id",
    "id_left": "--id",
    "groups": "--group",
    "queries": "--query",
    "X": "data",
    "encoders": "--encoder",
    "cache_dir": "--cache",
    "folder": "--cache",
    "random_state": "--seed",
    "factory": "--index",
    "uri": "--index",
    "n_candidates": "--candidates",
}
"""Arguments and options whose name is not that of the parameter which the library names."""


def _as_typed(wrong: BaseException, arguments: list[str]) -> str:
    """The sentence of an error; a parameter of the library that it begins with becomes the option of this command."""
    from vicinal.core import ColumnError

    sentence = _sentence(wrong)
    name, rest = re.match(r"(\w*)(.*)", sentence, re.DOTALL).groups()  # type: ignore[union-attr]  # it matches any text
    if isinstance(wrong, ColumnError) or not rest.startswith((":", "[")):
        return sentence
    verbs = getattr(program(), "commands", {})
    command = next((verbs[word] for word in arguments if word in verbs), None)
    known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
    labels = next(({"y": one} for one in ("--same", "--labels") if one in known), {})
    plain = f"--{name.replace('_', '-')}"
    option = plain if plain in known else (_PARAMETERS | labels).get(name, plain)
    inside = re.match(r"\['(.*?)'\](.*)", rest, re.DOTALL)  # encoders['photo']: --encoder photo
    rest = f" {inside[1]}{inside[2]}" if inside else rest
    return option + rest if option in known else sentence


def _end(message: str) -> int:
    progress.print(f"error: {message}", style="red")
    return 2
