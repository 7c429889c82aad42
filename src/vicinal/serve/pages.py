"""What pages of a model have in common: their files, their headers, and questions in JSON."""

from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from typing import Any

from fastapi import Request, Response
from pydantic import ConfigDict, ValidationError, validate_call

from vicinal.core import short
from vicinal.serve.requests import read_json

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "media-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def files_of(page: str) -> tuple[str, ...]:
    """The files of a page, that which it starts with first."""
    return f"{page}.html", f"{page}.js", "served.js", "served.css", "style.css"


def page_file(name: str) -> Response:
    """A file of a page, which holds no data."""
    file = resources.files("vicinal.report").joinpath("templates", name)
    kind = "javascript" if name.endswith(".js") else name.rpartition(".")[2]
    return Response(file.read_bytes(), media_type=f"text/{kind}", headers=_HEADERS)


async def closed(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
    """Every answer with the headers that keep other pages and caches out."""
    response = await proceed(request)
    response.headers.update(_HEADERS)
    return response


def answer_of(answerer: Any, what: str, content: bytes, questions: Sequence[str]) -> Any:
    """The result of the method ``what``, one of ``questions``, for JSON arguments; raises ValueError for any other."""
    arguments = read_json(content or b"{}")
    strange = ValueError("question: expected one of this page, got another; load the page again")
    if what not in questions:
        raise strange
    ask = validate_call(config=ConfigDict(strict=True))(getattr(answerer, what))
    try:
        return ask(**arguments)
    except ValidationError as wrong:
        error = wrong.errors()[0]
        if error["type"] in ("missing_argument", "unexpected_keyword_argument"):
            raise strange from wrong
        name, wish = ".".join(map(str, error["loc"])), error["msg"].removeprefix("Input should be ")
        raise ValueError(f"{name}: expected {wish}, got {short(error['input'])}") from wrong
