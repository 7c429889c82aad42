"""Labels of a regression as people write them: money, shares, lengths of time, marks between thousands."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborRegressor
from vicinal.core import ColumnError

ROWS = 60
X = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 2)), columns=["a", "b"])
VALUES = np.round(2000 + 700 * X["a"] + 200 * X["b"]).abs().to_numpy()

WRITTEN = {
    "dollars": ([f"${value:,.0f}" for value in VALUES], VALUES),
    "shares": (
        [f"{value / 100:.1f} %" for value in VALUES],
        np.array([float(f"{value / 100:.1f}") for value in VALUES]),
    ),
    "euros": ([f"{10 * value:,.0f} €".replace(",", ".") for value in VALUES], 10 * VALUES),
    "commas": ([f"{value / 100:.2f}".replace(".", ",") for value in VALUES], VALUES / 100),
    "clock": ([str(datetime.timedelta(seconds=float(value) + 3600)) for value in VALUES], VALUES + 3600),
    "lengths": ([datetime.timedelta(seconds=float(value)) for value in VALUES], VALUES),
    "timedelta64": (pd.to_timedelta(VALUES, unit="s"), VALUES),
    "numpy": ((1000 * VALUES).astype("timedelta64[ms]"), VALUES),
    "ranges": ([f"{value - 5:.0f}-{value + 5:.0f}" for value in VALUES], VALUES),
}


def fitted(y, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the table, whose column nearly is the target
        return NeighborRegressor(metric="kernel", random_state=0, **settings).fit(X, y)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", WRITTEN)
def test_written_labels_are_the_numbers_that_they_say(name):
    written, values = WRITTEN[name]
    model, plain = fitted(written), fitted(values)
    np.testing.assert_array_equal(model.bank_.labels, plain.bank_.labels)
    queries = X[:9] + 0.1
    np.testing.assert_array_equal(model.predict(queries), plain.predict(queries))
    assert model.score(queries, list(written[:9])) == plain.score(queries, values[:9])


def test_later_labels_are_read_in_the_form_of_the_fit(tmp_path):
    fitted(WRITTEN["euros"][0]).save(tmp_path / "model")
    model = NeighborRegressor.load(tmp_path / "model")
    model.add(X[:2] + 3, ["13.102 €", "950 €"], ids=[100, 101])
    model.relabel([100], ["14.102 €"])
    assert model.bank_.labels[-2:].tolist() == [14102.0, 950.0]
    with pytest.raises(ColumnError, match="y: expected money in € in row 0, got shares in %: '5 %'"):
        model.relabel([100], ["5 %"])
    with pytest.raises(ValueError, match="y: expected a label in each row, got 'n/a' in row 1; leave out"):
        model.add(X[:2] + 3, ["13.102 €", "n/a"])
    assert model.add(X[:1] + 4, [3.5]).bank_.labels[-1] == 3.5


def test_each_of_several_targets_has_a_form(tmp_path):
    table = pd.DataFrame({"price": WRITTEN["euros"][0], "time": WRITTEN["lengths"][0], "area": VALUES})
    fitted(table).save(tmp_path / "model")
    model = NeighborRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(model.bank_.labels, np.stack([10 * VALUES, VALUES, VALUES], axis=1))
    alone = model.of_target("price")
    assert alone.score(X[:9] + 0.1, WRITTEN["euros"][0][:9]) == alone.score(X[:9] + 0.1, 10 * VALUES[:9])
    assert 0.5 < model.score(X[:9] + 0.1, table[:9]) <= 1


def test_a_forecast_keeps_the_form():
    written, values = WRITTEN["dollars"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NeighborRegressor(metric="kernel", random_state=0).fit(X, written, times=np.arange(ROWS))
        assert model.score(X[:9] + 0.1, written[:9]) == model.score(X[:9] + 0.1, values[:9])


def test_labels_of_two_meanings_are_refused():
    with pytest.raises(ValueError, match=r"y: expected labels of one meaning, got '1,234' in row 0.*str.replace"):
        fitted([f"1,{234 + row}" for row in range(ROWS)])


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ("see note", "y: expected numbers, got 'see note' in row 3; correct it, or leave out the row .Neighbor"),
        ("n/a", "y: expected a label in each row, got 'n/a' in row 3; leave out such rows"),
        (None, "y: expected a label in each row, got None in row 3; leave out rows"),
    ],
)
def test_a_label_that_is_no_number_is_named(cells, sentence):
    y = list(WRITTEN["dollars"][0])
    y[3] = cells
    with pytest.raises(ValueError, match=sentence):
        fitted(y)
