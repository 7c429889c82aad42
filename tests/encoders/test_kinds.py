"""What columns are taken for, and why."""

import datetime

import numpy as np
import pandas as pd
import pytest

from vicinal.encoders import infer_kinds
from vicinal.encoders.kinds import read_list
from vicinal.encoders.numeric import NumberEncoder

N = 40
WORDS = ["fine", "red house by the sea", "old", "very long and winding road to nowhere"]


def kind_of(cells, name="x"):
    return infer_kinds(pd.DataFrame({name: cells}))[name]


@pytest.mark.parametrize(
    ("cells", "kind", "reason"),
    [
        (np.linspace(-1, 2, N), "number", "numbers from -1 to 2"),
        ([1, 2, None] * 9, "number", "numbers from 1 to 2"),
        ([85255, 36372, 85255] * 9, "number", "numbers from 36372 to 85255"),
        (pd.to_datetime(["2020-01-01", "2021-05-05", None]), "number", "dates, as days since 1970"),
        (["2020-01-01", "2021-05-05T10:00"] * 9, "number", "dates, as days since 1970"),
        (["1.5", "-2e3", " 7 "], "number", "text that reads as numbers"),
        (["01234", "85255"] * 9, "category", "digits with leading zeros, 2 different values"),
        ([True, False, True], "category", "2 different values"),
        (["red", "blue", None, "red"] * 5, "category", "2 different values"),
        (pd.Categorical([f"v{k}" for k in range(N)]), "category", "40 different values"),
        ([f"word{chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(N)], "text", "text of 1.0 words on average"),
        (["a b c d e", "f g h i j"] * 9, "text", "text of 5.0 words on average"),
        ([f"p/{k}.JPG" for k in range(N)], "image", "paths of images (.jpg)"),
        (["a.wav", "b.flac", "c.ogg"], "audio", "paths of sounds (.wav)"),
        ([[1.0, 2], [3, 4], None], "vector", "lists of 2 numbers"),
        ([np.zeros(3), np.ones(3)], "vector", "lists of 3 numbers"),
        ([None, np.nan], None, "left out: all missing"),
        (["", " "], None, "left out: all missing"),
        (["same"] * 5, None, "left out: 'same' in every row"),
        ([7.0] * 5, None, "left out: 7.0 in every row"),
        ([f"{k:05d}" for k in range(N)], "number", "digits with leading zeros, 40 different values"),
        ([7.0, None, 7.0], "number", "numbers from 7 to 7"),
        (range(10, 10 + N), "number", "numbers from 10 to 49"),
        ([f"A-{k:04d}" for k in range(N)], None, "left out: looks like an id (all different)"),
        ([f"{k:010d}" for k in range(N)], None, "left out: looks like an id (long codes, all different)"),
        ([b"what is this", b"?"], None, "left out: bytes of an unknown format (b'what is this')"),
    ],
)
def test_kind_and_reason(cells, kind, reason):
    found = kind_of(cells)
    assert (found.kind, found.reason) == (kind, reason)


ARRAYS = {
    "[0.5 -1.  2e-3]": [0.5, -1.0, 0.002],
    "[[1 2]]": None,
    "[ 1  2\n 3]": [1.0, 2.0, 3.0],
    "['a' 'b c'\n 'd']": ["a", "b c", "d"],
    "[0.1 ... 0.3]": None,
    "[1-2]": None,
}


@pytest.mark.parametrize(("text", "meant"), ARRAYS.items(), ids=ARRAYS)
def test_arrays_as_numpy_writes_them_are_lists(text, meant):
    assert read_list(text) == meant


def test_ids_by_name():
    zeros = [f"{place:05d}" for place in range(N)]
    assert kind_of(zeros, "Object No.").reason == "left out: looks like an id by its name (40 different values)"
    assert kind_of(zeros, "zip").kind == "number"
    assert kind_of(zeros[:20] * 2, "Object No.").kind == "category"
    values = [7, 3, 9, 14]
    assert kind_of(values, "user_id").reason == "left out: looks like an id (whole numbers, all different)"
    assert kind_of(values, "Unnamed: 0").kind is None
    assert kind_of(values, "Unnamed: 0.1").kind is None, "the index of a table that was written twice"
    assert {kind_of(values, name).kind for name in ("rownames", "...1", "#", "Obs.", "CASENO", "subject")} == {None}
    assert kind_of(values, "Unnamed: 4").kind == "number", "a column without a name is no index"
    assert kind_of(["kim", "lee", "ann"], "id").reason == "left out: looks like an id by its name (3 different values)"
    assert kind_of([f"name {k % 38}" for k in range(N)], "row_id").kind is None
    assert kind_of(values, "PassengerId").kind is kind_of(values, "customerID").kind is None
    assert kind_of(values, "paid").kind == kind_of(values, "PAID").kind == "number"
    assert kind_of(values, "grid").kind == "number"
    records = ("ticket", "Order Number", "invoice_num", "customer number", "Kundennummer", "Rechnungs-Nr.", "EAN")
    assert {kind_of(values, name).kind for name in records} == {None}
    assert {kind_of(values, name).kind for name in ("atomic number", "tickets", "number", "customers")} == {"number"}


def test_codes_that_hardly_repeat_are_numbers():
    codes = [f"{place:05d}" for place in range(400, 400 + N)]
    assert kind_of(codes).kind == "number"
    assert kind_of([*codes[:15], *codes[:5] * 5]).kind == "category"
    assert NumberEncoder("x").fit(pd.DataFrame({"x": codes})).mean == pytest.approx([419.5])


@pytest.mark.parametrize("name", ["+49 (30) 0{}", "https://a.b/c?d={}", "DE{} {}", "user{}@a.com"])
def test_texts_that_differ_in_digits_alone_are_names(name):
    names = [name.format(n, n) for n in range(100, 100 + N)]
    assert kind_of(names).reason == "left out: looks like an id (all different)"
    assert kind_of([*names[1:], "another 1"]).kind == "text" or "@" in name
    assert kind_of([f"{'abcdefgh'[n % 8]}.{n}@b.org" for n in range(N)]).kind is None


def test_a_few_long_answers_are_categories_and_lists_of_python_sets():
    assert kind_of(["some college but no degree", "high school"] * N).kind == "category"
    assert kind_of([["a"], ["a", "b"]] * N).kind == "set"
    assert read_list("['a', 2, None]") == ["a", 2, None]
    assert read_list("[open(1)]") is read_list("['a'" + "," * 20_000 + "]") is None


def test_bytes_of_images_and_sounds(make_image, make_sound):
    for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"):
        assert kind_of([make_image(0, form=form), make_image(1, form=form)]).kind == "image"
        assert kind_of([{"bytes": make_image(0, form=form), "path": None}] * 2).kind == "image"
    for form in ("WAV", "FLAC", "OGG", "MP3"):
        assert kind_of([make_sound(0, form=form)]).kind == "audio"
    assert kind_of([{"bytes": None, "path": "a.png"}, {"bytes": None, "path": "b.png"}]).kind == "image"


def test_overrides():
    frame = pd.DataFrame({"zip": [1, 2, 3], "d": [datetime.date(2020, 1, 1)] * 3})
    found = infer_kinds(frame, {"zip": "category"})
    assert (found["zip"].kind, found["zip"].reason) == ("category", "as asked for")
    assert found["d"].kind is None
    with pytest.raises(ValueError, match=r"^columns: expected one of 'zip', 'd', got 'zpi'; did you mean 'zip'\?"):
        infer_kinds(frame, {"zpi": "category"})
    with pytest.raises(ValueError, match=r"^columns\['zip'\]: expected one of 'number'.* got 'categories'; did you"):
        infer_kinds(frame, {"zip": "categories"})


@pytest.mark.parametrize(
    ("word", "repeats", "kind"),
    [("N{}AB", 2, "category"), ("N{}AB", 1.25, "text"), ("N{} jet", 2, "text"), ("wordy", 2, "text")],
)
def test_codes_that_repeat_are_categories_and_words_and_codes_of_single_rows_texts(word, repeats, kind):
    letters = str.maketrans("0123456789", "abcdefghij")
    codes = [
        str(1000 + place).translate(letters) if word == "wordy" else word.format(1000 + place) for place in range(200)
    ]
    known = infer_kinds(pd.DataFrame({"tail": (codes * 2)[: int(200 * repeats)]}))["tail"]
    assert known.kind == kind
    assert kind == "text" or known.reason == "codes, 200 different values"


@pytest.mark.parametrize(
    ("more", "repeats", "kind"),
    [("", 3, "category"), ("", 2, "text"), (" air port", 20, "category"), (" air port", 19, "text")],
)
def test_names_that_repeat_and_short_texts_of_which_each_stands_in_many_rows_are_categories(more, repeats, kind):
    # 60, more than are categories in any table
    airports = [f"{a}{b}x{more}" for a in "abcdefghij" for b in "klmnop"]
    assert infer_kinds(pd.DataFrame({"to": airports * repeats}))["to"].kind == kind


@pytest.mark.parametrize(
    "code", ["4b3e7c1a-8f2d-4e6b-9a5c-0d1e2f3a{:04x}", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b{:04x}"]
)
def test_long_keys_that_repeat_are_categories_not_words(code):
    found = kind_of([code.format(k % 100) for k in range(270)])
    assert (found.kind, found.reason) == ("category", "codes, 100 different values")


def test_each_row_counts_also_where_rows_have_the_same_text():
    assert kind_of(["a.jpg"] * 18 + ["lost", "gone"]).reason == "paths of images (.jpg)"
    assert kind_of(["a.jpg"] * 17 + ["lost", "gone", "away"]).kind != "image"
    assert kind_of([f"one {i}" for i in range(90)] + ["w " * 12] * 90).reason == "text of 7.0 words on average"
