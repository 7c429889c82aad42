"""Fixtures that all tests share."""

import os
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("thorough", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=25)


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried with 25 examples by ``make test``, with 100 by ``make test-all``."""
    settings.load_profile("quick" if config.getoption("markexpr") else "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a sweep, ``make test`` runs one case in so many, always the same ones; ``make test-all`` runs all."""
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep and hasattr(item, "callspec") and zlib.crc32(item.nodeid.encode()) % sweep.args[0]:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared reference data beside the project; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("VICINAL_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip("the folder of shared reference data is not beside the project")
    return folder


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of random numbers."""
    return torch.Generator().manual_seed(20261120)
