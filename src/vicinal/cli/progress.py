"""Progress of a long command: one line with the time left of its phase, on standard error."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vicinal.cli.output import finite, print_progress, progress

if TYPE_CHECKING:
    from vicinal.core.progress import Step

WIDTH = 79
"""Most letters of a line."""


class Display:
    """Shows the progress of a job: in a terminal one line that changes, else a line every ten seconds.

    Args:
        verbose: print a line every second, and keep all lines.
        as_json: lines of JSON, for programs: {"event": "log", "line"}, and {"event": "step", "phase", "done", "total",
            "note", "seconds_left"}.
        clock: returns the time in seconds.
    """

    def __init__(
        self, *, verbose: bool = False, as_json: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.changing = progress.is_terminal and not (verbose or as_json)
        self.every = 1.0 if verbose else 0.2 if self.changing else 10.0
        self.as_json, self.clock = as_json, clock
        self._phase = ""
        self._begun = self._shown = clock()
        self._first = 0.0
        self._line = ""

    def log(self, line: str) -> None:
        """Print a line that stays."""
        self.clear()
        if self.as_json:
            self._write({"event": "log", "line": line})
        else:
            print_progress(line)

    def event(self, name: str, values: Mapping[str, Any]) -> None:
        """Print a line of JSON with the event ``name``."""
        self._write({"event": name, **values})

    def step(self, step: "Step") -> None:
        """Show the progress, if enough time has passed since the last line."""
        now = self.clock()
        if step.phase != self._phase:
            self._phase, self._begun, self._first = step.phase, now, step.done
        if now - self._shown < self.every:
            return
        self._shown, left = now, self.seconds_left(step, now)
        if self.as_json:
            whole = {"phase": step.phase, "done": step.done, "total": step.total, "note": step.note}
            self._write({"event": "step", **whole, "seconds_left": left})
        elif self.changing:
            self._line = line_of(step, left)
            progress.file.write(f"\r\x1b[2K{self._line}")
            progress.file.flush()
        else:
            print_progress(line_of(step, left))

    def seconds_left(self, step: "Step", now: float) -> float | None:
        """Seconds left of this phase, by its pace; None before its first step, and if its length is unknown."""
        if step.total is None or step.done <= self._first or now <= self._begun:
            return None
        return max(0.0, step.total - step.done) * (now - self._begun) / (step.done - self._first)

    def clear(self) -> None:
        """Remove the changing line."""
        if self._line:
            progress.file.write("\r\x1b[2K")
            progress.file.flush()
            self._line = ""

    def _write(self, values: Mapping[str, Any]) -> None:
        progress.file.write(json.dumps(finite(values), default=str, allow_nan=False) + "\n")
        progress.file.flush()


class _Silent(Display):
    """Shows nothing."""

    def log(self, line: str) -> None:
        """Ignore it."""

    def event(self, name: str, values: Mapping[str, Any]) -> None:
        """Ignore it."""

    def step(self, step: "Step") -> None:
        """Ignore it."""


@contextmanager
def shown_progress(*, quiet: bool, verbose: bool = False, as_json: bool = False) -> Iterator[Display]:
    """Show the progress that is reported inside the block; nothing with ``quiet``."""
    from vicinal.core.progress import listening

    if quiet:
        yield _Silent()
        return
    display = Display(verbose=verbose, as_json=as_json)
    with listening(display.step):
        try:
            yield display
        finally:
            display.clear()


def line_of(step: "Step", left: float | None) -> str:
    """A step as a line: phase, progress, its time left, and as much of the note as fits."""
    from vicinal.core.progress import span_words

    share = "" if step.total is None else f"  {_count(step.done)} of {_count(step.total)}"
    rest = "" if left is None else f"  about {span_words(left)} left"
    note = f"  {step.note}" if step.note else ""
    return f"{step.phase:<10}{share}{rest}{note}"[:WIDTH].rstrip()


def _count(value: float) -> str:
    return f"{int(value):,}"
