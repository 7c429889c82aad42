"""The page of ``vicinal explore`` over 100,000 rows in a browser: figures, and pictures of a page of tweets.

The table has a column of texts, one of numbers and one of categories. 4,000 rows are fitted on, the others are added.
Times are those of a browser on the same computer, medians of five and more; the page is usable when the suspects are
listed and a row of the map is named under the pointer. "cpu" is what browser and server compute for it together, which
says more than the clock where other programs run, too.

    python benchmarks/explore.py --out benchmarks/results/explore.json
    python benchmarks/explore.py --pictures docs/images --data ../shared/data

Models are written to ``--folder``, and found there again.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from resumable import asked

from vicinal import NeighborRegressor
from vicinal.estimators import ModelFolder

ROWS, FITTED, TIMES = 100_000, 4_000, 5
WORDS = np.array(
    [a + b for a in ("ba", "ko", "ti", "ru", "se", "mo", "li", "da") for b in ("n", "rt", "sk", "lo", "ma")]
)
HOVER = """async () => {
  const map = document.getElementById("map"), box = map.getBoundingClientRect(), times = [];
  for (let k = 0; k < 40; k++) {
    const at = { clientX: box.left + box.width * (0.3 + 0.01 * k), clientY: box.top + box.height * 0.5, bubbles: true };
    const begun = performance.now();
    map.dispatchEvent(new PointerEvent("pointermove", at));
    times.push(performance.now() - begun);
    await new Promise(requestAnimationFrame);
  }
  return times;
}"""


def large(folder: Path) -> None:
    """A model of 100,000 rows, 200 of which have a wrong label."""
    rng = np.random.default_rng(0)
    worth = rng.normal(size=len(WORDS))
    drawn = rng.integers(0, len(WORDS), (ROWS, 6))
    frame = pd.DataFrame({"text": [" ".join(WORDS[row]) for row in drawn], "size": rng.normal(size=ROWS)})
    frame["town"] = rng.choice(["graz", "linz", "wels", "steyr"], ROWS)
    price = worth[drawn].mean(1) + 0.3 * frame["size"].to_numpy() + 0.1 * rng.normal(size=ROWS)
    price[rng.choice(ROWS, 200, replace=False)] += 3
    model = NeighborRegressor(columns={"text": "text"}, encoders={"text": "ngrams"}, max_epochs=5)
    model.fit(frame.iloc[:FITTED], price[:FITTED], ids=np.arange(FITTED))
    model.notes_ = {"target": "price"}
    model.save(folder)
    rest = ModelFolder(folder)
    rest.add(frame.iloc[FITTED:], price[FITTED:], ids=np.arange(FITTED, ROWS))
    rest.compact()


def tweets(folder: Path, data: Path) -> Path:
    """A model of tweets, and a table with some more."""
    table = pd.read_parquet(data / "text" / "vader_sentiment.parquet")
    table = table.loc[table["domain"] == "tweets", ["id", "text", "rating"]].iloc[:1500]
    model = NeighborRegressor(columns={"text": "text"}, encoders={"text": "minilm"})
    first = table.iloc[:1400]
    model.fit(first[["text"]], first["rating"], ids=first["id"].tolist())
    model.notes_ = {"id": "id", "target": "rating"}
    model.save(folder)
    table.iloc[1400:].to_csv(folder.with_name("new.csv"), index=False)
    return folder.with_name("new.csv")


@contextlib.contextmanager
def served(*words: str) -> Iterator[tuple[str, int]]:
    """The address of a page and the id of its server's process, which runs as the command does."""
    command = [sys.executable, "-m", "vicinal", "explore", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.terminate()


def processor_seconds(browser: Browser, server: int) -> float:
    """CPU seconds so far of the browser, with all its processes, and of the server."""
    listed = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    ticks = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(one["cpuTime"] for one in listed) + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def memory_of_tab(browser: Browser) -> float:
    """Resident memory of the largest renderer, in megabytes."""
    listed = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = []
    for one in listed:
        if one["type"] == "renderer":
            status = Path(f"/proc/{one['id']}/status").read_text()
            sizes.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
    return max(sizes)


def open_page(browser: Browser, address: str, **settings: object) -> Page:
    tab = browser.new_context(**settings).new_page()
    tab.goto(address)
    tab.wait_for_selector("#list .entry", timeout=120_000)
    return tab


def measured(browser: Browser, address: str, server: int) -> dict[str, float]:
    """Figures of the page."""
    usable, spent = [], []
    for _ in range(TIMES):
        begun, before = time.perf_counter(), processor_seconds(browser, server)
        tab = open_page(browser, address)
        hovers = tab.evaluate(HOVER)
        usable.append(time.perf_counter() - begun - sum(hovers) / 1000)
        spent.append(processor_seconds(browser, server) - before)
        if "row" not in tab.inner_text("#hint"):
            raise RuntimeError("no row was named under the pointer")
        if len(usable) < TIMES:
            tab.context.close()
    drawn, shown, opened = [], [], []
    for place in range(TIMES):
        tab.fill("#query", str(1000 * place + 7))
        begun = time.perf_counter()
        tab.press("#query", "Enter")
        tab.wait_for_selector(f"#detail h2:has-text('Row {1000 * place + 7}')")
        opened.append(time.perf_counter() - begun)
        label = f"{np.random.default_rng().normal():.3f}"  # another than before, also of a model that is found again
        tab.fill("#label", label)
        begun = time.perf_counter()
        with tab.expect_response("**/api/map"):
            tab.press("#label", "Enter")
            tab.wait_for_selector(f"#detail .is-truth:text-is('{float(label):g}')")
            shown.append(time.perf_counter() - begun)
        drawn.append(time.perf_counter() - begun)
        tab.wait_for_selector(f"#status:has-text('row {1000 * place + 7} is')")
    before = processor_seconds(browser, server)
    filtered = filter_times(tab)
    filter_cpu = (processor_seconds(browser, server) - before) / len(filtered)
    heap = tab.context.new_cdp_session(tab)
    heap.send("Performance.enable")
    used = {one["name"]: one["value"] for one in heap.send("Performance.getMetrics")["metrics"]}
    return {
        "usable_s": round(float(np.median(usable)), 2),
        "usable_most_s": round(max(usable), 2),
        "usable_cpu_s": round(float(np.median(spent)), 2),
        "hover_median_ms": round(float(np.median(hovers)), 2),
        "hover_most_ms": round(float(np.max(hovers)), 2),
        "opened_s": round(float(np.median(opened)), 3),
        "new_prediction_s": round(float(np.median(shown)), 3),
        "filter_s": round(float(np.median(filtered)), 3),
        "filter_most_s": round(float(np.max(filtered)), 3),
        "filter_cpu_s": round(filter_cpu, 3),
        "new_map_s": round(float(np.median(drawn)), 3),
        "heap_mb": round(used["JSHeapUsedSize"] / 2**20, 1),
        "tab_mb": round(memory_of_tab(browser), 1),
    }


def filter_times(tab: Page) -> list[float]:
    """Seconds from a typed bound, word, choice or bar until the table counts the rows that are left."""
    tab.click("#show-errors")
    tab.wait_for_selector("#f-table .cells")
    seconds = []
    for key, how, value in (
        *(("size", "from", str(bound)) for bound in (0, 0.5, 1)),
        ("text", "has", "bart"),
        ("text", "has", "bart kon"),
        ("town", "is", "linz"),
    ):
        before = tab.inner_text("#f-count")
        field = tab.locator(f"[data-key='column {key}'][data-how={how}]")
        begun = time.perf_counter()
        (field.select_option if how == "is" else field.fill)(value)
        tab.wait_for_function("before => document.querySelector('#f-count').textContent !== before", arg=before)
        seconds.append(time.perf_counter() - begun)
        tab.wait_for_selector("#f-table .cells")
    tab.click("#f-clear")
    return seconds


def draw(browser: Browser, address: str, out: Path) -> None:
    """The page at two widths, light and dark."""
    for width, height in ((1280, 900), (390, 844)):
        for scheme in ("light", "dark"):
            tab = open_page(browser, address, viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.wait_for_selector("#list h2:has-text('Rows of')")
            tab.click("#show-suspects")
            tab.wait_for_selector("#list h2:has-text('Labels worth checking')")
            tab.click("#show-errors")
            tab.click("#f-table td button >> nth=2")
            tab.wait_for_selector("#detail h2")
            tab.evaluate("scrollTo(0, 0)")
            with Image.open(io.BytesIO(tab.screenshot())) as shot:
                shot.thumbnail((800, 900))
                shot.convert("RGB").quantize(64).save(out / f"explore-{width}-{scheme}.png", optimize=True)
            tab.context.close()


def main() -> None:
    given = asked(__doc__, 0, out=None, pictures=None, data=Path("../shared/data"), folder=None)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as started:
        folder = given.folder or Path(place)
        path = shutil.which("chromium")
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        if given.out is not None:
            if not (folder / "large").is_dir():
                large(folder / "large")
            begun = time.perf_counter()
            with served(str(folder / "large")) as (address, server):
                starts = round(time.perf_counter() - begun, 2)
                load = round(os.getloadavg()[0], 1)  # of all that runs on the computer beside
                figures = {"rows": ROWS, "load": load, "server_s": starts} | measured(browser, address, server)
            given.out.write_text(json.dumps(figures, indent=1) + "\n")
            print(figures)
        if given.pictures is not None:
            new = folder / "new.csv" if (folder / "tweets").is_dir() else tweets(folder / "tweets", given.data)
            with served(str(folder / "tweets"), str(new)) as (address, _):
                draw(browser, address, given.pictures)


if __name__ == "__main__":
    main()
