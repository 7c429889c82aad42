"""What users import is there, typed, documented, and does not drag in what they did not ask for."""

import importlib
import inspect
import subprocess
import sys

import pytest

from vicinal.core import KINDS, entries

PACKAGES = [
    "core",
    "blockwise",
    "similarity",
    "masks",
    "relation",
    "losses",
    "heads",
    "encoders",
    "data",
    "evaluation",
    "report",
    "training",
    "estimators",
    "workflows",
    "ranks",
    "metrics",
    "miners",
    "mixing",
    "samplers",
    "links",
    "index",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_exist_and_are_documented(name):
    package = importlib.import_module(f"vicinal.{name}")
    assert package.__doc__
    assert sorted(package.__all__) == sorted(set(package.__all__))
    for public in package.__all__:
        found = getattr(package, public)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert found.__doc__, f"{name}.{public} has no docstring"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_entries_with_a_summary(kind):
    found = entries(kind)
    assert found
    for entry in found:
        assert entry.summary, f"{kind} {entry.name} has no docstring"


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("vicinal", ("torch", "pandas", "lightning")),
        ("vicinal.heads", ("pandas", "lightning", "sklearn", "transformers", "matplotlib")),
        ("vicinal.index", ("faiss", "pymilvus", "pandas", "pyarrow", "lightning")),
        ("vicinal.encoders", ("transformers", "lightning", "PIL", "soundfile")),
        ("vicinal.cli", ("transformers", "matplotlib.pyplot", "soundfile")),
    ],
)
def test_imports_stay_light(imported, unwanted):
    code = f"import sys, {imported}; print(*[m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
