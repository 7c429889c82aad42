"""Fixtures that all tests share."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


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
