"""Predictions that treat the groups of an attribute alike: the term, the fit, and what is measured."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.cli import run
from vicinal.data.attributes import attribute_groups
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.evaluation import group_gap
from vicinal.losses import distance_covariance, equal_rates, group_rates
from vicinal.training.fairness import FairTerm

QUICK = {"members": 1, "hidden": (8,), "max_epochs": 12, "learning_rate": 2e-2}


def people(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    table = pd.DataFrame({"id": [f"r{i}" for i in range(rows)], "a": rng.normal(size=rows) + 1.5 * (sex == "m")})
    table["b"] = rng.normal(size=rows)
    table["sex"] = sex
    table["said"] = np.where(table["a"] + table["b"] + 0.5 * rng.normal(size=rows) > 0.7, "yes", "no")
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fair")
    people().to_csv(place / "t.csv", index=False)
    line = ["fit", str(place / "t.csv"), "--target", "said", "--id", "id", "--fair", "sex", "--fair-weight", "3"]
    line += ["--members", "1", "--hidden", "8", "--max-epochs", "5", "--learning-rate", "0.01", "--no-baselines"]
    assert run([*line, "--out", str(place / "m"), "-q"]) == 0
    return place


@pytest.mark.parametrize("rate", ["positive", "true_positive", "false_positive", "accuracy"])
def test_the_term_of_two_classes_is_that_of_equal_rates_of_the_second(rate):
    generator = torch.Generator().manual_seed(0)
    chances = torch.rand(30, 2, generator=generator, dtype=torch.float64).softmax(1).requires_grad_()
    labels, groups = torch.eye(2, dtype=torch.float64)[torch.arange(30) % 2], torch.arange(30) % 3
    term = FairTerm(groups, weight=2.0, rate=rate)
    floored = 1e-4 + (1 - 2e-4) * chances
    expected = 2 * equal_rates(floored[:, 1], groups, labels[:, 1], rate=rate)
    torch.testing.assert_close(term(chances, labels, torch.arange(30)), expected)
    assert torch.autograd.gradcheck(lambda p: term(p, labels, torch.arange(30)), chances)


def test_more_classes_have_the_mean_of_their_terms_and_groups_without_rows_that_count_are_left_out():
    chances, labels = torch.rand(12, 3).softmax(1), torch.eye(3)[torch.arange(12) % 3]
    groups = torch.tensor([0, 1] * 6)
    each = [equal_rates(1e-4 + (1 - 2e-4) * chances[:, k], groups) for k in range(3)]
    torch.testing.assert_close(FairTerm(groups, weight=1.0)(chances, labels, torch.arange(12)), sum(each) / 3)
    alone = FairTerm(torch.tensor([0, 0, 1]), rate="true_positive")
    two = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])
    assert alone(two, torch.eye(2)[[1, 1, 0]], torch.arange(3)) == 0  # no positive label in the second group
    assert alone(two[:2], torch.eye(2)[[1, 1]], torch.arange(2)) == 0


def test_the_term_of_numbers_is_their_unbiased_distance_covariance_with_groups():
    said, groups = torch.rand(9, dtype=torch.float64), torch.arange(9) % 3
    term = FairTerm(groups, weight=4.0, numbers=True)
    expected = 4 * distance_covariance(said, torch.eye(3, dtype=torch.float64)[groups] / 2**0.5, unbiased=True)
    torch.testing.assert_close(term(said, said, torch.arange(9)), expected)
    assert term(said[:3], said[:3], torch.arange(3)) == 0  # fewer than four rows have none
    assert (FairTerm(groups).weight, FairTerm(groups, numbers=True).weight) == (0.1, 1.0)


@pytest.mark.slow
def test_a_fair_fit_predicts_more_alike_and_does_not_read_the_attribute():
    table = people()
    x, y = table[["a", "b", "sex"]], table["said"].to_numpy()
    gaps = []
    for weight in (0.0, 3.0):
        model = NeighborClassifier(fair="sex", fair_weight=weight, **QUICK).fit(x[:180], y[:180])
        chances = model.predict_proba(x[180:])
        np.testing.assert_array_equal(chances, model.predict_proba(x[["a", "b"]][180:]))
        gaps.append(group_gap(chances, y[180:], x["sex"].to_numpy()[180:], classes=model.classes_).probabilities)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert gaps[1] < 0.5 * gaps[0]
    read = NeighborClassifier(fair="sex", columns={"sex": "category"}, **QUICK | {"max_epochs": 1}).fit(x, y)
    assert read.feature_names_in_.tolist() == ["a", "b", "sex"]


def test_a_fair_fit_of_numbers_takes_the_network_and_attention():
    table = people()
    y = (table["a"] + table["b"]).to_numpy()
    gaps = []
    for weight in (0.0, 30.0):
        settings = QUICK | {"max_epochs": 8}
        model = NeighborRegressor(fair="sex", fair_weight=weight, **settings).fit(table[["a", "b", "sex"]], y)
        gaps.append(group_gap(model.predict(table[["a", "b"]]), y, table["sex"].to_numpy()).gap)
    assert (model.metric_, model.readout_) == ("network", "attention")
    assert gaps[1] < 0.8 * gaps[0]


def test_the_fit_says_the_gap_and_keeps_the_attribute_out(folder):
    model = load_model(folder / "m")
    assert (model.fair, model.fair_weight, model.fair_rate) == ("sex", 3.0, "positive")
    assert list(model.kinds_) == ["a", "b"]
    assert "By sex, the share predicted yes" in (folder / "m" / "report.html").read_text()


@pytest.mark.slow
def test_an_audit_compares_the_groups_of_the_fit_or_of_another_column(folder, capsys):
    line = ["evaluate", str(folder / "m"), str(folder / "t.csv"), "-q"]
    capsys.readouterr()
    assert run([*line, "--json"]) == 0
    fairness = json.loads(capsys.readouterr().out)["fairness"]
    assert [part["group"] for part in fairness["parts"]] == ["f", "m"]
    assert fairness["low"] <= fairness["gap"] <= fairness["high"]
    assert run([*line, "--fair", "b", "--out", str(folder / "a.html")]) == 0
    assert "By b" in capsys.readouterr().out
    assert "By b, the share predicted yes differs by" in (folder / "a.html").read_text()


def test_commands_refuse_what_cannot_be_fair_in_a_sentence(folder, capsys):
    line = ["fit", str(folder / "t.csv"), "--out", str(folder / "x"), "-q"]
    for arguments, said in (
        (["--target", "said", "--fair", "sec"], "--fair: expected one of the columns"),
        (["--target", "a", "--fair", "sex", "--metric", "kernel"], "--fair: expected metric='network', got 'kernel'"),
        (["--target", "a", "--fair", "sex", "--readout", "rows"], "--fair: expected readout='attention'"),
        (["--target", "a", "--fair", "sex", "--validation", "0"], "--fair: expected validation_fraction above 0"),
        (["--target", "a", "--fair", "sex", "--fair-rate", "accuracy"], "--fair-rate: expected 'positive' for num"),
        (["--target", "a", "--fair", "sex", "--loss", "crps"], "--fair: expected a loss of predictions, got crps"),
        (["--target", "a", "--fair", "id"], "--fair: expected an attribute of 2 to 20 different values"),
    ):
        capsys.readouterr()
        assert run([*line, *arguments]) == 2
        assert said in capsys.readouterr().err
    assert run(["refit", str(folder / "m"), "-q"]) == 2
    assert "expected a table with the column 'sex'" in capsys.readouterr().err
    with pytest.raises(ValueError, match=re.escape("fair: expected X to be a table with the column sex, got an array")):
        NeighborRegressor(fair="sex").fit(np.zeros((20, 2)), np.arange(20.0))
    with pytest.raises(TypeError, match="fair: expected the name of a column"):
        NeighborRegressor(fair=3).fit(np.zeros((20, 2)), np.arange(20.0))


def test_groups_are_values_or_quarters_and_missing_cells_are_one():
    codes, names = attribute_groups(pd.Series([1.0, None, 0.0, 1.0], name="sex"))
    assert (codes.tolist(), names) == ([1, 2, 0, 1], ["0", "1", "missing"])
    codes, names = attribute_groups(pd.Series(np.arange(40.0), name="age"))
    assert np.bincount(codes).tolist() == [10, 10, 10, 10]
    for values, got in ((["a"] * 5, 1), ([f"n{i}" for i in range(30)], 30)):
        with pytest.raises(ValueError, match=f"^fair: expected an attribute of 2 to 20 .* got {got} in column x$"):
            attribute_groups(pd.Series(values, name="x"))


@pytest.mark.parametrize("rate", ["positive", "true_positive", "false_positive", "accuracy"])
def test_a_gap_is_that_of_the_rates_of_decisions(rate):
    rng = np.random.default_rng(1)
    chances, truth = rng.dirichlet([1, 1], 200), rng.choice(["no", "yes"], 200)
    sex = rng.choice(["f", "m"], 200, p=[0.3, 0.7])
    gap = group_gap(chances, truth, sex, attribute="sex", classes=["no", "yes"], rate=rate)
    decided, labels = (torch.tensor(values * 1.0) for values in (chances[:, 1] > 0.5, truth == "yes"))
    each, _ = group_rates(decided, torch.tensor((sex == "m") * 1), labels, rate=rate)
    assert gap.gap == pytest.approx(float(each.max() - each.min()))
    assert [part.rate for part in gap.parts] == pytest.approx(each.tolist())
    assert gap.low < gap.gap < gap.high
    assert gap.sentence.startswith("By sex, ")


def test_the_interval_of_a_gap_covers_the_true_one():
    inside = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sex = np.repeat(["f", "m"], 60)
        said = rng.normal(size=120) + 0.8 * (sex == "m")
        gap = group_gap(said, np.zeros(120), sex, resamples=300)
        inside += gap.low <= 0.8 <= gap.high
    assert 51 <= inside <= 60


def test_a_gap_of_several_classes_is_the_widest_and_one_of_nothing_says_so():
    sex = np.array(["f", "f", "m", "m"])
    chances = np.array([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1]])
    assert group_gap(chances, np.array(list("abca")), sex, classes=["a", "b", "c"]).gap == 0.5
    same = group_gap(np.ones(4), np.zeros(4), sex, attribute="sex")
    assert same.sentence == "By sex, the mean prediction is 1 in all groups."
    with pytest.raises(ValueError, match="fair: expected rows that count in two groups of group"):
        group_gap(chances[:, :2], np.array(["b", "a", "a", "a"]), sex, classes=["a", "b"], rate="true_positive")


def test_groups_and_classes_without_rows_take_no_part_in_a_gap():
    two = np.array([0, 0, 2, 2])
    assert group_gap(np.array([1.0, 3.0, 5.0, 5.0]), np.zeros(4), two, names=["f", "d", "m"]).between == ("m", "f")
    chances = np.eye(3)[[0, 1, 0, 0]]
    by_class = {"classes": ["a", "b", "c"], "rate": "true_positive"}
    gap = group_gap(chances, np.array(list("aaaa")), two, names=["f", "d", "m"], **by_class)
    assert (gap.label, gap.gap, [part.group for part in gap.parts]) == ("a", 0.5, ["f", "m"])
    with pytest.raises(ValueError, match="expected rows that count in two groups of group, got 1 such groups"):
        group_gap(chances, np.array(list("aabb")), two, **by_class)


def test_rows_of_one_group_end_a_fit_and_an_audit_with_a_sentence(tmp_path, capsys):
    table = people(120)
    table.loc[table.index[:-2], "sex"] = "f"
    table.loc[table.index[-2:], "sex"] = "m"
    table.to_csv(tmp_path / "t.csv", index=False)
    few = ["--members", "1", "--hidden", "8", "--max-epochs", "2", "--no-baselines", "--seed", "1"]
    line = ["fit", str(tmp_path / "t.csv"), "--target", "a", "--id", "id", "--fair", "sex", *few]
    assert run([*line, "--out", str(tmp_path / "m"), "-q"]) == 0
    assert "Groups of sex cannot be compared on these rows" in (tmp_path / "m" / "report.html").read_text()
    new = people(40, seed=1).assign(sex="f", id=[f"new{i}" for i in range(40)])
    new.to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "m"), str(tmp_path / "new.csv"), "--json", "-q"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fairness"] == {}
    assert "Groups of sex cannot be compared on these rows" in " ".join(said["notes"])
