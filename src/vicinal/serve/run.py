"""``vicinal serve``: one or several processes that answer on one port until they are stopped."""

import inspect
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from typing import Any

from vicinal.estimators import ModelFolder
from vicinal.serve.settings import MEASURES, SETTINGS, ServeSettings

_APP = "vicinal.serve.app:from_environment"
_PATIENCE = 30
"""Seconds for running requests to finish after a stop."""


def serve(settings: ServeSettings, log: Callable[[str], None] = lambda line: None) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then finish running requests and write journals into their folders.

    Raises:
        ValueError: if a package is missing, or a folder does not hold a model.
        OSError: if the port is in use.
    """
    try:
        import uvicorn
        from uvicorn.supervisors import Multiprocess

        import vicinal.serve.app  # noqa: F401  as the workers do
        from vicinal.serve.connections import Connection
    except ImportError as missing:
        raise ValueError(
            f"serve: expected the packages of the extra serve, got no {missing.name}; say pip install vicinal[serve]"
        ) from missing
    folders = [ModelFolder(f, index=settings.index, encoders=settings.encoders) for f in settings.models.values()]
    del folders  # that they can be read is known before a port is taken
    measures = tempfile.mkdtemp(prefix="vicinal-measures-")
    environment = {SETTINGS: settings.model_dump_json()}
    if settings.workers > 1:  # one process counts in its memory: its counters were made before this folder was
        environment[MEASURES] = measures
    os.environ |= environment
    options: dict[str, Any] = {
        "http": Connection,
        "ws": "none",
        "log_level": "warning",
        "server_header": False,
        "access_log": False,
        "timeout_graceful_shutdown": _PATIENCE,
    }
    options |= {"factory": True, "host": settings.host, "port": settings.port, "workers": settings.workers}
    config = uvicorn.Config(_APP, **options)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises the signal again at its end
    try:
        listening = config.bind_socket()
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or an answer waits 40 ms for its second part
        listening.listen(config.backlog)  # who asks before the models are open waits
        port = listening.getsockname()[1]
        log(f"serving {', '.join(settings.models)} at http://{settings.host}:{port} with {settings.workers} workers")
        server = uvicorn.Server(config)
        if settings.workers == 1:
            server.run(sockets=[listening])
        else:
            named = {"target": server.run} if "target" in inspect.signature(Multiprocess).parameters else {}  # of old
            Multiprocess(config, sockets=[listening], **named).run()
    finally:
        signal.signal(signal.SIGTERM, before)
        for name in environment:
            os.environ.pop(name, None)
        shutil.rmtree(measures, ignore_errors=True)
