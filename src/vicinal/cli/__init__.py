"""The command line: it parses options, calls the workflows, and prints results."""

from vicinal.cli.program import main, run

__all__ = ["main", "run"]
