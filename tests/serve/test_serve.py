"""What a server answers, what it refuses, and that what it acknowledged outlives it."""

import asyncio
import base64
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from faults.warm import end, start
from vicinal.core.folders import CHANGES
from vicinal.data.form import TableForm
from vicinal.estimators import NeighborClassifier, NeighborRegressor, Recommender, load_model
from vicinal.workflows.recommend import add_clicks

pytest.importorskip("fastapi", reason="fastapi is of the extra serve")
httpx = pytest.importorskip("httpx", reason="httpx asks the server")

TOKEN = {"Authorization": "Bearer secret"}
ROW = {"size": 2.5, "town": "bath"}


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.uniform(0, 10, count), "town": rng.choice(["york", "bath"], count)})
    return frame, frame["size"].to_numpy() + (frame["town"] == "york")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    frame, price = rows(60)
    model = NeighborRegressor(metric="kernel", readout="comparables").fit(
        frame, price, ids=[f"h{i}" for i in range(60)]
    )
    model.notes_ = {"target": "price", "id": "house"}
    model.save(place / "houses")
    kinds = np.where(price > 5, "dear", "cheap")
    photo = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    frame["photo"] = [photo] * 60
    settings = {"max_epochs": 1, "members": 1, "hidden": (4, 4), "columns": {"photo": "image"}}
    NeighborClassifier(**settings, encoders={"photo": "cnn"}).fit(frame, kinds).save(place / "kinds")
    return place


@pytest.fixture
def houses(folders, tmp_path):
    shutil.copytree(folders / "houses", tmp_path / "houses")
    return tmp_path / "houses"


class Served:
    """An application in this process, asked as over the network."""

    def __init__(self, **settings):
        from vicinal.serve import ServeSettings
        from vicinal.serve.app import make_app

        self.folders, self.app = settings["models"], make_app(ServeSettings(**settings))

    def ask(self, *requests):
        """The answers to requests of (method, path, keywords)."""

        async def work():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
            async with self.app.router.lifespan_context(self.app), client:
                return [await client.request(how, path, **more) for how, path, more in requests]

        return asyncio.run(work())

    def post(self, path, **more):
        return self.ask(("POST", path, more))[0]


@pytest.fixture
def served(houses, folders, monkeypatch):
    monkeypatch.setenv("VICINAL_TOKEN", "secret")
    return Served(models={"houses": str(houses), "kinds": str(folders / "kinds")}, most_rows=50, most_bytes=100_000)


def test_predictions_are_those_of_the_model(served, houses, folders):
    frame = rows(3, 7)[0]
    asked = {"rows": frame.to_dict("records"), "interval": 0.8}
    model = load_model(houses)
    answers = served.post("/predict", json=asked).json()["predictions"]
    assert [one["prediction"] for one in answers] == pytest.approx(model.predict(frame).tolist())
    bounds = np.array([[one["low"], one["high"]] for one in answers])
    assert bounds == pytest.approx(model.predict_interval(frame, 0.8))
    explained = served.post("/models/houses/explain", json={"rows": [ROW], "k": 2}).json()["predictions"][0]
    assert len(explained["neighbors"]) == 2
    assert set(explained["neighbors"][0]["row"]) == {"size", "town"}
    asked |= {"link": "exp(1.5)", "cap": None, "k": 60}
    linked, dear, both = served.ask(
        ("POST", "/explain", {"json": asked}),
        ("POST", "/predict", {"json": {"rows": [ROW], "cost": [3, 1]}}),
        ("POST", "/predict", {"json": {"rows": [ROW], "cost": "3:1"}}),
    )
    said = model.predict(frame, link="exp(1.5)", cap=None)
    assert [one["prediction"] for one in linked.json()["predictions"]] == pytest.approx(said.tolist())
    assert dear.json()["predictions"][0]["prediction"] == model.predict(pd.DataFrame([ROW]), quantile=0.75)[0]
    assert (both.status_code, both.json()["error"][:27]) == (400, "cost: expected a price of t")
    hits = served.post("/search", json={"rows": [{"house": "h3", **rows(60)[0].iloc[3].to_dict()}], "k": 3}).json()
    assert len(hits["hits"][0]) == 3
    assert "h3" not in [hit["id"] for hit in hits["hits"][0]]


def test_a_row_whose_answer_is_too_unsure_gets_none(tmp_path):
    random = np.random.default_rng(0)
    x = pd.DataFrame(random.normal(size=(300, 2)), columns=["a", "b"])
    side = np.where(x["a"] + 0.2 * random.normal(size=300) > 0, "right", "left")
    model = NeighborClassifier(metric="kernel", validation_fraction=0.5).fit(x, side)
    model.save(tmp_path / "sides")
    asked = {"rows": [{"a": place, "b": 0.0} for place in (-2.0, 0.0, 2.0)], "abstain": 0.05}
    answers = Served(models={"sides": str(tmp_path / "sides")}).post("/predict", json=asked).json()["predictions"]
    assert [one["prediction"] for one in answers] == ["left", None, "right"]
    assert [one["answered"] for one in answers] == [True, False, True]


def test_the_page_explore_shows_to_all_and_changes_with_the_token(served, houses):
    def question(what, **more):
        return ("POST", f"/explore/api/{what}", {"json": more.pop("body", {}), **more})

    wish = {"name": "h7", "label": "3.5"}
    root, bare, page, script, other, shown, row, refused, done, undo, gone, strange = served.ask(
        ("GET", "/", {}),
        ("GET", "/explore", {}),
        ("GET", "/models/houses/explore/", {}),
        ("GET", "/explore/explore.js", {}),
        ("GET", "/explore/app.py", {}),
        question("map"),
        question("row", body={"name": "h7"}),
        question("relabel", body=wish),
        question("relabel", body=wish, headers=TOKEN),
        question("undo", headers=TOKEN),
        question("forget", body={"name": "h9"}, headers=TOKEN),
        ("POST", "/explore/api/map", {"content": b"{}", "headers": {"content-type": "text/plain"}}),
    )
    assert '<a href="models/houses/explore/">Explore houses</a>' in root.text
    assert bare.headers["location"].endswith("/explore/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert (page.text.count("explore.js"), script.status_code, other.status_code) == (1, 200, 404)
    assert not set(re.findall(r'(?:src|href)="([^"]+)"', page.text)) - {
        "data:,",
        "style.css",
        "served.css",
        "served.js",
        "explore.js",
    }
    assert shown.json()["can"] == ["add", "relabel", "forget"]
    frame, price = rows(60)
    assert row.json()["label"] == pytest.approx(price[7])
    left_out = load_model(houses).predict(frame.iloc[[7]], ids=["h7"])
    assert row.json()["prediction"] == pytest.approx(left_out[0])
    assert [one.status_code for one in (refused, done, undo, gone, strange)] == [401, 200, 400, 200, 415]
    after = load_model(houses)
    assert after.labels_of(["h7"]) == [3.5]
    assert not after.bank_.has(["h9"]).any()
    assert (houses / CHANGES).exists()


def test_a_forgotten_row_is_in_no_memory_of_the_page(houses):
    from vicinal.workflows import Explorer

    explorer = Explorer(houses, can=("relabel", "forget"))
    explorer.forget("h9")
    assert (explorer.changes, explorer.version()["undo"]) == ([], 0)


def test_a_class_with_a_typing_error_is_told_the_one_that_was_meant(served):
    answer = served.post("/models/kinds/relabel", json={"ids": ["h1"], "labels": ["cheep"]}, headers=TOKEN)
    assert answer.json()["error"] == "labels: expected one of 'cheap', 'dear', got 'cheep'; did you mean 'cheap'?"


def test_pictures_come_as_base64_and_in_forms_and_never_from_the_disk(served, folders, tmp_path):
    picture = load_model(folders / "kinds").bank_.rows["photo"][0]
    content = picture if isinstance(picture, bytes) else base64.b64decode(str(picture).partition(",")[2])
    (tmp_path / "x").write_bytes(content)
    as_text = {"rows": [{**ROW, "photo": {"base64": base64.b64encode(content).decode()}}]}
    one = served.post("/models/kinds/predict", json=as_text)
    form = served.post("/models/kinds/predict", data={"size": "2.5", "town": "bath"}, files={"photo": content})
    assert one.json() == form.json()
    assert sum(one.json()["predictions"][0]["probabilities"].values()) == pytest.approx(1)
    for path in ("/etc/passwd", "../x", str(tmp_path / "x"), {"path": str(tmp_path / "x")}, {"bytes": "x"}, ["x"]):
        answer = served.post("/models/kinds/predict", json={"rows": [{**ROW, "photo": path}]})
        assert answer.status_code == 400
        assert "base64" in answer.json()["error"]


def test_changes_are_known_to_the_next_request_and_to_the_folder(served, houses):
    new = {"rows": [{"house": "new", **ROW, "price": 99.0}]}
    near = {"rows": [ROW]}
    answers = served.ask(
        ("POST", "/add", {"json": new, "headers": TOKEN}),
        ("POST", "/explain", {"json": near}),
        ("POST", "/relabel", {"json": {"ids": ["new"], "labels": [3.5]}, "headers": TOKEN}),
        ("GET", "/health", {}),
        ("GET", "/metrics", {}),
    )
    assert answers[0].json() == {"added": 1, "ids": ["new"], "rows": 61}
    assert answers[1].json()["predictions"][0]["neighbors"][0]["id"] == "new"
    assert answers[2].json() == {"relabelled": 1, "before": [99.0]}
    assert answers[3].json()["models"]["houses"] == {"task": "regression", "rows": 61, "changes": 2}
    error = dict(re.findall(r'vicinal_label_error_total\{model="houses",source="(\w+)"\} ([\d.]+)', answers[4].text))
    assert float(error["add"]) == pytest.approx(95.5, abs=3)
    assert float(error["relabel"]) < 3
    assert 'vicinal_requests_total{endpoint="explain",status="200"} 1.0' in answers[4].text
    model = load_model(houses)
    assert (model.changes_.pending, model.labels_of(["new"])) == (0, [3.5])
    assert served.post("/forget", json={"ids": ["new"]}, headers=TOKEN).json() == {"forgotten": 1, "rows": 60}
    assert not load_model(houses).bank_.has(["new"])[0]


def test_nothing_changes_without_the_token(served, houses, monkeypatch):
    before = {path: path.read_bytes() for path in houses.rglob("*") if path.is_file()}
    bodies = {"add": {"rows": [{"house": "x", **ROW, "price": 1.0}]}, "relabel": {"ids": ["h1"], "labels": [1.0]}}
    for what, body in {**bodies, "forget": {"ids": ["h1"]}}.items():
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "secret"},
            {"Authorization": "Bearer "},
        ):
            answer = served.post(f"/{what}", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"][:25]) == (401, "token: expected the right")
        monkeypatch.setenv("VICINAL_TOKEN", "")
        answer = served.post(f"/{what}", json=body, headers={"Authorization": "Bearer "})
        assert (answer.status_code, answer.json()["error"][:30]) == (403, "token: expected the server to ")
        monkeypatch.setenv("VICINAL_TOKEN", "secret")
    assert {path: path.read_bytes() for path in houses.rglob("*") if path.is_file()} == before


def malformed():
    """Requests that are wrong, each in its way: path and keywords."""
    deep = b'{"rows":' * 5000
    good = [ROW]
    yield from (
        ("/predict", {"content": c})
        for c in (b"", b"{", b"[]", b"\xff", deep, b'{"rows": NaN}', b'{"rows":[{"size":1e999,"town":"x"}]}')
    )
    yield from (("/predict", {"json": {"rows": r}}) for r in (None, [], {}, "x", [1], [[]], [{}], good * 51))
    cells = ("x", True, [1], {"a": 1}, {"base64": "?"}, 10**400)
    yield from (("/predict", {"json": {"rows": [{**ROW, "size": c}]}}) for c in cells)
    yield from (("/predict", {"json": {"rows": [{**ROW, "town": c}]}}) for c in ([1], {"base64": "aGk="}))
    yield ("/predict", {"content": b'{"rows":[{"size":1,"town":"\\ud800"}]}'})
    yield from (("/predict", {"json": {"rows": good, "interval": i}}) for i in (0, 1, "x", True, [0.5], 0.9999999))
    yield from (("/predict", {"json": {"rows": good, "abstain": error}}) for error in (0, "x", 0.05))  # of numbers
    yield from (("/predict", {"json": b}) for b in ({"rows": [{"size": 1}]}, {"row": good}, {"rows": good, "k": 3}))
    yield from (("/explain", {"json": {"rows": good, "k": k}}) for k in (0, -1, 1.5, "2", True, 10**9))
    yield from (
        ("/search", {"json": b})
        for b in ({}, {"query": ""}, {"query": 3}, {"query": "x", "rows": good}, {"rows": [{"z": 1}]})
    )
    add = {"house": "n1", **ROW, "price": 1.0}
    for row in (
        {**add, "price": None},
        {**add, "price": "x"},
        {**add, "house": "h1"},
        {**add, "house": None},
        {**ROW, "price": 1},
        {"price": 1},
        {"house": "n1", **ROW},
    ):
        yield ("/add", {"json": {"rows": [row]}, "headers": TOKEN})
    yield ("/add", {"json": {"rows": [add, add]}, "headers": TOKEN})
    for body in (
        {},
        {"ids": ["h1"]},
        {"ids": ["h1"], "labels": []},
        {"ids": ["h1"], "labels": ["x"]},
        {"ids": ["no"], "labels": [1]},
        {"ids": ["h1", "h1"], "labels": [1, 2]},
        {"ids": [1.5], "labels": [1]},
        {"ids": [None], "labels": [1]},
    ):
        yield ("/relabel", {"json": body, "headers": TOKEN})
    for ids in ([], "h1", ["no"], [True], [f"h{i}" for i in range(60)]):
        yield ("/forget", {"json": {"ids": ids}, "headers": TOKEN})
    for number in (b"1" + b"0" * 400, b"-1" + b"0" * 5000, b"1e999"):  # as a label, an id, a cell, a count
        yield ("/relabel", {"content": b'{"ids":["h1"],"labels":[%b]}' % number, "headers": TOKEN})
        yield ("/forget", {"content": b'{"ids":[%b]}' % number, "headers": TOKEN})
        yield ("/explain", {"content": b'{"rows":[{"size":%b,"town":"x"}],"k":1}' % number})
        yield ("/explain", {"content": b'{"rows":[{"size":1,"town":"x"}],"k":%b}' % number})
    for path, name, value in (
        *(("/predict", "interval", value) for value in ("5.", "x", "", "nan", "1e999", "\u00b2", "-.5")),
        *(("/explain", "k", value) for value in ("000", "2.5", "1" * 5000, "x", "\u0663.")),
    ):
        fields = {"size": (None, "1"), "town": (None, "x"), name: (None, value)}
        yield (path, {"files": fields})
    yield ("/models/none/predict", {"json": {"rows": good}})
    yield ("/nowhere", {"json": {}})
    yield ("/predict", {"content": b"x" * 100_001})
    yield ("/predict", {"content": b"x", "headers": {"Content-Type": "text/plain"}})
    yield ("/predict", {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}})
    yield ("/predict", {"content": b"--a\r\nx", "headers": {"Content-Type": "multipart/form-data; boundary=a"}})


def test_what_is_malformed_gets_one_sentence_and_harms_nobody(served, houses):
    before = {path: path.read_bytes() for path in houses.rglob("*") if path.is_file()}
    requests = [("POST", path, more) for path, more in malformed()]
    *answers, last, wrong_method = served.ask(
        *requests, ("POST", "/predict", {"json": {"rows": [ROW]}}), ("GET", "/predict", {})
    )
    odd = []
    for (_, path, more), answer in zip(requests, answers, strict=True):
        said = answer.json().get("error", "")
        fine = 400 <= answer.status_code < 500 and list(answer.json()) == ["error"] and "\n" not in said
        if not fine or not re.match(r"[\w\[\]' -]+: .*expected .*got ", said):
            odd.append(f"{path} {str(more)[:200]} -> {answer.status_code} {answer.text[:300]}")
    assert odd == []
    assert last.status_code == 200
    assert wrong_method.status_code == 405
    assert wrong_method.json()["error"].endswith("got GET")
    assert {path: path.read_bytes() for path in houses.rglob("*") if path.is_file()} == before


def test_a_cell_that_would_be_read_as_missing_is_refused_beside_others(served):
    said = served.post("/predict", json={"rows": [ROW, ROW | {"size": "tall"}, ROW | {"size": None}]})
    assert said.status_code == 400
    assert said.json()["error"] == "rows: in row 1, column 'size', expected numbers, got 'tall'; null stands for a gap"


def test_numbers_of_forms_are_read_as_people_write_them(served):
    cells = {"size": (None, "2.5"), "town": (None, "bath")}
    plain = served.post("/predict", json={"rows": [ROW], "interval": 0.9}).json()
    for text in (".9", "0.9", "0.90", "9e-1"):
        assert served.post("/predict", files=cells | {"interval": (None, text)}).json() == plain
    answer = served.post("/explain", files=cells | {"k": (None, "007")}).json()
    assert len(answer["predictions"][0]["neighbors"]) == 7


ERRORS = (
    KeyError("secret"),
    OverflowError("secret"),
    FloatingPointError("secret"),
    np.linalg.LinAlgError("secret"),
    RecursionError("secret"),
    MemoryError("secret"),
    AssertionError("secret"),
    RuntimeError("secret"),
    StopIteration("secret"),
    OSError("secret"),
    ValueError("secret"),
    UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_no_type_of_error_that_a_body_brings_about_is_an_error_of_the_server(served, monkeypatch, error):
    from vicinal.serve.served import ServedModel

    def broken(self, content):
        raise error

    monkeypatch.setattr(ServedModel, "predict", broken)
    answer, health = Served(models=served.folders).ask(
        ("POST", "/predict", {"json": {"rows": [ROW]}}), ("GET", "/health", {})
    )
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert "secret" not in answer.text
    assert health.status_code == 200


@pytest.mark.parametrize(
    ("settings", "own", "strange"),
    [
        (
            {},
            ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:80", "localhost."),
            (
                "",
                "evil.example",
                "127.0.0.1.evil.example",
                "localhost.evil.example",
                "10.0.0.1",
                "[::2]",
                "a@b",
                "localhost:x",
            ),
        ),
        ({"host": "192.168.1.7"}, ("192.168.1.7:80", "localhost"), ("192.168.1.8", "evil.example", "[::1")),
        (
            {"host": "0.0.0.0", "allow_hosts": ["Models.example.org"]},
            ("10.0.0.1:8000", "[fe80::1]:8000", "models.example.org", "localhost"),
            ("evil.example", "org", "a.models.example.org", "1.2.3.4.evil.example"),
        ),
        ({"allow_hosts": ["*"]}, ("evil.example", "10.0.0.1"), ("localhost:x",)),
    ],
)
def test_only_requests_for_its_own_hosts_are_answered(houses, settings, own, strange):
    """As a page elsewhere asks whose name has been made to point to this machine: its host or its origin tells."""
    server = Served(models={"houses": str(houses)}, **settings)

    def asked(host, **headers):
        return ("POST", "/predict", {"json": {"rows": [ROW]}, "headers": {"Host": host, **headers}})

    answers = server.ask(*(asked(host) for host in (*own, *strange)))
    assert [a.status_code for a in answers] == [200] * len(own) + [403] * len(strange)
    origins = server.ask(*(asked("localhost", Origin=f"http://{host}") for host in (*own, *strange)))
    assert [a.status_code for a in origins] == [200] * len(own) + [403] * len(strange)
    assert all(re.match("host: expected one of this server, got ", a.json()["error"]) for a in answers[len(own) :])


def test_who_does_not_send_a_request_locks_nobody_out(monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    from vicinal.serve import connections

    monkeypatch.setattr(connections, "HEAD", 0.3)
    monkeypatch.setattr(connections, "BODY", 0.4)
    monkeypatch.setattr(connections, "most_connections", lambda: 8)
    halves = (b"", b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def closed(port, start, drip=b""):
        """Seconds until the server ends a connection that sent ``start``, and then a byte now and then."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        begun, rest = time.monotonic(), asyncio.ensure_future(reader.read())
        try:
            while not rest.done() and time.monotonic() < begun + 5:
                await asyncio.wait([rest], timeout=0.05)
                writer.write(drip)
            await rest
        except OSError:
            pass
        writer.transport.abort()
        return time.monotonic() - begun

    async def work():
        server = uvicorn.Server(
            uvicorn.Config(app, http=connections.Connection, lifespan="off", port=0, log_level="error")
        )
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        slow = await asyncio.gather(*(closed(port, a + b, b"x") for a in (b"", whole) for b in halves))
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole)
        answer = await asyncio.wait_for(reader.readline(), 0.25)  # sooner than any of the crowd has run out of time
        for _, one in (*crowd, (reader, writer)):
            one.transport.abort()
        server.should_exit = True
        await serving
        return slow, answer

    slow, answer = asyncio.run(work())
    assert max(slow) < 2
    assert answer == b"HTTP/1.1 200 OK\r\n"


def test_who_asks_too_often_is_told_when_to_come_again(houses):
    slow = Served(models={"houses": str(houses)}, rate=3)
    answers = slow.ask(*[("GET", "/metrics", {})] * 12)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 5
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].json()["error"].startswith("rate: expected at most 3 requests a second")


def test_added_rows_bring_weights_where_the_model_was_fitted_with_a_column_of_them(houses, monkeypatch):
    monkeypatch.setenv("VICINAL_TOKEN", "secret")
    model = load_model(houses)
    model.notes_ = model.notes_ | {"weight": "care"}
    model.save(houses)
    served = Served(models={"houses": str(houses)})
    row = ROW | {"price": 3.0, "house": "w1", "care": 4}
    assert served.post("/add", json={"rows": [row]}, headers=TOKEN).status_code == 200
    plain = {name: cell for name, cell in row.items() if name != "care"}
    assert served.post("/add", json={"rows": [plain | {"house": "w2"}]}, headers=TOKEN).status_code == 200
    assert load_model(houses).given_weights()[-2:].tolist() == [4.0, 1.0]
    nameless = {name: cell for name, cell in row.items() if name != "house"}
    answer = served.post("/add", json={"rows": [nameless]}, headers=TOKEN)
    assert answer.json()["error"] == "rows: expected an id for each row in 'house', got none"
    for wrong in (-1, "heavy", None, {"a": 1}):
        answer = served.post("/add", json={"rows": [row | {"house": "w3", "care": wrong}]}, headers=TOKEN)
        assert 400 <= answer.status_code < 500
        assert "care" in answer.text


def test_the_page_of_addresses_loads_nothing_from_elsewhere(served):
    page, described = served.ask(("GET", "/", {}), ("GET", "/openapi.json", {}))
    assert "/models/{name}/predict" in page.text
    assert "/recommend" not in page.text, "no model here answers it"
    assert not re.search(r"https?://|<script|src=", page.text)
    assert set(described.json()["paths"]) >= {"/predict", "/explain", "/search", "/add", "/forget", "/relabel"}


# Processes of their own.


def serve_folder(folder):
    """A case: a server at a free port, which it prints."""
    from vicinal.serve import ServeSettings, serve

    os.environ["VICINAL_TOKEN"] = "secret"
    serve(ServeSettings(models={"houses": str(folder)}, port=0, rate=0), print)


@pytest.fixture
def started():
    """Starts servers, and sees to it that none outlives the test."""
    servers = []

    def begin(folder, case):
        servers.append(Process(folder, case))
        return servers[-1]

    yield begin
    for server in servers:
        server.process.kill()
        server.process.join()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    random = np.random.default_rng(0)
    pairs = [(f"u{user}", f"i{2 * item + user % 2}") for user in range(20) for item in random.permutation(10)[:4]]
    goods = pd.DataFrame({"item": [f"i{at}" for at in range(22)], "kind": ["tea", "nail"] * 11, "price": range(22)})
    clicks = pd.DataFrame([(user, item) for user, item in pairs if item not in ("i0", "i1")], columns=["user", "item"])
    folder = tmp_path_factory.mktemp("shop") / "shop"
    Recommender(rank=4).fit(clicks, items=goods).save(folder)
    return folder


def test_a_recommender_answers_and_takes_changes_beside_models(shop, houses, tmp_path, monkeypatch):
    shutil.copytree(shop, tmp_path / "shop")
    monkeypatch.setenv("VICINAL_TOKEN", "secret")
    served, model = (
        Served(models={"shop": str(tmp_path / "shop"), "houses": str(houses)}),
        Recommender.load(tmp_path / "shop"),
    )
    ask, pair = {"users": ["u3", "nobody", "u4"], "k": 3}, {"rows": [{"user": "u3", "item": "i1"}]}
    clicks = {"rows": [{"user": "fresh", "item": "i2"}, {"user": "fresh", "item": "i4"}]}
    said, why, added, goods, after, gone, left, health, root, paths = served.ask(
        ("POST", "/recommend", {"json": ask}),
        ("POST", "/explain", {"json": pair}),
        ("POST", "/add", {"json": clicks, "headers": TOKEN}),
        (
            "POST",
            "/models/shop/add",
            {"json": {"rows": [{"item": "cup", "kind": "tea", "price": 3}]}, "headers": TOKEN},
        ),
        ("POST", "/recommend", {"json": {"users": ["fresh"], "k": 30}}),
        ("POST", "/forget", {"json": {"ids": ["fresh"]}, "headers": TOKEN}),
        ("POST", "/recommend", {"json": {"users": ["fresh"], "k": 1}}),
        ("GET", "/health", {}),
        ("GET", "/", {}),
        ("GET", "/openapi.json", {}),
    )
    rows = [{"user": one["user"], **item} for one in said.json()["recommendations"] for item in one["items"]]
    assert rows == model.recommend(ask["users"], 3).to_dict("records")
    reasons, expected = why.json()["reasons"][0], model.explain("u3", "i1")
    assert (reasons["by"], reasons["score"]) == ("new item", expected.score)
    assert sum(one["share"] for one in reasons["neighbors"]) == pytest.approx(expected.score)
    assert (added.json(), goods.json()["added"]) == ({"added": 2, "rows": model.clicks_.nnz + 2}, 1)
    items = {one["item"]: one["by"] for one in after.json()["recommendations"][0]["items"]}
    assert items["cup"] == "new item"
    assert not {"i2", "i4"} & set(items)
    assert gone.json() == {"forgotten": 1, "rows": model.clicks_.nnz}
    assert left.json()["recommendations"][0]["items"][0]["by"] == "popularity"
    assert health.json()["models"]["shop"] == {
        "task": "recommendation",
        "rows": model.clicks_.nnz,
        "users": 20,
        "items": 23,
    }
    assert "Explore houses" in root.text
    assert "Explore shop" not in root.text
    assert (
        len(paths.json()["paths"]["/explain"]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"])
        == 2
    )
    assert "cup" in Recommender.load(tmp_path / "shop").items_.ids


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (
            "/predict",
            {"rows": [ROW]},
            "path: expected one that shop answers ('explain', 'recommend', 'add', 'forget'), got",
        ),
        (
            "/models/houses/recommend",
            {"users": ["u3"]},
            "path: expected one that houses answers ('predict', 'explain',",
        ),
        ("/explain", {"rows": [{"user": "u3"}]}, "rows: expected the columns 'user' and 'item' in row 0, got 'user'"),
        ("/explain", {"rows": [{"user": "u3", "item": "i99"}]}, "id: expected that of an item of the model, got 'i99'"),
        ("/recommend", {"users": ["u3", "u3"]}, "users: expected each id once"),
        ("/recommend", {"users": []}, "users: expected a list of at least one, got []"),
        ("/recommend", {"users": ["u3"], "among": "old"}, "among: expected all, known or new, got 'old'"),
        ("/add", {"rows": [{"item": "i3", "kind": 7, "price": {}}]}, "rows: in row 0, column 'price', expected"),
        ("/add", {"rows": [{"price": 3}]}, "data: expected the columns 'user' and 'item' of clicks"),
        ("/forget", {"ids": ["nobody"]}, "id: expected that of a user of the model, got 'nobody'"),
    ],
)
def test_what_a_recommender_cannot_answer_gets_one_sentence(shop, houses, monkeypatch, path, body, sentence):
    monkeypatch.setenv("VICINAL_TOKEN", "secret")
    answer = Served(models={"shop": str(shop), "houses": str(houses)}).post(path, json=body, headers=TOKEN)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)


def test_changes_of_a_recommender_need_the_token_and_those_by_others_are_seen(shop, tmp_path):
    shutil.copytree(shop, tmp_path / "shop")
    served = Served(models={"shop": str(tmp_path / "shop")})
    assert served.post("/add", json={"rows": [{"user": "fresh", "item": "i2"}]}).status_code == 403

    async def work():
        transport = httpx.ASGITransport(served.app)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        async with served.app.router.lifespan_context(served.app), client:
            bys = []
            for _ in range(2):
                answer = await client.post("/recommend", json={"users": ["fresh"], "k": 1})
                bys.append(answer.json()["recommendations"][0]["items"][0]["by"])
                add_clicks(tmp_path / "shop", pd.DataFrame({"user": ["fresh"], "item": ["i2"]}))
            return bys

    assert asyncio.run(work()) == ["popularity", "clicks"]


class Process:
    """A server in a process of its own."""

    def __init__(self, folder, case):
        self.case, self.process = case, start(case, serve_folder, folder)
        until = time.monotonic() + 60
        while not (
            told := re.search(r"http://\S+", Path(case, "out").read_text() if Path(case, "out").exists() else "")
        ):
            assert time.monotonic() < until
            time.sleep(0.02)
        self.address = told[0]

    def post(self, path, body):
        return httpx.post(self.address + path, json=body, headers=TOKEN, timeout=60)

    def stop(self, number):
        os.kill(self.process.pid, number)
        return end(self.process, self.case)


async def add_at_once(server, count, kill_after):
    """Ids that a server acknowledged before it was killed in the middle of ``count`` adds at once."""
    acknowledged = []

    async def add(client, number):
        row = {"house": f"n{number}", **ROW, "price": float(number)}
        answer = await client.post("/add", json={"rows": [row]}, headers=TOKEN)
        if answer.status_code == 200:
            acknowledged.append(f"n{number}")
            if len(acknowledged) == kill_after:
                os.kill(server.process.pid, signal.SIGKILL)

    limits = httpx.Limits(max_connections=None)
    # an answer that a busy machine gives too late for the client would be none
    async with httpx.AsyncClient(base_url=server.address, timeout=None, limits=limits) as client:
        await asyncio.gather(*(add(client, number) for number in range(count)), return_exceptions=True)
    return acknowledged


def check_killed(begin, houses, tmp_path, count, kill_after):
    server = begin(houses, tmp_path / "case")
    acknowledged = asyncio.run(add_at_once(server, count, kill_after))
    assert end(server.process, server.case).code == -9
    assert kill_after <= len(acknowledged) < count
    assert load_model(houses).bank_.has(acknowledged).all()


@pytest.mark.slow
def test_a_kill_in_the_middle_of_adds_loses_none_that_was_acknowledged(houses, tmp_path, started):
    check_killed(started, houses, tmp_path, 100, 40)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_thousand_adds_loses_none(houses, tmp_path, started):
    check_killed(started, houses, tmp_path, 1000, 400)


def test_two_servers_of_one_folder_know_each_others_changes_at_once_and_stop_gracefully(houses, tmp_path, started):
    one, other = started(houses, tmp_path / "one"), started(houses, tmp_path / "other")
    for number in range(6):
        writer, reader = (one, other) if number % 2 else (other, one)
        row = {"house": f"n{number}", **ROW, "price": 50.0}
        assert writer.post("/add", {"rows": [row]}).status_code == 200
        seen = reader.post("/explain", {"rows": [ROW], "k": 10}).json()["predictions"][0]["neighbors"]
        assert f"n{number}" in [neighbor["id"] for neighbor in seen]
    assert other.post("/forget", {"ids": ["n3"]}).status_code == 200
    assert "n3" not in one.post("/explain", {"rows": [ROW], "k": 10}).text
    assert "vicinal_requests_total" in httpx.get(one.address + "/metrics").text
    assert [server.stop(signal.SIGTERM).code for server in (one, other)] == [0, 0]
    model = load_model(houses)
    assert (len(model.bank_), model.changes_.pending) == (65, 0)
    assert "cells" not in (houses / CHANGES).read_text()


def test_a_missing_package_is_named(monkeypatch, capsys, folders):
    from vicinal.cli import run

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("explore", "closed"):
        monkeypatch.delitem(sys.modules, f"vicinal.serve.{name}", raising=False)
    for command in ("serve", "explore"):
        assert run([command, str(folders / "houses")]) == 2
        assert f"{command}: expected the packages of the extra serve, got no uvicorn" in capsys.readouterr().err


def test_a_column_that_is_not_given_is_not_mistaken_for_another_of_the_model():
    from vicinal.serve.requests import table_of

    model = SimpleNamespace(feature_names_in_=["rate_marriage", "yrs_married"], notes_={}, kinds_={}, form_=TableForm())
    with pytest.raises(ValueError, match=r"'rate_marriage'.*got none; null stands for a gap"):
        table_of(model, [{"yrs_married": 13}])
    with pytest.raises(ValueError, match="did you mean 'rate_mariage'"):
        table_of(model, [{"yrs_married": 13, "rate_mariage": 4}])


def test_objects_in_a_row_are_columns_of_their_parts_where_these_are_read():
    from vicinal.serve.requests import table_of

    model = SimpleNamespace(
        feature_names_in_=["size.height"], notes_={}, kinds_={"size.height": "number"}, form_=TableForm()
    )
    for size in ({"height": 2}, '{"height": 2}'):
        assert table_of(model, [{"size": size}])["size.height"].tolist() == [2.0]
    deep = {"height": 2}
    for _ in range(20):
        deep = {"height": deep}
    with pytest.raises(ValueError, match="nested more than 16 deep in a row"):
        table_of(model, [{"size": deep}])
