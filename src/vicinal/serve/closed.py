"""A page for one user on this computer, closed to other pages of the browser."""

import contextlib
import hmac
import secrets
import threading
from functools import partial
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from vicinal.serve.app import Limits, add_refusals, answered
from vicinal.serve.pages import answer_of, closed, files_of, page_file
from vicinal.serve.requests import Refused, as_json
from vicinal.serve.run import configured, listening

_MOST = 32 << 20
"""Most bytes of a request."""


class ClosedPage:
    """A server for one page, on 127.0.0.1.

    The address holds a random token after ``#``, which browsers do not send; the page sends it with each request.
    Requests without it, from another origin, or to another host name are refused, so that no other web page can read
    or change anything.

    Args:
        answerer: answers one request at a time.
        port: of the page; 0: a free one.

    Attributes:
        name: of the command, and of the page's files.
        questions: methods of the answerer that the page may call, with their arguments in a JSON object.
        token: of this server.
        address: of the page, with the token.
    """

    name: ClassVar[str]
    questions: ClassVar[tuple[str, ...]]

    def __init__(self, answerer: Any, port: int = 0) -> None:
        self.answerer, self.token, self._turn = answerer, secrets.token_urlsafe(24), threading.Lock()
        self._socket = listening("127.0.0.1", port)
        self.port = int(self._socket.getsockname()[1])
        self.address = f"http://127.0.0.1:{self.port}/#{self.token}"
        start, *files = files_of(self.name)
        self._files = {"/": start, **{f"/{name}": name for name in files}}
        app = FastAPI(openapi_url=None)
        app.add_middleware(Limits, hosts=lambda address: True, most_bytes=_MOST, rate=0)
        app.middleware("http")(closed)
        add_refusals(app)
        for path in self._files:
            app.add_api_route(path, self._file, methods=["GET"])
        app.add_api_route("/api/{what}", self._question, methods=["POST"])
        self._server = uvicorn.Server(configured(app, timeout_graceful_shutdown=1))

    def serve(self) -> None:
        """Answer requests until :meth:`close` or Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises again at its end
            self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Stop the server."""
        self._server.should_exit = True

    def is_own(self, headers: Any) -> bool:
        """Whether a request comes from this page, by its headers."""
        names = {f"{host}:{self.port}" for host in ("127.0.0.1", "localhost")}
        origin = headers.get("Origin")
        known = headers.get("Host") in names and (origin is None or origin.removeprefix("http://") in names)
        return known and hmac.compare_digest(headers.get("X-Token", "").encode(), self.token.encode())

    def answer(self, what: str, content: bytes) -> Any:
        """The result of the method ``what`` for JSON arguments; raises ValueError for any other."""
        with self._turn:
            self.refresh()
            return answer_of(self.answerer, what, content, self.questions)

    def refresh(self) -> None:
        """What is done before each question."""

    async def _file(self, request: Request) -> Response:
        """The page or one of its files, which hold no data."""
        return page_file(self._files[request.url.path])

    async def _question(self, what: str, request: Request) -> Response:
        """What the answerer says to the page."""
        if not self.is_own(request.headers):
            raise Refused(403, "expected the address that was printed, whole")
        return as_json(await run_in_threadpool(answered, partial(self.answer, what), await request.body()))
