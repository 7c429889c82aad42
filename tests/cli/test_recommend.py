"""Recommend: what it prints and writes, reading a folder, changes of it, and bad input."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clicks of two tastes, whose items are of two genres; item 60 has no clicks."""
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    rows = [
        (f"ann {user}", int(item))
        for user in range(50)
        for item in draw.choice(np.arange(user % 2, 59, 2), 7, replace=False)
    ]
    pd.DataFrame(rows, columns=["u", "i"]).to_csv(folder / "clicks.csv", index=False)
    genres = ["jazz" if item % 2 else "rock" for item in range(61)]
    pd.DataFrame({"i": range(61), "genre": genres, "x": 1}).to_csv(folder / "items.csv", index=False)
    command = ["recommend", str(folder / "clicks.csv"), "--user", "u", "--item", "i", "--rank", "4", "-k", "3"]
    assert run([*command, "--items", str(folder / "items.csv"), "-q", "--out", str(folder / "m")]) == 0
    return folder


def error(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    capsys.readouterr()
    assert run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err.removeprefix("error: ").strip()


def test_the_folder_has_recommendations_and_a_report(place: Path) -> None:
    table = pd.read_csv(place / "m" / "recommendations.csv")
    assert list(table.columns) == ["user", "rank", "item", "score", "by"]
    assert (table.groupby("user")["rank"].max() == 3).all()
    report = (place / "m" / "report.md").read_text()
    assert "350 pairs of 50 users and 59 items with clicks" in report
    assert "2 new items without clicks" in report
    assert "Known items: recall@20 " in report
    assert "Column x of items: left out: 1 in every row." in report


def test_rows_without_a_user_or_an_item_are_left_out_and_told(place, tmp_path, capsys):
    clicks = (place / "clicks.csv").read_text()
    (tmp_path / "clicks.csv").write_text(clicks + "ann 0,\n,7\n")
    out = tmp_path / "m"
    assert run(["recommend", str(tmp_path / "clicks.csv"), "--user", "u", "--item", "i", "--out", str(out)]) == 0
    assert "left out: 2 rows of clicks.csv without u or i" in capsys.readouterr().err
    assert "350 pairs of 50 users" in (out / "report.md").read_text()


def test_a_folder_is_read_changed_and_explained(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = str(place / "m")
    capsys.readouterr()
    assert run(["recommend", model, "--for", "ann 0", "--for", "nobody", "-k", "2"]) == 0
    text = capsys.readouterr().out
    assert "For ann 0" in text
    assert "popularity" in text.partition("For nobody")[2]
    assert text.count(" has no clicks, so the items that most users clicked:\nFor ") == 1
    assert "nobody has no clicks" in text
    assert run(["recommend", model, "--for", "ann 0", "--why", "60", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)
    assert reasons["by"] == "new item"
    for name in ("clicks", "neighbors"):
        assert sum(one["share"] for one in reasons[name]) == pytest.approx(reasons["score"], abs=1e-9)
    assert run(["recommend", model, "--for", "ann 0", "--why", "2", "--people"]) == 0
    assert "the others" in capsys.readouterr().out
    pd.DataFrame({"u": ["new", "new"], "i": [1, 3]}).to_csv(tmp_path / "more.csv", index=False)
    assert run(["add", model, str(tmp_path / "more.csv"), "-q"]) == 0
    assert capsys.readouterr().out == f"2 rows added; {model} has 352 clicks now\n"
    assert run(["recommend", model, "--for", "new", "-k", "1", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    assert (best["by"], best["item"] % 2) == ("clicks", 1)
    assert run(["forget", model, "--ids", "new"]) == 0
    assert capsys.readouterr().out == f"1 user forgotten; {model} has 350 clicks now\n"
    assert not (place / "m" / "recommendations.csv").exists()  # it may show the user
    assert run(["show", model]) == 0
    assert "a recommender of items to users" in capsys.readouterr().out


def test_bad_input_gives_a_sentence(place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    clicks, model = str(place / "clicks.csv"), str(place / "m")
    assert error(capsys, ["recommend", clicks, "-q"]).startswith("--user: expected one of the columns 'u', 'i'")
    same = error(capsys, ["recommend", clicks, "--user", "u", "--item", "u", "-q"])
    assert "expected another column than that of users" in same
    assert "expected at least one user to recommend to" in error(capsys, ["recommend", model])
    assert "got a table of clicks; fit first" in error(capsys, ["recommend", clicks, "--for", "ann 0"])
    assert "got a folder of something else" in error(capsys, ["recommend", str(tmp_path), "--for", "ann 0"])
    assert "id: expected that of an item of the model, got '99'" in error(
        capsys, ["recommend", model, "--for", "ann 0", "--why", "99"]
    )
    assert "give the table alone" in error(capsys, ["add", model, clicks, "--target", "u", "-q"])
    assert "that of a recommender" in error(capsys, ["predict", model, clicks, "-q"])
    assert "--among" in error(capsys, ["recommend", model, "--for", "ann 0", "--among", "old"])
    pd.DataFrame({"thing": [1]}).to_csv(tmp_path / "other.csv", index=False)
    assert "expected the columns 'u' and 'i' of clicks" in error(
        capsys, ["add", model, str(tmp_path / "other.csv"), "-q"]
    )
    names = ["recommend", clicks, "--user", "u", "--item", "i", "--items", str(tmp_path / "other.csv")]
    assert error(capsys, [*names, "-q"]).startswith(
        "--items: expected the column 'i' of the clicks, got a table of 'thing'"
    )
    assert run(names) == 2
    assert "learning" not in capsys.readouterr().err  # tables are looked at first
    pd.read_csv(clicks).assign(stars=5).to_csv(tmp_path / "stars.csv", index=False)
    assert run(["recommend", str(tmp_path / "stars.csv"), *names[2:]]) == 2
    assert "not read: 'stars'; --value names a column of how much a click counts" in capsys.readouterr().err
    (tmp_path / "empty.csv").write_text("u,i\n")
    assert "click" in error(capsys, ["recommend", str(tmp_path / "empty.csv"), "--user", "u", "--item", "i", "-q"])
