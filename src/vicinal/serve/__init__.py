"""Models over HTTP: predictions, explanations, search, lasting changes of the bank, and the page of one model."""

from typing import TYPE_CHECKING, Any

from vicinal.serve.run import needs_extra, serve
from vicinal.serve.settings import ServeSettings

if TYPE_CHECKING:
    from vicinal.serve.explore import ExplorePage

__all__ = ["ExplorePage", "ServeSettings", "serve"]


def __getattr__(name: str) -> Any:
    """The page, which needs the extra serve when it is used and not before."""
    if name != "ExplorePage":
        raise AttributeError(f"module 'vicinal.serve' has no attribute {name!r}")
    with needs_extra("explore"):
        from vicinal.serve.explore import ExplorePage
    return ExplorePage
