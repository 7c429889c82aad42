"""The one door for labels: whatever users write is a number, a class, or refused in a sentence that names the row."""

import datetime
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.core.identity import IdentityWarning
from vicinal.data.target import LARGEST, read_target
from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor, load_model
from vicinal.estimators.labels import read_classes, read_numbers
from vicinal.estimators.several import read_multilabel, several_numbers

X = np.random.default_rng(7).normal(size=(40, 2))
MISSING = {
    "None": None,
    "NaN": np.nan,
    "NA": pd.NA,
    "NaT": pd.NaT,
    "Decimal": Decimal("NaN"),
    "float32": np.float32("nan"),
}
DAY = pd.Timestamp("2024-01-31")
MOMENTS = {
    "dates": [
        datetime.date(2024, 1, 31),
        DAY,
        DAY.tz_localize("UTC"),
        DAY.to_pydatetime(),
        np.datetime64("2024-01-31"),
    ],
    "dates (periods)": [DAY.to_period("M")],
    "durations": [datetime.timedelta(days=1), pd.Timedelta("1h"), np.timedelta64(3, "D")],
    "times of day": [datetime.time(7, 30)],
}
ALL_MOMENTS = [(words, cell) for words, cells in MOMENTS.items() for cell in cells]


def holders(cells):
    """The same labels in all that may hold them; a holder that cannot is left out."""
    for make in (
        list,
        tuple,
        pd.Series,
        lambda c: pd.Series(c, index=range(5, 5 + len(c))),
        lambda c: pd.DataFrame({"y": c}),
    ):
        yield make(cells)
    objects = np.empty(len(cells), dtype=object)
    objects[:] = cells
    yield objects
    for make in (np.asarray, torch.tensor, lambda c: pl.Series("y", c), pa.array, lambda c: pa.chunked_array([c])):
        try:
            yield make(cells)
        except BaseException:
            continue


@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize("gap", MISSING)
@pytest.mark.parametrize("others", [["a", "b"], [1, 2], [0.5, 1.5], [True, False], [DAY, DAY]], ids=str)
@pytest.mark.parametrize("read", [read_numbers, read_classes])
def test_a_missing_label_is_refused_by_row_whatever_stands_for_it_and_whatever_holds_it(gap, others, read):
    cells = [*others, *others, MISSING[gap], *others]
    if read is read_numbers:
        cells = [1.0 if isinstance(one, str) else one for one in cells]
    seen = 0
    for y in [*holders(cells), pd.Series(cells, dtype=object).astype("category")]:
        with pytest.raises(ValueError, match=r"^y: expected .*\brow 4\b") as refused:
            read(y)
        assert "NaN" in str(refused.value)
        seen += 1
    assert seen >= 7


@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize(("words", "cell"), ALL_MOMENTS, ids=str)
def test_dates_and_the_like_are_no_numbers_in_any_holder(words, cell):
    for y in holders([cell] * 3):
        with pytest.raises(ValueError, match=r"^y: expected numbers, got .* in row 0\); dates and") as refused:
            read_numbers(y)
        assert words.split()[0] in str(refused.value)
        if words != "dates (periods)":
            with pytest.raises(ValueError, match=r"^y: expected classes .* in row 0"):
                read_classes(y)
    with pytest.raises(ValueError, match=r"in row 2"):
        read_numbers([1.0, 2.0, cell])
    for estimator in (NeighborRegressor(metric="kernel"), EmbeddingLearner(labels="numbers")):
        lengths = words in ("durations", "times of day")  # which are numbers of seconds, here all the same
        with pytest.raises(ValueError, match="differ|vary" if lengths else "dates"):
            estimator.fit(X, [cell] * 40)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=6), st.sampled_from([int, Decimal, np.int64]))
def test_whole_numbers_are_classes_of_their_own(values, make):
    assert read_classes([make(value) for value in values]).tolist() == values
    named = read_target(
        pd.Series([value for value in values for _ in range(9)] + [7, 8] * 9, name="y"), "classification"
    )
    assert set(map(str, values)) <= set(named.classes)


@given(st.lists(st.fractions(max_denominator=64).filter(lambda f: abs(f) < 2**40), min_size=1, max_size=5))
def test_numbers_of_every_type_are_the_same_floats(values):
    expected = [float(value) for value in values]
    decimals = [Decimal(value.numerator) / Decimal(value.denominator) for value in values]
    for make in (
        list,
        lambda v: np.array(v, dtype=">f8"),
        lambda v: pd.Series(v, dtype="Float64"),
        lambda v: [str(x) for x in v],
    ):
        assert read_numbers(make(expected)).tolist() == expected
    np.testing.assert_allclose(read_numbers(decimals), expected, rtol=1e-15)
    assert read_numbers(values).tolist() == expected
    assert read_numbers([Fraction(1, 2), True, np.float32(2), "3"]).tolist() == [0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (["a", 3], r"one type, got 3 \(a number\) in row 1 and 'a' \(a text\) in row 0"),
        ([True, 1], r"one type, got 1 \(a number\) in row 1"),
        ([1, 2, "x"], r"one type, got 'x' \(a text\) in row 2"),
        ([b"a", b"b"], "got b'a' in row 0"),
        ([{}, {}], r"got {} in row 0"),
        ([2.0**53, 1.0], "stand for one number each, got 9007199254740992.0 in row 0"),
        ([1, 2**70], "stand for one number each, got .* in row 1"),
        (np.array([1, 2**63], dtype=np.uint64), "stand for one number each, got .* in row 1"),
        (np.array([1.0, np.inf]), "finite numbers, got inf in row 1"),
        ([1 + 2j, 1], r"got \(1\+2j\) in row 0"),
    ],
    ids=str,
)
def test_what_is_no_class_is_refused_by_row(y, sentence):
    with pytest.raises(ValueError, match=f"^y: expected .*{sentence}"):
        read_classes(y)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([1.0, "x"], "numbers, got 'x' in row 1"),
        ([1.0, "nan"], "finite numbers, got nan in row 1"),
        ([1.0, [2]], r"numbers, got \[2\] in row 1"),
        (np.array([1.0, 2j]), "numbers, got .* in row 0"),
        ([1.0, -2 * LARGEST], "at most 1e.120.*in row 1"),
        ([1, 10**400], "finite numbers, got inf in row 1"),
    ],
    ids=str,
)
def test_what_is_no_number_is_refused_by_row(y, sentence):
    with pytest.raises(ValueError, match=f"^y: expected .*{sentence}"):
        read_numbers(y)
    with pytest.raises(ValueError, match=rf"^y: expected .*{sentence}.*\(target 'b'\)"):
        several_numbers([[1.0, cell] for cell in y], ["a", "b"])


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA], ids=str)
def test_missing_classes_among_several_are_refused_by_row(gap):
    for y in ([["a"], ["b", gap]], pd.DataFrame({"a": [1, 0], "b": [0, gap]}, dtype=object)):
        with pytest.raises(ValueError, match=r"^y: expected .* in row 1"):
            read_multilabel(y)
    with pytest.raises(ValueError, match=r"^y: expected names .* in row 1"):
        EmbeddingLearner().fit(X, [["a"], ["b", gap]] * 20)


@pytest.mark.parametrize("gap", MISSING)
def test_the_learner_goes_through_the_same_door(gap):
    names = [MISSING[gap] if row == 7 else "ab"[row % 2] for row in range(40)]
    for y in (names, pd.Series(names, dtype=object), pd.Series(names, dtype=object).astype("category")):
        with pytest.raises(ValueError, match=r"^y: expected .*\brow 7\b"):
            EmbeddingLearner().fit(X, y)
    learner = EmbeddingLearner(labels="numbers")
    with pytest.raises(ValueError, match=r"^y: expected .*\brow 7\b"):
        learner.fit(X, [MISSING[gap] if row == 7 else float(row) for row in range(40)])


BANDS = pd.cut(pd.Series(X[:, 0]), [-9, -0.3, 0.5, 9])
CLASSES = {
    "bands": BANDS,
    "periods": pd.Series(pd.PeriodIndex(np.where(X[:, 0] > 0, "2024-01", "2023-12"), freq="M")),
    "uuid": [uuid.UUID(int=2**70 + int(one > 0)) for one in X[:, 0]],
    "long": (X[:, 0] > 0).astype(np.int64) + 2**53,
    "decimals": [Decimal(int(one > 0)) for one in X[:, 0]],
    "bools": pd.array(X[:, 0] > 0, dtype="boolean"),
    "category": pd.Series(np.where(X[:, 0] > 0, "high", "low")).astype("category"),
    "big-endian": (X[:, 0] > 0).astype(">i4"),
    "list of arrays": [np.int64(one > 0) for one in X[:, 0]],
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_every_make_are_fitted_scored_added_and_saved_under_their_names(name, tmp_path):
    y = CLASSES[name]
    model = NeighborClassifier(metric="kernel").fit(X, y)
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.classes_.tolist() == model.classes_.tolist() == sorted(set(read_classes(y).tolist()))
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert len(again.add(X[:2] + 0.1, list(y)[:2]).bank_) == 42


KERNEL = {"metric": "kernel", "readout": "dense"}


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-100, 1e-34, 1e34, 1e100])
@pytest.mark.parametrize("settings", [KERNEL, {"metric": "network"}, {**KERNEL, "target_transform": "rank"}], ids=str)
def test_only_ratios_of_labels_matter(unit, settings):
    y, settings = X @ [1.0, -2.0], {"metric": "kernel", "members": 2, "max_epochs": 3, **settings}
    plain = NeighborRegressor(**settings).fit(X, y)
    model = NeighborRegressor(**settings).fit(X, y * unit)
    np.testing.assert_allclose(model.predict(X) / unit, plain.predict(X), atol=1e-3)
    np.testing.assert_allclose(model.predict_interval(X, 0.6) / unit, plain.predict_interval(X, 0.6), atol=1e-2)


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e150, 1e300])
def test_units_beyond_what_squares_can_hold_are_refused(unit):
    for y in (X @ [1.0, -2.0], X):
        with pytest.raises(ValueError, match=r"^y: expected .*unit"):
            NeighborRegressor(metric="kernel").fit(X, y * unit)
    model = NeighborRegressor(metric="kernel").fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"^y: expected numbers of at most"):
        model.add(X[:1], [1e150])


def test_an_index_of_the_same_rows_in_another_order_is_named():
    frame, model = pd.DataFrame(X, columns=["a", "b"]), NeighborRegressor(metric="kernel")
    y = frame["a"] - frame["b"]
    with pytest.warns(IdentityWarning, match=r"^y: expected the index of X, got its rows in another order"):
        model.fit(frame, y.sort_values())
    model.fit(frame, y.set_axis(frame.index + 1))  # other rows' names: positions are all there is
    model.fit(frame.set_axis([0] * len(frame)), y)
