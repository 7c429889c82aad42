"""Silence Lightning's warnings about deliberate choices."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")


def silence() -> None:
    """Silence these warnings from now on: one loading process, short epochs, checkpoint folders."""
    for text in (".*does not have many workers.*", ".*Checkpoint directory.*", ".*fewer than.*"):
        warnings.filterwarnings("ignore", text)
    for category in (UserWarning, FutureWarning, DeprecationWarning):
        warnings.filterwarnings("ignore", category=category, module="lightning.*")
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence these warnings inside the block."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings():
        silence()
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
