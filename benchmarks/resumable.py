"""What benchmarks share: how they read the command line, and a CSV whose lines are there as soon as they are known.

A run that was stopped resumes: what the CSV has is not measured again.
"""

import argparse
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

RESULTS = Path(__file__).parent / "results"


def asked(doc: str | None, threads: int = 1, **options: Any) -> argparse.Namespace:
    """The command line, read; from here on so many threads (0: as there were) and no warnings.

    Each option has its default, or its type where it has to be given; None is a path that may be left out.
    """
    import torch  # here, as benchmarks of other libraries measure memory

    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        kind = default if isinstance(default, type) else Path if default is None else type(default)
        settings: dict[str, Any] = {"type": kind, "required": True} if kind is default else {"default": default}
        if kind is list:
            settings |= {"nargs": "*", "type": type(default[0]) if default else str}
        else:
            settings |= {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    torch.set_num_threads(threads or torch.get_num_threads())
    warnings.simplefilter("ignore")
    return parser.parse_args()


def peak_mb() -> float:
    """The most memory that this process held, mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


class Lines:
    """The CSV at ``path``; the columns of ``key`` say what a line is about."""

    def __init__(self, path: Path, *key: str) -> None:
        self.path, self.key = path, list(key)
        known = pd.read_csv(path, dtype=str, keep_default_na=False) if path.is_file() else pd.DataFrame(columns=key)
        self.columns = list(known) if path.is_file() else []
        self.done = set(known[self.key].itertuples(index=False, name=None))

    def __contains__(self, key: Iterable[object]) -> bool:
        return tuple(map(str, key)) in self.done

    def put(self, key: tuple[object, ...], values: Mapping[str, float]) -> None:
        """Append a line for each figure of a key."""
        known = dict(zip(self.key, key, strict=True))
        self.add(known | {"what": what, "value": round(value, 5)} for what, value in values.items())

    def add(self, lines: Iterable[Mapping[str, Any]] | pd.DataFrame, form: str = "%.6g") -> None:
        """Append lines, in the columns of those before."""
        frame = pd.DataFrame(lines)
        frame = frame.reindex(columns=self.columns or list(frame))
        frame.to_csv(self.path, mode="a", header=not self.columns, index=False, float_format=form)
        self.columns = list(frame)
        self.done |= set(frame[self.key].astype(str).itertuples(index=False, name=None))
        print(frame.dropna(axis=1).to_string(header=False, index=False), flush=True)
