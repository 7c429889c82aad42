"""Settings of a server: its model folders, where it listens, and the limits of requests."""

import contextlib
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from urllib.parse import urlsplit

from pydantic import Field

from vicinal.core import short
from vicinal.core.untrusted import saved_settings
from vicinal.settings import ServerSettings

SETTINGS, TOKEN, MEASURES = "VICINAL_SERVE", "VICINAL_TOKEN", "PROMETHEUS_MULTIPROC_DIR"
"""Environment variables: settings for the workers, the token for changes, and the folder of the workers' counters."""

_Listening = saved_settings(ServerSettings, ServerSettings.__annotations__, required=False)


class ServeSettings(_Listening):  # type: ignore[misc, valid-type]  # it is made of settings
    """Settings of a server.

    Attributes:
        models: folders by name; the first answers requests without a name.
        host: address to listen at.
        port: port to listen at; 0: a free one.
        workers: number of processes.
        index: see :func:`vicinal.estimators.load_model`, as for ``encoders``.
        encoders: by column or kind.
        most_bytes: of a request.
        most_rows: of a request; also most ids or queries.
        rate: requests per second of a client address to each worker, and the most in a burst; 0: unlimited.
        allow_hosts: names by which clients reach the server, beside its own, such as that of a proxy; "*": any.
    """

    models: dict[str, str] = Field(min_length=1)
    index: str | None = None
    encoders: dict[str, str] | None = None
    allow_hosts: list[str] = Field(default_factory=list)

    def is_own_host(self, address: str) -> bool:
        """Whether an address, ``//HOST`` or ``SCHEME://HOST``, with or without a port, is one of this server.

        That is localhost, the host that it listens at, and ``allow_hosts``. One that listens at all addresses of its
        machine is also known by that machine's name, and by any address in numbers, which no other site can have as
        its name.

        >>> settings = ServeSettings(models={"m": "m"})
        >>> settings.is_own_host("//127.0.0.1:8000"), settings.is_own_host("http://evil.example")
        (True, False)
        """
        try:
            parts = urlsplit(address)
            host, _ = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:  # no port, or no address in brackets
            return False
        names = {"localhost", "127.0.0.1", "::1", self.host.strip("[]").lower(), *map(str.lower, self.allow_hosts)}
        if host in names or "*" in names:
            return True
        return self.host in ("0.0.0.0", "::", "") and (host == gethostname().lower() or _is_number(host))  # noqa: S104


def _is_number(host: str) -> bool:
    """Whether a host is an address in numbers."""
    with contextlib.suppress(ValueError):
        return bool(ip_address(host))
    return False


def named_folders(folders: list[str]) -> dict[str, str]:
    """Folders by their names; raises ValueError for two of the same name."""
    named: dict[str, str] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in named:
            raise ValueError(f"model: expected folders of different names, got {short(name)} twice; rename one")
        named[name] = str(Path(folder).resolve())
    return named
