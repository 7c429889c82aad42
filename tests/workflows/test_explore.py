"""The page of a bank: what it says, what it changes, and whom it refuses; in a real browser where there is one."""

import json
import shutil
import threading
import urllib.error
import urllib.request

import numpy as np
import pandas as pd
import pytest

from vicinal.estimators import NeighborClassifier, load_model
from vicinal.workflows import ExplorePage, Explorer

PLANTED = "<script>document.title = 'taken over'</script>"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    rng = np.random.default_rng(0)
    words = {"fruit": ["apple", "pear", "plum", "fig"], "tool": ["hammer", "saw", "drill", "file"]}
    kinds = np.repeat(["fruit", "tool"], 30)
    texts = [" ".join(rng.choice(words[kind], 6)) for kind in kinds]
    texts[5] += f" {PLANTED}"
    wrong = kinds.copy()
    wrong[7] = "tool"
    frame = pd.DataFrame({"text": texts, "size": rng.normal(size=60)})
    model = NeighborClassifier(max_epochs=5, members=1, columns={"text": "text"}, encoders={"text": "ngrams"})
    model.fit(frame, wrong, ids=[f"r{i}" for i in range(60)])
    model.notes_ = {"id": "name", "target": "kind"}
    folder = tmp_path_factory.mktemp("explore") / "shop"
    model.save(folder)
    return folder


@pytest.fixture
def folder(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "shop")


@pytest.fixture
def page(folder):
    page = ExplorePage(Explorer(folder))
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    yield page
    page.close()
    thread.join()


def test_a_wrong_label_is_the_first_suspect(folder):
    first = Explorer(folder).suspects(3)[0]
    assert (first["id"], first["label"], first["said"]) == ("r7", "tool", "fruit")


def test_a_change_lasts_and_undo_takes_it_back(folder):
    explorer = Explorer(folder)
    vector = explorer.model.bank_.vectors[explorer.model.bank_.store.positions(["r9"])].clone()
    before = explorer.row("r9")["prediction"], explorer.model.labels_of(["r7", "r9"])
    explorer.relabel("r7", "fruit")
    explorer.forget("r9")
    added = explorer.add(json.dumps({"name": "=new", "text": "apple fig", "size": 0.1}), "fruit")["id"]
    saved = load_model(folder)
    assert saved.labels_of(["r7", added]) == ["fruit", "fruit"]
    assert not saved.bank_.has(["r9"]).any()
    for _ in range(3):
        explorer.undo()
    saved = load_model(folder)
    assert (explorer.row("r9")["prediction"], saved.labels_of(["r7", "r9"])) == before
    assert (saved.bank_.vectors[saved.bank_.store.positions(["r9"])] == vector).all()
    lines = explorer.changed()["csv"].splitlines()
    assert lines[:2] == ["what,id,before,after", "relabel,r7,tool,fruit"]
    assert lines[3].startswith("add,'=new")
    assert lines[-1] == "undo relabel,r7,fruit,tool"
    with pytest.raises(ValueError, match="undo"):
        explorer.undo()


def test_a_prediction_without_a_neighbor_is_that_of_a_bank_without_it(folder):
    explorer = Explorer(folder)
    gone = str(explorer.row("r3")["behind"][0]["id"])
    live = explorer.row("r3", [gone])
    explorer.forget(gone)
    after = explorer.row("r3")
    assert live["chance"] == pytest.approx(after["chance"])
    assert [one["id"] for one in live["behind"]] == [one["id"] for one in after["behind"]]


def test_rows_are_compared_column_by_column_and_the_nearest_of_another_label_is_named(folder):
    explorer = Explorer(folder)
    other = explorer.nearest_other("r3")["other"]
    assert other["label"] == "tool"
    both = explorer.compare("r3", str(other["id"]))
    assert set(both["adds"]) == {"text", "size"}
    same = explorer.compare("r3", "r3")
    assert all(abs(share) < 1e-4 for share in same["adds"].values())


def ask(page, what="map", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}/api/{what}", b"{}", headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_no_other_page_can_ask_or_change(page):
    token = {"X-Token": page.token}
    assert ask(page) == 403
    assert ask(page, **{"X-Token": "guess"}) == 403
    assert ask(page, **token, Origin="http://evil.example") == 403
    assert ask(page, **token, Host="evil.example") == 403
    assert ask(page, "close", **token) == 400
    assert ask(page, **token) == 200


def test_a_model_of_several_classes_a_row_is_refused(tmp_path):
    x = pd.DataFrame({"x": np.arange(40.0)})
    NeighborClassifier(max_epochs=1, members=1).fit(x, [["a"], ["a", "b"]] * 20).save(tmp_path / "m")
    with pytest.raises(ValueError, match="one class a row"):
        Explorer(tmp_path / "m")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the path")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_a_person_finds_mends_and_takes_back_in_a_browser(browser, page, folder, tmp_path):
    tab, other = browser.new_page(), browser.new_page()
    errors = []
    tab.on("pageerror", lambda error: errors.append(error))
    tab.on("dialog", lambda dialog: dialog.accept())
    for one in (tab, other):
        one.goto(page.address)
        one.wait_for_selector("#list .entry")
    tab.fill("#query", "r7")  # by keyboard alone
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#detail h2:has-text('Row r7')")
    assert "fruit" in tab.inner_text("#detail .is-prediction")
    before = tab.inner_text("#detail .is-prediction")
    tab.click("#detail button:has-text('Leave out') >> nth=0")
    tab.wait_for_selector("button:has-text('Put back')")
    assert tab.inner_text("#detail .is-prediction") != before
    tab.select_option("#label", "fruit")
    tab.press("#label", "Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#status:has-text('row r7 is fruit now')")
    assert load_model(folder).labels_of(["r7"]) == ["fruit"]
    other.wait_for_selector("#status:has-text('changed elsewhere')")
    tab.click("button:has-text('Nearest of another label')")
    tab.wait_for_selector("h2:has-text('Two rows')")
    tab.click("button:has-text('Forget this row')")
    tab.wait_for_selector("#status:has-text('forgotten')")
    tab.click("#undo")
    tab.wait_for_selector("#status:has-text('taken back')")
    assert load_model(folder).labels_of(["r7"]) == ["fruit"]
    tab.click("#show-add")
    tab.fill("#new-row", json.dumps({"name": "new", "text": PLANTED, "size": 1}))
    tab.fill("#new-label", "fruit")
    tab.click("button:has-text('Add it')")
    tab.wait_for_selector("#detail h2:has-text('Row new')")
    assert PLANTED in tab.inner_text("#detail .cell .text >> nth=0")
    assert tab.title() != "taken over"
    with tab.expect_download() as download:
        tab.click("#export")
    download.value.save_as(tmp_path / "changes.csv")
    assert len((tmp_path / "changes.csv").read_text().splitlines()) == 5
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert not errors
