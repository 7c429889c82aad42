"""Promises of banks that are merged: equal to the bank that got all rows, and no row changes or comes back unseen."""

import shutil

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.model_folder import ModelFolder
from vicinal.workflows.bank import add_bank, forget_rows, relabel_table

BRIEF = {"max_epochs": 1, "hidden": (4,), "members": 1, "metric": "network", "readout": "attention"}


def rows(count, seed):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": draw.normal(size=count), "b": draw.choice(["x", "y"], count)})
    return frame, frame["a"].to_numpy() ** 2 + 0.1 * draw.normal(size=count)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "groups and weights"])
def saved(request, tmp_path_factory):
    folder, (frame, y) = tmp_path_factory.mktemp("merged"), rows(50, 0)
    also = {"groups": np.arange(50) // 2, "sample_weight": 1 + np.arange(50) % 3} if request.param else {}
    NeighborRegressor(**BRIEF).fit(frame, y, ids=[f"r{row}" for row in range(50)], **also).save(folder / "fit")
    return folder / "fit", request.param


@pytest.fixture
def three(saved, tmp_path):
    """A copy that was given four rows, one that was given five others, and one that was given all nine."""
    frame, y = rows(9, 1)
    for name, at in (("one", range(4)), ("other", range(4, 9)), ("whole", range(9))):
        shutil.copytree(saved[0], tmp_path / name)
        opened = ModelFolder(tmp_path / name)
        for row in at:
            also = {"groups": [100 + row], "sample_weight": [2.0 + row]} if saved[1] else {}
            opened.add(frame.iloc[[row]], y[[row]], ids=[f"n{row}"], **also)
    return tmp_path


@pytest.mark.sweep(9)
def test_a_merged_bank_is_bit_for_bit_the_one_that_got_all_rows(three):
    change = add_bank(three / "one", three / "other")
    assert (change.changed, change.rows) == (5, len(load_model(three / "whole").bank_))
    merged, whole = (load_model(three / name) for name in ("one", "whole"))
    for part in ("ids", "vectors", "labels", "groups", "weights", "folds"):
        one, other = (getattr(model.bank_, part) for model in (merged, whole))
        assert (one is None and other is None) or np.array_equal(np.asarray(one), np.asarray(other))
    pd.testing.assert_frame_equal(merged.bank_.rows, whole.bank_.rows)
    new = {"X": rows(20, 2)[0], "groups": None if merged.bank_.groups is None else np.arange(1000, 1020)}
    assert np.array_equal(merged.predict(**new), whole.predict(**new))
    said = []
    assert add_bank(three / "one", three / "other", log=said.append).changed == 0
    assert said == ["55 rows there already; 0 rows forgotten earlier, left out"]


@pytest.mark.sweep(9)
def test_what_was_forgotten_stays_away_and_labels_that_differ_are_named(three):
    forget_rows(three / "one", ["r3"])
    said = []
    assert add_bank(three / "one", three / "other", log=said.append).changed == 5
    assert "1 row forgotten earlier" in said[0]
    assert not load_model(three / "one").bank_.has(["r3"]).any()
    relabel_table(three / "other", pd.DataFrame({"id": ["r5"], "y": [7.0]}), target="y")
    before = (three / "whole" / "changes.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"^from: expected the label .* of row 'r5', as in .*, got 7\.0; relabel it"):
        add_bank(three / "whole", three / "other")
    assert (three / "whole" / "changes.jsonl").read_bytes() == before


@pytest.mark.sweep(9)
def test_a_model_of_another_fit_and_two_sources_are_refused(three, capsys):
    frame, y = rows(50, 3)
    NeighborRegressor(**BRIEF).fit(frame, y).save(three / "strange")
    NeighborClassifier(**BRIEF).fit(frame, y > 0.5).save(three / "classes")
    for name in ("strange", "classes"):
        assert run(["add", str(three / "one"), "--from", str(three / name)]) == 2
        assert "got a model of another fit" in capsys.readouterr().err.replace("\n", " ")
    frame.to_csv(three / "t.csv", index=False)
    for words, sentence in (
        ([], "got neither"),
        ([str(three / "t.csv"), "--from", str(three / "other")], "got both"),
        (["--from", str(three / "other"), "--target", "y"], "expected no columns"),
    ):
        assert run(["add", str(three / "one"), *words]) == 2
        assert sentence in capsys.readouterr().err.replace("\n", " ")
    assert run(["add", str(three / "one"), "--from", str(three / "other"), "-q"]) == 0
    assert capsys.readouterr().out.startswith("5 rows added; ")
