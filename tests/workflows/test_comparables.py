"""Comparables wherever predictions are explained: their adjusted labels, their trend, and the sums of both."""

import contextlib
import json
import re

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import load_model
from vicinal.estimators.explanation import explanation_table
from vicinal.serve.measures import Measures
from vicinal.serve.served import ServedModel
from vicinal.serve.settings import ServeSettings
from vicinal.workflows.explain import Explainer, explained_record
from vicinal.workflows.explore import Explorer
from vicinal.workflows.predict import predict_table
from vicinal.workflows.show import show_folder


def patients(n=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"key": [f"p{i}" for i in range(n)], "bmi": rng.normal(26, 4, n), "age": rng.uniform(20, 80, n)}
    )
    frame["sex"] = rng.choice(["f", "m"], n)
    frame["progression"] = 6 * frame["bmi"] + frame["age"] + 10 * (frame["sex"] == "f") + rng.normal(0, 8, n)
    return frame.round(0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("comparables")
    patients().to_csv(place / "t.csv", index=False)
    line = ["fit", str(place / "t.csv"), "--target", "progression", "--id", "key", "--metric", "kernel"]
    line += ["--readout", "comparables", "--no-baselines", "--quiet", "--out", str(place / "m")]
    assert run(line) == 0
    return place


def check_sums(rows, trend, others, total):
    """Weights sum to 1, contributions to the prediction, and each is a weight times a label that is adjusted."""
    assert sum(one["weight"] for one in (*rows, trend, others)) == pytest.approx(1, abs=1e-9)
    added = sum(one["contribution"] for one in (*rows, others)) + trend["weight"] * trend["value"]
    assert added == pytest.approx(total, abs=1e-9 * abs(total))
    assert trend["base"] + sum(trend["columns"].values()) == pytest.approx(trend["value"], abs=1e-9 * abs(total))
    for one in rows:
        assert set(one["adjustments"]) == {"bmi", "age", "sex"}
        assert one["label"] + sum(one["adjustments"].values()) == pytest.approx(one["adjusted"], abs=1e-9 * abs(total))
        assert one["weight"] * one["adjusted"] == pytest.approx(one["contribution"], abs=1e-9 * abs(total))


def test_the_report_of_a_fit_shows_adjusted_labels_and_the_trend(place):
    text = (place / "m" / "report.html").read_text()
    assert "trend by columns" in text
    assert "This row beside its comparables" in text
    assert re.search(r"→ -?[\d,.]+</span>", text)
    assert "each adjusted by a trend by columns" in text
    assert "Learning curves" not in text
    settings = show_folder(place / "m")["settings"]
    assert (settings["metric"], settings["readout"]) == ("kernel", "comparables")


def test_the_dry_run_of_classes_names_both_metrics_and_their_mean(tmp_path, capsys):
    frame = pd.DataFrame({"a": np.arange(60.0) ** 1.5, "y": ["low", "high"] * 30})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert run(["fit", str(tmp_path / "t.csv"), "--target", "y", "--dry-run"]) == 0
    assert "a kernel model and a tree model, and keep the better or their mean." in capsys.readouterr().out


def test_the_dry_run_names_the_metrics_that_are_tried(place, capsys):
    line = ["fit", str(place / "t.csv"), "--target", "progression", "--id", "key", "--dry-run"]
    assert run(line) == 0
    assert "Will train a kernel model and a tree model, and keep the better or their mean." in capsys.readouterr().out
    assert run([*line, "--metric", "trees", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"]["metrics"] == ["trees"]
    assert run([*line, "--metric", "network"]) == 0
    assert "Neural model: 8 members" in capsys.readouterr().out


def test_explain_gives_and_prints_them(place, capsys):
    row = load_model(place / "m").bank_.ids[0]
    one = explained_record(Explainer(place / "m", 3).ids([row])[0])
    check_sums(one["neighbors"], one["trend"], one["others"], one["prediction"])
    assert all(set(n["near_by"]) == {"bmi", "age", "sex"} for n in one["neighbors"])
    assert run(["explain", str(place / "m"), "--id", row, "-k", "3"]) == 0
    printed = capsys.readouterr().out
    assert "adjusted" in printed
    assert "trend " in printed


def test_predict_gives_them_as_records_and_in_columns(place):
    answers = predict_table(place / "m", patients(3, 1).drop(columns=["key"]), explain=2)
    for one in answers.records():
        check_sums(one["neighbors"], one["trend"], one["others"], one["prediction"])
    flat, first = answers.flat().iloc[0], answers.explanations[0]
    assert flat["neighbor_1_adjusted"] == first.neighbors[0].adjusted
    assert re.fullmatch(r"\w+ [+-]\S+, \w+ [+-]\S+", flat["neighbor_1_by"])
    assert flat["trend_weight"] * flat["trend_value"] == pytest.approx(flat["trend_contribution"], abs=1e-12)
    parts = [flat[f"{name}_contribution"] for name in ("neighbor_1", "neighbor_2", "trend", "others")]
    assert sum(parts) == pytest.approx(flat["prediction"], abs=1e-9 * flat["prediction"])


def test_a_table_and_a_notebook_show_them(place):
    model = load_model(place / "m")
    explanations = model.explain(patients(2, 1)[["bmi", "age", "sex"]], k=2)
    lines = explanation_table(explanations)
    assert lines["id"].tolist()[2:4] == ["trend", "others"]
    for _, part in lines.groupby("query"):
        assert part["weight"].sum() == pytest.approx(1, abs=1e-9)
        assert part["contribution"].sum() == pytest.approx(part["prediction"].iloc[0], rel=1e-9)
    assert lines["adjusted"].iloc[0] == explanations[0].neighbors[0].adjusted
    assert "The trend by columns says" in explanations._repr_html_()


def test_served_explanations_have_them(place):
    settings = ServeSettings(models={"m": str(place / "m")})
    rows = patients(2, 1).drop(columns=["key", "progression"]).to_dict("records")
    with contextlib.closing(ServedModel("m", str(place / "m"), settings, Measures())) as served:
        predictions = served.explain(json.dumps({"rows": rows, "k": 2}).encode())["predictions"]
    for one in predictions:
        check_sums(one["neighbors"], one["trend"], one["others"], one["prediction"])


def test_the_page_of_a_model_has_them(place):
    one = Explorer(place / "m", 3).row(load_model(place / "m").bank_.ids[0])
    rows = [{**n, "contribution": n["adds"]} for n in one["behind"]]
    check_sums(rows, one["trend"], {**one["others"], "contribution": one["others"]["adds"]}, one["prediction"])


@pytest.mark.parametrize(("least", "more"), [(1000, []), (10, ["network"])])
def test_the_dry_run_names_metrics_of_few_and_of_many_rows_with_texts(
    place, tmp_path, capsys, monkeypatch, least, more
):
    frame = pd.read_csv(place / "t.csv")
    frame["note"] = [f"some more words of {i % 70} or {i % 7}" for i in range(len(frame))]
    frame.to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr("vicinal.estimators.metric_choice.BESIDE_TREES", least)
    line = ["fit", str(tmp_path / "t.csv"), "--target", "progression", "--id", "key", "--dry-run", "--json"]
    assert run(line) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["training"]["metrics"] == ["kernel", "trees", *more]
    assert (said["memory"] > 9e8) == ("minilm" in said["columns"]["note"]["encoder"])
    assert run(line[:-1]) == 0
    assert ("Memory: about 770 MB, 950 MB if an encoder is tuned." in capsys.readouterr().out) == (said["memory"] > 0)
