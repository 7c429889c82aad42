"""The version of the package, by itself, so that every layer may read it."""

__version__ = "0.2.0"
