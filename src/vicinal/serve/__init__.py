"""Model folders over HTTP: predictions, explanations and search, and changes of the bank that last."""

from vicinal.serve.run import serve
from vicinal.serve.settings import ServeSettings

__all__ = ["ServeSettings", "serve"]
