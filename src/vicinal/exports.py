"""The public names of a package, typed once: ``from vicinal.masks.topk import TopK as TopK`` in its ``__init__``."""

import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any


def export_imported(package: str, later: Mapping[str, str] = MappingProxyType({})) -> None:
    """Set ``__all__`` of a package, at the end of its ``__init__``: all that this has imported but modules, sorted.

    Type checkers take no notice of it; to them an import ``as`` itself is public (PEP 484).

    Args:
        package: its name.
        later: further public names, each with its file, which is imported when the name is first asked for (PEP 562);
            a package or file of that name is itself what is asked for.
    """
    bound = vars(sys.modules[package])
    public = {name for name, value in bound.items() if name[0] != "_" and not isinstance(value, ModuleType)}
    bound["__all__"] = sorted(public.union(later))

    def find(name: str) -> Any:
        if name not in later:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        collects = gc.isenabled()
        gc.disable()  # imports make a million objects that stay: to look for garbage in them takes a fifth of the time
        try:
            file = import_module(f"{package}.{later[name]}")
        finally:
            if collects:
                gc.enable()
        return bound.setdefault(name, file if later[name] == name else getattr(file, name))

    if later:
        bound |= {"__getattr__": find, "__dir__": lambda: sorted({*bound, *later})}
