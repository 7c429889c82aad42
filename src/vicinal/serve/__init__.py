"""Models over HTTP: predictions, explanations, search, lasting changes of the bank, and the page of one model."""

import typing as _typing

from vicinal.serve.run import needs_extra as _needs_extra
from vicinal.serve.run import serve
from vicinal.serve.settings import ServeSettings

if _typing.TYPE_CHECKING:
    from vicinal.serve.explore import ExplorePage

__all__ = ["ExplorePage", "ServeSettings", "serve"]


def __getattr__(name: str) -> _typing.Any:
    """The page, which needs the extra serve when it is used and not before."""
    if name != "ExplorePage":
        raise AttributeError(f"module 'vicinal.serve' has no attribute {name!r}")
    with _needs_extra("explore"):
        from vicinal.serve.explore import ExplorePage
    return ExplorePage
