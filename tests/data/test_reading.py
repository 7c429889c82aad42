"""read_table: types of columns, and one sentence for each file that is wrong."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal.data import read_table, tidy_features


def write(tmp_path, text, name="d.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_columns_are_read_as_what_all_their_cells_are(tmp_path):
    path = write(tmp_path, "a,b,zip,word,yes\n1,1.5,00501,NA,True\n2,NA,10001,nan,False\n-3,,02134,Oslo,true\n")
    frame = read_table(path)
    assert list(frame.index) == [1, 2, 3]
    assert frame["a"].dtype == np.int64
    assert frame["b"].tolist()[0] == 1.5
    assert frame["b"].isna().tolist() == [False, True, True]
    assert frame["zip"].tolist() == ["00501", "10001", "02134"], "leading zeros are kept"
    assert frame["word"].tolist()[:2] == ["NA", "nan"], "words stay words among words"
    assert frame["yes"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "numbers", [["9007199254740993", ""], ["18446744073709551615", "1"], ["9007199254740993", "1.5"]]
)
def test_numbers_too_long_to_be_exact_stay_text(tmp_path, numbers):
    column = read_table(write(tmp_path, "id,x\n" + "".join(f"{cell},1\n" for cell in numbers)))["id"]
    assert column.iloc[0] == numbers[0]


def test_columns_can_be_kept_as_text(tmp_path):
    frame = read_table(write(tmp_path, "title,year\n1984,1949\n,1950\n"), text=["title"])
    assert frame["title"].iloc[0] == "1984"
    assert frame["title"].isna().tolist() == [False, True]
    assert frame["year"].tolist() == [1949, 1950]


def test_cells_of_ids_stay_as_they_are_written(tmp_path):
    """Beside a word, or beside numbers: what a cell says does not depend on the others."""
    cells = ["1e3", "+1", "007", "1.0", "-0", "9007199254740993.5", "true"]
    alone = [read_table(write(tmp_path, f"id,x\n{cell},1\n2,2\n"), ids=["id"])["id"].iloc[0] for cell in cells]
    beside = read_table(write(tmp_path, "id,x\n" + "".join(f"{cell},1\n" for cell in ["word", *cells])), ids=["id"])
    assert alone == beside["id"].tolist()[1:] == cells
    whole = read_table(write(tmp_path, "id,g,x\n1, -4,1\n20,3,2\n"), ids=["id", "g"])
    assert whole["id"].tolist() == [1, 20]
    assert whole["g"].tolist() == [-4, 3]
    gaps = read_table(write(tmp_path, "id,g,x\n1,NA,1\nNA,,2\n3,b,3\n"), ids=["id", "g"])
    assert gaps["id"].isna().tolist() == [False, True, False]
    assert gaps["g"].isna().tolist() == [False, True, False], "NA among words is a word"


def test_exact_long_integers_are_integers(tmp_path):
    column = read_table(write(tmp_path, "id\n9007199254740993\n9007199254740994\n"))["id"]
    assert column.tolist() == [9007199254740993, 9007199254740994]


def test_byte_order_mark_quotes_and_spaces_in_names(tmp_path):
    frame = read_table(write(tmp_path, b'\xef\xbb\xbf price ,"a,b"\n1,"x\ny"\n'))
    assert list(frame.columns) == ["price", "a,b"]
    assert frame["a,b"].tolist() == ["x\ny"]


def test_tsv_parquet_and_jsonl_agree_with_csv(tmp_path):
    want = read_table(write(tmp_path, "n,t\n1,a\n2,b c\n"))
    pd.testing.assert_frame_equal(read_table(write(tmp_path, "n\tt\n1\ta\n2\tb c\n", "d.tsv")), want)
    pd.testing.assert_frame_equal(
        read_table(write(tmp_path, '{"n": 1, "t": "a"}\n\n{"n": 2, "t": "b c"}\n', "d.jsonl")), want
    )
    want.set_index("n", drop=False).to_parquet(tmp_path / "d.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "d.parquet"), want)


def test_jsonl_keeps_its_own_types(tmp_path):
    lines = [{"code": "007", "v": [1, 2.5], "w": 1}, {"code": "8", "v": [3, 4]}]
    frame = read_table(write(tmp_path, "\n".join(map(json.dumps, lines)), "d.jsonl"))
    assert frame["code"].tolist() == ["007", "8"]
    assert frame["v"].tolist() == [[1, 2.5], [3, 4]]
    assert frame["w"].isna().tolist() == [False, True]


BAD = {
    "empty": ("d.csv", "", r"^d\.csv: expected a header and rows, got an empty file$"),
    "ragged": ("d.csv", "a,b\n1,2\n1,2,3\n", r"^d\.csv: expected as many cells .*line 3, saw 3$"),
    "all rows too long": ("d.csv", "a,b\n1,2,3\n4,5,6\n", r"^d\.csv: expected as many cells"),
    "open quote": ("d.csv", 'a,b\n1,"2\n3,4\n', r"^d\.csv: expected as many cells .*EOF inside string"),
    "latin-1": ("d.csv", "a\nM\u00fcller\n".encode("latin-1"), r"^d\.csv: expected text in UTF-8.*save it as UTF-8$"),
    "same name": ("d.csv", "a,b,a\n1,2,3\n", r"^d\.csv: expected columns of different names, got 'a' twice"),
    "same name in spaces": ("d.csv", "a, a\n1,2\n", r"^d\.csv: expected columns of different names, got 'a' twice"),
    "torn parquet": ("d.parquet", b"PAR1 and no more", r"^d\.parquet: expected a whole parquet file, got: "),
    "torn json": ("d.jsonl", '{"a": 1}\n{"a": ', r"^d\.jsonl: expected a JSON object in each line, got none in line 2"),
    "json list": ("d.jsonl", "[1]\n", r"^d\.jsonl: expected a JSON object in each line, got a list in line 1$"),
    "empty json": ("d.jsonl", "\n", r"^d\.jsonl: .*got an empty file$"),
    "ending": (
        "d.xlsx",
        "a",
        r"^d\.xlsx: expected a file that ends in \.csv, \.tsv, \.parquet, \.jsonl, got '\.xlsx'$",
    ),
    "no ending": ("d", "a", r"got 'no ending'$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_gets_one_sentence(tmp_path, case):
    name, content, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        read_table(write(tmp_path, content, name))
    assert "\n" not in str(caught.value)


def test_missing_file_suggests_the_nearest(tmp_path):
    write(tmp_path, "a\n1\n", "houses.csv")
    with pytest.raises(ValueError, match=r"house\.csv: expected a file, got none; did you mean 'houses\.csv'\?$"):
        read_table(tmp_path / "house.csv")
    with pytest.raises(ValueError, match="expected a file, got a folder"):
        read_table(tmp_path)


def test_tidy_features_reads_spelled_gaps_among_numbers_only():
    frame = pd.DataFrame(
        {"area": ["12", "n/a", "-"], "word": ["none", "Oslo", "-"], "gone": ["n/a"] * 3, "n": [1, 2, 3]}
    )
    tidy = tidy_features(frame)
    assert tidy["area"].isna().tolist() == [False, True, True]
    assert tidy[["word", "gone", "n"]].equals(frame[["word", "gone", "n"]])
    assert tidy_features(frame, numbers=["gone"])["gone"].isna().all()
    assert frame["area"].tolist() == ["12", "n/a", "-"], "the given table is left alone"
    codes = pd.DataFrame({"zip": ["10001", "10002", None]})
    assert tidy_features(codes)["zip"].tolist()[:2] == ["10001", "10002"], "typed as texts, they stay texts"
