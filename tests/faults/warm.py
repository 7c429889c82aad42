"""Cases of the fault suite, each in a child of one warm process, with limits of time and memory.

The warm process is the server of multiprocessing's "forkserver": it has the library imported, so that a case costs a
fork and not an import. A case is a function of a module under ``tests``; what it prints and how it ends is its outcome.
"""

import ctypes
import functools
import hashlib
import math
import multiprocessing
import os
import resource
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

SECONDS, MEMORY = 30.0, 2 << 30
"""What a case may take: time of processors, and bytes beyond what the warm process holds."""

PATIENCE = 10
"""Wall time after which a case is killed that waits, in multiples of the time that it may work."""

_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["faults.preload"])


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        code: exit code; negative for the number of the signal that ended it, -9 if it was killed for its time.
        out: what it printed on standard output.
        err: what it printed on standard error.
        seconds: wall time.
        grown: bytes of resident memory at its peak, beyond those at its start.
    """

    code: int
    out: str
    err: str
    seconds: float
    grown: int


def start(folder, work, *args, seconds=SECONDS, memory=MEMORY):
    """A running case: ``work(*args)`` in a child of the warm process; see :func:`end`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    warm_up()
    process = _WARM.Process(target=_case, args=(str(folder), seconds, memory, work, args))
    process.start()
    return process


@functools.cache
def warm_up():
    """Start the warm process and wait for its imports, so that no case is charged with them.

    It finds ``faults.preload`` by PYTHONPATH only: a forkserver of Python 3.11 passes over the ``sys.path`` that it is
    given, and over preloads that it cannot import.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        process = _WARM.Process(target=bool)
        process.start()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    process.join()


def end(process, folder, seconds=SECONDS):
    """The outcome of a case that :func:`start` began; see :func:`run_case`."""
    began = time.monotonic()
    process.join(PATIENCE * seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
    printed = {
        name: Path(folder, name).read_text(errors="replace") for name in ("out", "err") if Path(folder, name).exists()
    }
    grown = Path(folder, "grown")
    return Outcome(
        code=process.exitcode,
        out=printed.get("out", ""),
        err=printed.get("err", ""),
        seconds=time.monotonic() - began,
        grown=int(grown.read_text()) if grown.exists() else 0,
    )


def run_case(folder, work, *args, seconds=SECONDS, memory=MEMORY):
    """The outcome of ``work(*args)``; its exit code is what ``work`` returns (None: 0).

    Args:
        folder: for what it prints; must lie outside of what the case works on.
        work: function of a module under ``tests``.
        args: what it is called with; pickled.
        seconds: after which it is killed, whatever else the machine does: of processors, and ``PATIENCE`` times as many
            on the clock, for a case that waits.
        memory: bytes of address space beyond the warm process's own.
    """
    return end(start(folder, work, *args, seconds=seconds, memory=memory), folder, seconds)


def _case(folder, seconds, memory, work, args):
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds),) * 2)
    before = _peak()
    try:
        code = work(*args)
    except BaseException:  # whatever it is, the case failed by it, and its text is the finding
        traceback.print_exc()
        code = 70
    Path(folder, "grown").write_text(str(max(_peak() - before, 0)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def command(*arguments):
    """A case: the program ``vicinal`` with these arguments."""
    from vicinal.cli.output import output, progress
    from vicinal.cli.program import run

    output.file, progress.file = sys.stdout, sys.stderr
    return run([str(argument) for argument in arguments])


def program(code, *arguments):
    """A case: what ``python -c code *arguments`` does, with no freed memory left in which it could hide its own."""
    ctypes.CDLL(None).malloc_trim(0)
    sys.argv = ["-c", *map(str, arguments)]
    exec(compile(code, "<case>", "exec"), {"__name__": "__main__"})


def contents(folder):
    """Digest of every file below ``folder``, by its path; links and folders by what they are."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder" if path.is_dir() else "other"
    return found


def check_promise(outcome, *, memory=MEMORY):
    """A result, or one sentence and exit code 2; in time and in memory."""
    what = f"exit code {outcome.code} after {outcome.seconds:.1f} s\n{outcome.out[-500:]}\n{outcome.err[-3000:]}"
    assert outcome.code in (0, 2), what
    assert "Traceback" not in outcome.err, what
    assert outcome.grown < memory, f"{outcome.grown >> 20} MiB\n{what}"
    lines = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(lines) == (1 if outcome.code == 2 else 0), what
    if outcome.code == 2:
        assert lines[0] == outcome.err.splitlines()[-1], what
        assert 10 < len(lines[0]) < 1500, what


def seeded(count):
    """``count`` seeds to parametrize a test by; ``make test`` runs every fiftieth, ``make test-all`` all of them."""
    return [seed if seed % 50 == 0 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)]


def seeded_tenth(cases):
    """``cases`` to parametrize a test by, of which a tenth runs in ``make test``, as :func:`seeded` has it."""
    return [pytest.param(*case, marks=[] if place % 10 == 0 else pytest.mark.slow) for place, case in enumerate(cases)]
