"""The page of pairs to label: what it writes and says of labels, whom it refuses, and that the next match learns."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from vicinal.calibration import stratified_share
from vicinal.cli import run
from vicinal.estimators import RowMatcher
from vicinal.linkage.compared import CellComparison
from vicinal.report.pairs import pair_html
from vicinal.workflows import Reviewer
from vicinal.workflows.match import MatchJob, match_tables, read_answers

PLANTED = "<script>document.title = 'taken over'</script>"
WORDS = ["lamp", "chair", "table", "red", "blue", "oak", "brass", "large", "small", "garden", "kitchen", "round"]


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    """Two tables: the rows 0 to 39 are the same things in both, the others are not."""
    place, random = tmp_path_factory.mktemp("shops"), np.random.default_rng(0)
    names = [[f"{' '.join(random.choice(WORDS, 4))} {random.integers(100, 999)}" for _ in range(60)] for _ in range(2)]
    turned = [" ".join(name.split()[::-1]) for name in names[0][:40]] + names[1][40:]
    pd.DataFrame({"id": [f"0{i}" for i in range(60)], "name": names[0]}).to_csv(place / "a.csv", index=False)
    pd.DataFrame({"id": [f"=b{i}" for i in range(60)], "name": turned}).to_csv(place / "b.csv", index=False)
    return place


def job(shops):
    return MatchJob(shops / "a.csv", shops / "b.csv", matcher=RowMatcher("id", "id", encoders={"text": "none"}))


@pytest.fixture(scope="module")
def matched(shops):
    return match_tables(job(shops), shops / "m")


@pytest.fixture
def reviewer(shops, matched, tmp_path, monkeypatch):
    """The page of a match that was just made."""
    folder = shutil.copytree(shops / "m", tmp_path / "m")
    reviewer = Reviewer(job(shops), folder, "vicinal match a.csv b.csv --review")
    with monkeypatch.context() as patch:
        patch.setattr("vicinal.workflows.review.match_tables", lambda *_: matched)
        reviewer.match()
    return reviewer


def truth(reviewer, place):
    pair = reviewer.pairs[place]
    return pair.left[1:] == pair.right[2:] and int(pair.left) < 40


def labelled(reviewer):
    return [tuple(row) for row in read_answers(reviewer.folder).itertuples(index=False)]


def after_again(reviewer):
    reviewer.again()
    reviewer._work.join()
    return reviewer.now()


def test_labels_are_on_disk_in_their_order_and_undo_takes_them_back(reviewer):
    pairs = [(pair.left, pair.right) for pair in reviewer.pairs]
    assert (reviewer.now()["place"], reviewer.now()["pairs"]) == (0, len(pairs))
    reviewer.label(1, 0, match=True)
    assert labelled(reviewer) == [(*pairs[0], 1)]
    reviewer.label(1, 1, match=None)  # skipped
    assert labelled(reviewer) == [(*pairs[0], 1)]
    state = reviewer.label(1, 2, match=False)
    assert labelled(reviewer) == [(*pairs[0], 1), (*pairs[2], 0)]
    assert (state["place"], state["labelled"], state["count"]) == (3, 2, 2)
    with pytest.raises(ValueError, match="pair: expected the one that is shown"):
        reviewer.label(1, 2, match=True)  # an outdated tab
    assert reviewer.undo()["place"] == 2
    assert labelled(reviewer) == [(*pairs[0], 1)]
    reviewer.undo()
    reviewer.undo()
    assert labelled(reviewer) == []
    with pytest.raises(ValueError, match="undo: expected a pair"):
        reviewer.undo()


def test_the_next_match_learns_from_the_labels_and_does_not_ask_again(reviewer):
    before = {(pair.left, pair.right) for pair in reviewer.pairs}
    for place in range(reviewer.now()["pairs"]):
        state = reviewer.label(1, place, match=truth(reviewer, place))
    assert state["pair"] is None
    assert state["place"] == state["pairs"] == 30
    was = len(reviewer.outcome.links)
    state = after_again(reviewer)
    assert (state["turn"], state["place"], state["findings"]) == (2, 0, [])
    assert (state["labelled"], state["count"]) == (0, 30)  # the page that ends says how many there are
    assert state["effects"][0].startswith(f"{was} links became {len(reviewer.outcome.links)}: ")
    assert re.fullmatch(r"F1 that the probabilities expect: [\d.]+, [\d.]+ before\.", state["effects"][1])
    assert "estimated probabilities and 30 labels" in state["effects"][-1]
    assert reviewer.outcome.matcher.threshold_ is not None
    assert not before & {(pair.left, pair.right) for pair in [*reviewer.pairs, *reviewer.outcome.record.sure]}
    assert len(labelled(reviewer)) == 30
    written = pd.read_csv(reviewer.folder / "answered.csv", dtype=str)
    assert written["match"].tolist() == [str(int(match)) for *_, match in labelled(reviewer)]


def test_labels_of_others_and_of_a_match_in_between_stay(reviewer, shops):
    other = Reviewer(job(shops), reviewer.folder)
    reviewer.label(1, 0, match=True)
    other.match()  # takes its labels along
    other.label(1, 0, match=False)
    reviewer.label(1, 1, match=True)
    assert [match for *_, match in labelled(reviewer)] == [1, 0, 1]
    os.unlink(reviewer.folder / "answered.csv")  # whatever happens to the file, the page has its labels
    reviewer.label(1, 2, match=False)
    assert [match for *_, match in labelled(reviewer)] == [1, 1, 0]


def test_labels_that_come_while_a_match_runs_stay(reviewer, shops):
    def log(line):
        if line == "linking":
            reviewer.label(1, 1, match=False)

    reviewer.label(1, 0, match=True)
    match_tables(job(shops), reviewer.folder)  # the file is part of the folder now
    match_tables(job(shops), reviewer.folder, log)
    assert [match for *_, match in labelled(reviewer)] == [1, 0]
    assert not list(reviewer.folder.glob("*~"))


def test_while_a_match_runs_nothing_is_labelled_and_its_end_or_failure_is_told(reviewer, monkeypatch):
    go_on = threading.Event()

    def match(job, folder, log):
        log("linking")
        go_on.wait(10)
        raise ValueError("--precision: expected labelled pairs that can show 0.99, got 3")

    monkeypatch.setattr("vicinal.workflows.review.match_tables", match)
    reviewer.label(1, 0, match=True)
    reviewer.again()
    for request in (reviewer.again, reviewer.undo, lambda: reviewer.label(1, 1, match=True)):
        with pytest.raises(ValueError, match="expected to wait until the match is made"):
            request()
    while reviewer.now()["running"] != "linking":
        time.sleep(0.01)
    go_on.set()
    reviewer._work.join()
    state = reviewer.now()
    assert (state["running"], state["turn"], state["place"]) == (None, 1, 1)
    assert state["effects"] == [
        "The match was not made: --precision: expected labelled pairs that can show 0.99, got 3"
    ]


def test_a_label_that_cannot_be_written_does_not_count(reviewer, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vicinal.workflows.review.write_table", full)
    with pytest.raises(OSError, match="No space"):
        reviewer.label(1, 0, match=True)
    assert (reviewer.now()["place"], reviewer.count) == (0, 0)
    assert labelled(reviewer) == []


def test_findings_are_what_the_labels_say(reviewer):
    doubtful = reviewer.pairs
    links = [(pair.left, pair.right) for pair in doubtful[:6]]
    chances = [0.995, 0.995, 0.8, 0.8, 0.6, 0.6, 0.3, 0.3]
    reviewer.pairs = [replace(pair, probability=chance) for pair, chance in zip(doubtful, chances, strict=False)]
    reviewer._linked = set(links)
    table = pd.DataFrame({"probability": [0.995] * 80 + [0.8] * 15 + [0.6] * 5})
    reviewer.outcome = replace(reviewer.outcome, links=table)
    for place, match in enumerate([True, True, True, False]):
        state = reviewer.label(1, place, match=match)
        assert place or state["findings"][0] == "Of 1 labelled pair of probability 50 % or more, 1 match."
    assert state["findings"][0] == "Of 4 labelled pairs of probability 50 % or more, 3 match."
    assert state["findings"][1].endswith("of 5 links of probability below 70 % none is labelled.")
    for place, match in enumerate([False, None, True, False], 4):
        state = reviewer.label(1, place, match=match)
    assert state["findings"][:2] == [
        "Of 5 labelled pairs of probability 50 % or more, 3 match.",
        "Of 2 labelled pairs of probability below 50 %, 1 match.",
    ]
    share, low, high = stratified_share([5, 15, 80], [1, 2, 2], [0, 1, 2])
    assert share == pytest.approx(0.8 + 0.15 / 2)
    assert state["findings"][2] == (
        f"By 5 labelled links, {100 * share:.0f} % of all 100 links are right: between {100 * low:.0f} % and "
        f"{100 * high:.0f} % with 95 % confidence."
    )


@pytest.fixture
def page(reviewer):
    pytest.importorskip("fastapi", reason="the page is of the extra serve")
    from vicinal.serve import ReviewPage

    page = ReviewPage(reviewer)
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    yield page
    page.close()
    thread.join()


def ask(page, what="now", body=b"{}", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}/api/{what}", body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_no_other_page_can_label(page):
    token, label = {"X-Token": page.token}, json.dumps({"turn": 1, "place": 0, "match": True}).encode()
    for headers in (
        {},
        {"X-Token": "guess"},
        token | {"Origin": "http://evil.example"},
        token | {"Host": "evil.example"},
    ):
        assert ask(page, "label", label, **headers)[0] == 403
    for what in ("match", "_write", "at_end", "outcome", "count"):
        assert ask(page, what, **token)[0] == 400
    for wrong in (
        {"turn": 1, "place": "0", "match": True},
        {"turn": 1, "place": 0, "match": 1},
        {"turn": 1, "place": 0},
    ):
        assert ask(page, "label", json.dumps(wrong).encode(), **token)[0] == 400
    assert ask(page, "label", json.dumps({"turn": 2, "place": 0, "match": True}).encode(), **token)[0] == 400
    assert labelled(page.answerer) == []
    assert ask(page, "label", label, **token)[0] == 200
    assert len(labelled(page.answerer)) == 1


def test_the_page_and_its_files_are_served_without_data_and_cells_are_escaped(page):
    for name, kind in (("", "html"), ("review.js", "javascript"), ("served.js", "javascript"), ("served.css", "css")):
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/{name}") as answer:
            assert answer.headers["Content-Type"].startswith(f"text/{kind}")
            assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
            assert b"kitchen" not in answer.read()
    first = page.answerer.pairs[0]
    page.answerer.pairs[0] = replace(first, left=PLANTED, cells=[CellComparison(PLANTED, PLANTED, "a", 0.5, "differs")])
    shown = ask(page, **{"X-Token": page.token})[1]["pair"]
    assert shown.count("&lt;") >= 3
    assert "<script" not in shown


def test_the_end_of_the_page_ends_the_server(page):
    assert ask(page, "finish", **{"X-Token": page.token})[0] == 200
    for _ in range(100):
        try:
            ask(page, **{"X-Token": page.token})
        except (OSError, urllib.error.URLError):
            return
        time.sleep(0.05)
    raise AssertionError("the server answers still")


def command(shops, out, *more):
    return [
        "match",
        str(shops / "a.csv"),
        str(shops / "b.csv"),
        "--encoder",
        "text=none",
        "--out",
        str(out),
        "-q",
        *more,
    ]


def test_what_stands_against_a_page_is_told_before_the_match(shops, tmp_path, capsys):
    out = tmp_path / "m"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(command(shops, out, "--review", "--port", str(taken.getsockname()[1]))) == 2
    assert "address already in use" in capsys.readouterr().err.lower()
    assert run(command(shops, out, "--review", "--json")) == 2
    assert "--json: expected not with --review" in capsys.readouterr().err
    assert run(command(shops, out, "--review", "--port", "70000")) == 2
    assert "--port: expected" in capsys.readouterr().err
    assert run(["match", str(shops / "a.csv"), "--review"]) == 2
    assert "RIGHT" in capsys.readouterr().err
    assert not out.exists()


def test_a_missing_package_is_named_before_the_match(shops, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("review", "closed"):
        monkeypatch.delitem(sys.modules, f"vicinal.serve.{name}", raising=False)
    assert run(command(shops, tmp_path / "m", "--review")) == 2
    assert "--review: expected the packages of the extra serve, got no uvicorn" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


def test_without_pairs_to_label_there_is_no_page(tmp_path, capsys):
    pd.DataFrame({"id": [1, 2], "name": ["lamp", ""]}).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame({"id": [1, 2], "name": ["", "saw"]}).to_csv(tmp_path / "b.csv", index=False)
    assert run([*command(tmp_path, tmp_path / "m"), "--review"]) == 0
    assert "no pairs to label, so no page" in capsys.readouterr().out


@pytest.mark.slow
def test_a_kill_loses_no_label(shops, tmp_path):
    words = [sys.executable, "-m", "vicinal", *command(shops, tmp_path / "m", "--review")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = next(line for line in process.stdout if line.startswith("open "))
        address = urllib.parse.urlsplit(line.split()[1])
        for place in range(5):
            body = json.dumps({"turn": 1, "place": place, "match": place % 2 == 0}).encode()
            request = urllib.request.Request(f"http://{address.netloc}/api/label", body, {"X-Token": address.fragment})
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["place"] == place + 1
    finally:
        process.kill()
        process.communicate()
    assert read_answers(tmp_path / "m")["match"].tolist() == [1, 0, 1, 0, 1]
    reviewer = Reviewer(job(shops), tmp_path / "m")
    reviewer.match()
    assert len(labelled(reviewer)) == 5


def test_cells_that_are_not_compared_are_shown_with_images(tmp_path):
    rng = np.random.default_rng(0)
    for place in range(12):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3)).astype(np.uint8)).save(tmp_path / f"{place}.png")
    names = [f"{' '.join(rng.choice(WORDS, 3))} {number}" for number in range(100, 112)]
    photos = [f"{place}.png" for place in range(12)]
    left = pd.DataFrame({"id": range(12), "name": names, "photo": photos, "maker": ["Ann", None] * 6})
    right = pd.DataFrame({"id": range(12), "name": names, "photo": photos, "weight": 1.5})
    left.to_csv(tmp_path / "a.csv", index=False)
    right.to_csv(tmp_path / "b.csv", index=False)
    shown = match_tables(job(tmp_path)).record.sure[0]
    sides = [dict(side) for side in shown.others]
    assert [set(side) - {"maker"} for side in sides] == [{"photo"}, {"photo", "weight"}]
    assert sides[0].get("maker") == (None if int(shown.left) % 2 else "Ann")
    page = pair_html(shown)
    assert page.count('src="data:image/') == 2
    assert ">1.5<" in page


def test_what_the_report_says_of_one_table_follows_from_its_probabilities(tmp_path, monkeypatch):
    monkeypatch.setattr("vicinal.estimators.matching.FEW", 1)
    rng = np.random.default_rng(1)
    things = [f"{' '.join(rng.choice(WORDS, 3))} {rng.integers(100, 999)}" for _ in range(16)]
    copies = [f"{name} {extra}" for name in things for extra in ("new", "used cheap", "as new, boxed")]
    copies += copies[::3]  # equal rows
    pd.DataFrame({"id": range(64), "name": copies}).to_csv(tmp_path / "all.csv", index=False)
    one, other = np.triu_indices(30, 1)
    pairs = pd.DataFrame({"left": one, "right": other, "match": (one // 3 == other // 3).astype(int)})
    pairs[(pairs["match"] == 1) | (rng.random(len(pairs)) < 0.1)].to_csv(tmp_path / "pairs.csv", index=False)
    matcher = RowMatcher("id", "id", encoders={"text": "none"})
    found = match_tables(MatchJob(tmp_path / "all.csv", None, tmp_path / "pairs.csv", matcher))
    every = found.matcher.scored_candidates()["probability"].sum() + 16  # equal rows are no candidates
    right = found.links["probability"].sum()
    assert found.record.expected == pytest.approx(
        {"precision": right / len(found.links), "recall": right / every, "f1": 2 * right / (len(found.links) + every)}
    )
    clusters, least = found.matcher.clusters()[0], []
    for _, members in clusters.groupby("cluster")["id"]:
        if len(members) > 2:
            inside = pd.DataFrame([(a, b) for a in members for b in members if a < b], columns=["left", "right"])
            least.append((float(found.matcher.predict_proba(inside)[:, 1].min()), len(members)))
    left, right, chances, sizes = zip(*found.record.weakest, strict=True)
    assert len(least) >= 5
    assert list(chances) == pytest.approx([chance for chance, _ in sorted(least)[:10]])
    assert list(sizes) == [size for _, size in sorted(least)[:10]]
    ids = pd.DataFrame({"left": left, "right": right})
    assert found.matcher.predict_proba(ids)[:, 1] == pytest.approx(chances)
