"""Modules that a program loads when it first uses them, though other packages import them when it starts.

scikit-learn imports scipy's statistics and optimizers, which takes half a second of every command; few use them.
"""

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

LATER = ("scipy.optimize", "scipy.stats")

_LOADING = threading.RLock()


class LaterModule(ModuleType):
    """A module without content, which it takes from its file when an attribute is asked for that it has not."""

    __spec__: Any  # of a LaterLoader
    __path__: Any

    def __getattr__(self, name: str) -> Any:
        """An attribute of the loaded module; other threads wait while one loads it."""
        with _LOADING:
            if type(self) is LaterModule:
                if "__path__" in vars(self):  # asked by what it imports itself
                    raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
                self.__path__, loader = self.__spec__.submodule_search_locations, self.__spec__.loader.loader
                try:
                    loader.exec_module(self)
                except BaseException:
                    del self.__path__
                    raise
                self.__loader__ = self.__spec__.loader = loader
                object.__setattr__(self, "__class__", ModuleType)
        return getattr(self, name)


class LaterLoader(Loader):
    """Makes a :class:`LaterModule` of what another loader loads."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """A module without content, and without ``__path__``: who imports a part of it asks for that, and loads it."""
        module.__class__ = LaterModule
        del module.__path__


class LaterFinder(MetaPathFinder):
    """Finds the modules of ``LATER``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all other modules."""
        if fullname not in LATER:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LaterLoader(spec.loader)
        return spec


def load_later() -> None:
    """Load the modules of ``LATER`` when they are used, in this process; those that are loaded stay."""
    if not any(isinstance(finder, LaterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LaterFinder())
