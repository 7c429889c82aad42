"""The endpoints of a server, their limits and token, and the handling of errors."""

import asyncio
import base64
import contextlib
import hmac
import json
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.core import listed, nearest, short
from vicinal.core.checks import ECHO, short_text
from vicinal.report.theme import environment
from vicinal.serve.measures import Measures
from vicinal.serve.pages import files_of, page_file
from vicinal.serve.recommender import ServedRecommender
from vicinal.serve.requests import (
    Add,
    Body,
    Explain,
    Forget,
    Predict,
    Reason,
    Recommend,
    Refused,
    Relabel,
    Search,
    as_json,
    typed,
)
from vicinal.serve.served import CHANGES, ServedModel
from vicinal.serve.settings import SETTINGS, TOKEN, ServeSettings
from vicinal.version import __version__
from vicinal.workflows.recommend import is_recommender

BODIES: dict[str, tuple[type[Body], ...]] = {
    "predict": (Predict,),
    "explain": (Explain, Reason),
    "search": (Search,),
    "recommend": (Recommend,),
    "add": (Add,),
    "relabel": (Relabel,),
    "forget": (Forget,),
}
"""Bodies of each endpoint; the second is for a recommender."""
_LOG = logging.getLogger("vicinal.serve")
_ADDRESSES = 10_000
"""Client addresses whose requests are counted at a time, at most."""


class Limits:
    """ASGI: limits the hosts that requests are for, the requests of a client address, and the bytes of a request.

    A page of another site may have its name point to this machine, and ask as if it were of this server ("DNS
    rebinding"). Its requests say that name as their host, or their origin, and are refused.

    Args:
        app: the wrapped application.
        hosts: which hosts a request may be for, and an origin of: see :meth:`ServeSettings.is_own_host`.
        most_bytes: of a request.
        rate: requests per second of an address, and the most in a burst; 0: unlimited.
    """

    def __init__(self, app: ASGIApp, hosts: Callable[[str], bool], most_bytes: int, rate: int) -> None:
        self.app, self.hosts, self.most_bytes, self.rate = app, hosts, most_bytes, rate
        self._left: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if (strange := self._strange_host(scope["headers"])) is not None:
            sentence = f"host: expected one of this server, got {strange}; say --allow-host if it is one"
            await JSONResponse({"error": sentence}, 403)(scope, receive, send)
            return
        wait = self._wait(scope["client"][0] if scope.get("client") else "")
        if wait > 0:
            sentence = f"rate: expected at most {self.rate} requests a second, got more; wait a moment"
            headers = {"Retry-After": str(math.ceil(wait))}
            await JSONResponse({"error": sentence}, 429, headers)(scope, receive, send)
            return
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.most_bytes:
                raise Refused(413, f"body: expected at most {self.most_bytes} bytes, got more")
            return message

        await self.app(scope, counted, send)

    def _strange_host(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The host or origin of a request that is not of this server, or None."""
        named = {key: [v.decode("latin-1") for k, v in headers if k == key] for key in (b"host", b"origin")}
        addresses = [f"//{host}" for host in named[b"host"] or [""]] + named[b"origin"]
        return next((short(address.removeprefix("//")) for address in addresses if not self.hosts(address)), None)

    def _wait(self, address: str) -> float:
        """Seconds until the address may send a request; 0: now."""
        if not self.rate:
            return 0.0
        now = time.monotonic()
        left, then = self._left.get(address, (float(self.rate), now))
        left = min(float(self.rate), left + (now - then) * self.rate)
        if len(self._left) > _ADDRESSES:
            self._left.clear()
        self._left[address] = (left - 1 if left >= 1 else left), now
        return 0.0 if left >= 1 else (1 - left) / self.rate


def from_environment() -> FastAPI:
    """The application of a worker, with settings from the environment."""
    return make_app(ServeSettings.model_validate_json(os.environ[SETTINGS]))


class Application:
    """The models of one process, which handle one request at a time.

    Args:
        settings: of the server; the token for changes is read from the environment at each request.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings, self.measures = settings, Measures()
        self.models: dict[str, ServedModel | ServedRecommender] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")  # the only one that uses models
        if settings.workers > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // settings.workers))

    @contextlib.asynccontextmanager
    async def life(self, app: FastAPI) -> AsyncIterator[None]:
        """Open the models before the first request, and close them after the last."""
        await self._in_turn(self._open)
        yield
        for model in self.models.values():
            await self._in_turn(model.close)

    def _open(self) -> None:
        for name, path in self.settings.models.items():
            kind = ServedRecommender if is_recommender(Path(path)) else ServedModel
            self.models[name] = kind(name, path, self.settings, self.measures)

    async def _in_turn(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def served(self, name: str | None) -> ServedModel | ServedRecommender:
        """The model with a name; None: the first."""
        if name is not None and name not in self.models:
            names = ", ".join(self.models)
            hint = nearest(name, self.models)
            raise Refused(404, f"model: expected one of {names}, got {short_text(name, ECHO)}{hint}")
        return self.models[next(iter(self.models)) if name is None else name]

    def work(self, name: str | None, what: str) -> Callable[..., Any]:
        """What the model with a name does for one kind of request; raises Refused for what its kind does not do."""
        model = self.served(name)
        answer: Callable[..., Any] | None = getattr(model, what, None)
        if answer is None:
            able = listed([one for one in (*BODIES, "explore") if hasattr(model, one)], 200)
            raise Refused(400, f"path: expected one that {short_text(model.name, ECHO)} answers ({able}), got {what}")
        return answer

    def endpoint(self, what: str) -> Callable[..., Any]:
        """The handler of one kind of request."""

        async def answer(request: Request) -> Response:
            begun, status = time.perf_counter(), 500
            try:
                question = request.path_params.get("question")  # of the page /explore
                if (question or what) in CHANGES:
                    _check_token(request)
                work = self.work(request.path_params.get("name"), what)
                if question is not None:
                    work = partial(work, question)
                result = as_json(await self._in_turn(answered, work, await _content(request)))
                status = 200
                return result
            except Exception as wrong:
                refusal = refused(wrong)
                status = refusal.status
                raise refusal from wrong
            finally:
                self.measures.requests.labels(what, str(status)).inc()
                self.measures.seconds.labels(what).observe(time.perf_counter() - begun)

        return answer

    async def health(self) -> Response:
        """The status of the server and its models."""
        state = {name: await self._in_turn(model.health) for name, model in self.models.items()}
        return JSONResponse({"status": "ok", "version": __version__, "models": state})

    async def metrics(self) -> Response:
        """Counters and times of all processes, for Prometheus."""
        return Response(self.measures.text(), media_type="text/plain; version=0.0.4")

    async def explore_file(self, request: Request) -> Response:
        """The page ``/explore`` of a model, or one of its files."""
        self.work(request.path_params.get("name"), "explore")
        start, *files = files_of("explore")
        if (name := request.path_params.get("file", start)) not in (start, *files):
            raise Refused(404, "path: expected one that / lists, got another")
        return page_file(name)

    async def page(self, request: Request) -> Response:
        """A page that lists all endpoints."""
        able = [one for one in BODIES if any(hasattr(model, one) for model in self.models.values())]
        paths = {p: of for p, of in request.app.openapi()["paths"].items() if "post" not in of or p[1:] in able}
        shown = {name: model.columns() for name, model in self.models.items()}
        template = environment().get_template("endpoints.html")
        return HTMLResponse(template.render(paths=paths, models=shown, dumps=json.dumps))


def make_app(settings: ServeSettings) -> FastAPI:
    """The application of one process."""
    of = Application(settings)
    app = FastAPI(title="vicinal", version=__version__, docs_url=None, redoc_url=None, lifespan=of.life)
    app.add_middleware(Limits, hosts=settings.is_own_host, most_bytes=settings.most_bytes, rate=settings.rate)
    add_refusals(app)
    for what in BODIES:
        for path in (f"/{what}", f"/models/{{name}}/{what}"):
            app.add_api_route(
                path,
                of.endpoint(what),
                methods=["POST"],
                summary=str(getattr(ServedModel, what, getattr(ServedRecommender, what, None)).__doc__),
                openapi_extra=_described(what, named="{name}" in path),
                operation_id=("named_" if "{name}" in path else "") + what,
            )
    for start in ("/explore/", "/models/{name}/explore/"):
        for path in (start, start + "{file}"):
            app.add_api_route(path, of.explore_file, methods=["GET"], include_in_schema=False)
        path = start + "api/{question}"
        app.add_api_route(path, of.endpoint("explore"), methods=["POST"], include_in_schema=False)
    for path, show in (("/health", of.health), ("/metrics", of.metrics)):
        app.add_api_route(path, show, methods=["GET"], summary=str(show.__doc__), operation_id=path[1:])
    app.add_api_route("/", of.page, methods=["GET"], include_in_schema=False)
    return app


def add_refusals(app: FastAPI) -> None:
    """Let every error be answered by one sentence."""
    for error in (Refused, HTTPException, Exception):
        app.add_exception_handler(error, _refusal)


def answered(work: Callable[[bytes], Any], content: bytes) -> Any:
    """The result of a request; no error leaves the thread as it is, since a StopIteration would never arrive."""
    try:
        return work(content)
    except Exception as wrong:
        raise refused(wrong) from wrong


def refused(wrong: Exception) -> Refused:
    """The refusal that an error of any type becomes: whatever a body brings about, the request is what was wrong.

    What no check has foreseen is logged with its traceback, and the client is told nothing of it.
    """
    if isinstance(wrong, Refused):
        return wrong
    sentence = " ".join(str(wrong).split())
    if isinstance(wrong, HTTPException) and wrong.status_code < 500:
        return Refused(wrong.status_code, f"body: expected one that can be read, got one that cannot: {wrong.detail}")
    if isinstance(wrong, OSError) and wrong.errno is not None:
        return Refused(503, f"disk: expected to be written to, got {(wrong.strerror or 'an error').lower()}")
    if isinstance(wrong, ValueError | TypeError) and " expected " in sentence:
        return Refused(400, sentence)
    if not isinstance(wrong, ClientDisconnect):
        _LOG.error("a request that ended with an error", exc_info=wrong)
    return Refused(422, "body: expected a request that the model can answer, got one that it cannot; the log says why")


def _check_token(request: Request) -> None:
    """Raise Refused unless the request has the token for changes."""
    token = os.environ.get(TOKEN, "")
    if not token:
        raise Refused(403, f"token: expected the server to have one in {TOKEN}, got none, so nothing can be changed")
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(value.strip().encode(), token.encode()):
        sentence = "token: expected the right one, as Authorization: Bearer TOKEN, got none or another"
        raise Refused(401, sentence, {"WWW-Authenticate": "Bearer"})


async def _content(request: Request) -> bytes:
    """The body as JSON; the fields and files of a form become the cells of one row."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        if kind not in ("application/json", ""):
            raise Refused(415, f"body: expected application/json or multipart/form-data, got {short_text(kind, 100)}")
        return await request.body()
    body: dict[str, Any] = {}
    row: dict[str, Any] = {}
    async with request.form(max_files=64, max_fields=1000) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str):
                row[name] = {"base64": base64.b64encode(await value.read()).decode()}
            elif name in ("k", "interval"):
                body[name] = typed(value)
            elif name in row:
                raise Refused(400, f"body: expected each field once, got {short_text(name, 100)} twice")
            else:
                row[name] = typed(value) if name == "target" else value
    return json.dumps({"rows": [row], **body}).encode()


async def _refusal(request: Request, wrong: Exception) -> Response:
    """Every error as one sentence, without details for errors of the server itself."""
    if isinstance(wrong, HTTPException):
        sentences = {
            404: f"path: expected one that / lists, got {short(request.url.path)}",
            405: f"method: expected the one that / lists, got {request.method}",
        }
        wrong = Refused(wrong.status_code, sentences.get(wrong.status_code) or refused(wrong).sentence)
    elif not isinstance(wrong, Refused):
        wrong = Refused(500, "server: expected to answer, got an error of its own; its log says which")
    return JSONResponse({"error": wrong.sentence}, wrong.status, wrong.headers)


def _described(what: str, *, named: bool) -> dict[str, Any]:
    """The OpenAPI description of an endpoint, besides its name."""
    schema, *more = [body.model_json_schema() for body in BODIES[what]]
    if more:
        schema = {"anyOf": [schema, *more], "example": schema["example"]}
    described: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    if named:
        described["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if what in CHANGES:
        described["security"] = [{"bearer": []}]
    return described
