"""`vicinal fit --query`: lists kept whole, nDCG beside LambdaRank, ranks in predictions."""

import numpy as np
import pandas as pd
import pytest

from vicinal.estimators import load_model
from vicinal.report.tables import verdict_sentence
from vicinal.workflows import TableJob, fit_table, predict_table
from vicinal.workflows.predict import ranks_within
from vicinal.workflows.streaming import predict_file


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"q": np.repeat([f"q{i}" for i in range(30)], 6), "a": random.normal(size=180)})
    frame["grade"] = np.clip(np.round(frame["a"] + 1 + random.normal(scale=0.3, size=180)), 0, 3).astype(int)
    frame.loc[frame.q == "q0", "grade"] = 1
    frame.loc[frame.q == "q1", "grade"] = [0, 1, 2, 3, 0, 0]
    folder = tmp_path_factory.mktemp("ranked") / "model"
    job = TableJob(frame, "grade", query="q", parameters={"metric": "kernel"}, test=0.3)
    return folder, frame, fit_table(job, folder)


def test_queries_are_groups_and_those_without_an_order_are_dropped(fitted):
    _, frame, outcome = fitted
    dropped = outcome.record.dropped["their query has one row or one grade, so no order"]
    each = frame.groupby("q")["grade"].agg(["min", "max", "size"])
    assert dropped == each["size"][each["min"] == each["max"]].sum() > 0
    assert outcome.record.task == "regression"
    sides = [set(outcome.opened.table.groups[at]) for at in (outcome.split.train, outcome.split.test)]
    assert sides[0].isdisjoint(sides[1])


def test_scores_are_ndcg_beside_lambdarank_and_the_verdict_is_in_it(fitted):
    record = fitted[2].record
    assert record.scores["model"]["ndcg@10"] > 0.8
    assert list(record.scores["LambdaRank (raw features)"]) == ["ndcg@10"]
    sentence = verdict_sentence(record)
    assert sentence.startswith(f"nDCG@10 is {record.scores['model']['ndcg@10']:.3g}"[:14])
    assert f"over {record.verdict.rows} test queries" in sentence
    assert record.verdict.typical.value == pytest.approx(record.scores["model"]["ndcg@10"])
    best = max(values["ndcg@10"] for name, values in record.scores.items() if name != "model")
    assert record.verdict.change.value == pytest.approx(record.scores["model"]["ndcg@10"] - best)


def test_predictions_have_ranks_in_each_query_also_where_batches_cut_it(fitted, tmp_path, monkeypatch):
    folder, frame, _ = fitted
    new = frame.drop(columns="grade").sample(frac=1, random_state=0).reset_index(drop=True)
    table = predict_table(folder, new).flat()
    want = table["prediction"].groupby(table["q"]).rank(ascending=False, method="first").astype(int)
    assert table["rank"].tolist() == want.tolist()
    monkeypatch.setattr("vicinal.workflows.streaming.BATCH", 16)
    new.to_csv(tmp_path / "new.csv", index=False)
    predict_file(folder, tmp_path / "new.csv", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["rank"].tolist() == want.tolist()
    assert "rank" not in predict_table(folder, new.drop(columns="q")).columns
    assert load_model(folder).notes_["query"] == "q"


def test_ranks_of_equal_scores_are_in_order():
    assert ranks_within([1.0, 2.0, 1.0], ["a", "a", "a"]) == [2, 1, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query": "quary"}, r"^query: expected one of the columns .* did you mean 'query'"),
        ({}, r"^query: expected at least 3 different queries, one each to train, .* got 2 \('1', '2'\) in all 20 rows"),
        ({"group": "g"}, r"^group: expected none beside a query"),
        ({"also": ["g"]}, r"^target: expected one column of grades with a query, got 2"),
        ({"task": "classification"}, r"^task: expected none for classes beside a query"),
        ({"separator": ";"}, r"^separator: expected none for classes beside a query"),
    ],
)
def test_what_does_not_go_with_a_query_is_refused(settings, message):
    frame = pd.DataFrame({"query": [1, 2] * 10, "g": range(20), "x": range(20), "y": range(20)})
    with pytest.raises(ValueError, match=message):
        fit_table(TableJob(frame, "y", **{"query": "query", **settings}))
