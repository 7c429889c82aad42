"""What users import is there, typed, documented, and does not drag in what they did not ask for."""

import importlib
import inspect
import subprocess
import sys

import pytest

import vicinal
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


HEAVY = (
    "lightning",
    "torchmetrics",
    "torch._dynamo",
    "transformers",
    "matplotlib",
    "sklearn.model_selection",
    "sklearn.tree",
    "scipy.signal",
    "PIL",
    "soundfile",
    "faiss",
    "pymilvus",
)
"""What takes seconds to import, and is imported where it is needed; scikit-learn itself loads scipy.stats."""


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import vicinal", (*HEAVY, "torch", "numpy", "pandas", "sklearn", "pyarrow", "scipy")),
        ("from vicinal import NeighborRegressor", (*HEAVY, "vicinal.losses")),
        ("import vicinal.workflows.predict", (*HEAVY, "vicinal.losses", "vicinal.report", "scikit_posthocs", "jinja2")),
        ("from vicinal import NONA, EmbeddingLoss, SoftStep", HEAVY),
        ("from vicinal.cli import run; run(['--help'])", (*HEAVY, "torch", "numpy", "pandas", "sklearn", "scipy")),
        ("import vicinal.index", (*HEAVY, "pandas", "pyarrow")),
    ],
)
def test_imports_stay_light(code, unwanted):
    code = f"import sys; {code}; print('loaded:', *[m for m in {unwanted!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]


def test_the_front_door_offers_packages_and_main_names():
    assert set(vicinal.__all__) <= set(dir(vicinal))
    for name in vicinal.__all__:
        assert getattr(vicinal, name) is not None
    assert vicinal.NONA is vicinal.heads.NONA
    with pytest.raises(AttributeError, match="no attribute 'nona'"):
        _ = vicinal.nona
