"""Promises of the estimators: scikit-learn's manner, explanations that sum up, a bank that grows and forgets."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from references.tables import QUICK, table
from vicinal.core import CellWarning, ColumnWarning
from vicinal.data import LeakWarning
from vicinal.estimators import NeighborClassifier, NeighborRegressor, explanation_table, load_model

pytestmark = pytest.mark.sweep(12)

BRIEF = {**QUICK, "max_epochs": 4}
CHECKED = {"max_epochs": 25, "learning_rate": 2e-2, "hidden": (16, 4), "batch_size": 64, "members": 2}


def assert_same(found, wanted):
    """Equal but for the order in which a sum is taken: that of the rows in the bank."""
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


RANDOM = "rows are held out at random, of a table with copies others than of one with weights"
UNLIKE = {
    "check_sample_weight_equivalence_on_dense_data": RANDOM,
    "check_sample_weight_equivalence_on_sparse_data": RANDOM,
}


@pytest.mark.filterwarnings("ignore:sample_weight. expected weights above 0")
@parametrize_with_checks(
    [NeighborRegressor(**CHECKED), NeighborClassifier(**CHECKED)], expected_failed_checks=lambda estimator: UNLIKE
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_learns_from_columns_of_several_kinds(regressor, data):
    fresh, price = table(seed=1)
    assert regressor.score(fresh, price) > 0.8
    assert regressor.kinds_ == {"size": "number", "town": "category", "note": "text"}


def test_classifier_gives_probabilities(classifier):
    fresh, _ = table(seed=1)
    chances = classifier.predict_proba(fresh)
    assert chances.shape == (len(fresh), 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-12)
    assert classifier.score(fresh, fresh["note"].str.split().str[1]) > 0.95


@pytest.mark.parametrize("k", [1, 3, 10_000])
def test_explanations_sum_to_the_prediction(regressor, k):
    fresh, _ = table(20, seed=2)
    explained = regressor.explain(fresh, k)
    for found, prediction in zip(explained, regressor.predict(fresh), strict=True):
        weights = [n.weight for n in found.neighbors]
        assert sum(weights) + found.other_weight == pytest.approx(1, abs=1e-9)
        assert weights == sorted(weights, reverse=True)
        contributions = [n.contribution for n in found.neighbors]
        assert sum(contributions) + found.other_contribution == pytest.approx(prediction, abs=1e-9)
        assert found.prediction == pytest.approx(prediction, abs=1e-9)
        for n in found.neighbors:
            assert n.contribution == pytest.approx(n.weight * n.label)
        listed = sum(weight > 0 for weight in weights)
        assert listed + found.other_count <= len(regressor.bank_)
        assert (found.other_count == 0) == (abs(found.other_weight) < 1e-9)
    lines = explanation_table(explained)
    assert lines.groupby("query")["weight"].sum().to_numpy() == pytest.approx(1)


def test_class_explanations_sum_to_the_probability(classifier):
    fresh, _ = table(10, seed=2)
    chances = classifier.predict_proba(fresh).max(axis=1)
    for found, chance, name in zip(classifier.explain(fresh, 4), chances, classifier.predict(fresh), strict=True):
        assert found.total == pytest.approx(chance, abs=1e-9)
        assert found.prediction == name
        assert sum(n.contribution for n in found.neighbors) + found.other_contribution == pytest.approx(chance)


def test_explained_rows_are_the_rows_that_were_given(regressor, data):
    frame, price = data
    found = regressor.explain(frame.iloc[:3], 2)
    for neighbor in (n for one in found for n in one.neighbors):
        position = int(neighbor.id[1:])
        assert neighbor.label == pytest.approx(price[position])
        assert neighbor.row["note"] == frame["note"].iloc[position]


def test_a_row_with_its_id_never_sees_itself(regressor, data):
    frame, _ = data
    ids = regressor.bank_.ids
    rows = frame.iloc[[int(i[1:]) for i in ids[:10]]]
    with_ids = regressor.explain(rows, 10_000, ids=ids[:10])
    for found, own in zip(with_ids, ids[:10], strict=True):
        assert {n.id: n.weight for n in found.neighbors}.get(own, 0) == 0
    without = regressor.explain(rows, 10_000)
    assert max(n.weight for n in without[0].neighbors if n.id == ids[0]) > 0


def test_forgetting_equals_never_having_had(regressor, data):
    frame, _ = data
    gone = regressor.bank_.ids[:7].tolist() + regressor.calibration_.ids[:2].tolist()
    model = clone_fitted(regressor).forget(gone)
    kept = np.array([i for i, own in enumerate(regressor.bank_.ids) if own not in gone])
    never = clone_fitted(regressor)
    never.bank_ = regressor.bank_.take(kept)
    held = np.array([i for i, own in enumerate(regressor.calibration_.ids) if own not in gone])
    never.calibration_ = regressor.calibration_.take(held)
    assert_same(model.predict(frame), never.predict(frame))
    assert_same(model.predict_interval(frame, 0.7), never.predict_interval(frame, 0.7))
    assert not np.allclose(model.predict(frame), regressor.predict(frame))
    assert not set(gone) & {n.id for found in model.explain(frame, 10_000) for n in found.neighbors}


def test_adding_then_forgetting_changes_nothing(regressor, data):
    frame, price = data
    before = regressor.predict(frame)
    model = clone_fitted(regressor).add(frame.iloc[:5], price[:5] + 50, ids=[f"new{i}" for i in range(5)])
    assert len(model.bank_) == len(regressor.bank_) + 5
    assert not np.array_equal(model.predict(frame), before)
    model.forget([f"new{i}" for i in range(5)])
    np.testing.assert_array_equal(model.predict(frame), before)


def test_added_rows_are_used_at_once(regressor, data):
    frame, _ = data
    model = clone_fitted(regressor).add(frame.iloc[:1], [1000.0], ids=["odd"])
    assert "odd" in {n.id for n in model.explain(frame.iloc[:1], 3)[0].neighbors}


def test_kneighbors_agrees_with_a_plain_search(regressor, data):
    frame, _ = data
    distances, ids = regressor.kneighbors(frame.iloc[:6], 4)
    queries, bank = regressor.embed(frame.iloc[:6]), regressor.bank_.vectors.double().numpy()
    plain = np.linalg.norm(queries[:, None] - bank, axis=-1)
    np.testing.assert_allclose(distances, np.sort(plain, axis=1)[:, :4], atol=1e-9)
    np.testing.assert_array_equal(ids[:, 0], regressor.bank_.ids[plain.argmin(axis=1)])
    _, own_ids = regressor.kneighbors(n_neighbors=2)
    assert (own_ids != regressor.bank_.ids[:, None]).all()


@pytest.mark.slow
def test_intervals_cover_new_rows():
    frame, price = table(600, seed=3)
    model = NeighborRegressor(columns={"note": "text"}, validation_fraction=0.4, **BRIEF).fit(frame, price)
    fresh, truth = table(800, seed=4)
    for coverage in (0.5, 0.9):
        bounds = model.predict_interval(fresh, coverage)
        covered = ((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).mean()
        assert coverage - 0.06 < covered < coverage + 0.1  # rows of the fit have one fold of trees each, new ones all
        assert (bounds[:, 0] <= bounds[:, 1]).all()


@pytest.mark.slow
def test_intervals_of_labels_that_repeat_do_not_tie():
    frame, price = table(400, seed=3)
    whole = np.round(price - price.min()) // max(np.ptp(price) / 6, 1e-9)
    held = np.arange(0, 400, 4)
    model = NeighborRegressor(columns={"note": "text"}, readout="attention", **BRIEF)
    model.fit(frame, whole, validation=held)
    low, high = model.predict_interval(frame.iloc[held], 0.9).T
    covered = ((low - 1e-9 <= whole[held]) & (whole[held] <= high + 1e-9)).sum()
    assert 91 <= covered <= 93  # ceil(0.9 * 101) = 91 of those calibrated on; ends that are labels covered nearly all


def test_dense_head_is_a_drop_in(data):
    frame, price = data
    model = NeighborRegressor(head="dense", columns={"note": "text"}, **QUICK).fit(frame, price)
    fresh, truth = table(seed=5)
    assert model.score(fresh, truth) > 0.5
    assert model.predict_interval(fresh, 0.8).shape == (len(fresh), 2)
    with pytest.raises(ValueError, match="explain: expected head='nona'"):
        model.explain(fresh)


def test_same_seed_same_model(data):
    frame, price = data
    first, second, other = (
        NeighborRegressor(columns={"note": "text"}, random_state=seed, **{**BRIEF, "max_epochs": 1})
        .fit(frame, price)
        .predict(frame)
        for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_fitting_leaves_the_global_random_state_alone(data):
    import torch

    frame, price = data
    torch.manual_seed(1)
    want = torch.rand(3)
    torch.manual_seed(1)
    NeighborRegressor(columns={"note": "text"}, **BRIEF).fit(frame, price)
    assert torch.equal(torch.rand(3), want)


@pytest.mark.parametrize("similarity", ["l1", "cosine", "dot", "scaled_dot", "squared_l2"])
@pytest.mark.parametrize(("mask", "simplex"), [("s1", "softmax"), ("topk", "sparsemax"), (None, "entmax15")])
def test_every_head_setting_fits(data, similarity, mask, simplex):
    frame, price = data
    settings = {**QUICK, "max_epochs": 2}
    model = NeighborRegressor(similarity=similarity, mask=mask, simplex=simplex, **settings).fit(frame[["size"]], price)
    assert np.isfinite(model.predict(frame[["size"]])).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"head": "nonna"}, "head: expected one of 'nona', 'dense', got 'nonna'; did you mean 'nona'?"),
        ({"similarity": "l3"}, "similarity: expected one of"),
        ({"mask": "s3"}, "mask: expected one of 's1', 's2', 's1-ranks', 's2-ranks', 's2-reject', 'topk', got 's3'"),
        ({"hidden": ()}, "hidden: expected the sizes of at least one layer"),
        ({"batch_size": 1}, "batch_size: expected a whole number of at least 2, got 1"),
        ({"validation_fraction": 1.0}, "validation_fraction: expected a number between 0 and 1"),
        ({"columns": {"sise": "number"}}, "did you mean 'size'?"),
        ({"columns": {"note": "text"}, "encoders": {"text": "ngram"}}, "did you mean 'ngrams'?"),
    ],
)
def test_wrong_settings_get_one_sentence(data, change, sentence):
    frame, price = data
    with pytest.raises(ValueError, match=r"expected") as caught:
        NeighborRegressor(**{**QUICK, **change}).fit(frame, price)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("x", "y", "more", "sentence"),
    [
        (lambda f: f.iloc[:9], lambda y: y[:9], {}, "X: expected at least 10 rows to train on, got n_samples=9"),
        (lambda f: f, lambda y: y * 0 + 3, {}, "y: expected labels that differ, got 3 in every training row"),
        (lambda f: f, lambda y: np.where(np.arange(len(y)) == 4, np.nan, y), {}, "in row 4"),
        (lambda f: f, lambda y: y[:-1], {}, "y: expected 120 labels"),
        (lambda f: f, lambda y: y, {"ids": [0, *range(119)]}, "ids: expected each id once, got 0 2 times"),
        (lambda f: f, lambda y: y, {"ids": [1, 2]}, "ids: expected 120, one a row, got 2"),
        (lambda f: f, lambda y: y, {"groups": ["a"] * 120}, "groups: expected at least two groups"),
        (lambda f: f[["size"]].assign(size=np.nan), lambda y: y, {}, "X: expected at least one column"),
    ],
)
def test_wrong_data_gets_one_sentence(data, x, y, more, sentence):
    frame, price = data
    with pytest.raises(ValueError, match=r"expected") as caught:
        NeighborRegressor(**QUICK).fit(x(frame), y(price), **more)
    assert sentence in str(caught.value)


def test_unknown_ids_and_classes_are_refused(regressor, classifier, data):
    frame, price = data
    with pytest.raises(ValueError, match=r"^ids: expected ids of rows that the model was given, got 'h999'"):
        clone_fitted(regressor).forget(["h999"])
    with pytest.raises(ValueError, match=r"^ids: expected to leave at least one row"):
        clone_fitted(regressor).forget(regressor.bank_.ids.tolist())
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet"):
        clone_fitted(regressor).add(frame.iloc[:1], price[:1], ids=[regressor.bank_.ids[0]])
    with pytest.raises(ValueError, match=r"^ids: expected one for each row"):
        clone_fitted(regressor).add(frame.iloc[:1], price[:1])
    with pytest.raises(ValueError, match=r"^y: expected a class that the model was fitted with, got 'odd' in row 0"):
        clone_fitted(classifier).add(frame.iloc[:1], ["odd"])
    with pytest.raises(ValueError, match=r"^coverage: expected at most"):
        regressor.predict_interval(frame, 0.999)


def test_dir_shows_what_a_user_calls(regressor):
    before, after = dir(NeighborRegressor()), dir(regressor)
    assert {"fit", "predict", "explain", "add", "forget", "save", "set_params"} <= set(before) <= set(after)
    assert {"bank_", "label_range_", "fitted_"} <= set(after) - set(before)
    assert len(before) <= 45
    assert "classes_" not in after
    assert not {"near_bank", "hidden", "max_epochs", "_fit"} & set(after)
    for name in after:
        getattr(regressor, name)


def test_an_unfitted_model_says_so(data):
    with pytest.raises(NotFittedError):
        NeighborRegressor().explain(data[0])


def test_missing_numbers_and_new_categories_are_predicted(regressor):
    fresh = pd.DataFrame({"size": [np.nan, 3.0], "town": ["nowhere", None], "note": ["a good house", ""]})
    with pytest.warns(ColumnWarning, match="^town: 1 of 2 cells were never seen in training: nowhere$"):
        assert np.isfinite(regressor.predict(fresh)).all()


def clone_fitted(model):
    """A fitted copy with banks of its own, which can be changed."""
    copy = clone(model)
    copy.__dict__.update(model.__dict__)
    for name in ("bank_", "calibration_"):
        bank = getattr(model, name)
        setattr(copy, name, bank.take(np.arange(len(bank))))
    return copy


@pytest.mark.slow
def test_a_column_that_gives_the_target_away_is_warned_of():
    frame, price = table(60)
    quick = {"max_epochs": 1, "members": 1, "hidden": (8, 4)}
    with pytest.warns(LeakWarning, match=r"^dollars alone ranks the target .* after it, leave it out$") as caught:
        model = NeighborRegressor(**quick).fit(frame.assign(dollars=1.1 * price), price)
    assert caught[0].filename == __file__, "the line that called fit"
    assert "dollars" in model.kinds_
    NeighborRegressor(**quick).fit(frame.assign(dollars=1.1 * price).to_numpy()[:, -1:], price)  # arrays have no names
    with pytest.warns(LeakWarning, match="^mood alone tells the class of almost every row"):
        NeighborClassifier(**quick).fit(frame.assign(mood=np.where(price > 5, "good", "bad")), price > 5)


def test_every_row_is_in_the_bank_and_rows_held_out_do_not_calibrate_on_their_own_labels():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(400, 2)), generator.normal(size=400)  # nothing to learn: labels are noise
    model = NeighborRegressor(
        metric="network", members=1, hidden=(8,), max_epochs=2, mask=None, validation_fraction=0.4
    ).fit(x, y)
    assert set(model.bank_.ids) == set(range(400))
    assert len(model.calibration_) == 160
    assert model.bank_.has(model.calibration_.ids).all()
    # of 160 rows that calibrate the share covered has a standard deviation of .032; twelve draws had .80 on average
    fresh, truth = generator.normal(size=(2000, 2)), generator.normal(size=2000)
    low, high = model.predict_interval(fresh, 0.8).T
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.11)
    few = NeighborRegressor(
        metric="network", readout="rows", members=1, hidden=(8,), max_epochs=2, validation_fraction=0.4
    ).fit(x, y)
    low, high = few.predict_interval(fresh, 0.8).T
    assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(0.8, abs=0.11)


@pytest.mark.parametrize("kind", [NeighborRegressor, NeighborClassifier])
def test_a_column_without_a_cell_to_train_on_is_left_out_and_named(kind, tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "b": [None] * 39 + ["x"], "c": [np.nan] * 39 + [1.0]})
    labels = frame["a"] % 7 if kind is NeighborRegressor else frame["a"] % 7 > 3
    model = kind(metric="network", max_epochs=1, members=1)
    with pytest.warns(CellWarning, match=r"^X: left out as it is missing in all rows to train on: 'b', 'c'$"):
        model.fit(frame, labels, validation=range(30, 40))
    assert model.kinds_ == {"a": "number"}
    model.save(tmp_path / "m")
    assert (load_model(tmp_path / "m").predict(frame[38:]) == model.predict(frame[38:])).all()
