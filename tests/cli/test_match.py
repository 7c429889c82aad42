"""Match and dedupe: what they print and write, and that a folder is whole or as it was."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest

from vicinal.cli import run
from vicinal.estimators import RowMatcher

WORDS = ["lamp", "chair", "table", "red", "blue", "oak", "brass", "large", "small", "garden", "kitchen", "round"]
QUICK = ["--encoder", "text=none", "-q"]


@pytest.fixture(scope="module", autouse=True)
def few_labels_are_scored():
    """A scorer learns from any labels of both kinds, not from 200 on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.estimators.matching.FEW", 1)
        yield


@pytest.fixture(scope="module")
def shops(tmp_path_factory):
    place = tmp_path_factory.mktemp("shops")
    random = np.random.default_rng(0)
    names = [f"{' '.join(random.choice(WORDS, 4))} {random.integers(100, 999)}" for _ in range(100)]
    pd.DataFrame({"sku": [f"0{i}" for i in range(100)], "name": names, "price": random.uniform(1, 9, 100)}).to_csv(
        place / "a.csv", index=False
    )
    turned = [" ".join(name.split()[::-1]) for name in names]
    pd.DataFrame({"asin": [f"=b{i}" for i in range(100)], "name": turned}).to_parquet(place / "b.parquet", index=False)
    other = random.permutation(100)
    pairs = pd.DataFrame({"left": [f"0{i}" for i in range(100)], "right": [f"=b{i}" for i in range(100)], "match": 1})
    apart = pd.DataFrame({"left": pairs["left"], "right": [f"=b{i}" for i in other], "match": 0})
    both = pd.concat([pairs, apart]).drop_duplicates(["left", "right"])
    both[both["left"].str[1:].astype(int) < 80].to_csv(place / "pairs.csv", index=False)
    return place


def command(shops, out, *more):
    ids = ["--id-left", "sku", "--id-right", "asin"]
    return ["match", str(shops / "a.csv"), str(shops / "b.parquet"), *ids, *QUICK, "--out", str(out), *map(str, more)]


def error(capsys, arguments):
    capsys.readouterr()
    assert run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    return output.err.removeprefix("error: ").strip()


@pytest.fixture(scope="module")
def folder(shops):
    assert run(command(shops, shops / "m", "--pairs", shops / "pairs.csv")) == 0
    return shops / "m"


def test_a_match_writes_links_a_review_a_report_and_the_matcher(folder):
    links = pd.read_parquet(folder / "links.parquet")
    new = links[links["left"].str[1:].astype(int) >= 80]
    assert len(new) > 15
    assert (new["left"].str[1:] == new["right"].str[2:]).all()
    review = pd.read_csv(folder / "review.csv", dtype=str)
    columns = ["left", "right", "probability", "match", "left name", "right name"]
    assert list(review.columns) == columns
    assert review["match"].isna().all()
    model = RowMatcher.load(folder)
    pd.testing.assert_frame_equal(model.link(), links)
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_the_report_shows_cells_that_agree_and_differ(folder):
    page = (folder / "report.html").read_text()
    assert "<script" not in page
    assert page.count('<article class="card pair">') >= 10
    assert 'class="same"' in page
    for title in ("Precision and recall", "Links"):
        assert f">{title}<" in page


def test_two_rows_are_explained_column_by_column_and_drawn(folder, capsys, tmp_path):
    both = ["explain", str(folder), "--id", "085", "--id", "=b85"]
    assert run([*both, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["left"], told["right"]) == ("085", "=b85")
    weights = [cell["weight"] for cell in told["cells"] if cell["weight"] is not None]
    odds = told["start"] + sum(weights) + told["refined"]
    assert odds == pytest.approx(np.log2(told["probability"] / (1 - told["probability"])))
    assert run([*both, "--plot", str(tmp_path / "weights.svg")]) == 0
    name = pd.read_csv(folder.parent / "a.csv", dtype=str)["name"][85]
    shown = capsys.readouterr().out
    assert name.split()[0] in shown
    assert "like the labeled pair" in shown
    bits = [float(one) for one in re.findall(r"([-+]\d+\.\d) *$", shown, re.M)]
    assert sum(bits[:-1]) == pytest.approx(bits[-1], abs=0.05 * len(bits))
    assert bits[-1] == pytest.approx(odds, abs=0.05)
    assert "match weight in bits" in (tmp_path / "weights.svg").read_text()
    assert "two of a matcher" in error(capsys, both[:4])
    assert "right table" in error(capsys, [*both[:4], "--id", "086"])


def test_programs_read_json(shops, capsys, tmp_path):
    capsys.readouterr()
    assert run([*command(shops, tmp_path / "m", "--pairs", shops / "pairs.csv"), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["links"] == len(pd.read_parquet(tmp_path / "m" / "links.parquet"))
    assert read["candidate_recall"]["10"] == 1.0
    assert set(read["scores"]) == {"precision", "recall", "f1"}


@pytest.mark.slow
def test_labels_that_are_filled_into_the_review_are_taken_up(shops, capsys, tmp_path):
    arguments = command(shops, tmp_path / "m", "--pairs", shops / "pairs.csv")
    assert run(arguments) == 0
    review = pd.DataFrame({"left": ["085", "086"], "right": ["=b85", "=b85"], "match": ["1", ""]})
    review.to_csv(tmp_path / "m" / "review.csv", index=False)
    for _ in range(2):  # and they stay
        capsys.readouterr()
        assert run([word for word in arguments if word != "-q"]) == 0
        assert "labels of 1 pair in m\n" in capsys.readouterr().err
        answered = pd.read_csv(tmp_path / "m" / "answered.csv", dtype=str)
        assert answered["left"].tolist() == ["085"]
    model = RowMatcher.load(tmp_path / "m")
    place = model.tables_.left.places["085"]
    assert place in model.labelled_["left"].tolist() or len(model.labelled_) < len(pd.read_csv(shops / "pairs.csv")) + 1


def test_without_pairs_it_says_that_no_label_has_checked(shops, capsys, tmp_path):
    pd.read_csv(shops / "a.csv", dtype=str).assign(**{"db://me:secret@host/x": 1}).to_csv(
        tmp_path / "a b.csv", index=False
    )
    given = command(shops, tmp_path / "m", "--drop", "db://me:secret@host/x")
    given[1] = str(tmp_path / "a b.csv")
    capsys.readouterr()
    assert run(given) == 0
    said = capsys.readouterr().out
    assert "No labels: these are estimates." in said
    again = shlex.split(said.rpartition("run again:")[2])
    assert again == ["vicinal", *given[:-1], "db://me:PASSWORD@host/x"]
    assert "labeled pairs used" not in said
    links = pd.read_parquet(tmp_path / "m" / "links.parquet")
    assert (links["left"].str[1:] == links["right"].str[2:]).mean() > 0.9


@pytest.mark.slow
def test_dedupe_writes_clusters_and_contradictions(shops, capsys, tmp_path):
    a, b = pd.read_csv(shops / "a.csv", dtype=str)[["sku", "name"]], pd.read_parquet(shops / "b.parquet")
    pd.concat([a, b.rename(columns={"asin": "sku"})]).to_csv(tmp_path / "all.csv", index=False)
    arguments = ["dedupe", str(tmp_path / "all.csv"), "--id", "sku", "--pairs", str(shops / "pairs.csv"), *QUICK]
    capsys.readouterr()
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ clusters of 2( to \d+)? rows; ", said)
    total, learned, held = map(
        int, re.search(r"(\d+) labeled pairs used: (\d+) to learn from, (\d+) held", said).groups()
    )
    assert total == learned + held == len(pd.read_csv(shops / "pairs.csv"))
    assert "clusters.csv (copies together)" in said
    clusters = pd.read_parquet(tmp_path / "all-dedupe" / "clusters.parquet").set_index("id")["cluster"]
    shown = pd.read_csv(tmp_path / "all-dedupe" / "clusters.csv", dtype=str)
    assert list(shown.columns) == ["id", "cluster", "name"]
    assert shown["cluster"].astype(int).is_monotonic_increasing
    names = pd.concat([a, b.rename(columns={"asin": "sku"})]).set_index("sku")["name"]
    assert (shown["name"] == names[shown["id"].str.removeprefix("'")].to_numpy()).all()
    assert np.mean([clusters[f"0{i}"] == clusters[f"=b{i}"] for i in range(80, 100)]) > 0.85
    contradictions = pd.read_csv(tmp_path / "all-dedupe" / "contradictions.csv")
    assert list(contradictions.columns) == ["left", "right", "cluster", "why"]
    assert "copies" in (tmp_path / "all-dedupe" / "report.html").read_text()


def test_what_is_wrong_is_told_in_one_sentence_and_nothing_is_written(shops, capsys, tmp_path):
    pairs = pd.read_csv(shops / "pairs.csv", dtype=str)
    wrong = {
        "unknown": pairs.assign(left="zz"),
        "both": pd.concat([pairs, pairs.head(1).assign(match="0")]),
        "none": pairs[pairs["match"] == "0"],
        "all": pairs[pairs["match"] == "1"],
        "columns": pairs.rename(columns={"left": "one"}),
    }
    sentences = {
        "unknown": "pairs: expected ids of the left table, got 'zz', which it has not",
        "both": "one label for each pair, got both 0 and 1 for '00' and '=b0'",
        "none": "at least one pair that matches",
        "all": "at least one pair that does not match",
        "columns": "expected columns left and right with ids of either table",
    }
    for name, table in wrong.items():
        table.to_csv(tmp_path / "p.csv", index=False)
        assert sentences[name] in error(capsys, command(shops, tmp_path / "m", "--pairs", tmp_path / "p.csv"))
    base = command(shops, tmp_path / "m", "--pairs", shops / "pairs.csv")
    for words, sentence in (
        (["--precision", "0.99"], r"--precision: expected some 299 labelled pairs that match, .* got 80 "),
        (["--precision", "95"], r"--precision: expected a number between 0 and 1, got 95"),
        (["--links", "two"], "--links: expected 'one-to-one', 'one-to-many', 'many-to-many', or '1:3'"),
        (["--id-left", "id"], r"a\.csv: expected a column 'id' of ids"),
        (["--use", "price"], "right: expected columns that the left table has, too"),
        (["--candidates", "0"], "--candidates: expected a whole number of at least 1"),
        (["--candidates", "few"], "--candidates: expected a valid integer, got 'few'"),
    ):
        assert re.search(sentence, error(capsys, [*base, *words])), words
    same = ["match", str(shops / "a.csv"), str(shops / "a.csv"), "--id-left", "sku", "--id-right", "sku", *QUICK]
    assert "vicinal dedupe" in error(capsys, same)
    twice = pd.read_csv(shops / "a.csv", dtype=str)
    twice.assign(sku=twice["sku"].iloc[0]).to_csv(tmp_path / "twice.csv", index=False)
    assert "--id: expected each id once" in error(capsys, ["dedupe", str(tmp_path / "twice.csv"), "--id", "sku", "-q"])
    best = ["dedupe", str(tmp_path / "p.csv"), "--clusters", "best"]
    assert "--clusters: expected one of 'components', 'consistent'" in error(capsys, best)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "twice.csv"]


def test_a_folder_of_another_kind_is_not_replaced(shops, capsys, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_text("mine")
    sentence = error(capsys, command(shops, tmp_path / "theirs", "--pairs", shops / "pairs.csv"))
    assert "expected a new or empty folder, or a matcher folder to replace" in sentence


@pytest.mark.parametrize("option", ["--use", "--drop"])
def test_a_column_that_no_table_has_is_named(shops, capsys, tmp_path, option):
    sentence = error(capsys, command(shops, tmp_path / "m", option, "nmae"))
    assert re.match(rf"{option}: expected .*'nmae'", sentence), sentence
    assert not (tmp_path / "m").exists()


def test_a_folder_of_copies_is_searched_without_the_row_itself(shops, capsys, tmp_path):
    a = pd.read_csv(shops / "a.csv", dtype=str)[["sku", "name"]]
    pd.concat([a, a.assign(sku="c" + a["sku"])]).to_csv(tmp_path / "all.csv", index=False)
    assert (
        run(
            [
                "dedupe",
                str(tmp_path / "all.csv"),
                "--id",
                "sku",
                "--encoder",
                "text=none",
                "-q",
                "--clusters",
                "consistent",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert run(["search", str(tmp_path / "all-dedupe"), "--id", "04", "-k", "1", "--json", "-q"]) == 0
    assert [hit["id"] for hit in json.loads(capsys.readouterr().out)[0]["hits"]] == ["c04"]
    assert run(["search", str(tmp_path / "all-dedupe"), "oak", "--column", "name", "-k", "1", "-q"]) == 0
    assert "column" in error(capsys, ["search", str(tmp_path / "all-dedupe"), "oak", "--column", "nmae"])
    assert "index" in error(capsys, ["search", str(tmp_path / "all-dedupe"), "oak", "--index", "hnsw"])


def test_the_right_table_is_searched(folder, capsys):
    table = pd.read_parquet(folder / "right.parquet")
    model = RowMatcher.load(folder)
    name = model.tables_.right.frame["name"][4]
    for words in ([name], ["--row", json.dumps({"name": name})]):
        capsys.readouterr()
        assert run(["search", str(folder), *words, "-k", "2", "--json", "-q"]) == 0
        hits = json.loads(capsys.readouterr().out)[0]["hits"]
        assert len(hits) == 2
        assert hits[0]["id"] == "=b4"
        assert hits[0]["row"]["name"] == name
    assert run(["search", str(folder), "--id", "04", "-k", "1"]) == 0
    assert "=b4" in capsys.readouterr().out
    assert len(table) == 100
    assert "RowMatcher.load" in error(capsys, ["predict", str(folder), str(folder / "right.parquet")])


def test_new_rows_are_linked_with_those_of_the_folder(capsys, tmp_path):
    random = np.random.default_rng(0)
    names = [f"{' '.join(random.choice(WORDS, 3))} {random.integers(10**4, 10**5)}" for _ in range(120)]
    table = pd.DataFrame({"name": names + [name.upper() + " x" for name in names[:60]]})
    table.to_csv(tmp_path / "all.csv", index=False)
    pd.DataFrame({"name": [names[3], names[100], "nothing like it 1"]}).to_csv(tmp_path / "new.csv", index=False)
    arguments = ["dedupe", str(tmp_path / "all.csv"), *QUICK]
    assert run(arguments) == 0
    before = pd.read_parquet(tmp_path / "all-dedupe" / "clusters.parquet").set_index("id")["cluster"]
    capsys.readouterr()
    assert run([*arguments, "--add", str(tmp_path / "new.csv")]) == 0
    printed = capsys.readouterr().out
    assert "3 rows added; 2 linked, 1 new" in printed
    assert f"in cluster {before[4]} of 3 rows" in printed
    after = pd.read_parquet(tmp_path / "all-dedupe" / "clusters.parquet").set_index("id")["cluster"]
    assert after[181] == before[4] == before[124]
    assert after[182] == before[101]
    assert after[183] not in before.tolist()
    assert (after[:-3] == before).all()
    shown = pd.read_csv(tmp_path / "all-dedupe" / "clusters.csv").set_index("id")
    assert shown["cluster"].to_dict() == after.to_dict()
    assert shown["name"][181] == names[3]
    links = pd.read_csv(tmp_path / "all-dedupe" / "links.csv")
    assert links.tail(3)["left name"].isin([names[3], names[100]]).all()
    assert len(RowMatcher.load(tmp_path / "all-dedupe").tables_.left) == 183
    # A run that was killed behind the journal: the file is added once more, and its rows stand once.
    clusters = pd.read_parquet(tmp_path / "all-dedupe" / "clusters.parquet")
    clusters.head(180).to_parquet(tmp_path / "all-dedupe" / "clusters.parquet", index=False)
    assert run([*arguments, "--add", str(tmp_path / "new.csv")]) == 0
    assert "nothing added: new.csv holds the rows that were added last" in capsys.readouterr().out
    assert len(RowMatcher.load(tmp_path / "all-dedupe").tables_.left) == 183
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "all-dedupe" / "clusters.parquet"), clusters)


def test_columns_of_other_names_are_compared_and_odd_dates_stay(capsys, tmp_path):
    random = np.random.default_rng(0)
    names = [f"{' '.join(random.choice(WORDS, 3))} {random.integers(10**4, 10**5)}" for _ in range(60)]
    days = pd.date_range("2020-01-01", periods=60)
    left = pd.DataFrame({"Name": names, "Day": days.strftime("%d.%m.%Y"), "Mail": [f"m{i}@x.org" for i in range(60)]})
    left["Floor"] = 2
    right = pd.DataFrame({"mail": left["Mail"], "x": 1, "when": days.strftime("%Y-%m-%d"), "what": names})
    right.loc[7, "when"] = "2020-01-80"
    left.to_csv(tmp_path / "a.csv", index=False)
    right[::-1].to_csv(tmp_path / "b.csv", index=False, sep=";", encoding="utf-16")
    arguments = ["match", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--encoder", "text=none"]
    assert run(arguments) == 0
    output = capsys.readouterr()
    told = "Name = what, Day = when, Mail = mail"
    assert set(told.split(", ")) <= set(
        re.search(r"two names: (.*?);", " ".join(output.err.split())).group(1).split(", ")
    )
    assert "not compared: only the left table has 'Floor'; only the right one has 'x'" in " ".join(output.err.split())
    assert "missing" not in output.err
    links = pd.read_csv(tmp_path / "a-b-match" / "links.csv")
    assert (links["left"] + links["right"] == 61).all()
    assert len(links) == 60
    assert "2020-01-80" in links["right Day"].tolist()
    right[:1].rename(columns={"what": "text"}).to_csv(tmp_path / "new.csv", index=False)
    assert "got none of 'Name'" in error(capsys, [*arguments, "-q", "--add", str(tmp_path / "new.csv")])


@pytest.mark.parametrize("to", ["left", "right"])
def test_new_rows_have_the_two_columns_that_are_one(capsys, tmp_path, to):
    random = np.random.default_rng(0)
    first, last = ([f"{''.join(random.choice(list('bdfklmnoae'), 6))}" for _ in range(80)] for _ in range(2))
    mails = [f"{one[:2]}{number}@x.org" for number, one in enumerate(last)]
    one = pd.DataFrame({"Name": [f"{b} {a}" for a, b in zip(first, last, strict=True)], "Mail": mails})
    two = pd.DataFrame({"surname": last, "given": first, "mail": mails})
    new = {"left": one, "right": two}[to].tail(3)
    one.drop(index=new.index if to == "left" else []).to_csv(tmp_path / "a.csv", index=False)
    two.drop(index=new.index if to == "right" else []).to_csv(tmp_path / "b.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    for tables in (["a.csv", "b.csv"], ["b.csv", "a.csv"]):
        arguments = ["match", *(str(tmp_path / name) for name in tables), *QUICK, "--out", str(tmp_path / tables[0][0])]
        assert run(arguments) == 0
        side = to if tables[0] == "a.csv" else {"left": "right", "right": "left"}[to]
        capsys.readouterr()
        assert run([*arguments, "--add", str(tmp_path / "new.csv"), "--to", side]) == 0
        assert "3 rows added; 3 linked" in capsys.readouterr().out
        model = RowMatcher.load(tmp_path / tables[0][0])
        assert len(model.link()) == 80
        again = model.forget(**{side: [78, 79, 80]}).add(new.assign(row=[91, 92, 93]), side)  # in Python
        assert sorted(again[side]) == [91, 92, 93]
    text = new.drop(columns="surname" if to == "right" else "Name")
    text.to_csv(tmp_path / "part.csv", index=False)
    lost = "'surname + given'" if to == "right" else "'Name'"
    assert f"got none of {lost}" in error(capsys, [*arguments, "--add", str(tmp_path / "part.csv"), "--to", side])
