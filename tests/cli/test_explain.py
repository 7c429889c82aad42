"""What `explain` and `predict --explain` print where labels are learned as logarithms, and of unnamed rows."""

import re

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import NeighborRegressor


@pytest.fixture(scope="module", params=["comparables", "rows"])
def prices(request, tmp_path_factory):
    """Models whose labels are learned as logarithms, with a trend by columns and without."""
    folder = tmp_path_factory.mktemp("prices") / request.param
    x = np.random.default_rng(0).normal(size=(80, 3))
    frame = pd.DataFrame(x, columns=["area", "age", "floor"])
    y = 1e5 * np.exp(x[:, 0] - 0.4 * x[:, 1])
    model = NeighborRegressor(metric="kernel", readout=request.param, target_transform="log").fit(frame, y)
    model.save(folder)
    frame.head(3).to_csv(folder.with_suffix(".csv"), index=False)
    return folder, model


def said(capsys, *arguments):
    assert run([*map(str, arguments), "-q"]) == 0
    return capsys.readouterr().out


def change(text):
    """A factor of what is printed as a change."""
    number = float(text.split()[0].replace(",", ""))
    return number if text.endswith("times") else 1 + number / 100


def test_percentages_of_rows_and_start_multiply_to_the_prediction(prices, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    folder, model = prices
    shown = said(capsys, "explain", folder, "--id", "3", "-k", "200").splitlines()
    assert "Rows move the start by percentages that multiply." in shown
    predicted = float(re.search(r"^3: ([\d,.]+)", "\n".join(shown), re.M)[1].replace(",", ""))
    heading = next(line for line in shown if "moves it" in line)
    start, end = heading.index("moves it"), heading.find("adjusted by")
    moves = [line[start : end if end > 0 else None][:12].strip() for line in shown[shown.index(heading) + 2 :]]
    [first] = [line for line in shown if re.match(r"\s+(trend|all rows) ", line)]
    total = float(re.search(r"[\d,.]{4,}", first)[0].replace(",", ""))
    changes = [change(one) for one in moves if re.match(r"[-+\d]", one)]
    assert moves.count("start") == 1
    assert total * np.prod(changes) == pytest.approx(predicted, rel=0.02)
    assert first.split()[0] == ("trend" if model.readout == "comparables" else "all")


def test_the_columns_of_csv_change_labels_by_percentages(prices, capsys):
    folder, model = prices
    table = said(capsys, "predict", folder, folder.with_suffix(".csv"), "--explain", "1", "--include-own")
    assert ("%" in table) == (model.readout == "comparables")


def test_of_rows_without_ids_the_error_says_how_they_are_named(prices, capsys):
    folder, _ = prices
    assert run(["explain", str(folder), "--id", "H0003", "-q"]) == 2
    assert "got 'H0003' (without --id in the fit, rows are named by their numbers, from 1)" in capsys.readouterr().err
