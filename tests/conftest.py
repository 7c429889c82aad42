"""Fixtures that all tests share."""

import gc
import logging
import os
import sys
import time
import types
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from markupsafe import Markup

from brief import FEWER, READOUTS, TREES

if TYPE_CHECKING:  # the process that only deals the tests out does without it
    import torch

settings.register_profile("thorough", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)


BRIEF = "VICINAL_TEST_BRIEF"
"""Set by ``make test``, where the fits of most tests are brief: see ``brief_fits``."""

CHOSEN = ("test_readout.py", "test_out_of_fold.py", "test_choices_out_of_fold.py")
"""What tests the choice of kriging's scale and noise: elsewhere it is made between two scales."""

GROWN = ("test_comparables.py", "test_importance.py", "test_times.py")
"""What tests how well trees and readouts with a trend predict: elsewhere few are tried."""

DATABASES = ("cli", "estimators", "index")
"""Whose tests keep rows in Milvus."""

BRIEF_FOLDERS = ("tests", "cli", "workflows", "estimators", "faults", "serve", "benchmarks", "core", "encoders", "data")
"""Whose tests look at neither the pictures of a report nor at the settings that baselines are tuned among."""


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried with 20 examples by ``make test``, with 100 by ``make test-all``, and by slow tests alone.

    A fit in another process is never brief, so that slow tests, which compare such with fits of this one, may not be.
    """
    # pytorch-metric-learning imports it, and it replaces FAISS's search for the whole process by one without
    # `params`, which Milvus in a file calls: an index of Milvus would fail in whichever process had run its tests.
    sys.modules.setdefault("faiss.contrib.torch_utils", types.ModuleType("faiss.contrib.torch_utils"))
    logging.getLogger().addHandler(logging.NullHandler())  # else what is logged would be printed, between other lines
    quick = config.getoption("markexpr").startswith("not slow")
    settings.load_profile("quick" if quick else "thorough")
    os.environ.pop(BRIEF, None)
    if quick:
        os.environ[BRIEF] = "1"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected is not searched for garbage, which takes a seventh of the time of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)  # at Python's own, a twentieth of the time of the tests
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a sweep, ``make test`` runs the first case and one in so many of the others, always the same ones."""
    begun = set()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is None or item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        if item.function in begun and zlib.crc32(item.nodeid.encode()) % sweep.args[0]:
            item.add_marker(pytest.mark.slow)
        begun.add(item.function)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared reference data beside the project; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("VICINAL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("the folder of shared reference data is not beside the project")
    return folder


@pytest.fixture
def generator() -> "torch.Generator":
    """A seeded source of random numbers."""
    import torch

    return torch.Generator().manual_seed(20261120)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What is logged meanwhile; pytest's own way (off: ``-p no:logging``) takes half a millisecond of every test."""
    lines: list[str] = []
    handler, root = logging.Handler(), logging.getLogger()
    level = root.level
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="module", autouse=True)
def brief_fits(request: pytest.FixtureRequest) -> Iterator[None]:
    """No pictures and few settings of baselines, most of a small fit's time; ``make test-all`` has all of them.

    No file waits for its disk either: what a crash of the machine leaves is told by the order of the calls, of which
    tests/core/test_folders.py asks. Nor does Milvus wait half a second before it asks whether an index is there.
    """
    if BRIEF not in os.environ:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        if request.path.parent.name in DATABASES and find_spec("pymilvus"):
            hasty = types.SimpleNamespace(time=time.time, sleep=lambda seconds: time.sleep(seconds / 50))
            patch.setattr("pymilvus.client.grpc_handler.time", hasty)
        if request.path.parent.name not in BRIEF_FOLDERS:
            yield
            return
        for page in ("page", "compare", "audit"):
            patch.setattr(f"vicinal.report.{page}.picture", undrawn)
        replaced = dict(FEWER)
        replaced |= {} if request.path.name in CHOSEN else READOUTS
        replaced |= {} if request.path.name in GROWN else TREES
        for name, value in replaced.items():
            patch.setattr(name, value)
        yield


def undrawn(draw: object, key: str, title: str, alt: str, caption: str, *, wide: bool = False) -> object:
    """A picture of nothing, in the place of ``vicinal.report.theme.picture``."""
    from vicinal.report.theme import Picture, clean

    return Picture(clean(title), Markup("<svg></svg>"), clean(alt), clean(caption), wide)
