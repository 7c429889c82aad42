"""The command line: parse, call, print; no mathematics here."""

from vicinal.cli.app import main

__all__ = ["main"]
