"""Progress of a long job: the code that works reports the steps of its phases, and its caller listens or shows them.

A caller may also set an end, which the code that works asks for.
"""

import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any

Log = Callable[[str], None]
"""Gets one line at a time."""

WIDTH = 79
"""Most letters of a line; fewer in a narrower terminal, where a longer line could not be taken back."""


@dataclass(frozen=True)
class Step:
    """How far a phase of a job is.

    Attributes:
        phase: "reading", "encoding", "kernel", "training", "baselines", "measuring" or "predicting".
        done: steps done: rows, epochs or methods; may be a fraction.
        total: the number of steps, perhaps estimated; None: unknown.
        note: further information for people.
    """

    phase: str
    done: float = 0.0
    total: float | None = None
    note: str = ""


_listener: ContextVar[Callable[[Step], None] | None] = ContextVar("listener", default=None)


def report(phase: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:
    """Report a step to the listener of this thread; it costs almost nothing if there is none."""
    listener = _listener.get()
    if listener is not None:
        listener(Step(phase, done, total, note))


@contextmanager
def listening(listener: Callable[[Step], None]) -> Iterator[None]:
    """Call ``listener`` with each step that is reported within the ``with`` statement.

    >>> steps = []
    >>> with listening(steps.append):
    ...     report("encoding", 16, 400)
    >>> report("encoding", 32, 400)
    >>> steps
    [Step(phase='encoding', done=16, total=400, note='')]
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


_end: ContextVar[float] = ContextVar("end", default=math.inf)


def time_left() -> float:
    """Seconds until the work should end; infinite where nobody has set an end."""
    return _end.get() - time.perf_counter()


@contextmanager
def ending_in(seconds: float) -> Iterator[None]:
    """Set an end for the work within the ``with`` statement, unless an earlier one is set.

    >>> with ending_in(60):
    ...     0 < time_left() <= 60
    True
    >>> time_left()
    inf
    """
    token = _end.set(min(_end.get(), time.perf_counter() + seconds))
    try:
        yield
    finally:
        _end.reset(token)


def span_words(seconds: float) -> str:
    """A duration in words.

    >>> span_words(0.2), span_words(14.4), span_words(200), span_words(8000)
    ('1 s', '14 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def line_of(step: Step, left: float | None, width: int = WIDTH) -> str:
    """A step as a line: phase, progress, its time left, and as much of the note as fits.

    >>> line_of(Step("encoding", 16, 400, "texts"), 8.0)
    'encoding    16 of 400  about 8 s left  texts'
    >>> line_of(Step("encoding", 16, 400, "texts and photos"), 8.0, 52), line_of(Step("encoding", 16, 400), 8.0, 24)
    ('encoding    16 of 400  about 8 s left  texts and ...', 'encoding    16 of 400')
    """
    share = "" if step.total is None else f"  {int(step.done):,} of {int(step.total):,}"
    line = f"{step.phase:<10}{share}"
    rest = "" if left is None else f"  about {span_words(left)} left"
    line += rest if len(line + rest) <= width else ""
    note, room = step.note, width - len(line) - 2
    if note and room >= min(len(note), _LEAST):
        line += f"  {note if len(note) <= room else note[: room - 3] + '...'}"
    return line[:width].rstrip()


_LEAST = 12
"""Letters of a note that are worth showing."""


class Display:
    """Shows the progress of a job: one line that changes, else a line now and then.

    Args:
        file: what is written to.
        changing: whether it shows one line that changes, as a terminal and a notebook do.
        every: seconds between lines.
        write: prints a line that stays; None: as plain text.
        events: gets {"event": "log", "line"}, and {"event": "step"} with a step and its "seconds_left", in place of all
            lines, for programs.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        file: IO[str],
        *,
        changing: bool,
        every: float | None = None,
        write: Callable[[str], None] | None = None,
        events: Callable[[dict[str, Any]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.file, self.changing, self.clock, self.events = file, changing, clock, events
        self.every = every or (0.2 if changing else 10.0)
        self.write = write or (lambda line: print(line, file=file, flush=True))
        self._phase = ""
        self._begun = self._shown = clock()
        self._first = 0.0
        self._line = ""

    def log(self, line: str) -> None:
        """Print a line that stays."""
        self.clear()
        if self.events is None:
            self.write(line)
        else:
            self.event("log", {"line": line})

    def event(self, name: str, values: Mapping[str, Any]) -> None:
        """Tell programs of an event; people see nothing of it."""
        if self.events is not None:
            self.events({"event": name, **values})

    def step(self, step: Step) -> None:
        """Show the progress, if enough time has passed since the last line."""
        now = self.clock()
        if step.phase != self._phase:
            self._phase, self._begun, self._first = step.phase, now, step.done
        if now - self._shown >= self.every:
            self._shown = now
            self.show(step, self.seconds_left(step, now))

    def show(self, step: Step, left: float | None) -> None:
        """Show a step with the seconds that are left of its phase, if known."""
        if self.events is not None:
            self.event("step", {**vars(step), "seconds_left": left})
            return
        if not self.changing:
            self.write(line_of(step, left))
            return
        before, self._line = len(self._line), line_of(step, left, self._width())
        self.file.write(f"\r{self._line:<{before}}")  # a notebook knows no code that clears a line
        self.file.flush()

    def _width(self) -> int:
        """Letters of the changing line: a terminal wraps what fills it, and a wrapped line stays."""
        return min(WIDTH, shutil.get_terminal_size().columns - 1) if self.file.isatty() else WIDTH

    def seconds_left(self, step: Step, now: float) -> float | None:
        """Seconds left of this phase, by its pace; None before its first step, and if its length is unknown."""
        if step.total is None or step.done <= self._first or now <= self._begun:
            return None
        return max(0.0, step.total - step.done) * (now - self._begun) / (step.done - self._first)

    def clear(self) -> None:
        """Remove the changing line."""
        if self._line:
            self.file.write(f"\r{'':<{len(self._line)}}\r")
            self.file.flush()
            self._line = ""


@contextmanager
def logged(log: Callable[[str], None], name: str = "vicinal") -> Iterator[None]:
    """Give the messages of a logger to ``log`` inside the block."""
    logger, handler = logging.getLogger(name), logging.Handler()
    handler.emit = lambda record: log(record.getMessage())  # type: ignore[method-assign]
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # or whoever has set up logging says it once more
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def shown(verbose: int | None) -> Iterator[None]:
    """Show the progress of a fit in Python, unless whoever called it shows it already.

    Args:
        verbose: 0: nothing. 1: one line that changes, and a line for each model that was tried. None: the changing line
            alone, in a notebook; else nothing.
    """
    notebook = "ipykernel" in sys.modules and "PYTEST_CURRENT_TEST" not in os.environ
    if _listener.get() is not None or not (notebook if verbose is None else verbose):
        yield
        return
    file = sys.stdout if notebook else sys.stderr
    display = Display(file, changing=notebook or file.isatty())
    with ExitStack() as stack:
        stack.callback(display.clear)
        stack.enter_context(listening(display.step))
        if verbose:
            stack.enter_context(logged(display.log))
        yield
