"""What a calendar says of columns of dates."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from vicinal.encoders import NumberEncoder
from vicinal.encoders.calendar import calendar_parts
from vicinal.encoders.numeric import SavedNumbers, to_numbers


def test_parts_are_those_of_pandas():
    moments = pd.Series(pd.date_range("1890-02-27 05:30", "2110-03-02", freq="37h", unit="us"))
    got = calendar_parts(to_numbers(moments, "m"))
    dates = moments.dt
    assert (got[:, 0] == dates.month).all()
    assert (got[:, 1] == dates.day_of_week).all()
    angle = 2 * np.pi * (dates.day_of_year - 1) / np.where(dates.is_leap_year, 366, 365)
    np.testing.assert_allclose(got[:, 2], np.sin(angle), atol=1e-12)
    np.testing.assert_allclose(got[:, 3], np.cos(angle), atol=1e-12)
    np.testing.assert_allclose(got[:, 4], dates.hour + dates.minute / 60, atol=1e-6)
    assert (got[:, 5] == dates.day).all()


def test_missing_days_and_no_days():
    assert np.isnan(calendar_parts(np.array([np.nan]))).all()
    assert calendar_parts(np.zeros(0)).shape == (0, 6)


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (np.array([0.0, np.inf]), "within 1e8 of 1970, got inf"),
        (np.zeros((2, 2)), r"days: expected \[n\], got \(2, 2\)"),
    ],
)
def test_days_that_no_calendar_has_are_refused(days, sentence):
    with pytest.raises(ValueError, match=sentence):
        calendar_parts(days)


@pytest.mark.parametrize(
    "days",
    [
        ["2024-01-05", None, "2025-06-07"],
        [datetime.date(2024, 1, 5), None, datetime.date(2025, 6, 7)],
        pd.to_datetime(["2024-01-05", None, "2025-06-07"]),
        pd.to_datetime(["2024-01-05", None, "2025-06-07"]).tz_localize("UTC"),
    ],
    ids=["text", "dates", "moments", "zoned"],
)
def test_the_encoder_remembers_its_columns_of_dates(days):
    stamps = ["2024-01-05 07:00", "2024-01-05 08:30", ""]
    frame = pd.DataFrame({"n": [1.0, 2, 3], "day": days, "text": ["1", "2", "3"], "at": stamps})
    encoder = NumberEncoder(list(frame)).fit(frame)
    assert (encoder.dates, encoder.timed) == (["day", "at"], ["at"])
    names, values = encoder.calendar(frame)
    parts = ["month", "weekday", "year sine", "year cosine"]
    assert names == [f"day: {part}" for part in parts] + [f"at: {part}" for part in (*parts, "hour")]
    np.testing.assert_array_equal(values[:, [0, 1]], [[1, 4], [np.nan, np.nan], [6, 5]])
    np.testing.assert_allclose(values[:, 8], [7, 8.5, np.nan], atol=1e-6)
    months = NumberEncoder("day").fit(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=40, freq="MS")}))
    every = NumberEncoder("day").fit(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=40)}))
    assert (months.calendar_of("day"), every.calendar_of("day")) == (parts, [*parts, "day"])
    again = NumberEncoder.from_config(json.loads(json.dumps(encoder.config())))
    np.testing.assert_array_equal(again.calendar(frame[:1])[1], values[:1])


def test_folders_without_dates_have_no_calendar():
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-05", "2025-06-07"])})
    config = NumberEncoder("day").fit(frame).config()
    former = SavedNumbers.model_validate({k: v for k, v in config.items() if k not in ("dates", "timed")})
    names, values = NumberEncoder.from_config(former.model_dump()).calendar(frame)
    assert (names, values.shape) == ([], (2, 0))
    for wrong in ({"dates": ["n"]}, {"dates": ["day", "day"]}, {"dates": [], "timed": ["day"]}):
        with pytest.raises(ValueError, match="dates of other columns than there are"):
            SavedNumbers.model_validate(config | wrong)
