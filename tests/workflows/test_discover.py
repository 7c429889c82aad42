"""Rows of no known class: how many known ones may be taken for new, groups, names, and that the model learns them."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.clustering import discover_groups
from vicinal.estimators import EmbeddingLearner, ModelFolder, NeighborClassifier, NeighborRegressor, load_model
from vicinal.workflows import add_table, discover_table
from vicinal.workflows.discover import p_values, typical_words

WORDS = ["oak", "ash", "fir", "elm", "yew", "box", "sea", "bay"]
BRIEF = {"max_epochs": 6, "members": 2, "hidden": (32, 16), "learning_rate": 6e-3}


@pytest.fixture(autouse=True)
def _hidden_once(monkeypatch):
    grouped = discover_groups
    monkeypatch.setattr("vicinal.workflows.discover.discover_groups", lambda *a, **b: grouped(*a, **b, repeats=1))


def trees(rows, classes, seed=0):
    """Six numbers for each row, and the name of its class."""
    random = np.random.default_rng(seed)
    centers = 4 * np.random.default_rng(7).normal(size=(8, 6))
    codes = random.choice(classes, rows)
    numbers = centers[codes] + 0.4 * random.normal(size=(rows, 6))
    return pd.DataFrame(numbers, columns=list("abcdef")), np.array(WORDS)[codes]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Classifiers that held rows out, or whose members are folds, and a learner, of the first six classes."""
    place = tmp_path_factory.mktemp("trees")
    frame, words = trees(300, 6)
    ids = [f"t{row}" for row in range(300)]
    fitted = {
        "held": NeighborClassifier(**BRIEF),
        "folds": NeighborClassifier(validation_fraction=0, **BRIEF),
        "alike": EmbeddingLearner(max_epochs=4, validation_fraction=0.4),
    }
    for name, model in fitted.items():
        model.fit(frame, words, ids=ids)
        model.notes_ = {"target": "tree", "id": "tag"}
        model.save(place / name)
    return place


@pytest.fixture
def place(models, tmp_path):
    for name in ("held", "folds", "alike"):
        shutil.copytree(models / name, tmp_path / name)
    frame, words = trees(200, 8, seed=1)
    frame.insert(0, "tag", [f"n{row}" for row in range(200)])
    frame.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path, frame, words


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", ["held", "folds", "alike"])
def test_new_classes_are_found_named_and_then_predicted(place, name):
    folder, frame, words = place
    discover_table(folder / name, folder / "new.csv", folder / "groups.csv", error=0.1)
    table = pd.read_csv(folder / "groups.csv", dtype={"label": str})
    assert list(table.columns) == ["id", "group", "typicality", "label"]
    assert table["label"].isna().all()
    new = pd.Series(np.isin(words, WORDS[6:]), frame["tag"])
    said = new.index.isin(table["id"])
    assert said[~new].mean() < 0.2
    assert said[new].mean() > 0.9
    truth = dict(zip(frame["tag"], words, strict=True))
    names = table["id"].map(truth)
    assert names.groupby(table["group"]).agg(lambda some: some.mode().iloc[0]).isin(WORDS).all()
    assert "Group" in (folder / "groups.html").read_text()
    first = ~table["group"].duplicated()
    table.loc[first, "label"] = names[first]  # a name for each group, in its most typical row
    table.to_csv(folder / "groups.csv", index=False)
    assert add_table(folder / name, folder / "new.csv", names=folder / "groups.csv").changed == len(table)
    model, (later, truth_later) = load_model(folder / name), trees(60, [6, 7], seed=2)
    nearest = [hits[0].label for hits in model.search(later, 1)]
    assert np.mean(np.array(nearest) == truth_later) > 0.9
    if name != "alike":
        assert model.classes_.tolist()[:6] == sorted(WORDS[:6])
        assert np.mean(model.predict(later) == truth_later) > 0.9
        assert set(model.predict_proba(later)[0]) <= set(model.predict_proba(later).ravel())


def test_of_rows_of_known_classes_few_are_said_to_be_new(models):
    frame, _ = trees(2000, 6, seed=3)
    for name in ("held", "folds"):
        model = load_model(models / name)
        chances, calibrating = p_values(model, model.embedded_rows(frame)[1].double(), {"ids": None, "groups": None})
        assert calibrating == {"held": len(model.calibration_), "folds": 300}[name]
        for error in (0.05, 0.1, 0.3):
            spread = 3 * np.sqrt(error * (1 - error) / calibrating)
            assert abs((chances <= error).mean() - error) < spread


def test_strangeness_is_the_mean_distance_to_five_neighbors(models):
    frame, _ = trees(20, 8, seed=4)
    model = load_model(models / "held")
    known = model.calibration_
    strange = model.kneighbors(frame, 5)[0].mean(1)
    of_bank = dict(zip(model.bank_.ids.tolist(), model.kneighbors(n_neighbors=5)[0].mean(1), strict=True))
    usual = np.array([of_bank[name] for name in known.ids.tolist()])
    expected = (1 + (usual[None] >= strange[:, None]).sum(1)) / (len(usual) + 1)
    chances, _ = p_values(model, model.embedded_rows(frame)[1].double(), {"ids": None, "groups": None})
    np.testing.assert_allclose(chances, expected)


def test_classes_are_new_only_where_that_is_said(place):
    folder, frame, words = place
    features = frame[words == "sea"].drop(columns="tag")
    names = [f"x{row}" for row in range(len(features))]
    opened = ModelFolder(folder / "held")
    with pytest.raises(ValueError, match="expected a class that the model was fitted with, got 'sea'"):
        opened.add(features[:2], ["sea", "oak"], ids=["x", "y"])
    with pytest.raises(ValueError, match="y: expected classes of type str"):
        opened.add(features[:2], [1, 2], ids=["x", "y"], new_classes=True)
    with pytest.raises(ValueError, match="ids: expected"):
        opened.add(features[:1], ["sea"], ids=["t1"], new_classes=True)
    assert opened.model.classes_.tolist() == sorted(WORDS[:6])  # as it was
    opened.add(features, ["oak", *["sea"] * (len(features) - 1)], ids=names, new_classes=True)
    for model in (opened.model, load_model(folder / "held")):
        assert model.classes_.tolist() == [*sorted(WORDS[:6]), "sea"]
        assert model.labels_of(names[:2]) == ["oak", "sea"]
    opened.compact()
    assert load_model(folder / "held").predict(features[-1:]).tolist() == ["sea"]
    number = NeighborRegressor(metric="kernel").fit(np.arange(30.0)[:, None], np.arange(30.0))
    with pytest.raises(ValueError, match="new_classes: expected a model of classes"):
        number.add([[3.0]], [3.0], new_classes=True)
    number.save(folder / "number")
    with pytest.raises(ValueError, match="model: expected one of one class a row"):
        discover_table(folder / "number", pd.DataFrame({"x0": [1.0]}))


@pytest.mark.slow
def test_names_are_not_lost_and_rows_without_one_are_left_out(place):
    folder, frame, _ = place
    table = discover_table(folder / "held", folder / "new.csv", folder / "groups.csv", groups=2).table
    assert set(table["group"]) == {1, 2}
    with pytest.raises(ValueError, match="names: expected a name in the column label of at least one row"):
        add_table(folder / "held", folder / "new.csv", names=folder / "groups.csv")
    one, two = (table[table["group"] == group]["id"].tolist() for group in (1, 2))
    labels = {one[0]: "sea", one[1]: "bay", two[2]: "fen"}  # the first group has two names, so it has none
    table.assign(label=table["id"].map(labels)).to_csv(folder / "groups.csv", index=False)
    with pytest.raises(ValueError, match="in which somebody wrote"):
        discover_table(folder / "held", folder / "new.csv", folder / "groups.csv")
    assert add_table(folder / "held", folder / "new.csv", names=folder / "groups.csv").changed == 2 + len(two)
    model = load_model(folder / "held")
    assert model.labels_of([one[0], one[1], *two]) == ["sea", "bay", *["fen"] * len(two)]
    again = discover_table(folder / "held", folder / "new.csv")  # rows of the bank are passed over
    assert again.record.rows == len(frame) - 2 - len(two)
    with pytest.raises(ValueError, match="error: expected at least"):
        discover_table(folder / "held", folder / "new.csv", error=0.001)


def test_the_command_says_what_to_do_next(place, capsys, monkeypatch):
    folder, _, _ = place
    monkeypatch.chdir(folder)
    assert run(["discover", "held", "new.csv", "-q"]) == 0
    said = capsys.readouterr().out
    assert "rows fit no known class" in said
    assert "vicinal add held new.csv --names new-groups.csv" in said
    assert run(["discover", "held", "new.csv", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["new"] == sum(group["rows"] for group in told["groups"])
    assert run(["discover", "held", "new.csv", "--error", "2"]) == 2
    assert "--error: expected a number between 0 and 1" in capsys.readouterr().err
    known, _ = trees(40, 6, seed=9)
    known.assign(tag=range(40)).to_csv("known.csv", index=False)
    assert run(["discover", "held", "known.csv", "-q", "--error", "0.03"]) == 0


def test_words_are_those_that_more_texts_of_the_group_have():
    assert typical_words(pd.Series(["a bay", "the bay", "the oak", None]), np.array([0, 1])) == ["bay"]


@pytest.mark.slow
def test_hidden_classes_are_of_rows_whose_labels_no_encoder_has_learned(tmp_path):
    """Vectors of n-grams that are learned by heart tell training rows of any class apart, though texts are noise."""
    random = np.random.default_rng(0)
    words = np.array(["".join(random.choice(list("abcdefgh"), 6)) for _ in range(400)])
    texts = pd.DataFrame({"text": [" ".join(random.choice(words, 12)) for _ in range(400)]})
    names = np.array(WORDS[:5])[random.integers(5, size=400)]
    settings = {"encoders": {"text": "ngrams"}, "columns": {"text": "text"}, "metric": "network", "random_state": 0}
    strange = texts.iloc[:80].assign(text=texts["text"].str[::-1])
    for share, words_of_note in ((0.25, "that were held out"), (0.05, "found too well")):
        model = NeighborClassifier(max_epochs=30, patience=30, validation_fraction=share, **settings).fit(texts, names)
        model.notes_ = {"target": "tree"}
        model.save(tmp_path / f"{share}")
        record = discover_table(tmp_path / f"{share}", strange, error=0.5).record
        assert words_of_note in record.notes[0]
        if share == 0.25:
            assert record.score < 0.8


@pytest.mark.sweep(9)
@pytest.mark.parametrize("metric", ["kernel", "network"])
def test_a_metric_that_keeps_no_classes_apart_is_told(metric, tmp_path):
    frame, words = trees(150, 5)
    model = NeighborClassifier(metric=metric, max_epochs=2, validation_fraction=0.3).fit(frame, words)
    model.notes_ = {"target": "tree"}
    model.save(tmp_path / "model")
    lines = []
    record = discover_table(tmp_path / "model", trees(60, 6, seed=1)[0], error=0.1, log=lines.append).record
    for said in (lines, record.notes):
        assert any("--metric network" in line for line in said) == (metric == "kernel")
