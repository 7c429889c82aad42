"""Small fitted models that the tests of this folder share; none of them may change one in place."""

import pytest

from references.tables import QUICK, table
from vicinal.data import LeakWarning
from vicinal.estimators import NeighborClassifier, NeighborRegressor


@pytest.fixture(scope="session")
def data():
    return table()


@pytest.fixture(scope="session")
def regressor(data):
    frame, price = data
    columns = {"note": "text"}
    return NeighborRegressor(columns=columns, metric="network", **QUICK).fit(
        frame, price, ids=[f"h{i}" for i in range(len(frame))]
    )


@pytest.fixture(scope="session")
def classifier(data):
    frame, _ = data
    moods = frame["note"].str.split().str[1].to_numpy()
    with pytest.warns(LeakWarning, match="^note alone tells the class"):
        return NeighborClassifier(columns={"note": "text"}, metric="network", **QUICK).fit(frame, moods)
