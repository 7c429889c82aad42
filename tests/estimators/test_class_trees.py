"""Classes by trees, a linear model and comparables: sums, probabilities, changes of rows and classes, folders."""

import re

import numpy as np
import pandas as pd
import pytest

from vicinal.estimators import NeighborClassifier, load_model
from vicinal.estimators.tree_metric import may_be_class_trees


def rows(count=150, seed=0, classes=3):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=count), "age": rng.uniform(0, 9, count)})
    frame["city"] = rng.choice(["a", "b", "c"], count)
    score = frame["size"] + (frame["age"] > 4) + 0.3 * rng.normal(size=count)
    frame.loc[5::20, "age"] = np.nan
    cuts = [0.5] if classes == 2 else [0.0, 1.0]
    return frame, np.array(["low", "mid", "top"])[np.digitize(score, cuts)]


NEW, NEW_Y = rows(30, seed=1)


@pytest.fixture(scope="module", params=[2, 3])
def model(request):
    return NeighborClassifier(metric="trees", readout="comparables").fit(*rows(classes=request.param))


def test_parts_sum_to_the_score_behind_the_probability(model):
    chances = model.predict_proba(NEW)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-12)
    transform = model.target_transform_
    for place, one in enumerate(model.explain(NEW, 40)):
        total = sum(n.contribution for n in one.neighbors) + one.other_contribution + one.trend.contribution
        assert total == pytest.approx(one.total, abs=1e-9)
        assert sum(n.weight for n in one.neighbors) + one.other_weight + one.trend.weight == pytest.approx(1, abs=1e-9)
        for n in one.neighbors:
            label = float(n.label == one.prediction)
            assert n.adjusted == pytest.approx(label + sum(n.adjustments.values()), abs=1e-9)
            assert n.contribution == pytest.approx(n.weight * n.adjusted, abs=1e-9)
        best = chances[place].argmax()
        assert (one.prediction, one.probability) == (model.classes_[best], pytest.approx(chances[place, best]))
        assert one.trend.value == pytest.approx(one.trend.base + sum(one.trend.columns.values()), abs=1e-9)
    assert transform.name == "power"
    scores = model.fitted_.predict_embedded(model.query_rows(NEW).vectors, {}).numpy()
    odds = transform.slope * np.log(np.maximum(scores, 0) + transform.floor) + np.array(transform.biases)
    want = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    doubt = 0.01 / len(model.bank_)
    np.testing.assert_allclose(chances, (1 - doubt) * want + doubt / len(model.classes_), atol=1e-9)
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-9)


def test_an_explanation_reads_as_a_sentence(model):
    one = model.explain(NEW[:1], 2)[0]
    words = one.sentence("customer")
    assert words.startswith(f"{one.prediction} from ")
    assert re.search(r"row \d+ had (low|mid|top), (plus|minus) 0?\.?\d", words)
    assert " -> " in str(one)


def test_new_classes_come_and_go_with_their_rows(model, tmp_path):
    model.save(tmp_path / "m")
    one, before = load_model(tmp_path / "m"), model.predict_proba(NEW)
    far = pd.DataFrame({"size": [9.0] * 40, "age": [8.5] * 40, "city": ["b"] * 40})
    names = [900 + place for place in range(40)]
    one.add(far, ["new"] * 40, ids=names, new_classes=True)
    chances = one.predict_proba(pd.concat([far[:1], NEW]))
    assert one.classes_.tolist()[-1] == "new"
    assert chances[0, -1] > 0.2 > 2 * chances[1:, -1].mean()  # rows of other classes are as near
    scores = one.fitted_.predict_embedded(one.query_rows(NEW).vectors, {})
    np.testing.assert_allclose(scores.sum(dim=1), 1, atol=1e-9)  # the trend has no part in the new class
    one.forget(names)
    np.testing.assert_allclose(one.predict_proba(NEW)[:, : before.shape[1]], before, atol=1e-9)
    one.save(tmp_path / "again")
    np.testing.assert_array_equal(load_model(tmp_path / "again").predict_proba(NEW), one.predict_proba(NEW))


def test_rows_of_a_class_can_be_forgotten(model, tmp_path):
    model.save(tmp_path / "m")
    one = load_model(tmp_path / "m")
    last = one.bank_.labels.numpy() == len(one.classes_) - 1
    one.forget(one.bank_.ids[last].tolist())
    chances = one.predict_proba(NEW)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-12)
    assert np.isfinite(chances).all()


@pytest.mark.slow
def test_the_default_takes_trees_where_they_are_surely_better():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(500, 4))
    boxes = ((x[:, 0] > 0.3) & (x[:, 1] < 0.6) | (x[:, 2] > 0.8)).astype(int)
    assert NeighborClassifier().fit(x, boxes).metric_ == "trees"
    assert NeighborClassifier().fit(x[:60], boxes[:60]).metric_ != "trees"


def test_groups_and_weights_count():
    frame, y = rows(240)
    groups = np.arange(240) // 3
    model = NeighborClassifier(metric="trees").fit(frame, y, groups=groups, sample_weight=np.linspace(1, 3, 240))
    folds = model.bank_.folds.numpy()
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups.tolist()))
    assert (model.predict(NEW, groups=[f"n{place}" for place in range(30)]) == NEW_Y).mean() > 0.6


def test_which_tables_trees_of_classes_are_tried_on():
    two = np.array(["a", "b"] * 30)
    assert may_be_class_trees(two, 3)
    assert not may_be_class_trees(two[:30], 3)  # few rows
    assert not may_be_class_trees(np.where(np.arange(60) < 4, "b", "a"), 3)  # a class with too few
    many = np.arange(70_000) % 40
    assert may_be_class_trees(many[:60_000], 3)
    assert not may_be_class_trees(many, 3)  # too many classes for so many rows
    assert not may_be_class_trees(many[:60_000], 40)  # and for so many columns
    assert not may_be_class_trees(two, 3, np.where(two == "b", 0, np.arange(60) // 2 + 1))  # a class in one group
    assert may_be_class_trees(two, 3, np.arange(60) // 4)


@pytest.mark.parametrize(
    ("settings", "y", "words"),
    [
        ({"metric": "trees"}, [["a"], ["b", "a"]] * 30, "metric: expected 'network' for several classes a row, got"),
        ({"metric": "trees"}, ["b"] + ["a"] * 59, "y: expected two classes in the rows outside each fold"),
        ({"metric": "kernel", "readout": "comparables"}, ["a", "b"] * 30, "readout: expected 'attention' or 'rows'"),
    ],
)
def test_what_goes_with_no_trees_of_classes_is_refused(settings, y, words):
    frame, _ = rows(60)
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        NeighborClassifier(**settings).fit(frame, y, validation=[2])
