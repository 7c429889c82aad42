"""Tables and sentences say what the scores say, also when the model loses."""

import dataclasses

import pytest

from vicinal.report.records import Doubted, Verdict
from vicinal.report.tables import (
    against_reference,
    findings,
    fit_table,
    limits,
    mean_and_deviation,
    spread,
    verdict_sentence,
)


def test_model_comes_first_and_gaps_stay_empty(words):
    scores = {"knn": {"mse": 2.0, "mae": 1.0}, "model": {"mse": 1.0}}
    assert fit_table(dataclasses.replace(words, scores=scores)) == [
        ["", "MSE", "MAE"],
        ["this model", "1", ""],
        ["k-NN (learned embeddings)", "2", "1"],
    ]


def test_findings_are_the_verdict_once_and_what_is_known_out_of_fold(words):
    plain = dataclasses.replace(words, scores={"model": {"mse": 0.8}, "knn": {"mse": 1.0}}, verdict=None)
    assert findings(plain) == ["MSE 0.8 on 1,501 test rows."]
    verdict = Verdict(89, Doubted(38.2, 32.0, 44.1), "ridge", 3, Doubted(0.047, -0.06, 0.16))
    judged = dataclasses.replace(plain, verdict=verdict, out_of_fold={"mse": 0.9})
    first, second = findings(judged)
    assert first == verdict_sentence(judged)
    assert second.endswith("the MSE is 0.9.")


def test_limits_name_what_forget_cannot_do(words):
    assert any("the trained encoder has still seen it" in sentence for sentence in limits(words))
    dense = dataclasses.replace(words, settings={"head": "dense"})
    assert not any("forget" in sentence for sentence in limits(dense))


def test_spread_uses_the_sample_deviation():
    assert mean_and_deviation([1.0, 3.0], 10) == (20.0, pytest.approx(14.1421356))
    assert mean_and_deviation([1.0]) == (1.0, None)


def test_changes_and_wins(comparison):
    record = dataclasses.replace(comparison, results={"d": {"dense": [2.0, 2.0, 2.0], "nona": [1.0, 1.0, 3.0]}})
    assert against_reference(record, "d", "nona") == (pytest.approx(-1 / 6), (2, 3))
    assert against_reference(record, "d", "dense") is None
    assert against_reference(dataclasses.replace(record, higher_is_better=True), "d", "nona")[1] == (1, 3)
    assert spread(record.results["d"]["dense"], record.scale) == "2,000.0 +- 0.0"
    assert spread(record.results["d"]["nona"], record.scale) == "1,666.7 +- 1,154.7"


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ((-0.14, -0.24, -0.031), "MSE 14 % below the best of 3 baselines, ridge (CI -24 to -3.1 %)."),
        ((0.04, 0.01, 0.07), "MSE 4 % above the best of 3 baselines, ridge (CI +1 to +7 %: ridge is better)."),
        ((0.04, -0.01, 0.07), "MSE 4 % above the best of 3 baselines, ridge (CI -1 to +7 %: not significant)."),
        (
            (218.27, 80.0, 400.0),
            "MSE 219 times that of the best of 3 baselines, ridge (CI 81 to 401 times: ridge is better).",
        ),
        ((0.0, 0.0, 0.0), "MSE equal to the best of 3 baselines, ridge."),
        ((float("nan"),), "MSE cannot be compared with the best of 3 baselines, ridge."),
    ],
)
def test_the_verdict_is_honest_both_ways(words, change, clause):
    found = Verdict(
        200, Doubted(0.6, 0.5, 0.72), "ridge (raw features)", 3, Doubted(*change), Doubted(0.91, 0.86, 0.95)
    )
    sentence = verdict_sentence(dataclasses.replace(words, verdict=found))
    assert sentence == (
        f"Median absolute error 0.6 (95 % CI 0.5-0.72) on 200 test rows. {clause} 90 % intervals cover 91 % (86-95)."
    )


@pytest.mark.parametrize(("change", "side"), [(0.025, "2.5 points above"), (-0.01, "1 point below")])
def test_the_verdict_of_classes_speaks_of_shares(digits, change, side):
    found = Verdict(200, Doubted(0.83, 0.77, 0.88), "k-NN", 1, Doubted(change, -0.03, 0.06))
    assert verdict_sentence(dataclasses.replace(digits, verdict=found)) == (
        "Accuracy 83 % (95 % CI 77-88) on 200 test rows. "
        f"Error rate {side} the baseline, k-NN (CI -3 to +6 points: not significant)."
    )


def test_few_rows_are_said_to_be_few(words):
    found = Verdict(6, Doubted(0.6), "mean", 1, Doubted(-0.5))
    assert verdict_sentence(dataclasses.replace(words, verdict=found)) == (
        "Median absolute error 0.6 on 6 test rows: too few rows to say how sure this is. "
        "MSE 50 % below the baseline, mean of the training rows."
    )
    assert verdict_sentence(words) == ""
