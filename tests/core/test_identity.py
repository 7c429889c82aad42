"""One id is one id whatever its type, and two ids are never made one."""

import datetime
import decimal
import fractions
import unicodedata
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from references.identity import FORMS
from vicinal.core.identity import as_texts, canonical_ids, check_distinct, shown, spelled, whole_ids, whole_values

SMALL = st.lists(st.integers(0, 2**15 - 1), min_size=1, max_size=20, unique=True)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25)
@given(numbers=SMALL)
def test_a_whole_number_is_one_id_in_every_form(form, numbers):
    ids = canonical_ids("ids", FORMS[form](numbers))
    assert as_texts(ids).tolist() == [str(number) for number in numbers]
    values, whole = whole_values(ids)
    assert whole.all()
    assert values.tolist() == numbers


@settings(max_examples=3 * settings().max_examples)
@given(st.integers(-(2**70), 2**70))
def test_a_whole_number_of_any_size_and_its_plain_text_are_one(number):
    ids = [canonical_ids("ids", [cell]) for cell in (number, str(number), f" {number}\n", decimal.Decimal(number))]
    assert {as_texts(one)[0] for one in ids} == {str(number)}
    whole = [whole_values(one) for one in ids]
    fits = -(2**63) <= number < 2**63
    assert all(bool(known[0]) == fits and int(values[0]) == (number if fits else 0) for values, known in whole)


@pytest.mark.slow
@settings(max_examples=3 * settings().max_examples)
@given(st.text(max_size=12))
def test_canonical_form_is_final(text):
    once = canonical_ids("ids", [text])
    assert canonical_ids("ids", once).tolist() == once.tolist()
    assert canonical_ids("ids", [text, 1]).tolist() == [once[0], "1"]


WORDS = ["01", "1e3", "+1", "-0", "1.00", "1.", ".0", "0x1", "1_000", "1,0", "\u0661", "\uff11", "1 0", "nan", "None"]


@pytest.mark.parametrize("text", WORDS)
def test_other_texts_stay_what_they_are(text):
    assert canonical_ids("ids", [text]).tolist() == [text]
    assert not whole_values(canonical_ids("ids", [text]))[1].any()
    assert canonical_ids("ids", [text, *range(1200)], distinct=True)[0] == text


DAY = datetime.date(2024, 2, 29)
MORNING = datetime.datetime(2024, 2, 29, 8, 30, 0, 500_000)
ALIKE = [
    [0, -0.0, "0", "-0.0", np.float32(0), decimal.Decimal("-0.0"), "0.0"],
    [1, 1.0, "1", "1.0", decimal.Decimal("1.00"), fractions.Fraction(3, 3), np.uint8(1), np.array(1), torch.tensor(1)],
    [-7, -7.0, "-7", np.int8(-7), "-7.0"],
    [0.5, "0.5", np.float16(0.5), decimal.Decimal("0.50")],
    [2**53, str(2**53), np.uint64(2**53), decimal.Decimal(2**53)],
    [2**64, str(2**64), decimal.Decimal(2) ** 64],
    [True, np.True_, "True", "true", "TRUE"],
    [False, "False", "false", "FALSE"],
    [DAY, datetime.datetime(2024, 2, 29), pd.Timestamp(DAY), np.datetime64(DAY), "2024-02-29", "2024-02-29 00:00:00"],
    ["2024-02-29T00:00:00.000", DAY],
    [MORNING, pd.Timestamp(MORNING), np.datetime64(MORNING), "2024-02-29 08:30:00.5", "2024-02-29T08:30:00.500000"],
    [datetime.timedelta(hours=1), pd.Timedelta("1h"), np.timedelta64(3600, "s")],
    [uuid.UUID(int=5), str(uuid.UUID(int=5))],
]


@pytest.mark.parametrize("cells", ALIKE, ids=str)
def test_cells_that_say_the_same_are_one_id(cells):
    assert len(set(as_texts(canonical_ids("ids", cells)).tolist())) == 1
    assert len({as_texts(canonical_ids("ids", [cell]))[0] for cell in cells}) == 1


def test_cells_that_say_other_things_are_other_ids():
    one_of_each = [cells[0] for cells in ALIKE if cells[0] != "2024-02-29T00:00:00.000"]
    assert len(canonical_ids("ids", [*one_of_each, *WORDS], distinct=True)) == len(one_of_each) + len(WORDS)
    assert len(canonical_ids("ids", ["a", "A", "a b", b"a", ("a",)], distinct=True)) == 5


def test_neighbors_beyond_what_floats_hold_are_not_merged():
    numbers = [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, -(2**63), -(2**63) - 1]
    texts = list(map(str, numbers))
    for given_as in (numbers, texts, np.array(numbers, dtype=object), pd.Series(numbers, dtype=object)):
        assert as_texts(canonical_ids("ids", given_as, distinct=True)).tolist() == texts
    far = np.array([2**63, 2**63 + 1], dtype=np.uint64)
    assert canonical_ids("ids", far).tolist() == ["9223372036854775808", "9223372036854775809"]


@pytest.mark.parametrize(
    ("cells", "limit"),
    [
        ([2.0**53], 2**53),
        ([1, -(2.0**60)], 2**53),
        (np.array([1.0, 2.0**53]), 2**53),
        (np.array([2.0**24, 1], dtype=np.float32), 2**24),
        ([np.float32(2**24), "a"], 2**24),
        (np.array([2.0**11], dtype=np.float16), 2**11),
        (torch.tensor([2.0**24]), 2**24),
        (pd.array([2.0**53, 1.0], dtype="Float64"), 2**53),
        ([np.inf], 2**53),
    ],
)
def test_a_float_that_stands_for_several_numbers_is_refused(cells, limit):
    with pytest.raises(ValueError, match=rf"^ids: expected floats below {limit}, .* in row [01]; give integers"):
        canonical_ids("ids", cells)
    largest = float(limit) - 1
    assert canonical_ids("ids", [largest, largest - 1]).tolist() == [limit - 1, limit - 2]


NOTHING = [None, float("nan"), np.nan, np.float32("nan")]
MISSING = [*NOTHING, pd.NA, pd.NaT, np.datetime64("NaT", "ns"), decimal.Decimal("NaN")]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
@pytest.mark.parametrize("others", [[1, 2], ["a", "b"], [1.0, 0.5], [1, "a"]], ids=str)
def test_a_missing_id_is_refused_by_row(missing, others):
    for cells in ([*others, missing], pd.Series([*others, missing], dtype=object)):
        with pytest.raises(ValueError, match=r"^ids: expected one for every row, got none in row 2$"):
            canonical_ids("ids", cells)
    with pytest.raises(ValueError, match=r"got none in row 12$"):
        canonical_ids("ids", [*others, missing], labels=[10, 11, 12])


def test_missing_cells_of_typed_columns_are_refused():
    columns = [pd.array([1, None], dtype="Int64"), pd.Series(["a", None]), pd.Series([1, None]), pa.array([1, None])]
    columns += [pd.Series(["a", None]).astype("category"), pd.Series([None, pd.Timestamp(0)][::-1])]
    for column in columns:
        with pytest.raises(ValueError, match=r"^ids: expected one for every row, got none in row 1$"):
            canonical_ids("ids", column)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([1, 2, "1"], "got 1 in row 0 and '1' in row 2, which are one id"),
        ([5, "x", 7.0, "a", "7.0"], "got 7.0 in row 2 and '7.0' in row 4, which are one id"),
        (["a", " a"], "got 'a' in row 0 and ' a' in row 1, which are one id"),
        (pd.Series([1, 1.5, "1"], dtype=object, index=[9, 8, 7]), "got 1 in row 0 and '1' in row 2, which are one id"),
        ([3, 1, 3], "got 3 2 times"),
        (np.array([3, 1, 3, 3]), "got 3 3 times"),
        (["a", "b", "b"], "got 'b' 2 times"),
        ([np.int8(4), 4], "got 4 2 times"),
    ],
)
def test_an_id_that_stands_twice_is_refused_by_row(cells, told):
    with pytest.raises(ValueError, match=rf"^ids: expected each id once, {told}$"):
        canonical_ids("ids", cells, distinct=True)


@pytest.mark.parametrize(
    ("cells", "error", "told"),
    [
        ("abc", TypeError, "expected a list, one for each row, got 'abc'"),
        (7, TypeError, "expected a list, one for each row, got 7"),
        (np.zeros((2, 2)), ValueError, r"expected a list \[n\], one for each row, got shape \(2, 2\)"),
        (pd.DataFrame({"a": [1, 2]}), ValueError, r"expected a list \[n\], one for each row, got shape \(2, 1\)"),
        ([1, 2, 3], ValueError, "expected 2, one a row, got 3"),
    ],
)
def test_what_is_no_list_of_ids_is_refused(cells, error, told):
    with pytest.raises(error, match=rf"^groups: {told}"):
        canonical_ids("groups", cells, 2)


def test_ids_come_back_as_numbers_or_as_texts():
    assert canonical_ids("ids", [3.0, np.int8(1)]).dtype == np.int64
    assert canonical_ids("ids", range(3)).dtype == np.int64
    assert canonical_ids("ids", []).dtype == np.int64
    assert canonical_ids("ids", ["3", "1"]).tolist() == ["3", "1"], "texts stay texts, as they were given"
    assert canonical_ids("ids", (str(i) for i in range(2))).tolist() == ["0", "1"]
    assert canonical_ids("ids", {"a": 1}.keys()).tolist() == ["a"]


def test_ids_of_an_index_are_integers():
    assert whole_ids("ids", []).tolist() == []
    assert whole_ids("ids", (i for i in (2, 1))).tolist() == [2, 1]
    for wrong in ([1.0], ["1"], torch.tensor([1.0]), np.array([2**63], dtype=np.uint64), [True]):
        with pytest.raises(TypeError, match=r"^ids: expected whole numbers, got "):
            whole_ids("ids", wrong)
    with pytest.raises(ValueError, match=r"^ids: expected whole numbers of at least 0, got -1$"):
        whole_ids("ids", [3, -1])
    with pytest.raises(ValueError, match=r"^ids: expected a list of ids \[n\], got shape \(1, 1\)$"):
        whole_ids("ids", [[1]])
    assert shown(np.array([4])) == "4"
    assert shown(np.array(["a", "b"], dtype=object)) == "'a' and 1 more"
    assert check_distinct(np.array([2, 1])).tolist() == [2, 1]


UNSEEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\ufe0f\u034f"
NAMES = ["Zoë Peña", "Çağla", "Žižek", "Ångström", "각하", "ộ", "क़लम", "plain"]


def spellings(name, unseen=UNSEEN):
    """The name as other programs write it: decomposed, composed, and with characters that nobody sees anywhere."""
    forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
    return [*forms, *(form[:at] + one + form[at:] for form in forms for one in unseen for at in (0, 1, len(form)))]


@pytest.mark.parametrize("name", NAMES)
def test_spellings_that_only_unicode_tells_apart_are_one_id_shown_as_written(name):
    written = spellings(name)
    for first, other in [*zip(written, written[::-1], strict=True), *zip(written[1:], written[:-1], strict=True)]:
        assert set(canonical_ids("groups", [first, "x", other])) == {first, "x"}
        if first != other:
            with pytest.raises(ValueError, match=r"^ids: expected each id once"):
                canonical_ids("ids", [first, other], distinct=True)
    ids = [name, "Zoe", "x²", "x2", "\uff21B", "AB", "ab"]
    assert canonical_ids("ids", ids, distinct=True).tolist() == ids


@settings(max_examples=3 * settings().max_examples)
@given(st.text(max_size=12), st.booleans())
def test_the_compared_form_is_final_and_takes_any_composition(text, loose):
    once = spelled(text, loose=loose)
    assert spelled(once, loose=loose) == once
    assert once == spelled(unicodedata.normalize("NFD", text), loose=loose)
    assert not set(once) & set(UNSEEN)


def test_a_number_with_an_unseen_character_is_that_number():
    assert whole_values(canonical_ids("ids", ["7\u200b", "\ufeff8"]))[0].tolist() == [7, 8]
