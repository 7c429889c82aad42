"""What people do from habit: rows as dictionaries, texts as a list, a model as a step of a pipeline."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from vicinal.estimators import NeighborClassifier, NeighborRegressor
from vicinal.estimators.inputs import as_frame, as_table


def test_dictionaries_and_texts_are_tables():
    table = as_table("X", [{"size": 1.0, "town": "a"}, {"size": 2.0, "town": "b"}])
    pd.testing.assert_frame_equal(table, pd.DataFrame({"size": [1.0, 2.0], "town": ["a", "b"]}))
    for texts in (["red lamp", "blue oak"], np.array(["red lamp", "blue oak"])):
        assert as_table("X", texts)["x0"].tolist() == ["red lamp", "blue oak"]
    assert as_table("X", [1.0, 2.0]) == [1.0, 2.0]


class Offer(NamedTuple):
    size: float
    town: str


def test_one_row_columns_named_tuples_and_records_are_tables():
    want = pd.DataFrame({"size": [1.0, 2.0], "town": ["a", "b"]})
    rows = [Offer(1.0, "a"), Offer(2.0, "b")]
    for value in (rows, {"size": [1.0, 2.0], "town": ["a", "b"]}, want.to_records(index=False)):
        pd.testing.assert_frame_equal(as_table("X", value), want)
    pd.testing.assert_frame_equal(as_table("X", {"size": 1.0, "town": "a"}), want[:1])
    assert as_table("X", {"size": 1.0, "tags": ["red", "new"]})["tags"].tolist() == [["red", "new"]]
    for value in ("rows.csv", (row for row in rows)):
        with pytest.raises(ValueError, match=r"^X: expected rows, got .*pandas\.read_csv"):
            as_table("X", value)


def test_a_row_of_a_table_is_a_row():
    model = BaseEstimator()
    model.feature_names_in_, model.n_features_in_ = np.array(["size", "town"], dtype=object), 2
    table = pd.DataFrame({"size": [1.0, 2.0], "town": ["a", "b"]})
    pd.testing.assert_frame_equal(
        as_frame(model, table.iloc[1], reset=False).reset_index(drop=True), table[1:].reset_index(drop=True)
    )


def test_embeddings_are_features_of_a_pipeline():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    for kind, y in ((NeighborClassifier, x[:, 0] > 0), (NeighborRegressor, x[:, 0])):
        model = kind(metric="kernel").set_output(transform="pandas").fit(x, y)
        table = model.transform(x[:3])
        assert (
            table.columns.tolist()
            == model.get_feature_names_out().tolist()
            == [f"{kind.__name__.lower()}{i}" for i in range(table.shape[1])]
        )
        distances, ids = model.kneighbors(x[:1], 40)
        at = dict(zip(ids[0].tolist(), distances[0].tolist(), strict=True))
        expected = np.linalg.norm(table.to_numpy() - table.to_numpy()[0], axis=1)
        assert [at[place] for place in range(3)] == pytest.approx(expected, abs=1e-3)
    chain = make_pipeline(NeighborClassifier(metric="kernel"), LogisticRegression())
    assert chain.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.8
