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
    "transport",
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
    "factorization",
    "clustering",
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


MINILM_READS = """
import pandas as pd
from vicinal.encoders import MiniLMEncoder
from vicinal.encoders.base import embed
from vicinal.encoders.minilm import MINILM
if MINILM.installed:
    encoder = MiniLMEncoder("x")
    embed(encoder, encoder.prepare(pd.DataFrame({"x": ["a text", "another"]})))
"""
"""Texts are read by a file of weights alone."""

FIT_OF_NUMBERS = """
import numpy as np
from vicinal import NeighborRegressor
rows = np.random.default_rng(0).normal(size=(40, 2))
NeighborRegressor(tune="auto", verbose=0).fit(rows, rows.sum(axis=1)).predict(rows[:1])
"""
"""The default of the command fits no network to numbers."""

LIGHT = {
    "import vicinal": (*HEAVY, "torch", "numpy", "pandas", "sklearn", "pyarrow", "scipy"),
    "from vicinal.cli import run; run(['--help'])": (*HEAVY, "torch", "numpy", "pandas", "sklearn", "scipy"),
    "import vicinal.index": (*HEAVY, "pandas", "pyarrow"),
    MINILM_READS: (*HEAVY, "scipy.sparse.csgraph"),
    "from vicinal import NeighborRegressor; import vicinal.workflows.predict": (
        *HEAVY,
        "vicinal.losses",
        "vicinal.report",
        "jinja2",
    ),
    "from vicinal import NONA, EmbeddingLoss, SoftStep; import vicinal.encoders": HEAVY,
    FIT_OF_NUMBERS: ("lightning", "torchmetrics", "torch._dynamo", "transformers", "matplotlib"),
    "import vicinal.plot": ("lightning", "torchmetrics", "torch._dynamo", "transformers", "matplotlib", "PIL"),
}
"""What each must not load, in one process after those before it, so that nothing is imported twice."""

LOADED = """
import sys
for number, code in enumerate(sys.argv[2:]):
    exec(code)
    with open(f"{sys.argv[1]}/{number}", "w") as file:
        file.write(" ".join(sys.modules))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The modules that are loaded after each import of a fresh process."""
    folder = tmp_path_factory.mktemp("loaded")
    subprocess.run([sys.executable, "-c", LOADED, str(folder), *LIGHT], check=True)
    return {code: (folder / str(number)).read_text().split() for number, code in enumerate(LIGHT)}


@pytest.mark.parametrize("code", LIGHT)
def test_imports_stay_light(loaded, code):
    assert "vicinal" in loaded[code]
    assert not set(LIGHT[code]) & set(loaded[code])


def test_the_front_door_offers_packages_and_main_names():
    assert {"NONA", "NeighborRegressor", "losses"} <= set(vicinal.__all__)
    assert set(vicinal.__all__) <= set(dir(vicinal))
    for name in vicinal.__all__:
        assert getattr(vicinal, name) is not None
    assert vicinal.NONA is vicinal.heads.NONA
    with pytest.raises(AttributeError, match="no attribute 'nona'"):
        _ = vicinal.nona
