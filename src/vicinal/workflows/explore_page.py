"""The page of ``vicinal explore``: a server for one user on this computer, closed to other pages of the browser."""

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from vicinal.workflows.explore import Explorer

_MOST = 32 << 20
"""Most bytes of a request."""

_FILES = {
    "/": ("explore.html", "text/html; charset=utf-8"),
    "/explore.js": ("explore.js", "text/javascript; charset=utf-8"),
    "/explore.css": ("explore.css", "text/css; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; media-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_QUESTIONS = {
    "version": (),
    "map": (),
    "suspects": (),
    "row": ("name", "without"),
    "queries": ("start",),
    "query": ("place", "without"),
    "sound": ("column", "name", "place"),
    "search": ("query", "without", "files"),
    "nearest_other": ("name",),
    "compare": ("a", "b"),
    "relabel": ("name", "label"),
    "forget": ("name",),
    "add": ("row", "label", "files"),
    "add_query": ("place", "label"),
    "undo": (),
    "changed": (),
}
"""Methods of an explorer that a page may call, and their arguments: texts, except the list ``without`` and the mapping
``files``."""


class ExplorePage:
    """A server for the page of one explorer, on 127.0.0.1.

    The address holds a random token after ``#``, which browsers do not send; the page sends it with each request.
    Requests without it, from another origin, or to another host name are refused, so that no other web page can read
    or change the bank.

    Args:
        explorer: answers one request at a time.
        port: of the page; 0: a free one.

    Attributes:
        token: of this server.
        address: of the page, with the token.
    """

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        self.explorer, self.token, self._turn = explorer, secrets.token_urlsafe(24), threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"page": self}))
        self.port = int(self._server.server_address[1])
        self.address = f"http://127.0.0.1:{self.port}/#{self.token}"

    def serve(self) -> None:
        """Answer requests until :meth:`close` or Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def is_own(self, headers: Any) -> bool:
        """Whether a request comes from this page, by its headers."""
        names = {f"{host}:{self.port}" for host in ("127.0.0.1", "localhost")}
        origin = headers.get("Origin")
        known = headers.get("Host") in names and (origin is None or origin.removeprefix("http://") in names)
        return known and hmac.compare_digest(headers.get("X-Token", "").encode(), self.token.encode())

    def answer(self, what: str, content: bytes) -> Any:
        """The result of the method ``what`` for JSON arguments; raises ValueError for any other."""
        arguments = json.loads(content or b"{}")
        if what not in _QUESTIONS or not isinstance(arguments, dict) or not set(arguments) <= set(_QUESTIONS[what]):
            raise ValueError("question: expected one of this page, got another; load the page again")
        for name, value in arguments.items():
            texts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
            kind: type = {"without": list, "files": dict}.get(name, str)
            if not isinstance(value, kind) or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"{name}: expected text, got another kind of value")
        ask: Callable[..., Any] = getattr(self.explorer, what)
        with self._turn:
            self.explorer.version()  # what others have changed is taken over first
            return ask(**arguments)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    page: ExplorePage

    def do_GET(self) -> None:
        """Send the page and its files, which hold no data."""
        file, kind = _FILES.get(self.path, ("", ""))
        if not file:
            self._send(404, b"not here", "text/plain")
            return
        self._send(200, resources.files("vicinal.report").joinpath("templates", file).read_bytes(), kind)

    def do_POST(self) -> None:
        """Answer a request of the page."""
        length = self.headers.get("Content-Length", "")
        if not self.page.is_own(self.headers):
            self._send_json(403, {"error": "expected the address that `vicinal explore` printed, whole"})
        elif not length.isdecimal() or int(length) > _MOST:
            self._send_json(413, {"error": f"expected at most {_MOST:,} bytes"})
        else:
            try:
                self._send_json(200, self.page.answer(self.path.removeprefix("/api/"), self.rfile.read(int(length))))
            except (ValueError, TypeError, RecursionError, OSError) as wrong:
                self._send_json(400, {"error": " ".join(str(wrong).split())})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing about requests."""

    def _send_json(self, status: int, answer: Any) -> None:
        self._send(status, json.dumps(answer, default=_plain).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", _POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
