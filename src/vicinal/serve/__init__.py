"""Model folders over HTTP: predictions, explanations, search, and lasting changes of the bank."""

from vicinal.serve.run import serve
from vicinal.serve.settings import ServeSettings

__all__ = ["ServeSettings", "serve"]
