"""``vicinal serve``: one or several processes that answer on one port until they are stopped."""

import inspect
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vicinal.core import counted
from vicinal.estimators import ModelFolder, Recommender
from vicinal.serve.settings import MEASURES, SETTINGS, ServeSettings
from vicinal.workflows.recommend import is_recommender

_PATIENCE = 30
"""Seconds for running requests to finish after a stop."""


@contextmanager
def needs_extra(command: str) -> Iterator[None]:
    """Raises ValueError where a package of the extra serve is missing."""
    try:
        yield
    except ImportError as missing:
        raise ValueError(
            f"{command}: expected the packages of the extra serve, got no {missing.name}; "
            "say pip install vicinal[serve]"
        ) from missing


def configured(app: Any, **options: Any) -> Any:
    """The configuration of uvicorn for an application."""
    import uvicorn

    from vicinal.serve.connections import Connection

    quiet: dict[str, Any] = {"log_level": "warning", "server_header": False, "access_log": False}
    return uvicorn.Config(app, http=Connection, ws="none", **quiet, **options)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens, so that who asks before the models are open waits; OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.create_server((host, port), family=family, backlog=2048)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or an answer waits 40 ms for its second part
    taken.set_inheritable(True)  # by the workers
    return taken


def serve(settings: ServeSettings, log: Callable[[str], None] = lambda line: None) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then finish running requests and write journals into their folders.

    Raises:
        ValueError: if a package is missing, or a folder does not hold a model.
        OSError: if the port is in use.
    """
    with needs_extra("serve"):
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        import vicinal.serve.app  # noqa: F401  as the workers do
    for folder in settings.models.values():  # that they can be read is known before a port is taken
        if is_recommender(Path(folder)):
            Recommender.load(folder)
        else:
            ModelFolder(folder, index=settings.index, encoders=settings.encoders)
    measures = tempfile.mkdtemp(prefix="vicinal-measures-")
    environment = {SETTINGS: settings.model_dump_json()}
    if settings.workers > 1:  # one process counts in its memory: its counters were made before this folder was
        environment[MEASURES] = measures
    os.environ |= environment
    address = {"host": settings.host, "port": settings.port, "workers": settings.workers}
    config = configured(
        "vicinal.serve.app:from_environment", factory=True, timeout_graceful_shutdown=_PATIENCE, **address
    )
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises the signal again at its end
    try:
        taken = listening(settings.host, settings.port)
        port = taken.getsockname()[1]
        workers = counted(settings.workers, "worker")
        log(f"serving {', '.join(settings.models)} at http://{settings.host}:{port} with {workers}")
        server = uvicorn.Server(config)
        if settings.workers == 1:
            server.run(sockets=[taken])
        else:
            named = {"target": server.run} if "target" in inspect.signature(Multiprocess).parameters else {}  # of old
            Multiprocess(config, sockets=[taken], **named).run()
    finally:
        signal.signal(signal.SIGTERM, before)
        for name in environment:
            os.environ.pop(name, None)
        shutil.rmtree(measures, ignore_errors=True)
