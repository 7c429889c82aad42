"""The command line: parse, call, print; no mathematics here."""

from vicinal.cli.program import main, run

__all__ = ["main", "run"]
