"""Progress of a long command, on standard error: lines for people, or lines of JSON for programs."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from vicinal.cli.output import print_json, print_progress, progress

if TYPE_CHECKING:
    from vicinal.core.progress import Display


@contextmanager
def shown_progress(*, quiet: bool, verbose: bool = False, as_json: bool = False) -> Iterator["Display"]:
    """Show the progress that is reported inside the block.

    Args:
        quiet: show nothing.
        verbose: a line every second, and all lines stay.
        as_json: lines of JSON.
    """
    from vicinal.core.progress import Display, listening

    display = Display(
        progress.file,
        changing=progress.is_terminal and not (verbose or as_json),
        every=1.0 if verbose else None,
        write=(lambda line: None) if quiet else print_progress,
        events=partial(print_json, file=progress.file) if as_json and not quiet else None,
    )
    with nullcontext() if quiet else listening(display.step):
        try:
            yield display
        finally:
            display.clear()
