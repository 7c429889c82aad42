"""The prediction that belongs to a loss: under a link the h-mean of the labels, under a cost their quantile."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq, minimize_scalar

from vicinal import links
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.loss_readout import constant_of, readout_sentences, with_loss_readout
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.heads.intervals import weighted_quantile
from vicinal.heads.kriging import KrigingWeights
from vicinal.losses import MatchingLoss
from vicinal.losses.spec import matching_link

NETWORK = {"metric": "network", "readout": "attention", "members": 2, "hidden": (8, 4), "max_epochs": 2}
SETTINGS = {
    "comparables": {"metric": "kernel", "readout": "comparables"},
    "logarithms": {"metric": "kernel", "readout": "comparables", "target_transform": "log"},
    "rows": {"metric": "kernel", "readout": "rows"},
    "attention": NETWORK,
}


def rows(count=90, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    return x, np.exp(3 + 0.5 * x[:, 0] + 0.4 * rng.normal(size=count))


X, Y = rows()
NEW = rows(12, seed=1)[0]


@pytest.fixture(scope="module", params=list(SETTINGS))
def model(request):
    return NeighborRegressor(random_state=0, **SETTINGS[request.param]).fit(X, Y)


def standard(values=Y):
    """Center and spread of the labels, by numpy: the 16, 50 and 84 % quantiles that are labels."""
    low, middle, high = (np.quantile(values, level, method="inverted_cdf") for level in (0.16, 0.5, 0.84))
    return middle, (high - low) / 2


def straight_exp(z, scale=1.5, cap=2.0):
    """exp(1.5 z), straight beyond 2, by numpy."""
    end = np.clip(z, -cap, cap)
    return np.exp(scale * end) * (1 + scale * (z - end))


def labels_of(one):
    """Weights and (adjusted) labels of an explanation that lists all rows."""
    listed = [n.label if n.adjusted is None else n.adjusted for n in one.neighbors]
    return np.array([n.weight for n in one.neighbors]), np.array(listed)


def test_under_a_link_h_of_the_prediction_is_the_weighted_mean_of_h_of_the_labels(model):
    center, spread = standard()
    asked = model.for_loss(link="exp(1.5)")
    said = asked.predict(NEW)
    np.testing.assert_array_equal(said, model.predict(NEW, link="exp(1.5)"))
    for one, prediction in zip(asked.explain(NEW, 90), said, strict=True):
        weights, labels = labels_of(one)
        values = straight_exp((labels - center) / spread)
        assert weights.sum() == pytest.approx(1, abs=1e-9)
        assert straight_exp((prediction - center) / spread) == pytest.approx(weights @ values, abs=1e-9)
        assert one.total == pytest.approx(weights @ values, abs=1e-9)
        np.testing.assert_allclose([n.contribution for n in one.neighbors], weights * values, atol=1e-9)
        assert one.prediction == pytest.approx(prediction, abs=1e-9)
        assert (one.transform, one.trend) == ("link", None)
    assert (said > model.predict(NEW)).all()


def test_it_has_the_least_expected_matching_loss_of_all_numbers(model):
    center, spread = standard()
    curve = links.parse("sinh").cap(-2.0, 2.0)
    asked = model.for_loss(link="sinh")
    one = asked.explain(NEW[:1], 90)[0]
    weights, labels = labels_of(one)
    scores = torch.from_numpy((labels - center) / spread)

    def expected(z):
        loss = MatchingLoss(curve, reduction="none")(torch.full_like(scores, z), scores)
        return float(torch.from_numpy(weights) @ loss)

    best = minimize_scalar(expected, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}).x
    assert (one.prediction - center) / spread == pytest.approx(best, abs=1e-5)


def test_the_link_of_squares_is_the_mean_of_the_labels_in_their_own_unit(model):
    said, plain = model.predict(NEW, link="identity"), model.predict(NEW)
    if model.target_transform_.name == "log":
        plain = plain / np.exp(model.target_transform_.constant)
        assert (said > plain).all()  # a mean is above the geometric one
    else:
        np.testing.assert_allclose(said, plain, rtol=1e-9)


def test_a_cost_asks_for_the_quantile_that_costs_least(model):
    asked = model.for_loss(cost=(3, 1))
    said = asked.predict(NEW)
    np.testing.assert_array_equal(said, model.predict(NEW, quantile=0.75))
    np.testing.assert_array_equal(said, model.predict(NEW, cost=3))
    for one, prediction in zip(asked.explain(NEW, 90), said, strict=True):
        weights, labels = labels_of(one)
        costs = [weights @ (3 * (labels - p).clip(0) + (p - labels).clip(0)) for p in labels]
        assert weights @ (3 * (labels - prediction).clip(0) + (prediction - labels).clip(0)) <= min(costs) + 1e-9
        assert one.total == pytest.approx(weights[labels <= prediction + 1e-9].sum(), abs=1e-9)
        assert one.total == pytest.approx(sum(n.contribution for n in one.neighbors), abs=1e-9)
        assert one.total >= 0.75 - 1e-9
        assert one.transform == "quantile"


def test_the_share_of_a_trend_moves_all_labels_alike_and_keeps_the_mean():
    weights = torch.tensor([[0.2, 0.3], [0.0, 0.0]], dtype=torch.float64)
    at, trend = torch.tensor([[0, 1], [1, 2]]), torch.tensor([5.0, 7.0], dtype=torch.float64)
    moves = torch.tensor([[1.0, -1.0], [0.5, 2.0]], dtype=torch.float64)
    labels = torch.tensor([2.0, 8.0, 4.0], dtype=torch.float64)
    local = KrigingWeights(weights, at, torch.ones(2), trend, moves)
    torch.testing.assert_close(local.mean(labels), torch.tensor([0.2 * 3 + 0.3 * 7 + 0.5 * 5, 7.0]).double())
    even = local.without_slack(labels)
    torch.testing.assert_close(even.weights, torch.tensor([[0.4, 0.6], [0.5, 0.5]]).double())
    torch.testing.assert_close(even.mean(labels), local.mean(labels))
    torch.testing.assert_close(
        even.values(labels)[:, 1] - even.values(labels)[:, 0], torch.tensor([4.0, -2.5]).double()
    )


def test_quantiles_are_of_the_labels_of_each_row_where_these_differ():
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.2, 0.1]])
    labels = torch.tensor([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    assert weighted_quantile(weights, labels, 0.5).tolist() == [1.0, 2.0]
    assert weighted_quantile(weights, labels, 0.75).tolist() == [2.0, 3.0]


def test_links_that_grow_exponentially_go_on_straight_unless_that_is_lifted():
    labels = torch.tensor([0.0, 1.0, 2.0, 3.0, 50.0], dtype=torch.float64)
    mass = torch.ones(5, dtype=torch.float64)
    spread = (50.0 - 0.0) / 2  # 16 % and 84 % of five rows
    for text, capped in {
        "exp": 2,
        "sinh(.1)": 2,
        "tan(.1)": 2,
        "arctan": 0,
        "signed_power(3)": 0,
        "tanh(9)": 0,
    }.items():
        scale = TargetTransform.of_link(text, 2.0, labels, mass, PLAIN)
        assert (scale.center, scale.spread, scale.cap) == (2.0, spread, (-2.0, 2.0) if capped else None)
    assert TargetTransform.of_link("exp", None, labels, mass, PLAIN).cap is None
    assert TargetTransform.of_link("exp", 1.0, labels, mass, PLAIN).cap == (-1.0, 1.0)
    assert TargetTransform.of_link("exp", 2.0, labels, mass, PLAIN, unit=False).cap == (2 - 2 * spread, 2 + 2 * spread)
    assert links.grows_exponentially(links.parse("log(shift=-4)"), -2.0, 2.0)
    assert not links.grows_exponentially(links.parse("power(2, shift=-4)"), -2.0, 2.0)
    heavy = TargetTransform.of_link("exp", 2.0, labels, 0 * mass + torch.tensor([0, 0, 0, 1, 9.0]), PLAIN)
    assert heavy.center == 50


def test_intervals_lie_around_the_prediction_that_is_asked_for(model):
    for aim in ({"link": "exp(1.5)"}, {"quantile": 0.6}):
        asked = model.for_loss(**aim)
        (low, high), said = asked.predict_interval(NEW, 0.7).T, asked.predict(NEW)
        assert (low <= said + 1e-9).all()
        assert (said <= high + 1e-9).all()
        at = asked.calibration_.ids  # of which a share of .7 is inside, whatever the rows are
        if model.metric_ == "network" or model.readout_ == "rows":
            low, high = asked.predict_interval(X[at], 0.7, ids=at).T
            assert np.mean((low <= Y[at] + 1e-9) & (Y[at] <= high + 1e-9)) >= 0.7
        if model.readout_ == "comparables" and model.target_transform_.name == "none":
            ends = asked.predict_interval(NEW, 0.7)
            np.testing.assert_allclose(ends.mean(axis=1), said, rtol=1e-9)


def test_folds_and_an_index_read_out_alike():
    folds = NeighborRegressor(random_state=0, validation_fraction=0, **NETWORK).fit(X, Y)
    asked = folds.for_loss(link="exp(1.5)")
    low, high = asked.predict_interval(NEW, 0.7).T
    assert ((low < asked.predict(NEW)) & (asked.predict(NEW) < high)).all()
    assert (asked.out_of_fold_predictions()[1] > folds.out_of_fold_predictions()[1]).all()
    with pytest.raises(ValueError, match=r"^quantile: expected a model that held rows out"):
        folds.for_loss(quantile=0.5).predict_interval(NEW, 0.7)
    settings = {**NETWORK, "readout": "rows"}
    whole, near = (NeighborRegressor(random_state=0, index=index, **settings).fit(X, Y) for index in (None, "exact"))
    np.testing.assert_allclose(near.predict(NEW, link="sinh"), whole.predict(NEW, link="sinh"), rtol=1e-6)


def test_each_of_several_targets_has_its_own_median_and_spread():
    model = NeighborRegressor(metric="kernel", readout="rows").fit(X, np.c_[Y, 100 - 3 * Y])
    said = model.predict(NEW, link="exp(1.5)")
    np.testing.assert_array_equal(said[:, 1], model.of_target("y1").predict(NEW, link="exp(1.5)"))
    np.testing.assert_array_equal(said[:, 0], model.of_target("y0").predict(NEW, link="exp(1.5)"))
    with pytest.raises(ValueError, match=r"^link: expected one target, got 'y0', 'y1'; say of_target first$"):
        model.for_loss(link="sinh")


def test_what_cannot_be_asked_for_is_said():
    dense = NeighborRegressor(metric="kernel", readout="dense").fit(X, Y)
    with pytest.raises(
        ValueError, match=r"^link: expected a model whose weights of labels are not negative, got weights"
    ):
        dense.predict(NEW, link="exp")
    rows_ = NeighborRegressor(metric="kernel", readout="rows").fit(X, Y)
    for aim, message in {
        "none of them": {},
        "got 'link', 'quantile'": {"link": "exp", "quantile": 0.5},
        "rises strictly": {"link": "step"},
        "with values from": {"link": "log"},
        "^quantile: expected": {"quantile": 1.5},
        "^cost: expected": {"cost": (0, 1)},
        "^cap: expected": {"link": "exp", "cap": -1},
    }.items():
        with pytest.raises(ValueError, match=aim):
            rows_.for_loss(**message)


@pytest.mark.sweep(4)
def test_the_model_of_a_loss_is_saved_and_forgets_as_any(model, tmp_path):
    asked = model.for_loss(link="exp(1.5)")
    asked.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(NEW), asked.predict(NEW))
    assert again.target_transform_ == asked.target_transform_
    assert "h = exp(1.5)" in again.target_transform_.sentence
    again.forget([int(Y.argmax())])
    assert (again.predict(NEW) <= asked.predict(NEW) + 1e-9).mean() > 0.5
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["transform"]["link"] = "__import__('os')"
    with pytest.raises(ValueError, match="link"):
        TargetTransform.model_validate(config["transform"], strict=False)


def test_the_constant_of_least_loss_is_where_slopes_cancel():
    rng = np.random.default_rng(0)
    said, truth, mass = rng.normal(size=40), rng.normal(size=40), rng.uniform(0.5, 2, 40)
    root = brentq(lambda c: mass @ (np.exp(said + c) - np.exp(truth)), -9, 9, xtol=1e-12)
    tensors = (torch.from_numpy(each) for each in (said, truth, mass))
    assert constant_of(links.Exp(), *tensors) == pytest.approx(root, abs=1e-9)


@pytest.mark.parametrize("folds", [False, True])
def test_a_model_trained_by_a_loss_is_read_out_as_rows_that_it_has_not_seen_choose(folds, tmp_path):
    z = (Y - standard()[0]) / standard()[1]
    loss = "matching:exp(1.5).cap(-2, 2)"
    share = {"validation_fraction": 0} if folds else {}
    model = NeighborRegressor(loss=loss, random_state=0, **NETWORK | share).fit(X, z)
    fitted, curve = model.fitted_, links.parse("exp(1.5).cap(-2, 2)")
    plain = fitted.read_out_by(PLAIN)
    said, bank, at = plain.honest_predictions()
    truth = bank.labels[at].double()
    linked = fitted.read_out_by(TargetTransform(name="link", link="exp(1.5).cap(-2, 2)"))
    h_mean = linked.codec.transform.inverse(linked.honest_predictions()[0])
    moved = said.double().clone()
    for part in range(5):
        here = torch.arange(len(at)) % 5 == part
        moved[here] += constant_of(curve, said[~here].double(), truth[~here], torch.ones(int((~here).sum())).double())
    losses = [float(curve.divergence(each.double(), truth).mean()) for each in (said, moved, h_mean)]
    scale = model.target_transform_
    assert ["none", "constant", "link"][int(np.argmin(losses))] == ("constant" if scale.constant else scale.name)
    assert (
        "is read out" in readout_sentences(fitted, {"loss": loss, "index": None, "head": "nona", "readout": "auto"})[0]
    )
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(NEW), model.predict(NEW))
    assert readout_sentences(fitted, {"loss": None, "index": None, "head": "nona", "readout": "auto"}) == []


def test_a_constant_is_in_predictions_intervals_and_explanations():
    model = NeighborRegressor(random_state=0, **NETWORK).fit(X, Y)
    moved = NeighborRegressor(random_state=0, **NETWORK).fit(X, Y)
    moved.fitted_ = moved.fitted_.read_out_by(TargetTransform(constant=2.5))
    np.testing.assert_allclose(moved.predict(NEW), model.predict(NEW) + 2.5)
    one = moved.explain(NEW[:1], 90)[0]
    assert one.constant == 2.5
    assert sum(n.contribution for n in one.neighbors) + 2.5 == pytest.approx(one.prediction, abs=1e-9)
    assert "and 2.5" in moved.target_transform_.sentence
    at = moved.calibration_.ids
    low, high = moved.predict_interval(X[at], 0.7, ids=at).T
    assert np.mean((low <= Y[at] + 1e-9) & (Y[at] <= high + 1e-9)) >= 0.7


def test_the_link_of_a_text_is_read_as_it_was_written():
    assert matching_link("matching:exp(1.5).cap(-2, 2), reduction=sum") == "exp(1.5).cap(-2, 2)"
    assert matching_link("matching(link=sinh)") == "sinh"
    assert matching_link("composite_sigmoid:constant") is None
    model = NeighborRegressor(metric="kernel", readout="rows").fit(X, Y).fitted_
    assert with_loss_readout(model, {"loss": None, "index": None, "head": "nona", "readout": "auto"}) is model


def test_commands_ask_for_it_too(tmp_path, capsys):
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = NeighborRegressor(metric="kernel", readout="comparables").fit(frame, Y)
    model.save(tmp_path / "m")
    table = tmp_path / "new.csv"
    table.write_text("a,b\n" + "\n".join(f"{a!r},{b!r}" for a, b in NEW.tolist()))
    new = pd.DataFrame(NEW, columns=["a", "b"])

    def predicted(*options):
        assert run(["predict", str(tmp_path / "m"), str(table), "--json", "--quiet", *options]) == 0
        return json.loads(capsys.readouterr().out)

    records = predicted("--link", "exp(1.5)", "--explain", "90", "--interval", "0.7")
    np.testing.assert_allclose([one["prediction"] for one in records], model.predict(new, link="exp(1.5)"))
    first = records[0]
    assert first["scale"] == "link"
    assert first["low"] < first["prediction"] < first["high"]
    uncapped = predicted("--link", "exp(1.5)", "--cap", "none")
    np.testing.assert_allclose([one["prediction"] for one in uncapped], model.predict(new, link="exp(1.5)", cap=None))
    dear = predicted("--cost", "3:1")
    np.testing.assert_allclose([one["prediction"] for one in dear], model.predict(new, quantile=0.75))
    assert dear == predicted("--quantile", "0.75")
    row = ["--row", json.dumps(dict(zip("ab", NEW[0].tolist(), strict=True))), "--interval", "0.7", "-k", "90"]
    assert run(["explain", str(tmp_path / "m"), *row, "--link", "exp(1.5)", "--json", "--quiet"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["prediction"], one["interval"]) == (first["prediction"], [first["low"], first["high"]])
    assert (one["scale"], one["neighbors"][0]["id"]) == ("link", first["neighbors"][0]["id"])
    assert run(["explain", str(tmp_path / "m"), *row, "--quantile", "0.75"]) == 0
    shown = capsys.readouterr().out
    assert f": {dear[0]['prediction']:.4f}" in " ".join(shown.split())
    assert "adds (share)" in shown
    for options, message in ((["--cost", "3"], "two prices such as 3:1"), (["--link", "exp", "--cap", "x"], "or none")):
        assert run(["predict", str(tmp_path / "m"), str(table), *options]) != 0
        assert message in capsys.readouterr().err
    classes = NeighborClassifier(metric="kernel").fit(frame, np.median(Y) < Y)
    classes.save(tmp_path / "c")
    assert run(["predict", str(tmp_path / "c"), str(table), "--link", "exp"]) != 0
    assert "predicts numbers" in capsys.readouterr().err
