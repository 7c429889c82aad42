"""Regressors that learn labels on another scale: what they predict, explain and promise is in the user's units."""

import html
import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from references.tables import QUICK
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, fitting, load_model
from vicinal.estimators.explanation import Trend
from vicinal.estimators.saved_config import SavedConfig
from vicinal.estimators.target_transform import KNOTS, TargetTransform
from vicinal.training import Teacher

NETWORK = {"metric": "network", "members": 2, "hidden": (8, 4), "max_epochs": 2}


def prices(count=70, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    return x, 1000 * np.exp(2 * x[:, 0] + 0.3 * rng.normal(size=count))


@pytest.fixture(scope="module")
def rows():
    return prices()


@pytest.fixture(scope="module", params=["log", "rank"])
def model(request, rows):
    return NeighborRegressor(metric="kernel", target_transform=request.param).fit(*rows)


def test_a_model_of_logarithms_is_that_of_labels_whose_logarithm_was_taken(rows):
    x, y = rows
    of_logs = NeighborRegressor(metric="kernel", target_transform="none").fit(x, np.log(y))
    model = NeighborRegressor(metric="kernel", target_transform="log").fit(x, y)
    np.testing.assert_allclose(model.predict(x), np.exp(of_logs.predict(x)))
    np.testing.assert_allclose(model.predict_interval(x, 0.7), np.exp(of_logs.predict_interval(x, 0.7)))


def test_normal_scores_are_those_of_mean_ranks_and_turn_back():
    labels = torch.tensor([3.0, 1.0, 3.0, 80.0, 7.0], dtype=torch.float64)
    rank = TargetTransform.fitted("rank", labels)
    scores = norm.ppf((np.array([2.5, 1, 2.5, 5, 4]) - 0.5) / 5)
    np.testing.assert_allclose(rank.forward(labels), scores)
    np.testing.assert_allclose(rank.inverse(rank.forward(labels)), labels)
    assert rank.inverse(torch.tensor([-99.0, 99.0])).tolist() == [1, 80]
    many = TargetTransform.fitted("rank", torch.rand(3 * KNOTS, 2, generator=torch.Generator().manual_seed(0)))
    assert [len(knots) for knots in many.labels] == [KNOTS, KNOTS]


def test_predictions_of_logarithms_do_not_run_far_beyond_the_labels(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, 80)[:, None]
    y = np.exp(3 * x[:, 0] + 0.01 * rng.normal(size=80))
    model = NeighborRegressor(metric="kernel", target_transform="log").fit(x, y)
    far = np.array([[9.0], [-9.0]])
    low, high = np.log(y.min()), np.log(y.max())
    limits = np.exp([high + 0.25 * (high - low), low - 0.25 * (high - low)])
    np.testing.assert_allclose(model.predict(far), limits)
    one = model.explain(far[:1])[0]
    assert one.total > np.log(one.prediction) + 1  # what the rows sum to goes on
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(far), model.predict(far))
    unlimited = TargetTransform(name="log")
    assert unlimited.inverse(torch.tensor([30.0])).item() == pytest.approx(np.exp(30.0))
    model.add([[2.1]], [1e6], ids=[900])  # a new label is within the limits
    assert model.fitted_.limited_transform().ends == [(y.min(), 1e6)]
    assert model.predict(far)[0] > limits[0]
    model.relabel([900], [2e6])
    assert model.fitted_.limited_transform().ends == [(y.min(), 2e6)]
    model.forget([900])
    assert model.fitted_.limited_transform().ends == model.target_transform_.ends == [(y.min(), y.max())]


@pytest.mark.parametrize("name", ["softmax", "power"])
def test_rows_whose_scores_separate_classes_rule_none_out(name):
    scale = TargetTransform(name=name, slope=99.0, biases=[0.0] * 4, doubt=0.02)
    chances = scale.inverse(torch.tensor([[9.0, 0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(chances, [[0.985, 0.005, 0.005, 0.005]], rtol=0, atol=1e-12)
    assert "of these, 1 in 50 is shared by all classes alike" in scale.sentence
    assert "shared by all classes" not in scale.model_copy(update={"doubt": 0.0}).sentence


def test_contributions_sum_to_the_prediction_on_its_scale_and_weights_to_1(model, rows):
    x, y = rows
    one = model.explain(x[:1], 4, ids=[0])[0]
    transform = model.target_transform_
    trend = one.trend or Trend(0.0, 0.0, {}, 0.0)
    assert sum(n.weight for n in one.neighbors) + one.other_weight + trend.weight == pytest.approx(1)
    added = one.other_contribution + trend.weight * trend.value
    assert sum(n.contribution for n in one.neighbors) + added == pytest.approx(one.total)
    assert one.prediction == pytest.approx(float(transform.inverse(torch.tensor([one.total]))[0]))
    assert one.prediction == pytest.approx(model.predict(x[:1], ids=[0])[0])
    assert one.transform == transform.name
    for n in one.neighbors:
        assert n.label == y[n.id]
        label = float(transform.forward(torch.tensor([y[n.id]]))[0]) + sum(n.adjustments.values())
        assert n.contribution == pytest.approx(n.weight * label)


def test_intervals_hold_the_prediction_and_logarithms_keep_them_above_0(model, rows):
    low, high = model.predict_interval(rows[0], 0.8).T
    said = model.predict(rows[0])
    assert (low <= said + 1e-9).all()
    assert (said <= high + 1e-9).all()
    assert (low > 0).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"validation_fraction": 0.0},
        {"head": "dense"},
        pytest.param({"readout": "attention"}, marks=pytest.mark.slow),
        pytest.param({"loss": "crps"}, marks=pytest.mark.slow),
    ],
)
def test_folds_dense_heads_and_attention_predict_in_the_users_units(rows, settings):
    x, y = rows
    fitted = NeighborRegressor(target_transform="log", **NETWORK | settings).fit(x, y)
    said, (low, high) = fitted.predict(x), fitted.predict_interval(x, 0.7).T
    assert said.min() > 0.5 * y.min()
    assert said.max() < 2 * y.max()
    assert (low < high).all()
    assert (low > 0).all()


def test_a_saved_model_is_the_same_and_one_of_before_has_no_transform(model, rows, tmp_path):
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(rows[0]), model.predict(rows[0]))
    np.testing.assert_array_equal(again.predict_interval(rows[0], 0.7), model.predict_interval(rows[0], 0.7))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    old = config | {"parameters": {k: v for k, v in config["parameters"].items() if k != "target_transform"}}
    assert (
        SavedConfig.model_validate_json(json.dumps({k: v for k, v in old.items() if k != "transform"})).transform.name
        == "none"
    )
    for edit in ({"transform": {"name": "rank", "labels": [[2.0, 1.0]], "scores": [[0.0, 1.0]]}}, {"transform": {}}):
        with pytest.raises(ValueError, match=r"transform|knots"):
            SavedConfig.model_validate_json(json.dumps(config | edit))


def test_added_corrected_and_forgotten_labels_count_on_the_scale(rows):
    x, y = rows
    model = NeighborRegressor(metric="kernel", target_transform="log").fit(x, y)
    model.add(x[:1] + 9, [5e6]).relabel([3], [77.0])
    assert model.labels_of([3]) == [77]
    assert model.predict(x[:1] + 9)[0] > 1e5
    with pytest.raises(
        ValueError, match=r"^y: expected labels above 0, as their logarithms are learned, got 0.0 in row 1"
    ):
        model.add(x[:2], [1.0, 0.0])
    with pytest.raises(ValueError, match="labels above 0"):
        model.relabel([3], [-1.0])
    assert len(model.bank_) == len(x) + 1
    model.forget([len(x)])
    assert len(model.bank_) == len(x)
    refitted = NeighborRegressor(metric="kernel", target_transform="log").partial_fit(x[:60], y[:60])
    refitted.partial_fit(x[60:], y[60:], ids=range(60, 70), refit=True)
    assert refitted.target_transform_.name == "log"


def test_auto_takes_what_predicts_rows_from_the_others_better_in_their_own_units(rows):
    x, y = rows
    settings = {"metric": "kernel", "random_state": 3}
    parts = [NeighborRegressor(target_transform=name, **settings).fit(x, y) for name in ("none", "log")]
    errors = [
        np.square(m.predict(m.bank_.rows.to_numpy(), ids=m.bank_.ids) - m.bank_.labels.numpy()).mean() for m in parts
    ]
    chosen = NeighborRegressor(target_transform="auto", **settings).fit(x, y)
    best = parts[int(np.argmin(errors))]
    assert chosen.target_transform_.name == best.target_transform_.name
    times = chosen.predict(x) / best.predict(x)
    np.testing.assert_allclose(times, np.exp(chosen.target_transform_.constant), rtol=1e-12)
    negative = NeighborRegressor(target_transform="auto", **settings).fit(x, y - 500)
    network = NeighborRegressor(target_transform="auto", **NETWORK).fit(x, y)  # beside which no kernel is fitted
    assert negative.target_transform_.name == network.target_transform_.name == "none"


@pytest.mark.slow
def test_several_targets_are_transformed_alike_each_by_its_labels(rows):
    x, y = rows
    both = np.c_[y, 5 + y**0.5]
    for name in ("log", "rank", "auto"):
        model = NeighborRegressor(metric="kernel", target_transform=name).fit(x, both)
        second = model.of_target("y1")
        np.testing.assert_allclose(model.predict(x)[:, 1], second.predict(x))
        np.testing.assert_allclose(model.predict_interval(x, 0.7)[:, 1], second.predict_interval(x, 0.7))
        assert second.explain(x[:1])[0].prediction == pytest.approx(model.predict(x[:1])[0, 1])
    with pytest.raises(ValueError, match=r"^cost: expected labels above 0"):
        NeighborRegressor(target_transform="log").fit(x, pd.DataFrame({"price": y, "cost": y - 1e4}))


def test_what_does_not_go_with_a_transform_is_said(rows):
    with pytest.raises(ValueError, match="target_transform: expected one of 'none', 'log', 'rank', 'auto', got 'sqrt'"):
        NeighborRegressor(target_transform="sqrt").fit(*rows)
    with pytest.raises(ValueError, match="target_transform: expected 'none' for classes"):
        NeighborClassifier(target_transform="log").fit(rows[0], rows[1] > 1000)


def test_a_teacher_is_followed_on_the_scale():
    teacher = Teacher(torch.tensor([1.0, 100.0]), torch.tensor([1.0, 0.0]))
    assert teacher.blend(torch.tensor([0.5, 0.5]), (0.0, float(np.log(100.0))), torch.log).tolist() == [0, 0.5]


def test_command_line_report_and_card_say_which_mean_a_prediction_is(rows, tmp_path, capsys):
    x, y = rows
    table = pd.DataFrame({"id": range(len(y)), "a": x[:, 0], "b": x[:, 1], "price": y})
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [
        "fit",
        str(tmp_path / "t.csv"),
        "--target",
        "price",
        "--id",
        "id",
        "--metric",
        "kernel",
        "--no-baselines",
    ]
    assert run([*command, "--target-transform", "log", "--out", str(tmp_path / "m"), "--quiet"]) == 0
    for page in ("README.md", "report.html"):
        assert "weighted geometric mean" in (tmp_path / "m" / page).read_text()
    assert "sum = log of the prediction" in (tmp_path / "m" / "report.html").read_text()
    capsys.readouterr()
    assert run(["explain", str(tmp_path / "m"), "--id", "3"]) == 0
    assert "weighted geometric mean" in " ".join(capsys.readouterr().out.split())
    assert run(["explain", str(tmp_path / "m"), "--id", "3", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)[0]
    total = sum(n["contribution"] for n in one["neighbors"]) + one["others"]["contribution"]
    total += one["trend"]["weight"] * one["trend"]["value"]
    assert one["scale"] == "log"
    assert np.exp(total) == pytest.approx(one["prediction"])
    assert run(["show", str(tmp_path / "m"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["target_transform"] == "log"
    table.assign(price=y - y.min()).to_csv(tmp_path / "zero.csv", index=False)
    assert run(["fit", str(tmp_path / "zero.csv"), *command[2:], "--target-transform", "log"]) == 2
    assert "'price': expected labels above 0" in capsys.readouterr().err


def test_logarithms_are_chosen_by_all_rows_where_the_largest_alone_make_the_squared_error():
    draw = np.random.default_rng(1)
    size = np.exp(2.5 * draw.normal(size=250) + 8)
    y = size * np.exp(0.2 * draw.normal(size=250))
    chosen = NeighborRegressor(metric="kernel", target_transform="auto", random_state=0).fit(size[:, None], y)
    assert chosen.target_transform_.name == "log"


def uneven(count=360, seed=0):
    """Two numbers, and labels whose errors are even on logarithms."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, 2))
    return x, np.exp(x[:, 0] + 0.5 * x[:, 1] + rng.normal(0, 0.7, count))


def test_predictions_by_logarithms_that_were_found_sum_to_what_labels_do(monkeypatch, tmp_path):
    x, y = uneven()
    monkeypatch.setattr(fitting, "_scale_of_less_error", lambda tried: ("log", 2.0))
    auto, log = (NeighborRegressor(target_transform=one, **QUICK).fit(x, y) for one in ("auto", "log"))
    assert log.fitted_.codec.transform.constant == 0
    model = auto.fitted_
    said, bank, at = model.all_left_out()
    np.testing.assert_allclose(model.in_label_units(said).sum(), bank.labels[at].sum(), rtol=1e-9)
    times = auto.predict(x[:9]) / log.predict(x[:9])
    np.testing.assert_allclose(times, np.exp(model.codec.transform.constant), rtol=1e-9)
    assert times[0] > 1.1  # e to half the variance of the errors, nearly
    assert model.trials[0].out_of_fold < log.fitted_.trials[0].out_of_fold
    for one, prediction in zip(auto.explain(x[:9], k=200), auto.predict(x[:9]), strict=True):
        parts = sum(neighbor.contribution for neighbor in one.neighbors) + one.other_contribution + one.constant
        parts += one.trend.contribution if one.trend else 0.0
        np.testing.assert_allclose(np.exp(parts), prediction, rtol=1e-9)
    assert f"times {times[0]:.4g}" in model.codec.transform.sentence
    auto.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(x[:9]), auto.predict(x[:9]))
    middle = auto.for_loss(quantile=0.5)  # is that of the rows as they are
    assert middle.fitted_.codec.transform.constant == 0


def test_weights_count_in_what_predictions_by_logarithms_sum_to(monkeypatch):
    x, y = uneven()
    monkeypatch.setattr(fitting, "_scale_of_less_error", lambda tried: ("log", 2.0))
    model = NeighborRegressor(**QUICK).fit(x, y, sample_weight=np.linspace(0.5, 3, len(y))).fitted_
    said, bank, at = model.all_left_out()
    assert model.codec.transform.constant
    sums = [(each * bank.mass[at]).sum() for each in (model.in_label_units(said), bank.labels[at].double())]
    np.testing.assert_allclose(*sums, rtol=1e-9)


def test_command_line_and_report_say_what_a_mean_of_logarithms_is_times(monkeypatch, tmp_path, capsys):
    x, y = uneven()
    monkeypatch.setattr(fitting, "_scale_of_less_error", lambda tried: ("log", 2.0))
    table = pd.DataFrame({"id": range(len(y)), "a": x[:, 0], "b": x[:, 1], "price": y})
    settings = ["--target", "price", "--id", "id", "--metric", "kernel", "--readout", "rows", "--no-baselines"]
    table.to_csv(tmp_path / "t.csv", index=False)
    assert run(["fit", str(tmp_path / "t.csv"), *settings, "--out", str(tmp_path / "auto"), "--quiet"]) == 0
    report = (tmp_path / "auto" / "report.html").read_text()
    assert "neighbors' labels, times 1." in html.unescape(report)
    assert "labels in the bank, times 1." in report
    assert "sum = log of the prediction / 1." in report
    capsys.readouterr()
    assert run(["explain", str(tmp_path / "auto"), "--id", "3", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)[0]
    parts = sum(n["contribution"] for n in one["neighbors"]) + one["others"]["contribution"] + one["constant"]
    np.testing.assert_allclose(np.exp(parts), one["prediction"], rtol=1e-9)


def test_one_label_far_off_does_not_move_all_predictions_by_logarithms(monkeypatch):
    x, y = uneven()
    monkeypatch.setattr(fitting, "_scale_of_less_error", lambda tried: ("log", 2.0))
    usual = NeighborRegressor(**QUICK).fit(x, y).predict(x[:9])
    y[20] = 1e9
    model = NeighborRegressor(**QUICK).fit(x, y)
    assert model.fitted_.codec.transform.constant == 0
    assert (model.predict(x[:9]) < 10 * usual).all()


@pytest.mark.parametrize(("errors", "taken"), [(-2.5, False), (2.5, False), (3.5, True)])
def test_a_constant_of_logarithms_is_three_standard_errors_from_one(errors, taken):
    model = NeighborRegressor(metric="kernel", target_transform="log", **QUICK).fit(*uneven()).fitted_
    said, bank, at = model.all_left_out()
    labels, units = bank.labels[at].double(), model.in_label_units(said).double()
    doubt = (labels - labels.sum() / units.sum() * units).square().sum().sqrt()
    shift = ((labels.sum() - errors * doubt) / units.sum()).log()
    model.computed.left_out = said + shift, bank, at
    assert (fitting._with_mean(model).codec.transform.constant != 0) is taken
