"""The public names of a package, typed once: ``from vicinal.masks.topk import TopK as TopK`` in its ``__init__``."""

import sys
from types import ModuleType


def export_imported(package: str) -> None:
    """Set ``__all__`` of a package, at the end of its ``__init__``: all that this has imported but modules, sorted.

    Type checkers take no notice of it; to them an import ``as`` itself is public (PEP 484).
    """
    bound = vars(sys.modules[package])
    public = [name for name, value in bound.items() if name[0] != "_" and not isinstance(value, ModuleType)]
    bound["__all__"] = sorted(public)
