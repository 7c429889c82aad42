"""Promises of plans: within a time, the same model again, and tuning only where it is worth it."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from references.models import tiny_bert
from vicinal.estimators import NeighborClassifier, NeighborRegressor, TuningPlan, load_model
from vicinal.estimators.plan import EPOCHS, Timing, choose_plan, read_plan
from vicinal.estimators.trials import Trial
from vicinal.estimators.tuning import TunedEstimator, may_win
from vicinal.training import NeighborModule, fit

pytest.importorskip("transformers")

WORDS = ["red", "blue", "shoes", "hat", "old"]
PLAN = TuningPlan(tune="last-1", epochs=3, rows=30, batch_size=15, learning_rate=1e-2, encoder_learning_rate=1e-2)
SETTINGS = {"hidden": (6, 3), "members": 2, "max_epochs": 2, "batch_size": 17, "learning_rate": 1e-2}


class Killed(BaseException):
    """What ends a run here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


def table(rows=60):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 1 + k % 7)) for k in range(rows)]
    labels = np.array([text.count("red") - text.count("old") for text in texts], dtype=float)
    return pd.DataFrame({"text": texts}), labels + 0.1 * generator.normal(size=rows)


def model(folder, kind=NeighborRegressor, **settings):
    return kind(encoders={"text": f"folder:{folder}"}, columns={"text": "text"}, **SETTINGS | settings)


def assert_same_model(found, wanted):
    for name, value in wanted.network_.state_dict().items():
        assert torch.equal(found.network_.state_dict()[name], value), name
    assert torch.equal(found.bank_.vectors, wanted.bank_.vectors)


@pytest.mark.parametrize("seconds", [1.0, 12.0, 60.0, 300.0, 5000.0])
@pytest.mark.parametrize("rows", [300, 3000, 100_000])
def test_a_plan_fits_its_time(seconds, rows):
    ways = [Timing("all", "bf16-mixed", 0.03), Timing("last-2", "bf16-mixed", 0.006, once=0.01)]
    plan = choose_plan(ways, rows, seconds)
    assert plan.seconds <= seconds + 0.1
    assert plan.rows <= rows
    assert 1 <= plan.epochs <= EPOCHS
    if plan.tune != "none":
        way = ways[plan.tune != "all"]
        assert plan.seconds == pytest.approx(plan.rows * (way.once + plan.epochs * way.epoch), abs=0.2)
        assert plan.rows == rows or (plan.tune, plan.epochs) == ("last-2", 2)


@pytest.mark.slow
def test_a_plan_and_a_seed_make_the_same_model_and_the_plan_can_be_read_again(folder, tmp_path):
    x, y = table()
    first = model(folder, tune="last-1", plan=PLAN).fit(x, y)
    (tmp_path / "plan.json").write_text(PLAN.model_dump_json())
    again = model(folder, tune="last-1", plan=tmp_path / "plan.json").fit(x, y)
    assert_same_model(again, first)
    assert first.plan_ == read_plan(tmp_path / "plan.json") == PLAN
    assert len(first.history_.train_error) == PLAN.epochs
    assert len(first.bank_) == len(x)  # all labelled rows, also those that the plan leaves out of training
    first.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", encoders={"text": f"folder:{folder}"})
    assert loaded.plan_ == PLAN
    np.testing.assert_allclose(loaded.predict(x), first.predict(x), atol=1e-6)


@pytest.mark.slow
def test_auto_keeps_the_frozen_encoder_unless_tuning_is_better_on_the_rows_held_out(folder, monkeypatch, logged):
    x, y = table()
    frozen = model(folder).fit(x, y)
    tuned = model(folder, tune="last-1", plan=PLAN).fit(x, y)
    cases = (
        (2.0, frozen, "gained nothing"),
        (0.96, frozen, "gained nothing"),
        (0.9, tuned, "error on the rows held out"),
    )
    monkeypatch.setattr(fit, "cannot_reach", lambda *_: False)
    for error, wanted, words in cases:
        monkeypatch.setattr(TunedEstimator, "held_out_error", lambda self, e=error: 1 if self.tune == "none" else e)
        logged.clear()
        chosen = model(folder, tune="auto", plan=PLAN).fit(x, y)
        assert_same_model(chosen, wanted)
        assert chosen.plan_.tune == wanted.tune
        assert words in "\n".join(logged)
        assert "plan: tune last-1 for 3 epochs of 30 rows in float32" in "\n".join(logged)


@pytest.mark.parametrize("kind", [NeighborRegressor, pytest.param(NeighborClassifier, marks=pytest.mark.slow)])
def test_the_probe_makes_a_plan_that_is_kept_with_the_checkpoints(folder, tmp_path, kind):
    x, y = table()
    y = y if kind is NeighborRegressor else np.array(["a", "b"])[(y > 0).astype(int)]
    chosen = model(folder, kind, metric="network", tune="auto", minutes=1, checkpoint_dir=tmp_path).fit(x, y)
    plan = TuningPlan.model_validate_json((tmp_path / "plan.json").read_text())
    assert (plan.tune, plan.epochs, plan.rows) == ("all", EPOCHS, 51)
    assert chosen.plan_.tune in ("all", "none")
    assert 0 < plan.seconds < 60


def test_a_killed_run_goes_on_by_its_plan_to_the_same_model(folder, tmp_path, monkeypatch):
    x, y = table()
    monkeypatch.setattr(TunedEstimator, "held_out_error", lambda self: float(self.tune == "none"))
    whole = model(folder, tune="auto", plan=PLAN).fit(x, y)
    train, steps = NeighborModule.training_step, []

    def step(self, batch, index):
        steps.append(index)
        if len(steps) in (5, 12):
            raise Killed
        return train(self, batch, index)

    def refused(*_):
        raise AssertionError("probed again")

    monkeypatch.setattr(NeighborModule, "training_step", step)
    (tmp_path / "plan.json").write_text(PLAN.model_dump_json())
    monkeypatch.setattr(TunedEstimator, "_probe", refused)
    for _ in range(2):  # while the frozen encoder's head is trained, and while the encoder is
        with pytest.raises(Killed):
            model(folder, tune="auto", checkpoint_dir=tmp_path).fit(x, y)
    resumed = model(folder, tune="auto", checkpoint_dir=tmp_path).fit(x, y)
    assert_same_model(resumed, whole)
    assert resumed.history_.resumed_at == 1


@pytest.mark.slow
def test_intervals_are_calibrated_on_rows_that_no_encoder_saw(folder, monkeypatch):
    x, y = table()
    train, seen = NeighborModule.training_step, set()

    def step(self, batch, index):
        seen.update(batch["ids"].tolist())
        return train(self, batch, index)

    monkeypatch.setattr(NeighborModule, "training_step", step)
    monkeypatch.setattr(TunedEstimator, "held_out_error", lambda self: float(self.tune == "none"))
    fitted = model(folder, tune="auto", plan=PLAN).fit(x, y)
    assert len(fitted.calibration_) == 9
    assert not seen & set(fitted.calibration_.ids.tolist())


@pytest.mark.slow
def test_there_is_nothing_to_tune_in_numbers_and_folds(folder):
    x, y = table()
    assert NeighborRegressor(tune="auto", max_epochs=2).fit(np.arange(20.0)[:, None], y[:20]).plan_ is None
    folds = model(folder, tune="auto", validation_fraction=0).fit(x, y)
    assert folds.folds_ == 2
    assert folds.plan_ is None


def test_nothing_is_tuned_or_trained_on_when_the_time_is_over(folder, monkeypatch):
    x, y = table()

    def refused(*_):
        raise AssertionError("probed")

    monkeypatch.setattr(TunedEstimator, "_probe", refused)
    chosen = model(folder, tune="auto", minutes=1e-9).fit(x, y)
    assert chosen.plan_.tune == "none"
    assert len(chosen.history_.train_error) == 1


@pytest.mark.parametrize(("error", "wins"), [(1.9**0.5, True), (2.1**0.5, False), (None, True)])
def test_a_network_of_twice_the_squared_error_is_not_tuned(error, wins):
    known = {"readout": "rows", "target_transform": "none", "tune": "none", "out_of_fold": None, "constant": 3.0}
    trees = Trial(metric="trees", measure="rmse", held_out=1.0, **known)
    assert may_win([trees, Trial(metric="network", measure="rmse", held_out=error, **known)]) is wins
    assert may_win([trees.model_copy(update={"metric": "network"}), trees])
    assert may_win([])


def test_classes_that_trees_tell_best_are_tuned_as_classes(folder, monkeypatch):
    x, y = table()
    settings = {"tune": "none", "metric": "trees"}
    trees = model(folder, NeighborClassifier, **settings).fit(x, y > 0)
    assert trees.target_transform_.name == "power"  # the scale of its scores, which is none of labels
    monkeypatch.setattr(
        TunedEstimator,
        "_part",
        lambda self, *_, **parts: parts.pop("plan") and model(folder, NeighborClassifier, **settings | parts),
    )
    auto = model(folder, NeighborClassifier, tune="auto")
    assert auto._better(trees, PLAN, 0, x, y > 0, {}).classes_.tolist() == [False, True]


@pytest.mark.slow
def test_an_index_is_made_of_the_encoder_that_is_chosen(folder):
    x, y = table()
    plain = model(folder, tune="auto", plan=PLAN).fit(x, y)
    indexed = model(folder, tune="auto", plan=PLAN, index="exact").fit(x, y)
    assert indexed.fitted_.near is not None
    np.testing.assert_allclose(indexed.predict(x), plain.predict(x), atol=1e-4)


def test_what_does_not_go_together_is_said(folder, tmp_path):
    x, y = table()
    with pytest.raises(ValueError, match=r"^tune: expected 'auto' or 'last-1', as the plan says, got 'all'"):
        model(folder, tune="all", plan=PLAN).fit(x, y)
    with pytest.raises(ValueError, match=r"^tune: expected 'auto', 'all', .* got 'las-2'"):
        model(folder, tune="las-2").fit(x, y)
    with pytest.raises(ValueError, match=r"^minutes: expected a number above 0, got 0"):
        model(folder, tune="auto", minutes=0).fit(x, y)
    with pytest.raises(TypeError, match=r"^plan: expected a TuningPlan"):
        model(folder, plan=3).fit(x, y)
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "tune": "some", "epochs": 1, "rows": 9}))
    with pytest.raises(ValueError, match=r"^plan\.json: expected"):
        read_plan(str(tmp_path / "plan.json"))
