"""Columns of two tables that hold the same under other names."""

import numpy as np
import pandas as pd

from vicinal.data.same_columns import same_columns


def people(rows=60, seed=0):
    random = np.random.default_rng(seed)
    days = pd.Timestamp("1950-03-04") + pd.to_timedelta(random.integers(0, 20000, rows), "D")
    return pd.DataFrame(
        {
            "Last Name": [f"son{n}" for n in random.integers(0, 500, rows)],
            "First Name": [f"ann{n}" for n in random.integers(0, 500, rows)],
            "Born": days,
            "Phone": [f"({n}) 555-{n}" for n in range(rows)],
            "grade": random.choice(list("abc"), rows),
        }
    )


def test_columns_are_paired_by_their_cells_and_then_by_their_names():
    left = people().assign(Born=people()["Born"].dt.strftime("%m/%d/%Y"))
    right = people()[20:].assign(Born=people()["Born"].dt.strftime("%Y-%m-%d")).reset_index(drop=True)
    right["Phone"] = "+1 " + right["Phone"].str[1:4]
    right = right.rename(
        columns={"Last Name": "given", "First Name": "family", "Born": "day", "Phone": "telephone", "grade": "segment"}
    )
    assert same_columns(left, right) == {
        "given": "Last Name",  # their cells count, not what their names would say
        "family": "First Name",
        "day": "Born",
        "telephone": "Phone",  # no cell is the same
    }


def test_equal_names_stay_and_spellings_come_first():
    left = people()
    right = people().rename(columns={"First Name": "last_name", "Last Name": "first-name", "Born": "born"})
    assert same_columns(left, right) == {"last_name": "Last Name", "first-name": "First Name", "born": "Born"}
    assert same_columns(left, left) == {}
    assert same_columns(left, people(seed=1)[["Phone"]].rename(columns={"Phone": "x"})) == {"x": "Phone"}


def test_few_cells_in_common_are_nothing():
    left = pd.DataFrame({"kind": list("abcd") * 9, "no": range(36)})
    right = pd.DataFrame({"grade": list("abcd") * 9, "size": range(27, 63)})
    assert same_columns(left, right) == {}
    empty = pd.DataFrame({"x": [None, None]})
    assert same_columns(left, empty) == {}
