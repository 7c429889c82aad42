"""Rows of another population: nothing without a shift, new class shares, weighted intervals, and undo."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.calibration import conformal_quantile, density_ratio, effective_rows, likely_class_weights
from vicinal.cli.program import run
from vicinal.estimators import ModelFolder, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.adaptation import Adaptation
from vicinal.estimators.calibrating import adapted_mass, rows_that_calibrate, said_of
from vicinal.estimators.intervals import margin, sized_misses
from vicinal.estimators.shift import explained_by_classes, numbers_of, shifted_columns


def test_the_ratio_of_two_normals_is_that_of_their_densities():
    random = np.random.default_rng(0)
    old, new = random.normal(size=(4000, 1)), random.normal(0.5, 1.0, size=(4000, 1))
    ratio, at = density_ratio(old, new), np.array([[-1.0], [0.0], [1.0]])
    np.testing.assert_allclose(np.log(ratio.weights(at)), 0.5 * at[:, 0] - 0.125, atol=0.12)
    flat = density_ratio(np.ones((50, 1)), np.ones((40, 1)))  # says nothing
    np.testing.assert_allclose(flat.weights([[1.0]]), 1, atol=1e-6)
    assert ratio.weights([[1e4]]) == ratio.weights([[old.mean() + 4 * old.std()]])


def test_effective_rows():
    assert effective_rows(np.ones(7)) == 7
    assert effective_rows([3.0, 1.0]) == pytest.approx(16 / 10)
    with pytest.raises(ValueError, match="weights"):
        effective_rows([0.0, 0.0])


def test_class_weights_are_most_likely():
    random = np.random.default_rng(1)
    source, target = random.dirichlet([2.0, 1.0], 300), random.dirichlet([1.0, 2.0], 200)
    before, grid = source.mean(axis=0), np.linspace(0.001, 0.999, 999)
    for prior in (0.0, 0.5):
        shares = np.stack([grid, 1 - grid], axis=1)
        gain = np.log(target @ (shares / before).T).mean(axis=0) + prior * (np.log(shares) @ before)
        best = shares[gain.argmax()]
        np.testing.assert_allclose(likely_class_weights(source, target, prior=prior) * before, best, atol=2e-3)
    with pytest.raises(ValueError, match="target"):
        likely_class_weights(source, target + 1)


def test_probabilities_and_calibrating_rows_get_the_weights_of_classes():
    adaptation = Adaptation(rows=40, class_weights=[2.0, 0.5])
    said = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)  # the third class was added later
    np.testing.assert_allclose(adaptation.reweighed(said)[0], np.array([1.0, 0.15, 0.2]) / 1.35)
    np.testing.assert_allclose(adaptation.calibrating_weights(said, torch.tensor([1, 0, 2])), [0.5, 2, 1])


def test_shifts_that_classes_explain():
    random = np.random.default_rng(2)
    label = random.integers(0, 2, 800)
    old = random.normal(size=(800, 2)) + 2 * label[:, None]
    new = random.normal(size=(400, 2)) + 2 * (random.random(400) < 0.9)[:, None]
    weights = np.where(label == 1, 1.8, 0.2)
    assert explained_by_classes(old, new, weights)
    assert not explained_by_classes(old, new, weights[::-1].copy())
    assert not explained_by_classes(old, old[:400] + np.array([0, 3]), weights)


def test_columns_of_dates_with_gaps_are_compared_by_days():
    days = pd.Series(pd.date_range("2020-01-01", periods=60))
    days[::7] = pd.NaT
    nothing = torch.zeros(60, 0), torch.zeros(60, 0)
    others = days.sample(frac=1, random_state=0), days + pd.Timedelta("90D")
    tables = [pd.DataFrame({"sold": cells}) for cells in (days, *others)]
    assert shifted_columns(*tables[:2], {"sold": "number"}, nothing, ()) == ()
    (found,) = shifted_columns(tables[0], tables[2], {"sold": "number"}, nothing, ())
    assert found.how == "mean 2020-01-30 -> 2020-04-29"
    old, new = numbers_of(tables[0], tables[2], {"sold": "number"})  # in deviations of the old
    whole = np.arange(60.0)[days.notna()]
    filled = np.where(days.notna(), np.arange(60.0), np.median(whole))
    np.testing.assert_allclose((new - old)[days.notna(), 0], 90 / filled.std())


def test_columns_are_tested_together():
    random = np.random.default_rng(3)
    old = pd.DataFrame({"size": random.normal(size=400), "place": random.choice(["a", "b"], 400), "gap": np.nan})
    new = pd.DataFrame({"size": random.normal(1, 1, 200), "place": random.choice(["a", "c"], 200), "gap": np.nan})
    kinds, said = {"size": "number", "place": "category", "gap": "number"}, torch.zeros(400, 1)
    names = [one.name for one in shifted_columns(old, new, kinds, (said, said[:200]), ["prediction"])]
    assert sorted(names) == ["place", "size"]
    assert shifted_columns(old, old[:200], kinds, (said, said[:200]), ["prediction"]) == ()


@pytest.fixture(scope="module")
def classes():
    random = np.random.default_rng(4)
    label = random.integers(0, 2, 900)
    table = pd.DataFrame(random.normal(size=(900, 3)) + 0.9 * label[:, None], columns=["a", "b", "c"])
    words = np.array(["no", "yes"])[label]
    model = NeighborClassifier(metric="kernel", validation_fraction=0.3).fit(table[:300], words[:300])
    return model, table, words


def test_new_shares_of_classes_raise_accuracy_and_are_undone(classes, tmp_path):
    model, table, words = classes
    later = np.flatnonzero(np.arange(900) >= 300)
    assert model.adapt(table.iloc[later]).kind == "none"
    assert model.fitted_.adaptation is None
    frequent = np.concatenate([later[words[later] == "yes"][:200], later[words[later] == "no"][:40]])
    moved, truth = table.iloc[frequent], words[frequent]
    before, probabilities = model.score(moved, truth), model.predict_proba(moved)
    model.save(tmp_path / "m")
    shift = model.adapt(moved)
    assert shift.kind == "classes"
    assert abs(dict((name, now) for name, _, now in shift.shares)["yes"] - 200 / 240) < 0.1
    assert model.score(moved, truth) > before
    weights = np.array(model.fitted_.adaptation.class_weights)
    np.testing.assert_allclose(
        model.predict_proba(moved), probabilities * weights / (probabilities @ weights)[:, None], atol=1e-9
    )
    one = model.explain(moved[:1])[0]
    assert one.probability == pytest.approx(model.predict_proba(moved[:1]).max())
    folder, adapted = ModelFolder(tmp_path / "m", who="ann"), model.predict_proba(moved)
    reader = ModelFolder(tmp_path / "m")  # of a server, say
    assert folder.adapt(moved).kind == "classes"
    assert reader.refresh()
    np.testing.assert_allclose(reader.model.predict_proba(moved), adapted)
    np.testing.assert_allclose(load_model(tmp_path / "m").predict_proba(moved), adapted)
    model.save(tmp_path / "copy")
    np.testing.assert_allclose(load_model(tmp_path / "copy").predict_proba(moved), adapted)
    folder.adapt(None)
    np.testing.assert_allclose(load_model(tmp_path / "m").predict_proba(moved), probabilities)
    assert model.adapt(None).kind == "none"
    np.testing.assert_allclose(model.predict_proba(moved), probabilities)


def test_an_adapted_attention_is_explained_and_shown(classes, tmp_path, capsys):
    _, table, words = classes
    settings = {"metric": "network", "readout": "attention", "members": 1, "hidden": (4,), "max_epochs": 1}
    model = NeighborClassifier(validation_fraction=0.3, **settings).fit(table[:300], words[:300])
    model.adapt(table[300:][words[300:] == "yes"])
    (one,) = model.explain(table[:1], k=300)
    contributed = sum(each.contribution for each in one.neighbors) + one.other_contribution
    assert one.total == pytest.approx(contributed)
    assert one.probability > one.total + 0.01  # which are before the shares of classes
    assert "yes" in one._repr_html_()
    model.save(tmp_path / "m")
    assert run(["show", str(tmp_path / "m")]) == 0
    assert f"to {int((words[300:] == 'yes').sum())} new rows" in capsys.readouterr().out


SETTINGS = {"metric": "kernel", "readout": "rows", "max_neighbors": 10, "validation_fraction": 0.4}


@pytest.fixture(scope="module")
def numbers():
    random = np.random.default_rng(5)
    x = random.uniform(0, 3, (280, 2))
    y = x[:, 0] + random.normal(size=280) * 0.3
    return NeighborRegressor(**SETTINGS).fit(x[:120], y[:120]), x, y


def test_margins_are_weighted_by_the_density_ratio(numbers):
    model, x, _ = numbers
    assert model.adapt(x[120:]).kind == "none"
    plain, queries = model.predict(x[:5]), x[120:][x[120:, 0] > 1.5]
    assert model.adapt(queries).kind == "columns"
    np.testing.assert_allclose(model.predict(x[:5]), plain)
    bank, at, who, _ = rows_that_calibrate(model.fitted_)
    features = said_of(model.fitted_, bank.vectors[at].double(), who)
    new = said_of(model.fitted_, model.query_rows(queries).vectors, {"ids": None, "groups": None})
    weights = density_ratio(features.numpy(), new.numpy()).weights(features.numpy())
    expected = conformal_quantile(sized_misses(model.fitted_, 0.9)[1].numpy(), 0.9, weights=weights)
    assert margin(model.fitted_, 0.9) == pytest.approx(expected)
    quantile = model.for_loss(quantile=0.5)
    np.testing.assert_allclose(adapted_mass(quantile.fitted_), weights)
    model.adapt(None)
    assert margin(model.fitted_, 0.9) == pytest.approx(
        conformal_quantile(sized_misses(model.fitted_, 0.9)[1].numpy(), 0.9)
    )


def test_labelled_rows_set_the_width_of_intervals(numbers, tmp_path, capsys):
    model, x, y = numbers
    random, late = np.random.default_rng(6), x[120:]
    noisy = late[:, 0] + random.normal(size=160)
    low, high = model.predict_interval(late).T
    misses = np.abs(noisy - (low + high) / 2) / ((high - low) / 2)
    predicted = model.predict(late)
    shift = model.adapt(late, noisy)
    assert (shift.kind, shift.rows) == ("errors", 160)
    assert shift.covered_before == (misses <= 1).mean()
    assert shift.error_before == pytest.approx(np.mean((predicted - noisy) ** 2))
    for coverage in (0.5, 0.9):
        radius = np.sort(misses)[int(np.ceil(161 * coverage)) - 1]  # of the 161 values with that of a new row
        wider = model.predict_interval(late, coverage)
        np.testing.assert_allclose(wider.mean(1), (low + high) / 2)
        np.testing.assert_allclose(wider[:, 1] - wider[:, 0], radius * (high - low))
    assert shift.width == pytest.approx(radius)
    said = f"90 % intervals cover {shift.covered_before:.0%} of 160 labelled new rows"
    assert shift.lines() == [f"{said}; now they are {radius:.2g} times as wide."]
    np.testing.assert_allclose(model.predict(late), predicted)
    model.save(tmp_path / "m")
    np.testing.assert_allclose(load_model(tmp_path / "m").predict_interval(late, 0.9), wider)
    same = model.adapt(late, np.where(np.arange(160) % 10 == 0, high + 1, predicted))
    assert same.lines() == ["90 % intervals cover 90% of 160 labelled new rows: the model is as it was fitted."]
    assert repr(same) == same.lines()[0]
    np.testing.assert_allclose(model.predict_interval(late).T, [low, high])
    with pytest.raises(ValueError, match="coverage: expected at most"):
        load_model(tmp_path / "m").predict_interval(late, 0.999)
    table = pd.DataFrame(x, columns=["a", "b"])
    named = NeighborRegressor(**SETTINGS).fit(table[:120], y[:120])
    named.notes_ = {"target": "price"}
    named.save(tmp_path / "named")
    table.assign(price=np.concatenate([y[:120], noisy])).to_csv(tmp_path / "new.csv", index=False)
    command = [
        "adapt",
        str(tmp_path / "named"),
        str(tmp_path / "new.csv"),
        "--labels",
        "--out",
        str(tmp_path / "other"),
    ]
    assert run(command) == 0
    told = " ".join(" ".join(capsys.readouterr()).split())
    assert "left out 120 of 280 rows, which the model knows" in told
    assert "labelled new rows; now they are" in told
    np.testing.assert_allclose(load_model(tmp_path / "other").predict_interval(table[120:]), wider)


def test_the_command_names_what_was_typed(classes, tmp_path, capsys):
    model, table, words = classes
    model.notes_ = {"target": "word"}
    model.save(tmp_path / "m")
    frame = pd.DataFrame(np.asarray(table)[300:], columns=[*model.feature_names_in_]).assign(word=words[300:])
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert run(["adapt", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--labels"]) == 2
    assert "error: --labels: expected none for a model of classes" in " ".join(capsys.readouterr().err.split())
    frame[:12].to_csv(tmp_path / "few.csv", index=False)
    assert run(["adapt", str(tmp_path / "m"), str(tmp_path / "few.csv")]) == 2
    assert "error: data: expected at least 30 new rows" in " ".join(capsys.readouterr().err.split())


def test_labels_that_cannot_calibrate_are_refused(numbers, classes):
    model, table, words = classes
    with pytest.raises(ValueError, match="y: expected none for a model of classes, got labels"):
        model.adapt(table[300:], words[300:])
    model, x, y = numbers
    with pytest.raises(ValueError, match="at least 30 new rows"):
        model.adapt(x[120:140], y[120:140])


def test_too_few_rows_and_models_that_cannot_are_refused(numbers):
    model, x, _ = numbers
    with pytest.raises(ValueError, match="at least 30 new rows to tell a shift, got 29"):
        model.adapt(x[:29])
    with pytest.raises(ValueError, match=r"at least 20 of the rows that calibrate, got rows like \d"):
        model.adapt(x[x[:, 0] > 2.9][:1].repeat(40, axis=0) + 30)
    folds, several = copy.copy(model), copy.copy(model)
    folds.folds_, several.targets_ = 2, ["a", "b"]
    with pytest.raises(ValueError, match="folds; fit with validation_fraction"):
        folds.adapt(x)
    with pytest.raises(ValueError, match="several targets"):
        several.adapt(x)


def test_the_command_reports_writes_and_takes_back(classes, tmp_path, capsys):
    model, table, words = classes
    folder, new, same = tmp_path / "m", tmp_path / "new.csv", tmp_path / "same.csv"
    model.save(folder)
    later = np.arange(300, 900)
    yes = later[words[later] == "yes"]
    table.iloc[yes].to_csv(new, index=False)
    table.iloc[later].to_csv(same, index=False)

    def said(*words, code=0):
        assert run([*map(str, words)]) == code
        shown = capsys.readouterr()
        return " ".join((shown.out + shown.err).split())

    assert said("adapt", folder, same).endswith("the model is as it was.")
    assert "No shift found in 600 new rows" in said("adapt", folder, same, "--out", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert "Nothing was written" in said("adapt", folder, new)
    assert json.loads(said("adapt", folder, new, "--json"))["kind"] == "classes"
    assert "Estimated class shares" in said("adapt", folder, new, "--out", tmp_path / "other")
    assert load_model(tmp_path / "other").fitted_.adaptation is not None
    assert load_model(folder).fitted_.adaptation is None
    said("adapt", folder, new, "--out", folder, "--who", "ann")
    assert "ann adapt" in said("show", folder, "--changes")
    said("adapt", folder, "--undo", "--out", folder)
    assert load_model(folder).fitted_.adaptation is None
    assert "expected the column 'a'" in said("adapt", folder, _without(new, "a"), code=2)
    assert "--undo" in said("adapt", folder, code=2)


def _without(path, column):
    less = path.with_name("less.csv")
    pd.read_csv(path).drop(columns=column).to_csv(less, index=False)
    return less
