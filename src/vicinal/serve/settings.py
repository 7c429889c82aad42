"""What a server is told: which folders, where to listen, how much a request may ask for."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from vicinal.core import short
from vicinal.core.untrusted import Saved

SETTINGS, TOKEN, MEASURES = "VICINAL_SERVE", "VICINAL_TOKEN", "PROMETHEUS_MULTIPROC_DIR"
"""Variables of the environment: settings for the workers, the token of changes, and where workers add up measures."""


class ServeSettings(Saved):
    """What is served, and how.

    Attributes:
        models: folders by name; the first answers where no name is said.
        host: address to listen at.
        port: port to listen at; 0: a free one.
        workers: processes.
        index: see :func:`vicinal.estimators.load_model`, as are ``encoders``.
        encoders: by column or kind.
        most_bytes: of a request.
        most_rows: of a request.
        rate: requests a second that one address may make of a worker, in bursts of so many; 0: any number.
    """

    models: dict[str, str] = Field(min_length=1)
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    index: str | None = None
    encoders: dict[str, str] | None = None
    most_bytes: PositiveInt = 32 << 20
    most_rows: PositiveInt = 1000
    rate: NonNegativeInt = 200


def named_folders(folders: list[str]) -> dict[str, str]:
    """Folders by their names; raises ValueError for two of one name."""
    named: dict[str, str] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in named:
            raise ValueError(f"model: expected folders of different names, got {short(name)} twice; rename one")
        named[name] = str(Path(folder).resolve())
    return named
