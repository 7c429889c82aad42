"""Comparables of a kernel and of trees: sums of explanations, rows that are known, changes of rows, wild cells."""

import functools
import re
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

from references import comparables as reference
from vicinal.core.identity import IdentityWarning
from vicinal.estimators import NeighborClassifier, NeighborRegressor, blending, kernel_metric, load_model
from vicinal.estimators.calibrating import calibrating_rows, calibrating_units
from vicinal.estimators.comparables import NOISY, START, USUAL, noise_sentence
from vicinal.estimators.explanation import Explanation, Neighbor, Trend
from vicinal.estimators.readout import errors_of
from vicinal.heads import Kriging
from vicinal.heads.admissible import Identity, admissible
from vicinal.training.likelihood import TableKernel
from vicinal.training.rows import spread

METRICS = ("kernel", "trees", "trees and kernel")
CASES = ("one target", "several targets", "weights and copies")


def rows(count=120, seed=0):
    """Two numbers with gaps, a category, and labels with a trend, a step and some noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=count), "age": rng.uniform(0, 9, count)})
    frame["city"] = rng.choice(["a", "b", "c"], count)
    y = 3 * frame["size"] + 2.0 * (frame["age"] > 4) + (frame["city"] == "a") + 0.3 * rng.normal(size=count)
    frame.loc[5::20, "age"] = np.nan
    return frame, y.to_numpy()


FRAME, Y = rows()
NEW, NEW_Y = rows(30, seed=1)


class Blended(NeighborRegressor):
    """Trees and a kernel, whatever the errors of both."""

    def fit(self, *args, **known):
        with mock.patch.object(blending, "LEAST", 0.0):
            super().fit(*args, **known)
        assert self.metric_ == "trees and kernel"
        return self


def unfitted(metric, **settings):
    return Blended(**settings) if metric == "trees and kernel" else NeighborRegressor(metric=metric, **settings)


@functools.cache
def fitted(metric, case="one target"):
    """A model that no test changes."""
    model = unfitted(metric, readout="comparables")
    if case == "several targets":
        return model.fit(FRAME, np.c_[Y, 100 - 7 * Y])
    if case == "weights and copies":  # of other labels
        frame, y = pd.concat([FRAME, FRAME[:20]], ignore_index=True), np.concatenate([Y, Y[:20] + 1])
        return model.set_params(max_neighbors=6).fit(frame, y, sample_weight=np.linspace(0.2, 3, len(frame)))
    return model.fit(FRAME, Y)


@pytest.fixture(scope="module", params=METRICS)
def model(request):
    return fitted(request.param)


def by_reference(model, frame, *, known=False):
    """Predictions ``[b, T]`` by texts, slopes and numpy, of rows whose ids are their places and of new ones."""
    projector, head, bank = model.network_.projector, model.network_.head, model.bank_
    encoder, reader = model.network_.encoder, projector.reader
    both = pd.concat([frame, bank.rows[frame.columns]], ignore_index=True)
    columns = reader(encoder, reader.prepare(encoder, both).select(torch.arange(len(both)))).numpy()
    models = [[reference.read_text(text) for text in fold] for fold in projector.texts]
    places = bank.store.positions(np.arange(len(frame)) if known else np.full(len(frame), -1)).tolist()
    folds = [int(bank.folds[place]) if place >= 0 else -1 for place in places] + bank.folds.tolist()
    width = len(reader.names)
    of_trees = [reference.embedding(models, row[:width], fold) for row, fold in zip(columns, folds, strict=True)]
    of_trees = np.stack(of_trees)[:, projector.targets :].reshape(len(columns), projector.targets, -1)
    terms, slopes = (
        torch.cat(projector.columns.terms(torch.tensor(columns[:, width:])), dim=1),
        projector.slopes.numpy(),
    )
    of_fold = np.stack([slopes.mean(axis=0) if fold < 0 else slopes[fold] for fold in folds])  # [n, T, w]
    each, names = terms.numpy()[:, None] * of_fold, np.array(projector.columns.by_column(reader.further))
    of_lines = np.stack([each[:, :, names == name].sum(axis=2) for name in projector.names], axis=2)
    of_trees, of_lines = (
        part * share[:, None] for part, share in zip((of_trees, of_lines), projector.shares.numpy(), strict=True)
    )
    rows = np.concatenate([(of_trees + of_lines).sum(axis=2), (of_trees + of_lines).reshape(len(columns), -1)], axis=1)
    kept = rows[len(frame) :].astype(np.float32).astype(float)  # as a bank has them
    numbers = {"k": head.k, "scale": head.log_scale.exp().item(), "noise": head.log_noise.exp().item() + 1e-6}
    numbers |= {"trend": projector.trend, "base": projector.base.numpy(), "unit": np.ones(projector.targets)}
    numbers |= {"mass": bank.mass.numpy(), "ranks": bank.store.keys.numpy()}
    labels = bank.labels.reshape(len(bank), -1).numpy()
    # several targets are on [0, 1] inside, by the range of the rows that were not held out
    low, high = (end.numpy() for end in model.fitted_.codec.label_ends()) if labels.shape[1] > 1 else (0.0, 1.0)
    said = [
        reference.predicted(row, kept, (labels - low) / (high - low), **numbers, left_out=[place])[0]
        for row, place in zip(rows[: len(frame)], places, strict=True)
    ]
    return low + np.array(said) * (high - low)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", CASES)
def test_trees_agree_with_numpy_from_lightgbms_text_to_the_prediction(case):
    model = fitted("trees", case)
    some = NEW[:3]
    np.testing.assert_allclose(model.predict(some).reshape(3, -1), by_reference(model, some), rtol=1e-9, atol=1e-9)
    some = FRAME[:4]
    said = model.predict(some, ids=range(4)).reshape(4, -1)
    np.testing.assert_allclose(said, by_reference(model, some, known=True), rtol=1e-9, atol=1e-9)


def test_it_says_what_adjusts_the_label_of_a_row(model):
    one = model.explain(NEW[:1], 3)[0]
    words = one.sentence("house")
    assert words.startswith(f"{one.prediction:.4g} from ")
    signed = any(one.weight < 0 for one in one.neighbors)
    assert ("houses: row " if signed else "houses like this one: row ") in words
    assert f"had {one.neighbors[0].label:.4g}, " in words
    assert f"counts {100 * one.neighbors[0].weight:.0f} %" in words
    assert " -> " in str(one)


def test_rows_are_named_until_they_carry_three_fifths_of_the_weight_of_all_rows():
    def words(*weights, trend=None):
        rows = [Neighbor(place, weight, 1.0, weight, {}) for place, weight in enumerate(weights)]
        said = Explanation(1.0, 1.0, tuple(rows), 0.0, 0.0, 0, trend=trend and Trend(trend, 1.0, {}, 1.0))
        return said.sentence()

    assert words(*[0.1] * 10).count("had 1") == 6
    assert words(*[0.1] * 10).endswith("; 4 more count 40 %")
    assert words(0.5, 0.2, 0.1, 0.1, 0.1).count("had 1") == 3
    assert words(*[0.05] * 10, trend=0.5).count("had 1") == 6
    assert words(*[0.05] * 10, trend=0.5).endswith("; the trend by columns, 1, counts 50 %; 4 more count 20 %")
    assert words(0.9, 0.1).count("had 1") == 2


def test_words_are_in_the_unit_of_labels_that_were_learned_as_logarithms():
    model = NeighborRegressor(metric="kernel", readout="comparables", target_transform="log").fit(FRAME, np.exp(Y) + 50)
    one = model.explain(NEW[:1], 1)[0]
    first, words = one.neighbors[0], one.sentence()
    by = first.adjusted - first.label
    assert f"had {first.label:.4g}, {'minus' if by < 0 else 'plus'} {abs(by):.3g} for its " in words
    assert f"{one.trend.value:.4g}" not in words


@pytest.mark.sweep(9)
def test_added_rows_count_at_once_and_forgotten_ones_are_gone(model, tmp_path):
    model.save(tmp_path / "m")
    one, before = load_model(tmp_path / "m"), model.predict(NEW)
    names = [500 + place for place in range(30)]
    one.add(NEW, NEW_Y + 50, ids=names)
    after = one.predict(NEW)
    assert after.mean() > before.mean() + 2
    one.relabel(names, NEW_Y)
    assert one.predict(NEW).mean() < after.mean() - 2
    assert one.explain(NEW[:1], ids=[500])[0].neighbors[0].id != 500
    one.forget(names)
    np.testing.assert_allclose(one.predict(NEW), before, atol=1e-9)


def test_a_row_of_the_fit_is_predicted_by_the_fold_that_left_it_out(model):
    known = model.predict(FRAME, ids=range(len(FRAME)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentityWarning)
        unknown = model.predict(FRAME)
    new = ((model.predict(NEW) - NEW_Y) ** 2).mean()
    assert ((unknown - Y) ** 2).mean() < ((known - Y) ** 2).mean() < 2 * new
    at = model.bank_.store.positions(np.arange(9))
    embedded = model.query_rows(FRAME[:9], ids=range(9)).vectors
    np.testing.assert_allclose(embedded, model.bank_.vectors[at], atol=1e-5)


def test_rows_of_the_fit_without_ids_are_noticed(model):
    with pytest.warns(IdentityWarning, match=r"^ids: expected those of the rows, as 40 of 40 rows equal rows"):
        model.predict(FRAME[:40])


def test_labels_of_a_fold_have_no_part_in_how_its_rows_are_embedded():
    first = NeighborRegressor(metric="trees", max_neighbors=10).fit(FRAME, Y)
    folds = first.bank_.folds
    assert sorted(set(folds.tolist())) == list(range(5))
    texts = first.network_.projector.texts
    changed = np.where((folds == 2).numpy(), Y + 100, Y)
    other = NeighborRegressor(metric="trees", max_neighbors=10).fit(FRAME, changed)
    assert first.bank_.ids.tolist() == other.bank_.ids.tolist()
    trees = [one.split("\nTree=")[1:3] for one in (texts[2][0], other.network_.projector.texts[2][0])]
    leaves = [[part.split("threshold=")[1].split("\n")[0] for part in some] for some in trees]
    assert leaves[0] == leaves[1] or len(leaves[0][0].split()) != len(leaves[1][0].split())


def test_slopes_of_a_kernel_are_of_the_rows_that_a_fold_leaves_in():
    first = NeighborRegressor(metric="kernel", readout="comparables").fit(FRAME, Y)
    folds, projector = first.bank_.folds, first.network_.projector
    assert sorted(set(folds.tolist())) == list(range(5))
    vectors = first.bank_.vectors[:, -projector.trend :].double().sum(dim=1) * projector.unit + projector.base
    assert np.corrcoef(vectors.numpy(), Y)[0, 1] > 0.8
    changed = projector.slopes.clone()
    assert all(not np.allclose(changed[0], changed[fold]) for fold in range(1, 5))


@pytest.mark.slow
def test_groups_are_whole_folds_and_weights_count():
    groups = np.arange(len(FRAME)) // 4
    model = NeighborRegressor(metric="trees").fit(FRAME, Y, groups=groups, sample_weight=np.linspace(1, 3, len(FRAME)))
    folds = model.bank_.folds.numpy()
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups.tolist()))
    assert calibrating_units(model.fitted_)[0] == len(set(groups.tolist()))
    low, high = model.predict_interval(NEW, groups=[f"n{place}" for place in range(30)]).T
    assert (low < high).all()


@pytest.mark.sweep(5)
@pytest.mark.parametrize("metric", METRICS)
def test_intervals_cover_new_rows(metric):
    frame, y = rows(260, seed=2)
    fresh, truth = rows(400, seed=3)
    model = unfitted(metric, readout="comparables").fit(frame, y)
    assert calibrating_rows(model.fitted_) == 260
    low, high = model.predict_interval(fresh, 0.9).T
    assert 0.85 < ((low <= truth) & (truth <= high)).mean() < 0.95


def test_the_fewest_rows_are_taken_that_do_nearly_as_well():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    plain = NeighborRegressor(metric="trees").fit(x, np.sign(x[:, 0]) + 0.02 * rng.normal(size=150))
    assert plain.network_.head.k in USUAL
    noisy = NeighborRegressor(metric="trees").fit(x, 0.2 * x[:, 0] + rng.normal(size=150))
    assert noisy.honest_error() > NOISY * np.var(noisy.bank_.labels.numpy())
    assert noisy.network_.head.k > USUAL[1] or noisy.readout_ == "comparables"
    many = noisy.fitted_.with_head(noisy.network_.head.with_rows(60))
    assert re.match(r"Labels are mostly noise here \(out of fold, errors have \d+ % of their", noise_sentence(many))
    assert noise_sentence(many).endswith(": up to 60 rows share each prediction.")
    assert not noise_sentence(plain.fitted_.with_head(plain.network_.head.with_rows(60)))
    assert not noise_sentence(noisy.fitted_.with_head(noisy.network_.head.with_rows(30)))
    asked = NeighborRegressor(metric="trees", readout="rows", max_neighbors=7).fit(x, x[:, 0])
    assert (asked.readout_, asked.network_.head.k) == ("rows", 7)
    assert asked.explain(x[:1], 9)[0].trend is None


@pytest.mark.parametrize("far", [0.0, 1e9])
def test_a_readout_that_errs_far_more_is_tried_at_its_first_places_alone(monkeypatch, far):
    tried = []

    def errors(heads, *given, **settings):
        tried.extend((type(one), one.k) for one in heads)
        return errors_of(heads, *given, **settings)

    monkeypatch.setattr("vicinal.estimators.comparables.errors_of", errors)
    monkeypatch.setattr("vicinal.estimators.comparables.FAR", far)
    NeighborRegressor(metric="trees").fit(FRAME, Y)
    assert (tried.count((Kriging, USUAL[1])) > len(START)) == (far > 1)
    assert ((Kriging, USUAL[0]) in tried) == (far > 1)


def test_of_many_rows_a_tenth_choose_the_readout(monkeypatch):
    places, name = [], "vicinal.estimators.comparables"
    monkeypatch.setattr(f"{name}.FEWEST", 8)
    monkeypatch.setattr(f"{name}.spread", lambda count, most: places.append((count, most)) or spread(count, most))
    NeighborRegressor(metric="trees").fit(FRAME, Y)
    assert (len(FRAME), len(FRAME) // 10) in places


BOUNDED = [*((metric, "comparables") for metric in METRICS), ("kernel", "rows"), ("trees", "rows")]


@pytest.fixture(scope="module", params=BOUNDED)
def bounded(request):
    metric, readout = request.param
    return (
        fitted(metric) if readout == "comparables" else NeighborRegressor(metric=metric, readout=readout).fit(FRAME, Y)
    )


@pytest.mark.sweep(2)
def test_a_wild_added_row_moves_no_prediction_of_others_out_of_the_range(bounded, tmp_path):
    bounded.save(tmp_path / "m")
    model = load_model(tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.add(pd.DataFrame({"size": [1e30], "age": [-1e30], "city": ["never"]}), [0.0], ids=[900])
    said = model.predict(NEW)
    assert np.isfinite(said).all()
    assert abs(said - bounded.predict(NEW)).max() < np.ptp(Y) / 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metric": "trees", "readout": "dense"}, "readout: expected 'comparables' or 'rows' for metric='trees'"),
        ({"metric": "trees", "readout": "attention"}, "readout: expected 'comparables' or 'rows' for metric='trees'"),
        ({"metric": "trees", "loss": "crps"}, "loss: expected None for metric='trees'"),
        ({"metric": "trees", "head": "dense"}, "head: expected 'nona' for metric='trees'"),
        (
            {"metric": "trees", "validation_fraction": 0},
            "validation_fraction: expected a share above 0 for metric='trees'",
        ),
        (
            {"metric": "network", "readout": "comparables"},
            "readout: expected 'attention' or 'rows' for metric='network'",
        ),
    ],
    ids=str,
)
def test_what_goes_with_no_trees_is_refused(settings, words):
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        NeighborRegressor(**settings).fit(FRAME, Y)


def test_comparables_of_a_kernel_are_of_numbers():
    with pytest.raises(ValueError, match=r"^readout: expected .* for metric='kernel' of classes, got"):
        NeighborClassifier(metric="kernel", readout="comparables").fit(FRAME, Y > 0)


@pytest.mark.parametrize("metric", ["kernel", "trees"])
def test_a_readout_of_trees_is_chosen_by_rows_of_other_folds(metric, monkeypatch):
    asked = []

    def errors(heads, queries, truth, bank, labels, identity, *more, **settings):
        asked.append(admissible((len(queries), len(bank)), *Identity(**identity)[:4]))
        return errors_of(heads, queries, truth, bank, labels, identity, *more, **settings)

    monkeypatch.setattr("vicinal.estimators.comparables.errors_of", errors)
    model = NeighborRegressor(metric=metric, readout="comparables").fit(FRAME, Y)
    at = spread(len(FRAME), asked[0].shape[0])
    same = model.bank_.folds[at][:, None] == model.bank_.folds
    assert bool((asked[0] & same).any()) == (metric == "kernel")
    assert not asked[0][torch.arange(len(at)), at].any()


@pytest.mark.parametrize(("near", "linear", "lines"), [(10.0, 1e-6, True), (0.01, 5.0, False)])
def test_a_kernel_that_says_by_nearness_what_a_line_says_has_its_trend(monkeypatch, tmp_path, near, linear, lines):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(180, 12))).add_prefix("c")
    y = (frame @ np.r_[2.0, -1.0, np.zeros(10)] + 0.5 * rng.normal(size=180)).to_numpy()
    rest = [torch.tensor(value, dtype=torch.float64).log() for value in (near, linear, 1e-3, 0.1)]
    learned = TableKernel(torch.full((12,), 10.0, dtype=torch.float64).log(), *rest)
    monkeypatch.setattr(kernel_metric, "fit_kernel", lambda *given, **known: learned)
    model = NeighborRegressor(metric="kernel", readout="comparables").fit(frame[:150], y[:150])
    bends = model.network_.projector.slopes[:, 12:]
    assert bool((bends == 0).all()) is lines
    new, truth = frame[150:], y[150:]
    said = model.predict(new)
    assert np.square(said - truth).mean() < 0.6  # of which 0.25 are noise
    for one, prediction in zip(model.explain(new, 150), said, strict=True):
        parts = sum(n.contribution for n in one.neighbors) + one.trend.weight * one.trend.value
        assert (one.other_count, parts) == (0, pytest.approx(prediction, abs=1e-9))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(new), said)
