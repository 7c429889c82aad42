"""Packages that are not installed by default."""

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """The module, or a ValueError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] != module.split(".")[0]:
            raise
        raise ValueError(
            f"index: expected the package {missing.name} for this index, got none; pip install 'vicinal[{extra}]'"
        ) from missing
