"""metric="auto": trees, a kernel, the mean of both, or a network, by what each says of rows that it has not seen."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from references.tables import QUICK, table
from vicinal.encoders.ngrams import NgramEncoder
from vicinal.estimators import NeighborClassifier, NeighborRegressor, blending, fitting, load_model, metric_choice
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.kernel_metric import PATIENCE
from vicinal.heads import Kriging
from vicinal.heads.whole_bank import WholeBank
from vicinal.report.summary import ModelSettings
from vicinal.training import likelihood
from vicinal.training.class_kernel import calibrate_scores

SETTINGS = {**QUICK, "random_state": 0}


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def rows(count=150, seed=0):
    """Two numbers and a category, and a smooth function of them."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-2, 2, (count, 2)), columns=["a", "b"]).assign(c=rng.choice(["u", "v"], count))
    return frame, np.sin(frame["a"]) + 3 * frame["b"] + (frame["c"] == "u") + rng.normal(0, 0.05, count)


@pytest.mark.slow
def test_a_smooth_plain_table_is_of_a_kernel_and_equals_what_that_gives():
    frame, y = rows()
    y = y + 3 * np.sin(2 * frame.iloc[:, 0] * frame.iloc[:, 1])  # no sum over columns
    auto, kernel = (NeighborRegressor(metric=metric, **SETTINGS).fit(frame, y) for metric in ("auto", "kernel"))
    assert auto.metric_ == "kernel"
    np.testing.assert_array_equal(auto.predict(frame[:9]), kernel.predict(frame[:9]))


@pytest.mark.slow
def test_steps_are_of_trees_and_equal_what_these_give(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (240, 3)), columns=["a", "b", "c"])
    y = 5.0 * (frame["a"] > 0.3) * (frame["b"] < 0.6) - 3.0 * (frame["c"] > 0.5) + rng.normal(0, 0.1, 240)
    auto, trees = (NeighborRegressor(metric=metric, **SETTINGS).fit(frame, y) for metric in ("auto", "trees"))
    assert auto.metric_ == "trees"
    np.testing.assert_array_equal(auto.predict(frame[:9]), trees.predict(frame[:9]))
    auto.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.metric, again.metric_) == ("auto", "trees")
    np.testing.assert_array_equal(again.predict(frame[:9]), auto.predict(frame[:9]))


def bends(count=120, seed=0):
    """Of which trees and a kernel, read out by few rows, err alike."""
    frame, y = rows(count, seed)
    return frame, 3 * frame["b"] + 2.0 * (frame["a"] > 0.5) + (frame["c"] == "u") + (y - y.mean()) / 9


def test_of_trees_and_a_kernel_that_err_alike_the_mean_is_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(fitting, "HOPELESS", np.inf)  # beside a kernel, too, trees are chosen as they are alone
    monkeypatch.setattr(likelihood, "by_steps", lambda kernel, *known: kernel)  # signed weights of these do better yet
    frame, y = bends()
    auto, trees, kernel = (
        NeighborRegressor(metric=one, **SETTINGS).fit(frame, y) for one in ("auto", "trees", "kernel")
    )
    assert (auto.metric_, kernel.readout_) == ("trees and kernel", "comparables")
    first, second = (one.fitted_.error_of_all() for one in (trees, kernel))
    share = first**-4 / (first**-4 + second**-4)
    for one, head in zip((trees, kernel), auto.network_.head.members(), strict=True):
        one.network_.head.k = head.k  # together 30 rows at most
    new = bends(40, 1)[0]
    mean = share * trees.predict(new) + (1 - share) * kernel.predict(new)
    np.testing.assert_allclose(auto.predict(new), mean, rtol=0, atol=1e-9)
    assert str(auto.fitted_.trials[0]).startswith("trees and kernel, read out by comparables: rmse ")
    assert [one.metric for one in auto.fitted_.trials].count("trees and kernel") == 1
    auto.save(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^index: expected None for the mean of trees and a kernel"):
        load_model(tmp_path / "m", index="exact")


@pytest.mark.parametrize(
    ("of_kernel", "readout", "settings", "chosen"),
    [
        (1.7, "comparables", {}, "trees and kernel"),  # the shares are .89 and .11
        (1.8, "comparables", {}, "trees"),
        (0.5, "comparables", {}, "kernel"),
        (1.1, "dense", {}, "trees"),  # few rows make its predictions, and those of the mean would be made of all
        (0.9, "dense", {}, "trees and kernel"),
        (1.1, "comparables", {"max_neighbors": 20}, "trees"),
        (1.1, "comparables", {"index": "exact"}, "trees"),
        (1.1, "comparables", {"index": "exact", "tune": "auto"}, "trees"),
        (1.1, "comparables", {"readout": "rows"}, "trees"),
    ],
)
def test_one_alone_is_taken_where_it_errs_far_less_or_can_be_read(monkeypatch, of_kernel, readout, settings, chosen):
    frame, y = bends()
    errors = {"trees": 1.0, "kernel": of_kernel, "trees and kernel": min(1.0, of_kernel)}
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: errors[self.metric])
    if readout == "dense":
        monkeypatch.setattr(fitting, "_with_trend", lambda model, *more: model)
    assert NeighborRegressor(**SETTINGS, **settings).fit(frame, y).metric_ == chosen


@pytest.mark.parametrize(("of_both", "chosen"), [(0.905, "trees and kernel"), (0.92, "kernel")])
def test_a_mean_that_errs_more_than_one_alone_is_not_taken(monkeypatch, of_both, chosen):
    errors = {"trees": 1.0, "kernel": 0.9, "trees and kernel": of_both}
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: errors[self.metric])
    assert NeighborRegressor(**SETTINGS).fit(*bends()).metric_ == chosen


def set_errors(monkeypatch, error, spread=0.0):
    """Let models err so much on each row; of few rows of both on a tenth of them by ``spread`` more and else less."""

    def errors(self):
        luck = torch.tensor([9.0] + 9 * [-1.0]).repeat(10) * spread
        is_few = self.metric == "trees and kernel" and self.readout != "dense"
        return (torch.full((100,), error(self)).double() + luck * is_few) / self.optimism, torch.ones(100).double()

    monkeypatch.setattr(FittedModel, "error_of_all", error)
    monkeypatch.setattr(FittedModel, "errors_of_all", errors)


@pytest.mark.parametrize(
    ("rows", "enough", "few"),
    [
        ((10, 10), 0, (10, 10)),
        ((10, 30), 0, (10, 20)),
        ((30, 30), 60, (15, 15)),
        ((120, 30), 0, (15, 15)),
        ((120, 30), 60, (30, 30)),
        ((120, 30), 120, (90, 30)),
    ],
)
def test_both_together_read_30_rows_or_up_to_as_many_as_one_where_that_is_better(monkeypatch, rows, enough, few):
    frame, y = bends()
    of = dict(zip(("trees", "kernel"), rows, strict=True))

    def error(self):
        if self.metric in of:
            self.network.head.k = of[self.metric]
            return 1.0
        return 1.0 if sum(head.k for head in self.network.head.members()) >= enough else 1.011

    set_errors(monkeypatch, error)
    model = NeighborRegressor(**SETTINGS).fit(frame, y)
    assert tuple(head.k for head in model.network_.head.members()) == few
    for one in model.explain(bends(5, 1)[0], 9):
        assert len(one.neighbors) + one.other_count <= sum(few)


@pytest.mark.parametrize(
    ("of_few", "spread", "readout"),
    [(1.009, 0.0, "comparables"), (1.011, 0.0, "dense"), (1.011, 0.1, "comparables"), (1.03, 0.3, "dense")],
)
def test_few_rows_of_both_predict_where_all_rows_of_the_kernel_are_little_better(monkeypatch, of_few, spread, readout):
    frame, y = bends()

    def error(self):
        if self.metric == "kernel":  # by itself the trend of few rows is far worse
            return 1.0 if self.readout == "dense" else 1.1
        if self.metric == "trees and kernel":
            return of_few if self.readout != "dense" else 0.9999
        return 1.0

    set_errors(monkeypatch, error, spread)
    model = NeighborRegressor(**SETTINGS).fit(frame, y)
    assert (model.metric_, model.readout_) == ("trees and kernel", readout)
    assert model.fitted_.few is None


@pytest.mark.parametrize(("enough", "most"), [(30, 30), (60, 60), (61, 120)])
def test_signed_weights_of_few_rows_predict_where_more_are_little_better(monkeypatch, tmp_path, enough, most):
    frame, y = bends()
    monkeypatch.setattr(fitting, "_with_trend", lambda model, *more: model)

    def error(self):
        if self.metric != "trees and kernel":
            return 0.9 if self.metric == "kernel" else 1.0
        looked_at = sum(head.looked_at(len(self.bank)) for head in self.network.head.members())
        return 0.9 if looked_at >= enough else 0.91

    set_errors(monkeypatch, error)
    model = NeighborRegressor(**SETTINGS).fit(frame, y)
    assert (model.metric_, model.readout_) == ("trees and kernel", "dense")
    new = bends(5, 1)[0]
    assert max(len(one.neighbors) + one.other_count for one in model.explain(new, 9)) <= most
    said, bank, at = model.fitted_.all_left_out()  # from what both say
    torch.testing.assert_close(said, model.fitted_.left_out(bank, at)[0], rtol=0, atol=1e-9)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(new), model.predict(new))


@pytest.mark.parametrize(("of_few", "looks"), [(1.05, 2), (1.2, 1)])
def test_few_rows_of_signed_weights_that_err_far_more_on_some_are_not_looked_at_on_all(monkeypatch, of_few, looks):
    frame, y = bends()
    means, calls = Kriging.means_of_first, []
    monkeypatch.setattr(fitting, "_with_trend", lambda model, *more: model)
    monkeypatch.setattr(Kriging, "means_of_first", lambda *given: calls.append(given) or means(*given))

    def error(self):
        of_both = 0.99 if self.network.head.k > 120 else of_few
        return {"trees": 1.1, "kernel": 1.0}.get(self.metric, of_both)

    set_errors(monkeypatch, error)
    assert NeighborRegressor(**SETTINGS).fit(frame, y).metric_ == "trees and kernel"
    assert len(calls) == looks


@pytest.mark.parametrize(
    ("of_trees", "of_kernel", "trends"),
    [(1.0, 0.9, 1), (1.0, 1.1, 1), (1.0, 2.2, 0), (0.01, 0.022, 1)],  # of so quiet labels each row more may say much
)
def test_a_kernel_has_a_trend_only_where_it_may_be_taken(monkeypatch, of_trees, of_kernel, trends):
    frame, y = bends()
    errors, made, network = {"trees": of_trees, "kernel": of_kernel, "trees and kernel": 1.0}, [], fitting.trend_network
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: errors[self.metric])
    monkeypatch.setattr(fitting, "trend_network", lambda *given: made.append(1) or network(*given))
    model = NeighborRegressor(**SETTINGS).fit(frame, y)
    assert len(made) == trends
    kernels = [one for one in model.fitted_.trials if one.metric == "kernel"]
    assert [one.readout for one in kernels] == ["comparables" if trends else "dense"]


def test_of_many_rows_both_have_the_same_folds_and_the_better_one_more_of_the_share(monkeypatch):
    frame, y = bends()
    errors = {"trees": 1.0, "kernel": 1.1, "trees and kernel": 1.0}
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: errors[self.metric])
    few = NeighborRegressor(**SETTINGS).fit(frame, y)
    monkeypatch.setattr(blending, "MANY", 50)
    monkeypatch.setattr(fitting, "MOST_ROWS", 60)  # that the trend is fitted to
    many = NeighborRegressor(**SETTINGS).fit(frame, y)
    shares = [float(model.network_.head.share) for model in (few, many)]
    assert shares == pytest.approx([1.1**4 / (1 + 1.1**4), 1.1**12 / (1 + 1.1**12)])
    assert np.isfinite(many.predict(bends(5, 1)[0])).all()
    assert (many.bank_.folds >= 0).all()


def test_trees_and_a_kernel_of_all_rows_are_saved_explained_and_changed_together(monkeypatch, tmp_path):
    frame, y = rows()
    monkeypatch.setattr(blending, "LEAST", 0.0)
    monkeypatch.setattr(blending, "FAR", 0.0)  # so that no few rows do
    monkeypatch.setattr(fitting, "HOPELESS", 1e9)
    heads, invert = [], WholeBank.__init__

    def watched(self, head, *more):
        heads.append(head)
        invert(self, head, *more)

    monkeypatch.setattr(WholeBank, "__init__", watched)
    model = NeighborRegressor(**SETTINGS).fit(frame, y + 3 * np.sin(2 * frame["a"] * frame["b"]))
    assert (model.metric_, model.readout_) == ("trees and kernel", "dense")
    assert 0 < len(heads) == len({*map(id, heads)})  # the kernel has inverted the matrix for both
    new = rows(30, 1)[0]
    said = model.predict(new)
    for one, prediction in zip(model.explain(new, 150), said, strict=True):
        parts = sum(n.contribution for n in one.neighbors) + one.trend.weight * one.trend.value
        assert (one.other_count, parts) == (0, pytest.approx(prediction, abs=1e-9))
        assert len({n.id for n in one.neighbors}) == len(one.neighbors)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(new), said)
    np.testing.assert_array_equal(again.predict_interval(new), model.predict_interval(new))
    again.add(new, said + 50, ids=range(900, 930))
    assert again.predict(new).mean() > said.mean() + 2
    again.forget(range(900, 930))
    np.testing.assert_allclose(again.predict(new), said, rtol=0, atol=1e-9)


@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
@pytest.mark.parametrize("by", ["log-loss", "likelihood"])
def test_log_odds_of_classes_are_those_of_columns_and_of_rows_together(monkeypatch, tmp_path, classes, by):
    frame, y = rows()
    labels, made = (
        np.array(classes)[np.digitize(y, np.linspace(-2, 2, len(classes) + 1)[1:-1])],
        FittedModel.error_of_all,
    )

    def error(self):
        if self.metric == "kernel" and self.learned is not None:
            return 0.0 if by == "likelihood" else 9.0
        return -1.0 if self.metric == "trees and kernel" else made(self)

    monkeypatch.setattr(FittedModel, "error_of_all", error)
    monkeypatch.setattr("vicinal.estimators.fitted.MOST", 40)
    model, trees, kernel = (
        NeighborClassifier(metric=one, **SETTINGS).fit(frame, labels) for one in ("auto", "trees", "kernel")
    )
    assert (model.metric_, model.readout_) == ("trees and kernel", "dense")
    assert (model.network_.projector.kernel.linear > 0) is (by == "likelihood")
    left_out, _, at = model.fitted_.all_left_out()  # of the rows that trees and kernel are compared by
    np.testing.assert_allclose(left_out, model.fitted_.left_out(model.bank_, at)[0], rtol=0, atol=1e-9)
    assert len(at) == len(frame)
    new = rows(30, 1)[0]
    said, count = model.predict_proba(new), len(classes)
    trend = trees.embedded_rows(new)[1][:, :count].double() + trees.network_.projector.base
    scores = kernel.fitted_.predict_embedded(kernel.embedded_rows(new)[1].double(), kernel.bank_.identity())
    head, scale = model.network_.head, model.target_transform_
    centered = trend.log() - trend.log().mean(dim=1, keepdim=True)
    odds = scale.slope * (head.share * centered + (1 - head.share) * scores) + torch.tensor(scale.biases)
    chances, doubt = odds.softmax(dim=1).detach(), 0.01 / len(frame)
    np.testing.assert_allclose(said, (1 - doubt) * chances + doubt / count, rtol=0, atol=1e-5)
    for one, chances in zip(model.explain(new, 150), said, strict=True):
        assert (one.probability, one.prediction) == (pytest.approx(chances.max()), model.classes_[chances.argmax()])
        assert one.total == pytest.approx(sum(n.contribution for n in one.neighbors) + one.trend.contribution, abs=1e-9)
        assert 1 - one.trend.weight == pytest.approx(sum(n.weight for n in one.neighbors), abs=1e-9)
        assert any(one.trend.columns.values())  # of the first of two classes, too
        assert "->" not in str(one)  # no row is adjusted,
        assert {n.adjusted for n in one.neighbors} == {None}  # so that pages show the cells of the rows
    model.save(tmp_path / "m")
    assert ModelSettings.model_validate_json((tmp_path / "m" / "config.json").read_text()).blend is not None
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(new), said)
    again.add(new.assign(a=new["a"] + 20), ["late"] * len(new), ids=range(900, 930), new_classes=True)
    far = new.assign(a=new["a"] + 20)  # columns know nothing of a class that comes later: rows decide
    assert (again.predict(far) == "late").all()
    head, first = again.network_.head, again.embedded_rows(far[:1])[1]
    of_known = head.members()[0].trend_of(head.parts(first)[0])
    assert again.explain(far[:1])[0].trend.value == pytest.approx(float(of_known.max()))
    again.forget(range(900, 930))
    assert set(again.predict(new)) <= set(classes)


@pytest.mark.parametrize(("of_both", "chosen"), [(0.19, "trees and kernel"), (0.21, "kernel")])
def test_trees_of_classes_are_not_taken_by_the_errors_of_rows_that_chose_them(monkeypatch, of_both, chosen):
    errors = {"trees": 0.1, "kernel": 0.2, "trees and kernel": of_both}
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: errors[self.metric])
    monkeypatch.setattr(FittedModel, "surely_below", lambda *given, **named: True)
    frame, y = rows(80)
    auto = NeighborClassifier(**SETTINGS).fit(frame, y > 0)
    assert auto.metric_ == chosen
    assert {one.metric for one in auto.fitted_.trials} == {*errors}


def test_rows_keep_a_tenth_of_their_slope_where_columns_alone_would_do(monkeypatch):
    made, draw = FittedModel.error_of_all, np.random.default_rng(0)
    monkeypatch.setattr(
        FittedModel, "error_of_all", lambda one: -1.0 if one.metric == "trees and kernel" else made(one)
    )
    frame = pd.DataFrame(draw.uniform(-2, 2, (150, 4)), columns=list("abcd"))
    labels = frame["a"] + frame["b"] + draw.logistic(size=150) > 0
    model, kernel = (NeighborClassifier(metric=one, **SETTINGS).fit(frame, labels) for one in ("auto", "kernel"))
    scores, _, at = kernel.fitted_.all_left_out()
    alone = calibrate_scores(scores, kernel.fitted_.bank_labels()[at]).slope
    share = 1 - model.network_.head.share
    assert float(share * model.target_transform_.slope) == pytest.approx(0.1 * alone, rel=1e-6)


def test_principal_directions_of_texts_are_found_once_for_trees_and_kernel(monkeypatch):
    frame, y = rows()
    frame["t"] = [f"some more words of {i % 70} or {i % 7}" for i in range(len(frame))]
    found, settle = [], NgramEncoder.settle
    monkeypatch.setattr(metric_choice, "BESIDE_TREES", 100)
    monkeypatch.setattr(NgramEncoder, "settle", lambda self, some: found.append(self) or settle(self, some))
    model = NeighborRegressor(**SETTINGS, columns={"t": "text"}, encoders={"t": "ngrams"}).fit(frame, y)
    assert {trial.metric for trial in model.fitted_.trials} >= {"trees", "kernel", "network"}
    assert len(found) == 1


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize(("least", "tried"), [(150, True), (151, False)])
def test_of_few_rows_no_network_is_tried_beside_trees(monkeypatch, classes, least, tried):
    frame, y = rows()
    frame["t"] = [f"some more words of {i % 70} or {i % 7}" for i in range(len(frame))]
    monkeypatch.setattr(metric_choice, "BESIDE_TREES", least)
    settings = {**SETTINGS, "max_epochs": 1, "columns": {"t": "text"}, "encoders": {"t": "ngrams"}}
    model = NeighborClassifier(**settings).fit(frame, y > 0) if classes else NeighborRegressor(**settings).fit(frame, y)
    assert ("network" in {trial.metric for trial in model.fitted_.trials}) is tried


def test_few_photos_have_a_network_beside_trees_as_nothing_else_trains_their_encoder():
    frame, y = rows()
    pixels = np.random.default_rng(0).integers(0, 255, (len(frame), 8, 8, 3), dtype=np.uint8)
    frame["photo"] = [png(one) for one in pixels]
    settings = {**SETTINGS, "max_epochs": 1, "encoders": {"image": "cnn"}}
    model = NeighborRegressor(**settings).fit(frame, y)
    assert {trial.metric for trial in model.fitted_.trials} >= {"trees", "network"}
    model = NeighborClassifier(**settings).fit(frame[["photo"]], y > 0)
    assert {trial.metric for trial in model.fitted_.trials} == {"network"}, "a kernel of what nothing has trained"
    with pytest.warns(UserWarning, match=r"^metric: expected 'auto' or 'network' for classes of images or sounds"):
        NeighborClassifier(metric="kernel", **settings).fit(frame[["photo"]], y > 0)
    NeighborRegressor(metric="kernel", **settings).fit(frame[["photo"]], y)


def test_no_readout_is_chosen_of_a_network_that_was_given_up(monkeypatch):
    frame, y = rows()
    chosen = []
    monkeypatch.setattr(fitting, "HOPELESS", 0.0)
    monkeypatch.setattr(metric_choice, "may_be_trees", lambda *known: False)
    monkeypatch.setattr(fitting, "_with_readout", lambda model, *rest: chosen.append(model) or model)
    settings = {**SETTINGS, "learning_rate": 1e-12, "max_epochs": 5}
    assert NeighborRegressor(**settings).fit(frame, y).metric_ == "kernel"
    NeighborRegressor(metric="network", **settings).fit(frame, y)
    assert len(chosen) == 1


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    ("factors", "chosen"),
    [
        ([1 - PATIENCE - 0.01] * 4, "network"),
        ([1 - PATIENCE + 0.01] * 4, "kernel"),
        ([0.1, 1.1, 1.1, 1.1], "kernel"),  # better on the mean, by a single row
    ],
)
def test_a_network_has_to_be_better_by_more_than_a_twentieth_and_by_more_than_luck(monkeypatch, factors, chosen):
    frame, y = rows()
    one = torch.ones(4, dtype=torch.float64)
    errors = {"kernel": one, "network": torch.tensor(factors, dtype=torch.float64)}
    monkeypatch.setattr(FittedModel, "held_out_errors", lambda self: (errors[self.metric], one))
    monkeypatch.setattr(metric_choice, "may_be_trees", lambda *known: False)
    assert NeighborRegressor(**SETTINGS, readout="rows").fit(frame, y).metric_ == chosen


@pytest.mark.parametrize(
    ("factors", "chosen"),
    [
        ([1.005] * 4, "network"),  # 30 rows can be read
        ([1.1] * 4, "kernel"),
        ([1.2, 1.2, 0.9, 0.9], "network"),  # worse on the mean, by luck
    ],
)
def test_of_texts_signed_weights_of_all_rows_have_to_be_surely_better_than_30_rows(monkeypatch, factors, chosen):
    frame = pd.DataFrame({"t": [f"some more words of {i % 70} or {i % 7}" for i in range(150)]})
    one = torch.ones(4, dtype=torch.float64)
    errors = {"kernel": one, "network": torch.tensor(factors, dtype=torch.float64)}
    monkeypatch.setattr(FittedModel, "held_out_errors", lambda self: (errors[self.metric], one))
    monkeypatch.setattr(FittedModel, "error_of_all", lambda self: 1.0 if self.readout == "dense" else 1.1)
    monkeypatch.setattr(fitting, "surely_less", lambda *given: False)
    settings = {**SETTINGS, "max_epochs": 1, "columns": {"t": "text"}, "encoders": {"t": "ngrams"}}
    model = NeighborRegressor(**settings).fit(frame, rows()[1])
    assert (model.metric_, model.readout_) == (chosen, "dense" if chosen == "kernel" else "rows")


@pytest.mark.parametrize("name", [pytest.param("exact", marks=pytest.mark.slow), "faiss:Flat"])
def test_a_saved_model_with_an_index_is_of_the_metric_that_was_chosen(monkeypatch, name, tmp_path):
    pytest.importorskip("faiss" if name.startswith("faiss") else "torch")
    monkeypatch.setattr(fitting, "HOPELESS", np.inf)  # beside a kernel, too, trees are chosen as they are alone
    frame, y = rows()
    model = NeighborRegressor(index=name, **SETTINGS).fit(frame, y)
    plain = NeighborRegressor(metric=model.metric_, readout=model.readout_, **SETTINGS).fit(frame, y)
    assert model.metric_ in ("trees", "kernel")  # which err alike
    np.testing.assert_allclose(model.predict(frame[:20]), plain.predict(frame[:20]), atol=1e-4)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.metric, again.metric_) == ("auto", model.metric_)
    np.testing.assert_array_equal(again.predict(frame[:20]), model.predict(frame[:20]))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("settings", [{}, {"metric": "network", "readout": "auto"}], ids=str)
def test_a_database_has_no_collection_of_what_was_not_chosen(tmp_path, settings):
    client = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    frame, y = rows(60)
    place = str(tmp_path / "bank.db")
    model = NeighborRegressor(index=f"milvus:{place}", **{**SETTINGS, "max_epochs": 1, **settings}).fit(frame, y)
    heads = 1 if model.readout_ != "attention" else model.members
    assert len(client.MilvusClient(place).list_collections()) == heads
    assert model.predict(frame[:3]).shape == (3,)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "matching:tanh"},
        {"head": "dense"},
        {"similarity": "cosine"},
        {"readout": "attention"},
        {"validation_fraction": 0},
    ],
    ids=str,
)
def test_what_a_kernel_has_not_is_of_a_network(settings):
    frame, y = rows(60)
    assert NeighborRegressor(**{**SETTINGS, "max_epochs": 1, **settings}).fit(frame, y).metric_ == "network"


@pytest.mark.slow
def test_several_classes_are_of_a_network_wide_tables_of_trees_and_texts_of_what_errs_least():
    brief = {**SETTINGS, "max_epochs": 1}
    texts, numbers = table(60)
    alone = NeighborRegressor(columns={"note": "text"}, **brief).fit(texts[["note"]], numbers)
    assert {one.metric for one in alone.fitted_.trials} == {"kernel", "network"}
    frame, y = rows(60)
    several = [["high", "some"] if one else ["some"] for one in y > 0]
    assert NeighborClassifier(**brief).fit(frame, several).metric_ == "network"
    wide = np.random.default_rng(0).normal(size=(60, 65))
    assert NeighborRegressor(**brief).fit(wide, wide[:, 0]).metric_ == "trees"
