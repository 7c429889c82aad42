"""Connections of a server that end where a client does not send its request, so that none locks others out."""

import asyncio
import contextlib
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD, BODY = 5.0, 60.0
"""Seconds in which a client must have sent the head of a request, and then its body; likewise to take the answer."""

_MOST, _SHARE = 1000, 2
"""Connections of a process, at most, before the one that has waited longest is closed; of its open files a half."""


class Connection(H11Protocol):
    """A connection whose client has some seconds for a request, however slowly it sends.

    uvicorn has a limit of time between two requests only. Here the time runs from the moment from which the server
    waits for the head, for the body, or for the client to take the answer; single bytes do not stretch it. Beyond
    ``_MOST`` connections, or half of the files that the process may open, the client that the server has been waiting
    for longest goes.

    Attributes:
        waits_for: "head", "body" or "answer"; None: the server is at work.
        since: from when on, in seconds of the clock that only runs.
    """

    waits_for: str | None = None
    since: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait, and close another connection if there are too many."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > most_connections():
            waiting = [one for one in self.connections if isinstance(one, Connection) and one.waits_for]
            min(waiting, key=lambda one: one.since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if self.timeout_keep_alive_task is not None:  # the first of a new one: its time begins now
            self._wait_for(None)
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._wait_for(None)

    def pause_writing(self) -> None:
        """The client does not take its answer."""
        super().pause_writing()
        self._wait_for("answer")

    def resume_writing(self) -> None:
        """The client takes its answer."""
        super().resume_writing()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Wait for what the state of the connection says is missing."""
        missing = {h11.IDLE: "head", h11.SEND_BODY: "body"}
        self._wait_for(missing.get(self.conn.their_state))

    def _wait_for(self, what: str | None) -> None:
        if what == self.waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.waits_for, self.since, self._timer = what, time.monotonic(), None
        if what is not None:
            self._timer = self.loop.call_later(HEAD if what == "head" else BODY, self.transport.abort)


def most_connections() -> int:
    """How many connections a process holds, so that files are left for the models.

    >>> 0 < most_connections() <= 1000
    True
    """
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files != resource.RLIM_INFINITY:
            return max(1, min(_MOST, files // _SHARE))
    return _MOST
