"""Progress of a long job: the code that works reports the steps of its phases, and its caller may listen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


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


def span_words(seconds: float) -> str:
    """A duration in words.

    >>> span_words(0.2), span_words(14.4), span_words(200), span_words(8000)
    ('1 s', '14 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
