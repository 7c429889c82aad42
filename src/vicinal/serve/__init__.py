"""Models over HTTP: predictions, explanations, search, lasting changes of the bank, and the page of one model."""

import importlib as _importlib
import typing as _typing

from vicinal.serve.run import needs_extra as _needs_extra
from vicinal.serve.run import serve
from vicinal.serve.settings import ServeSettings

if _typing.TYPE_CHECKING:
    from vicinal.serve.explore import ExplorePage
    from vicinal.serve.review import ReviewPage

_FILES = {"ExplorePage": ("explore", "explore"), "ReviewPage": ("review", "--review")}
"""Files of pages, which need the extra serve when they are used and not before, and what asks for them."""

__all__ = ["ExplorePage", "ReviewPage", "ServeSettings", "serve"]


def __getattr__(name: str) -> _typing.Any:
    if name not in _FILES:
        raise AttributeError(f"module 'vicinal.serve' has no attribute {name!r}")
    file, asked_by = _FILES[name]
    with _needs_extra(asked_by):
        return getattr(_importlib.import_module(f"vicinal.serve.{file}"), name)
