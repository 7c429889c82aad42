"""Fixtures that all tests share."""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from markupsafe import Markup

if TYPE_CHECKING:  # the process that only deals the tests out does without it
    import torch

settings.register_profile("thorough", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=20)


BRIEF_PICTURES = "VICINAL_TEST_BRIEF_PICTURES"
"""Set by ``make test``, where only the tests of the report draw its pictures: they are two thirds of a small fit."""


def pytest_configure(config: pytest.Config) -> None:
    """Properties are tried with 20 examples by ``make test``, with 100 by ``make test-all``."""
    quick = bool(config.getoption("markexpr"))
    settings.load_profile("quick" if quick else "thorough")
    os.environ.pop(BRIEF_PICTURES, None)
    if quick:
        os.environ[BRIEF_PICTURES] = "1"


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
def generator() -> "torch.Generator":
    """A seeded source of random numbers."""
    import torch

    return torch.Generator().manual_seed(20261120)


@pytest.fixture(scope="module", autouse=True)
def brief_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """No pictures in the reports of fits, but for the tests of the report; ``make test-all`` draws all."""
    folder = request.path.parent.name
    if BRIEF_PICTURES not in os.environ or folder not in ("cli", "workflows", "estimators"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for page in ("page", "compare", "audit"):
            patch.setattr(f"vicinal.report.{page}.picture", undrawn)
        yield


def undrawn(draw: object, key: str, title: str, alt: str, caption: str, *, wide: bool = False) -> object:
    """A picture of nothing, in the place of ``vicinal.report.theme.picture``."""
    from vicinal.report.theme import Picture, clean

    return Picture(clean(title), Markup("<svg></svg>"), clean(alt), clean(caption), wide)
