"""Served pages in a real browser, by keyboard alone: a bank of texts, images and sounds, and pairs to label."""

import shutil
import threading

import numpy as np
import pandas as pd
import pytest
import soundfile
from PIL import Image

from vicinal.estimators import NeighborClassifier, NeighborRegressor, RowMatcher, load_model
from vicinal.workflows import Explorer, Reviewer
from vicinal.workflows.match import MatchJob, read_answers

pytest.importorskip("fastapi", reason="the page is of the extra serve")
from vicinal.serve import ExplorePage, ReviewPage

PLANTED = "<script>document.title = 'taken over'</script>"
ROWS = 40


def texts(rng, kind, folder, name):
    words = {"low": ["apple", "pear", "plum", "fig"], "high": ["hammer", "saw", "drill", "file"]}
    return " ".join(rng.choice(words[kind], 6)) + (f" {PLANTED}" if name == "r5" else "")


def image(rng, kind, folder, name):
    pixels = rng.integers(0, 90, (16, 16, 3)) + (150 if kind == "high" else 0)
    Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}.png")
    return f"{name}.png"


def sound(rng, kind, folder, name):
    pitch = 300 if kind == "low" else 1200
    wave = 0.3 * np.sin(2 * np.pi * pitch * np.arange(6400) / 16000) + 0.01 * rng.normal(size=6400)
    soundfile.write(folder / f"{name}.wav", wave, 16000)
    return f"{name}.wav"


CASES = {"text": (texts, "ngrams", 5), "image": (image, "cnn", 3), "audio": (sound, "cnn-mel", 2)}


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


@pytest.fixture
def served(request, tmp_path):
    """A model of one kind of column, its page, and a table with three rows that the bank has not."""
    cell, encoder, epochs = CASES[request.param]
    rng = np.random.default_rng(0)
    names, kinds = [f"r{place}" for place in range(ROWS + 3)], np.array((["low", "high"] * ROWS)[: ROWS + 3])
    table = pd.DataFrame(
        {"name": names, "it": [cell(rng, *one) for one in zip(kinds, [tmp_path] * 99, names, strict=False)]}
    )
    table["size"] = rng.normal(size=len(table))
    wrong = kinds.copy()
    wrong[6] = "high"
    columns, encoders = {"it": request.param, "size": "number"}, {"it": encoder}
    model = NeighborClassifier(max_epochs=epochs, members=1, columns=columns, encoders=encoders)
    model.root = tmp_path
    model.fit(table[["it", "size"]].iloc[:ROWS], wrong[:ROWS], ids=names[:ROWS])
    model.notes_ = {"id": "name", "target": "kind"}
    model.save(tmp_path / "shop")
    table.to_csv(tmp_path / "new.csv", index=False)
    page = ExplorePage(Explorer(tmp_path / "shop", table=tmp_path / "new.csv"))
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    yield page, tmp_path, request.param
    page.close()
    thread.join()


class Keys:
    """A tab that is used by keyboard alone."""

    def __init__(self, tab):
        self.tab, self.press = tab, tab.keyboard.press

    def to(self, selector):
        """Go to the next element that fits, by Tab."""
        self.tab.wait_for_selector(selector, state="attached")
        wanted = self.tab.locator(selector)
        for _ in range(400):
            self.press("Tab")
            if wanted.evaluate_all("them => them.includes(document.activeElement)"):
                return
        raise AssertionError(f"Tab never comes to {selector}")

    def enter(self, selector, then):
        self.to(selector)
        self.press("Enter")
        self.tab.wait_for_selector(then)

    def type(self, selector, text):
        self.to(selector)
        self.press("ControlOrMeta+a")
        self.tab.keyboard.type(text)

    def choose(self, selector, file):
        self.to(selector)
        with self.tab.expect_file_chooser() as chooser:
            self.press("Enter")
        chooser.value.set_files(file)

    def said(self):
        return self.tab.inner_text("#detail .is-prediction")


def shown_and_known(tab):
    """Figures of the open row on the page beside its prediction, and as the page knows them; 0 is not shown."""
    known = "name => number(bank[name][bank.at.get('r6')] || 0)"
    shown = dict(text.split("\n")[:2] for text in tab.locator("#detail .two > div").all_inner_texts())
    names = {"error, held out": "error", "suspicion": "doubt"}
    return [shown.get(name, "0") for name in names], [tab.evaluate(known, name) for name in names.values()]


def opened(browser, page):
    tab = browser.new_page()
    tab.on("dialog", lambda dialog: dialog.accept())
    tab.goto(page.address)
    tab.wait_for_selector("#list h2:has-text('Rows of new.csv')")
    return tab


@pytest.mark.slow
@pytest.mark.parametrize("served", ["text", "image", "audio"], indirect=True)
def test_a_person_finds_mends_and_takes_back_by_keyboard(browser, served, tmp_path):
    page, folder, kind = served
    tab, other = opened(browser, page), opened(browser, page)
    errors = []
    tab.on("pageerror", lambda error: errors.append(error))
    keys = Keys(tab)
    keys.type("#query", "r6")
    keys.press("Enter")
    tab.wait_for_selector("#detail h2:has-text('Row r6')")
    # What changes without a neighbor, and with it again.
    before = keys.said()
    behind = tab.inner_text("#detail .entry >> nth=0")
    keys.enter("#detail button:has-text('Leave out')", "button:has-text('Put back')")
    assert tab.inner_text("#detail .entry >> nth=0") != behind
    keys.enter("button:has-text('Put back')", "#detail:not(:has-text('Put back'))")
    assert keys.said() == before
    # A label is corrected; the other tab sees it, also in its list of labels worth checking.
    entry = other.locator("#list .entry:has-text('Open r6')")
    other.click("#show-suspects")
    other.wait_for_selector("#list:has-text('were checked')")
    if not entry.count():
        other.click("#list button:has-text('most suspicious')")
    assert "kind high" in entry.inner_text()
    doubted = shown_and_known(tab)[1]
    keys.to("#label")
    tab.keyboard.type("low")
    keys.enter("#detail button:has-text('Correct the label')", "#status:has-text('row r6 is low now')")
    assert load_model(folder / "shop").labels_of(["r6"]) == ["low"]
    assert tab.evaluate("document.activeElement.textContent") == "Correct the label"
    # What is known of the corrected row goes by its new label, without another click.
    assert shown_and_known(tab)[0] == shown_and_known(tab)[1] != doubted
    other.wait_for_selector("#status:has-text('changed elsewhere')")
    assert "kind high" not in "".join(entry.all_inner_texts())
    # Two rows.
    keys.enter("button:has-text('Nearest of another label')", "h2:has-text('Two rows')")
    assert tab.locator("#list table tr").count() == 3
    # A row is forgotten, from the other tab, and comes back.
    there = Keys(other)
    there.type("#query", "r6")
    there.press("Enter")
    other.wait_for_selector("#detail h2:has-text('Row r6')")
    there.enter("#detail button:has-text('Forget this row')", "#status:has-text('forgotten')")
    tab.wait_for_selector("#status:has-text('changed elsewhere')")
    assert not load_model(folder / "shop").bank_.has(["r6"]).any()
    there.enter("#undo", "#status:has-text('taken back')")
    assert load_model(folder / "shop").labels_of(["r6"]) == ["low"]
    # A row of the table is opened and added.
    keys.enter("#show-table", "#list h2:has-text('Rows of new.csv')")
    keys.enter("#list button:has-text('Open r41')", "#detail h2:has-text('r41 of new.csv')")
    keys.enter("#detail button:has-text('Add it with this label')", "#detail h2:has-text('Row r41')")
    assert load_model(folder / "shop").bank_.has(["r41"]).all()
    # A row of one's own is predicted, then added.
    keys.enter("#show-add", "#new h2")
    content = (
        PLANTED
        if kind == "text"
        else {"image": image, "audio": sound}[kind](np.random.default_rng(1), "low", tmp_path, "mine")
    )
    (keys.type if kind == "text" else keys.choose)(
        "#new [data-column='it']", content if kind == "text" else tmp_path / content
    )
    keys.type("#new [data-column='size']", "1e999")
    keys.enter("#new button:has-text('Predict it')", "#status:has-text('size: expected a number, got 1e999')")
    keys.type("#new [data-column='size']", "0.5")
    keys.enter("#new button:has-text('Predict it')", "#detail h2:has-text('This row')")
    assert tab.locator("#list .entry").count() == 12
    keys.type("#new [data-column='name']", "mine")
    keys.type("#new-label", "low")
    keys.enter("#new button:has-text('Add it')", "#detail h2:has-text('Row mine')")
    if kind == "image":
        assert tab.locator("#detail img").first.evaluate("it => it.naturalWidth") > 0
    if kind == "audio":
        keys.enter("#detail button:has-text('.wav')", "#detail audio")
        tab.wait_for_timeout(500)
        assert tab.evaluate("document.querySelector('#detail audio').currentTime") > 0
    # The map: the row in the middle is opened.
    keys.to("#map")
    for _ in range(40):
        keys.press("ArrowLeft")
        if "·" in tab.inner_text("#hint") and "row mine" not in tab.inner_text("#hint"):
            break
    keys.press("Enter")
    tab.wait_for_selector(f"#detail h2:has-text('{tab.inner_text('#hint').split(' · ')[0].capitalize()}')")
    # What was changed.
    keys.to("#export")
    with tab.expect_download() as download:
        keys.press("Enter")
    download.value.save_as(tmp_path / "changes.csv")
    lines = (tmp_path / "changes.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["relabel", "forget", "undo forget", "add", "add"]
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.title() != "taken over"
    assert not errors


def rows_are_filtered_and_selected(tab, size, price):
    """By keyboard and pointer: the largest error first, a column, a bar of the histogram, an area of the map."""

    def counted(words):
        tab.wait_for_function("words => document.querySelector('#f-count').textContent.endsWith(words)", arg=words)

    tab.focus("#show-errors")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#f-table .cells")
    errors = tab.evaluate(
        "[...document.querySelectorAll('#f-table tr td:nth-child(3)')].map((one) => Number(one.textContent))"
    )
    assert len(errors) == 50
    assert errors == sorted(errors, reverse=True)
    counted("1 to 50 of 60 rows")
    tab.click("#f-on")
    counted("51 to 60 of 60 rows")
    tab.fill("[data-key='column size'][data-how='from']", "100")
    counted(f"of {(size >= 100).sum()} rows")
    tab.fill("[data-key='labels'][data-how='to']", f"{np.median(price):.0f}")
    counted(f"of {((size >= 100) & (price <= round(np.median(price)))).sum()} rows")
    tab.click("#f-clear")
    counted("of 60 rows")
    tab.click("#bars button >> nth=0")  # prices: whole numbers, whose last bar is open
    tab.wait_for_function("() => document.querySelector('[data-key=labels][data-how=to]').value !== ''")
    edge = float(tab.input_value("[data-key='labels'][data-how='to']"))
    counted(f"of {(price <= edge).sum()} rows")
    assert tab.get_attribute("#bars button >> nth=0", "title").endswith(
        f": {(price <= edge).sum()} of {(price <= edge).sum()} rows"
    )
    tab.click("#f-clear")
    tab.focus("#map")
    tab.keyboard.press("s")
    counted("60 rows, in the selected area")
    tab.keyboard.press("Escape")
    counted("of 60 rows")
    tab.click("#select")
    area = tab.locator("#map").bounding_box()
    tab.mouse.move(area["x"] + 1, area["y"] + 1)
    tab.mouse.down()
    tab.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] - 1, steps=3)
    tab.mouse.up()
    points = np.array(tab.evaluate("bank.points")).reshape(-1, 2)
    inside = tab.evaluate("box")
    left = (
        (points[:, 0] >= inside[0])
        & (points[:, 0] <= inside[2])
        & (points[:, 1] >= inside[1])
        & (points[:, 1] <= inside[3])
    )
    assert 0 < left.sum() < 60
    counted(f"of {left.sum()} rows, in the selected area")
    tab.click("#f-table td button >> nth=0")
    tab.wait_for_selector("#detail h2")
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_prices_learned_as_logarithms_are_read_as_prices(browser, tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.uniform(20, 200, 60)})
    price = (900 * x["size"] ** 1.4 * np.exp(0.3 * rng.normal(size=60))).round()
    model = NeighborRegressor(metric="kernel", readout="comparables", target_transform="log").fit(x, price)
    model.notes_ = {"target": "price"}
    model.save(tmp_path / "homes")
    page = ExplorePage(Explorer(tmp_path / "homes"))
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    try:
        tab = browser.new_page()
        tab.goto(page.address)
        tab.fill("#query", "7")
        tab.press("#query", "Enter")
        tab.wait_for_selector("#detail h2:has-text('Row 7')")
        assert tab.inner_text("#detail .is-truth") == f"{price[7]:,.0f}"
        assert float(tab.inner_text("#detail .is-prediction").replace(",", "")) == pytest.approx(price[7], rel=0.9)
        assert "so a prediction is a weighted geometric mean" in tab.inner_text("#detail")
        assert "→" in tab.inner_text("#detail .entry >> nth=0")
        assert "Trend by columns, on that scale: " in tab.inner_text("#detail")
        rows_are_filtered_and_selected(tab, x["size"].to_numpy(), price.to_numpy())
    finally:
        page.close()
        thread.join()


@pytest.mark.slow
def test_pairs_are_labelled_by_keyboard(browser, tmp_path):
    rng = np.random.default_rng(0)
    names = [" ".join(rng.choice(["lamp", "oak", "red", "saw"], 3)) + f" {number}" for number in range(100, 140)]
    pd.DataFrame({"id": range(40), "name": names}).to_csv(tmp_path / "a.csv", index=False)
    right = pd.DataFrame({"id": range(40), "name": [f"{name} new" for name in names], "note": PLANTED})
    right.to_csv(tmp_path / "b.csv", index=False)
    matcher = RowMatcher("id", "id", encoders={"text": "none"})
    job = MatchJob(tmp_path / "a.csv", tmp_path / "b.csv", matcher=matcher)
    reviewer = Reviewer(job, tmp_path / "m", "vicinal match a.csv b.csv --review")
    page = ReviewPage(reviewer)
    count = len(reviewer.match().record.doubtful)
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    tab, errors = browser.new_page(viewport={"width": 390, "height": 800}), []
    tab.on("pageerror", lambda error: errors.append(error))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.goto(page.address)
    shows = "text => document.querySelector('#count').textContent === text"
    tab.wait_for_function(shows, arg=f"0 of {count}")
    for key, place in (("y", 1), ("n", 2), ("?", 3), ("u", 2), ("s", 3), ("m", 4), ("u", 3), ("n", 4)):
        tab.keyboard.press(key)
        tab.wait_for_function(shows, arg=f"{place} of {count}")
    assert read_answers(tmp_path / "m")["match"].tolist() == [1, 0, 0]
    assert "Of 3 labelled pairs" in tab.inner_text("#findings")
    assert tab.evaluate("document.activeElement.matches('.pair')")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("#pair mark").count() > 0
    for place in range(4, count):
        tab.keyboard.press("n")
        tab.wait_for_function(shows, arg=f"{place + 1} of {count}")
    assert "vicinal match a.csv b.csv --review" in tab.inner_text("#pair")
    assert tab.evaluate("document.activeElement.textContent") == "Match again"
    tab.keyboard.press("u")
    tab.wait_for_selector("#pair table")
    tab.keyboard.press("n")
    tab.wait_for_selector("#pair h2")
    tab.click("#answers button:has-text('Finish')")
    tab.wait_for_selector(f"#pair :has-text('{count - 1} pairs are labelled.')")
    thread.join(10)
    assert not thread.is_alive()
    assert tab.title() != "taken over"
    assert not errors
