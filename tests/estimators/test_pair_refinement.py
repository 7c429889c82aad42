"""What pairs learn from each other's probabilities: soft labels, halves that do not see each other, trees as texts."""

import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.estimators import pair_refinement as module
from vicinal.estimators.linking import pairs_to_label
from vicinal.estimators.pair_features import MISSING
from vicinal.estimators.pair_refinement import Refinement
from vicinal.estimators.pair_scorers import BoostedPairs
from vicinal.linkage.competition import Competition


def features_of(rows, seed=0, columns=5):
    rng = np.random.default_rng(seed)
    features = rng.random((rows, columns)).round(2)
    features[rng.random(features.shape) < 0.1] = MISSING
    return features


@pytest.mark.parametrize("depth", [1, 4])
def test_trees_of_lightgbm_that_were_saved_say_the_same(depth, tmp_path):
    features = features_of(600)
    targets = (features[:, 0] > 0.5) * (features[:, 1] < 0.6) * 0.8 + 0.1
    settings = {
        "objective": "cross_entropy",
        "max_depth": depth,
        "num_leaves": 8,
        "verbosity": -1,
        "use_missing": False,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(features, targets), 20)
    scorer = BoostedPairs(booster.model_to_string(), 5)
    fresh = features_of(400, 1)
    np.testing.assert_allclose(scorer.log_odds(fresh), booster.predict(fresh, raw_score=True), atol=1e-6)
    np.testing.assert_allclose(scorer.chances(fresh), booster.predict(fresh), atol=1e-6)
    scorer.save(tmp_path / "trees")
    again = BoostedPairs.load(tmp_path / "trees", 5)
    np.testing.assert_array_equal(again.log_odds(fresh), scorer.log_odds(fresh))
    with pytest.raises(ValueError, match=r"^trees: expected max_feature_idx=5, got 4"):
        BoostedPairs.load(tmp_path / "trees", 6)
    (tmp_path / "trees").write_bytes(b"\xfftree")
    with pytest.raises(ValueError, match=r"^trees: expected the text of a LightGBM model"):
        BoostedPairs.load(tmp_path / "trees", 5)


def test_a_booster_that_learned_nothing():
    booster = lightgbm.train(
        {"objective": "cross_entropy", "verbosity": -1}, lightgbm.Dataset(features_of(30), np.full(30, 0.3)), 3
    )
    np.testing.assert_allclose(BoostedPairs(booster.model_to_string(), 5).chances(features_of(4)), 0.3, atol=1e-6)


def test_the_linear_model_solves_the_equations_of_soft_labels():
    rng = np.random.default_rng(0)
    rows, targets, weights = rng.normal(size=(300, 3)), rng.uniform(0.01, 0.99, 300), rng.uniform(0.5, 5, 300)
    penalty = np.array([1.0, 1.0, 1.0, 0.0])
    point = module._linear(rows, targets, weights, penalty, np.zeros(4))
    gap = weights * (1 / (1 + np.exp(-(rows @ point[:-1] + point[-1]))) - targets)
    np.testing.assert_allclose(rows.T @ gap + point[:-1], 0, atol=1e-3)  # a penalty of half the squares of the weights
    assert gap.sum() == pytest.approx(0, abs=1e-3)
    again = module._linear(rows, targets, weights, penalty, point + 30)  # far off: full steps of Newton would leave it
    np.testing.assert_allclose(again, point, atol=1e-4)


def test_copies_of_a_column_are_solved_as_one():
    rng = np.random.default_rng(0)
    rows, targets, weights = rng.normal(size=(300, 3)), rng.uniform(0.01, 0.99, 300), np.ones(300)
    rows = rows[:, [0, 1, 0, 2, 0]]
    once, place, counts = module._distinct(rows)
    np.testing.assert_array_equal(once[:, place], rows)
    assert counts.tolist() == [3, 1, 1]
    whole = module._linear(rows, targets, weights, np.array([1.0] * 5 + [0.0]), np.zeros(6))
    point = module._linear(once, targets, weights, np.append(1 / counts, 0.0), np.zeros(4))
    np.testing.assert_allclose(np.append((point[:-1] / counts)[place], point[-1]), whole, atol=1e-4)


def test_empty_cells_have_a_column_of_their_own():
    features = features_of(50)
    standard = module._standard(features, module._scales(features))
    assert standard.shape == (50, 10)
    np.testing.assert_array_equal(standard[:, 5:], features == MISSING)
    shown = np.where(features == MISSING, 0, features)
    np.testing.assert_allclose(standard[:, :5], (shown - shown.mean(axis=0)) / shown.std(axis=0))
    flat = module._standard(np.ones((4, 1)), module._scales(np.ones((4, 1))))
    assert np.isfinite(flat).all()


def test_each_half_is_told_by_trees_of_the_other():
    features = np.arange(400.0)[:, None] // 4  # what only repeats in a half is no use for the other
    half = np.arange(400) // 4 % 2
    targets = np.where(half == 0, 0.9, 0.1)
    trees = module._Trees(features, half, 0)
    chances = 1 / (1 + np.exp(-trees.across(targets, np.ones(400))))
    np.testing.assert_allclose(chances, 1 - targets, atol=0.1)
    alone = module._Trees(features, np.zeros(400, dtype=int), 0)  # no other half
    assert (alone.across(targets, np.ones(400)) == 0).all()


def learned(features, chances, labels=((), ()), links="many"):
    """A refinement of pairs of as many left and right rows."""
    rows = int(len(features) ** 0.5)
    pairs = np.stack(np.divmod(np.arange(len(features)), rows), axis=1)
    competition = Competition.of(pairs, (rows, rows), links, is_single=False)
    at, truth = np.array(labels[0], dtype=int), np.array(labels[1], dtype=float)
    alone = np.array([True] * (features.shape[1] - 1) + [False])
    half = (pairs[:, 0] + pairs[:, 1]) % 2
    return Refinement.learn(features, alone, chances, competition, (at, truth), half, 0), competition


def test_probabilities_are_found_again_and_those_that_contradict_their_kind_are_not():
    features = features_of(1600)
    clear = features[:, 1] > 0.9
    features[:, 0] = np.where(clear, 0.9, 0.1)
    chances = np.where(clear, 0.95, 0.02)
    strange = np.flatnonzero(~clear)[:5]
    chances[strange] = 0.95
    refined, competition = learned(features, chances)
    found = competition.chances(refined.log_odds(features), float(chances.sum()))
    assert found[clear].mean() > 0.9
    assert found[~clear].mean() < 0.05
    assert found[strange].max() < 0.3
    lines = module._standard(features[:, :4], refined.state) @ refined.state["weights"] + refined.state["start"][0]
    both = 2 / 3 * lines + 1 / 3 * refined.forest.log_odds(features)
    np.testing.assert_allclose(refined.log_odds(features), both)
    copies = features[:, [0] * 9 + [*range(5)]]
    assert np.abs(learned(copies, chances)[0].log_odds(copies) - both).max() < 1  # they are penalized less


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_outweigh_soft_labels(label):
    features = features_of(900)
    doubtful = np.flatnonzero(features[:, 0] > 0.8)
    chances = np.where(features[:, 0] > 0.8, 0.5, 0.01)
    without, _ = learned(features, chances)
    refined, _ = learned(features, chances, (doubtful[::3], [label] * len(doubtful[::3])))
    others = np.setdiff1d(doubtful, doubtful[::3])
    change = refined.log_odds(features)[others] - without.log_odds(features)[others]
    assert (change > 1).mean() > 0.9 if label else (change < -1).mean() > 0.9


def test_a_label_counts_as_five_pairs(monkeypatch):
    monkeypatch.setattr(module, "ROUNDS", 1)
    features = np.repeat([[0.1, 0.2], [0.9, 0.2]], 200, axis=0)
    chances = np.repeat([0.1, 0.5], 200)
    refined, _ = learned(features, chances, (range(200, 250), [1.0] * 50))
    share = (5 * 50 + 150 * 0.5) / (5 * 50 + 150)
    found = 1 / (1 + np.exp(-refined.log_odds(features[200:])))
    np.testing.assert_allclose(found, share, atol=0.03)


CHANCES = st.lists(st.floats(0, 1), max_size=60).map(np.array)


@given(CHANCES, st.integers(1, 40))
def test_pairs_to_label(chances, count):
    chosen = pairs_to_label(chances, count)
    assert len(chosen) == len(set(chosen.tolist())) == min(count, len(chances))
    assert (np.diff(chances[chosen]) <= 0).all()
    near = np.sort(np.abs(chances - 0.5))[: min(count // 2, len(chances))]
    taken = np.sort(np.abs(chances[chosen] - 0.5))[: len(near)]
    np.testing.assert_array_equal(taken, near)


def test_pairs_to_label_come_from_all_bands():
    chances = np.concatenate([np.full(500, 0.001), np.linspace(0.021, 0.999, 200)])
    chosen = chances[pairs_to_label(chances, 30)]
    band = np.histogram(chosen, [0, 0.02, 0.1, 0.3, 0.7, 0.95, 1])[0]
    assert band.tolist() == [0, 3, 3, 18, 3, 3]
    assert len(pairs_to_label(np.full(100, 0.001), 30)) == 30
    few = np.concatenate([np.full(20, 0.01), [0.5], np.full(50, 0.97)])
    assert np.histogram(few[pairs_to_label(few, 20)], [0, 0.3, 0.7, 1])[0].tolist() == [0, 1, 19]
