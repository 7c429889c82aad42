"""Draws the pictures of ``docs/guide.md`` of a page of pairs to label, after ten pairs of abt-buy were labelled.

    python scripts/review_pictures.py --data ../shared/data/retrieval

Labels are those that were published with the set; nothing is drawn of what they teach.
"""

import argparse
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from matching_rows import read  # noqa: E402

from vicinal.estimators import RowMatcher  # noqa: E402
from vicinal.serve import ReviewPage  # noqa: E402
from vicinal.workflows import Reviewer  # noqa: E402
from vicinal.workflows.match import MatchJob  # noqa: E402

LABELLED = 10


def main() -> None:
    """Match, label, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "retrieval")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    left, right, pairs = read(options.data, "abt_buy")
    same = set(pairs.loc[pairs["match"] == 1, ["left", "right"]].itertuples(index=False, name=None))
    with tempfile.TemporaryDirectory() as place, sync_playwright() as started:
        files = [Path(place) / f"{name}.csv" for name in ("abt", "buy")]
        for table, file in zip((left, right), files, strict=True):
            table.to_csv(file, index=False)
        job = MatchJob(*files, matcher=RowMatcher("id", "id", encoders={"text": "none"}))
        reviewer = Reviewer(job, Path(place) / "match", "vicinal match abt.csv buy.csv --review")
        page = ReviewPage(reviewer)
        reviewer.match()
        for number in range(LABELLED):
            pair = reviewer.pairs[number]
            reviewer.label(1, number, match=(pair.left, pair.right) in same)
        thread = threading.Thread(target=page.serve, daemon=True)
        thread.start()
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, height, scheme in ((1280, 720, "light"), (390, 844, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab = context.new_page()
            tab.goto(page.address)
            tab.wait_for_selector("#answers button")
            tab.screenshot(path=options.out / f"review-{width}-{scheme}.png")
        page.close()
        thread.join(5)


if __name__ == "__main__":
    main()
