"""No row learns or predicts from its own label: labels without meaning must stay unpredictable."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from vicinal.cli import run
from vicinal.estimators import NeighborRegressor

UNTRAINED = {"max_epochs": 1, "learning_rate": 1e-12, "hidden": (32, 8), "members": 2}


def words(rows, seed):
    """Texts and numbers with shuffled labels."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnop"))
    texts = ["".join(rng.choice(letters, 8)) for _ in range(rows)]
    frame = pd.DataFrame({"word": texts, "size": rng.normal(size=rows)})
    return frame, rng.permutation(np.linspace(-1, 1, rows))


def by_chance(rows):
    """R² that predictions which know nothing exceed once in a thousand draws of so many rows.

    However well they are scaled, R² is at most the square of their correlation with the labels, of variance 1 / rows.
    """
    return 10 / rows


FEW = [("l2", None), ("squared_l2", "s1"), ("cosine", "s2"), ("squared_l2", "topk"), ("squared_l2", "rows")]
PAIRS = itertools.product(["l2", "cosine", "squared_l2"], [None, "s1", "s2", "topk", "rows"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("similarity", "mask"),
    [pytest.param(*pair, marks=[] if pair in FEW else pytest.mark.slow) for pair in PAIRS],
)
def test_random_encoder_with_shuffled_labels_knows_nothing(similarity, mask):
    frame, labels = words(250, 0)
    readout = "rows" if mask == "rows" else "attention"
    mask = "s2" if mask == "rows" else mask
    settings = {"columns": {"word": "text"}, "readout": readout, "mask": mask, "similarity": similarity, **UNTRAINED}
    model = NeighborRegressor(**settings).fit(frame.iloc[:200], labels[:200])
    ids = model.bank_.ids
    on_training = model.predict(frame.iloc[ids], ids=ids)
    assert r2_score(labels[ids], on_training) <= by_chance(200)
    assert r2_score(labels[200:], model.predict(frame.iloc[200:])) <= by_chance(50)


def test_a_leak_would_show():
    """The same figure without ids is far above the bar, so the test above can fail."""
    frame, labels = words(200, 0)
    nearest = {"readout": "attention", "mask": "topk", "n_neighbors": 1, "similarity": "squared_l2"}
    settings = {"columns": {"word": "text"}, **nearest, **UNTRAINED}
    model = NeighborRegressor(**settings).fit(frame, labels)
    assert r2_score(labels[model.bank_.ids], model.predict(frame.iloc[model.bank_.ids])) > 0.95


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_training_on_shuffled_labels_teaches_nothing(seed):
    frame, labels = words(320, seed)
    model = NeighborRegressor(columns={"word": "text"}, max_epochs=8, hidden=(32, 8), patience=8, members=2)
    model.fit(frame.iloc[:200], labels[:200])
    assert r2_score(labels[200:], model.predict(frame.iloc[200:])) <= by_chance(120)


def doubled(folder, seed):
    """Every row stands twice, under two ids, with labels that mean nothing."""
    frame, labels = words(90, seed)
    frame = frame.assign(label=labels, pair=[f"p{i}" for i in range(len(frame))])
    twice = pd.concat([frame, frame], ignore_index=True).sample(frac=1, random_state=0, ignore_index=True)
    twice["name"] = [f"r{i}" for i in range(len(twice))]
    path = folder / f"doubled{seed}.csv"
    twice.to_csv(path, index=False)
    return path


def fit_doubled(path, capsys, *more):
    import json

    options = ["--target", "label", "--text", "word", "--id", "name", "--mask", "topk", "--similarity", "squared_l2"]
    options += ["--max-epochs", "8", "--members", "2", "--hidden", "32,8", "--json", "-q"]
    options += ["--out", str(path.with_suffix(""))]
    assert run(["fit", str(path), *options, *more]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_doubled_rows_do_not_leak_with_groups(tmp_path, capsys):
    each = [fit_doubled(doubled(tmp_path, seed), capsys, "--group", "pair")["scores"] for seed in (3, 4, 5)]
    for name in ("model", "k-NN (learned embeddings)"):
        assert np.mean([found[name]["r2"] for found in each]) <= by_chance(3 * 18)  # 36 rows tested are 18 twice


def test_doubled_rows_are_reported_without_groups(tmp_path, capsys):
    found = fit_doubled(doubled(tmp_path, 3), capsys, "--drop", "pair")
    assert found["scores"]["model"]["r2"] > by_chance(3 * 18), "the copies leak, so the report must say so"
    assert "group" in found["duplicates"]
    assert any(word in found["duplicates"] for word in ("copy", "copies", "identical", "same"))
