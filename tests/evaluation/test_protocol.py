"""The comparison runner: every fit once, resumed after a stop, refused on other rows; and its tables."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats

from vicinal.evaluation import Run, answers, significance, summarize
from vicinal.evaluation.store import RunStore, run_protocol, split_digest


@dataclass
class Parts:
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    seed: int


def splits(number=3, rows=50):
    made = []
    for seed in range(number):
        order = np.random.default_rng(seed).permutation(rows)
        made.append(Parts(order[:34], order[34:40], order[40:], seed))
    return made


class Counted:
    """Fits that note what they ran, and may stop at a split."""

    def __init__(self, stop_at=None):
        self.calls = []
        self.stop_at = stop_at

    def one(self, name, error):
        def fit(split):
            if (name, split.seed) == self.stop_at:
                raise KeyboardInterrupt
            self.calls.append((name, split.seed))
            return {name: {"mse": error + 0.01 * split.seed, "r2": 0.5}}

        return fit

    def two(self, split):
        self.calls.append(("nona", split.seed))
        return {"nona": {"mse": 0.2}, "nona+knn": {"mse": 0.25}}

    @property
    def methods(self):
        return {"dense": self.one("dense", 0.4), ("nona", "nona+knn"): self.two}


def test_every_fit_runs_once_and_gives_all_its_methods(tmp_path):
    fits = Counted()
    seen = []
    runs = run_protocol(
        fits.methods, splits(), RunStore(tmp_path / "r.json", {}), dataset="d", progress=lambda *a: seen.append(a)
    )
    assert fits.calls == [(name, seed) for seed in range(3) for name in ("dense", "nona")]
    assert [(run.method, run.split) for run in runs][:3] == [("dense", 0), ("nona", 0), ("nona+knn", 0)]
    assert runs[0].sizes == (34, 6, 10)
    assert len(runs) == 9
    assert [len(done) for *_, done in seen[:4]] == [0, 1, 0, 2]
    again = Counted()
    assert run_protocol(again.methods, splits(), RunStore(tmp_path / "r.json", {}), dataset="d") == runs
    assert again.calls == []


def test_a_stopped_comparison_goes_on_where_it_was(tmp_path):
    stopped = Counted(stop_at=("dense", 1))
    with pytest.raises(KeyboardInterrupt):
        run_protocol(stopped.methods, splits(), RunStore(tmp_path / "r.json", {}), dataset="d")
    assert stopped.calls == [("dense", 0), ("nona", 0)]
    resumed = Counted()
    runs = run_protocol(resumed.methods, splits(), RunStore(tmp_path / "r.json", {}), dataset="d")
    assert resumed.calls == [("dense", 1), ("nona", 1), ("dense", 2), ("nona", 2)]
    assert len(runs) == 9


def test_more_splits_methods_and_data_sets_add_to_the_store(tmp_path):
    store = RunStore(tmp_path / "r.json", {})
    first = Counted()
    run_protocol({"dense": first.one("dense", 0.4)}, splits(2), store, dataset="d")
    more = Counted()
    run_protocol(more.methods, splits(3), store, dataset="d")
    assert more.calls == [("nona", 0), ("nona", 1), ("dense", 2), ("nona", 2)]
    alone = Counted()
    run_protocol({"nona": alone.one("nona", 0.2)}, splits(4), store, dataset="d")
    assert alone.calls == [("nona", 3)]
    both = Counted()
    run_protocol(both.methods, splits(4), store, dataset="d")
    assert both.calls == [("dense", 3), ("nona", 3)], "nona is there, nona+knn is not"
    other = Counted()
    assert len(run_protocol({"dense": other.one("dense", 0.4)}, splits(1), store, dataset="e")) == 1
    assert len(store.runs) == 13


def test_other_rows_settings_or_scores_are_refused(tmp_path):
    store = RunStore(tmp_path / "r.json", {})
    fits = Counted()
    run_protocol(fits.methods, splits(), store, dataset="d", settings={"fingerprint": "f"})
    with pytest.raises(ValueError, match=r"^r\.json: expected runs on the same splits, got 'dense' of 'd', split 0"):
        run_protocol(fits.methods, splits(rows=51), store, dataset="d", settings={"fingerprint": "f"})
    with pytest.raises(
        ValueError, match=r"^r\.json: expected runs on 'd' with fingerprint = 'g', got stored ones with"
    ):
        run_protocol(fits.methods, splits(), store, dataset="d", settings={"fingerprint": "g"})
    with pytest.raises(ValueError, match=r"^x: expected scores from the fit of x, got y$"):
        run_protocol({"x": lambda split: {"y": {"mse": 1.0}}}, splits(), store, dataset="e")
    with pytest.raises(ValueError, match=r"^metric: expected one of 'mse', .* got 'rmse'"):
        run_protocol({"x": lambda split: {"x": {"rmse": 1.0}}}, splits(), store, dataset="e")
    assert len(store.runs) == 9


def test_digest_tells_splits_apart():
    one = splits(1)[0]
    assert split_digest(one) == split_digest(splits(1)[0])
    swapped = Parts(one.train, one.test, one.validation, one.seed)
    moved = Parts(one.train[:-1], np.r_[one.train[-1], one.validation], one.test, one.seed)
    assert len({split_digest(split) for split in (one, swapped, moved)}) == 3


def run(dataset, split, method, mse):
    return Run(dataset, split, split, method, {"mse": mse}, 2.0, "", (68, 12, 20))


def test_summary_is_mean_deviation_and_change_against_the_reference():
    dense, nona = [0.4, 0.5, 0.6], [0.35, 0.4, 0.45]
    runs = [run("d", i, name, v) for name, vs in (("dense", dense), ("nona", nona)) for i, v in enumerate(vs)]
    reference, ours = summarize(runs, "mse")
    assert (ours.mean, ours.deviation, ours.splits) == pytest.approx((0.4, 0.05, 3))
    assert ours.change == pytest.approx(-0.2)
    t = scipy.stats.ttest_rel(nona, dense).statistic * math.sqrt((1 / 3) / (1 / 3 + 20 / 68))
    assert ours.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), 2))
    assert math.isnan(reference.change)
    assert math.isnan(reference.p_value)
    assert summarize(runs, "accuracy") == []


def test_change_is_over_the_splits_that_both_have():
    runs = [run("d", 0, "dense", 1.0), run("d", 1, "dense", 9.0), run("d", 0, "nona", 0.5), run("d", 2, "nona", 7.0)]
    assert summarize(runs, "mse")[1].change == pytest.approx(-0.5)
    assert math.isnan(summarize([run("d", 0, "nona", 0.5)], "mse")[0].change)
    assert math.isnan(summarize([run("d", 0, "nona", 0.5)], "mse")[0].deviation)
    broken = [run("d", 0, "dense", 1.0), run("d", 0, "nona", math.nan)]
    assert math.isnan(summarize(broken, "mse")[1].mean)


def test_significance_over_data_sets():
    runs = [
        run(f"d{d}", split, method, error + 0.01 * d)
        for d in range(12)
        for split in range(2)
        for method, error in (("dense", 0.5), ("knn", 0.4), ("nona", 0.3))
    ]
    found = significance([*runs, run("alone", 0, "nona", 0.1)], "mse")
    assert found is not None
    assert (found.methods, len(found.datasets), found.ranks) == (["dense", "knn", "nona"], 12, [3.0, 2.0, 1.0])
    assert found.omnibus.name == "Friedman"
    assert found.omnibus.p_value < 1e-4
    assert found.nemenyi[0][2] < 0.05
    assert found.critical_difference == pytest.approx(2.343 * math.sqrt(12 / 72), abs=1e-3)
    assert found.sentence.endswith("nona is ahead of knn, dense")
    best_by_accuracy = significance(
        [Run(r.dataset, r.split, 0, r.method, {"accuracy": r.metrics["mse"]}, 0, "", (1, 1, 1)) for r in runs],
        "accuracy",
    )
    assert best_by_accuracy.ranks == [1.0, 2.0, 3.0]


def test_significance_of_few_data_sets_or_methods_says_so():
    runs = [run(f"d{d}", 0, m, e) for d in range(2) for m, e in (("dense", 0.5), ("knn", 0.4), ("nona", 0.3))]
    assert "no difference is established; with so few data sets" in significance(runs, "mse").sentence
    two = significance(runs, "mse", methods=["dense", "nona"])
    assert (two.omnibus.name, two.nemenyi, two.critical_difference) == ("Wilcoxon", None, None)
    assert significance(runs[:3], "mse") is None
    assert significance(runs, "mse", methods=["nona"]) is None


def test_the_answer_names_the_best_and_whether_that_may_be_chance():
    values = {"nona": [0.80, 0.84, 0.79], "ridge": [0.81, 0.82, 0.83], "mean": [0.1, 0.1, 0.1]}
    runs = [
        Run("toys", split, split, name, {"accuracy": value}, 1.0, "", (80, 10, 10))
        for name, each in values.items()
        for split, value in enumerate(each)
    ]
    (said,) = answers(runs, "accuracy")
    assert said.startswith("toys: ridge is best, 1.0 points ahead of nona, the next of 3 (p = 0.")
    assert said.endswith("over 3 splits: not significant).")
    (alone,) = answers([run for run in runs if run.split == 0], "accuracy")
    assert alone == "toys: ridge is best, 1.0 points ahead of nona, the next of 3 (one split, no test)."
    shifted = [
        Run("toys", i, i, name, {"mse": mse}, 1.0, "", (80, 10, 10))
        for i in (0, 1)
        for name, mse in {"a": 1.0, "b": 2.0}.items()
    ]
    assert answers(shifted, "mse")[0].endswith("the next of 2 (the same on 2 splits, no test).")
    (single,) = answers([run for run in runs if run.method == "nona"], "accuracy")
    assert single == "toys: nona was run alone."
