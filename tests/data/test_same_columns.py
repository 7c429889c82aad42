"""Columns of two tables that hold the same under other names."""

import numpy as np
import pandas as pd
import pytest

from vicinal.data.same_columns import same_columns, sources_of, with_sources


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


def singles(left, right):
    """The left column of each right one that is another's."""
    return {other: one for (one,), (other,) in same_columns(left, right).items()}


def test_columns_are_paired_by_their_cells_and_then_by_their_names():
    left = people().assign(Born=people()["Born"].dt.strftime("%m/%d/%Y"))
    right = people()[20:].assign(Born=people()["Born"].dt.strftime("%Y-%m-%d")).reset_index(drop=True)
    right["Phone"] = "+1 " + right["Phone"].str[1:4]
    right = right.rename(
        columns={"Last Name": "given", "First Name": "family", "Born": "day", "Phone": "telephone", "grade": "segment"}
    )
    assert singles(left, right) == {
        "given": "Last Name",  # their cells count, not what their names would say
        "family": "First Name",
        "day": "Born",
        "telephone": "Phone",  # no cell is the same
    }


def test_equal_names_stay_and_spellings_come_first():
    left = people()
    right = people().rename(columns={"First Name": "last_name", "Last Name": "first-name", "Born": "born"})
    assert singles(left, right) == {"last_name": "Last Name", "first-name": "First Name", "born": "Born"}
    assert same_columns(left, left) == {}
    assert singles(left, people(seed=1)[["Phone"]].rename(columns={"Phone": "x"})) == {"x": "Phone"}


def test_few_cells_in_common_are_nothing():
    left = pd.DataFrame({"kind": list("abcd") * 9, "no": range(36)})
    right = pd.DataFrame({"grade": list("abcd") * 9, "size": range(27, 63)})
    assert same_columns(left, right) == {}
    empty = pd.DataFrame({"x": [None, None]})
    assert same_columns(left, empty) == {}


LANGUAGES = [
    ("Vorname Nachname Geburtsdatum Telefon", "given_name family_name dob phone"),
    ("prénom nom naissance téléphone", "nombre apellidos fecha_nacimiento móvil"),
]


@pytest.mark.parametrize(("names", "others"), LANGUAGES)
def test_names_in_other_languages_tell_where_no_cell_is_the_same(names, others):
    left, right = (
        pd.DataFrame(
            {
                "first": [f"{letter}{n}a" for n in range(30)],
                "last": [f"{letter}{n}o" for n in range(30)],
                "day": pd.Timestamp("1960-01-01") + pd.to_timedelta(np.arange(30) * days, "D"),
                "telephone": [f"+{n:03d} {letter} 55" for n in range(30)],
            }
        )
        for letter, days in (("x", 3), ("y", 2))
    )
    left.columns, right.columns = names.split(), others.split()
    assert singles(left, right[right.columns[::-1]]) == dict(zip(others.split(), names.split(), strict=True))


def test_a_column_may_be_two_of_the_other_table():
    random = np.random.default_rng(0)
    first, last = ([f"{part}{n}" for n in random.integers(0, 50, 200)] for part in ("ann", "son"))
    left = pd.DataFrame({"Name": [f"{b}, {a}" for a, b in zip(first, last, strict=True)], "age": range(200)})
    right = pd.DataFrame({"age": range(200), "surname": last, "given": first})
    right.loc[0, "given"], right.loc[1, ["surname", "given"]] = None, None
    for one, other in ((left, right), (right, left)):
        same = same_columns(one, other)
        assert same == ({("Name",): ("surname", "given")} if one is left else {("surname", "given"): ("Name",)})
        tables = [with_sources(*each) for each in zip((one, other), sources_of(same), strict=True)]
        assert [sorted(each) for each in tables] == [["Name", "age"]] * 2
    two = with_sources(right, sources_of(same_columns(left, right))[1])["Name"]
    assert two[2] == f"{last[2]} {first[2]}"
    assert two[0] == last[0]
    assert two.isna().tolist() == [False, True] + [False] * 198


def test_a_column_may_be_three_of_the_other_table():
    random = np.random.default_rng(0)
    title, first, last = (
        [f"{part}{'abcdefghijklmnop'[n]}" for n in random.integers(0, 16, 200)] for part in ("ti", "ann", "son")
    )
    left = pd.DataFrame({"Name": [f"{c}, {a} {b}" for a, b, c in zip(title, first, last, strict=True)]})
    right = pd.DataFrame({"title": title, "ship": "white star", "given names": first, "surname": last})
    right.loc[0, "given names"] = None
    same = same_columns(left, right)
    assert same == {("Name",): ("title", "given names", "surname")}
    assert with_sources(right, sources_of(same)[1])["Name"][0] == f"{title[0]} {last[0]}"


def test_numbers_of_parts_are_the_same_with_and_without_marks():
    numbers = [f"{'abc'[n % 3]}x-{1000 + 7 * n}-{'kl'[n % 2]}" for n in range(60)]
    left = pd.DataFrame({"no": numbers, "text": [f"bolt {n % 9} steel" for n in range(60)]})
    right = pd.DataFrame({"teil": [each.replace("-", "").upper() for each in numbers], "x": left["text"]})
    assert singles(left, right) == {"teil": "no", "x": "text"}


def test_numbers_of_one_measure_are_paired_where_no_other_is_distributed_like_them():
    random = np.random.default_rng(0)
    stays, sizes, days = (
        random.lognormal(4, 1, (2, 300)),
        random.normal(60, 9, (2, 300)),
        random.uniform(0, 90, (3, 300)),
    )
    left = pd.DataFrame({"eur": stays[0].round(2), "size": sizes[0].round(), "a": days[0].round()})
    right = pd.DataFrame({"worth": [f"{each:.2f} USD" for each in stays[1]], "big": [f"{n:.0f} cm" for n in sizes[1]]})
    right["from"] = days[1].round()
    assert singles(left, right) == {"worth": "eur", "big": "size", "from": "a"}
    twice = singles(left, right.assign(to=days[2].round()))
    assert not {"from", "to"} & {*twice}  # either may be meant
    assert "price" not in singles(left.rename(columns={"eur": "year"}), right.rename(columns={"worth": "price"}))
    flags = pd.DataFrame({"member": random.integers(0, 2, 300)})
    assert singles(flags, pd.DataFrame({"paid": random.integers(0, 2, 300)})) == {}  # few values are anything


def test_lists_are_compared_by_their_words_whatever_stands_between():
    words = [f"{one}{other}" for one in "abcdef" for other in "xyz"]
    random = np.random.default_rng(0)
    rows = [[words[place] for place in random.permutation(18)[:4]] for _ in range(60)]
    left = pd.DataFrame({"ingredients": [", ".join(row) for row in rows]})
    assert singles(left, pd.DataFrame({"needs": [" ; ".join(row) for row in rows[::-1]]})) == {"needs": "ingredients"}
