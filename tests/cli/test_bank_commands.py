"""Search, embed, add and forget: what they print and write, and that a folder is whole or as it was."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from references.tables import QUICK, table
from vicinal.cli import run
from vicinal.cli.search import print_hits
from vicinal.estimators import NeighborClassifier, load_model, save_model
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.search import Hit
from vicinal.workflows.explain import Explainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted model of a number with ids, and its table."""
    place = tmp_path_factory.mktemp("bank")
    frame, price = table(90)
    frame.insert(0, "house", [f"h{i}" for i in range(90)])
    frame.assign(price=price).to_csv(place / "houses.csv", index=False)
    options = ["--target", "price", "--id", "house", "--text", "note", "--max-epochs", "3", "--members", "1"]
    options += ["--hidden", "8,4", "--metric", "network", "--no-baselines", "-q"]
    assert run(["fit", str(place / "houses.csv"), *options, "--out", str(place / "model")]) == 0
    new, price = table(4, seed=5)
    new.assign(house=[f"n{i}" for i in range(4)], price=price).to_csv(place / "new.csv", index=False)
    return place


@pytest.fixture
def model(folder, tmp_path):
    copy = load_model(folder / "model")
    save_model(copy, tmp_path / "model")
    (tmp_path / "model" / "theirs.txt").write_text("mine")
    return tmp_path / "model"


def printed(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def error(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.removeprefix("error: ").strip()


def test_words_find_the_rows_that_the_model_holds_near(folder, capsys):
    hits = json.loads(printed(capsys, "search", folder / "model", "a good house", "-k", "5", "--json", "-q"))[0]["hits"]
    model = load_model(folder / "model")
    frame = pd.DataFrame({"size": [np.nan], "town": [None], "note": ["a good house"]})
    distances, ids = model.kneighbors(frame, 5)
    assert [hit["id"] for hit in hits] == ids[0].tolist()
    assert [hit["score"] for hit in hits] == pytest.approx((-distances[0]).tolist())
    assert hits[0]["row"]["note"] in ("a good house", "a bad house", "a fair house")
    assert "Nearest to a good house" in printed(capsys, "search", folder / "model", "a good house", "-k", "2", "-q")


def test_a_negative_weight_is_explained_where_one_is_shown(folder, tmp_path, capsys):
    told = "A negative weight corrects for rows alike that would together count too much.\n"
    options = ["--target", "price", "--id", "house", "--text", "note", "--metric", "kernel", "--readout", "dense", "-q"]
    assert run(["fit", str(folder / "houses.csv"), *options, "--no-baselines", "--out", str(tmp_path / "dense")]) == 0
    for model, is_signed in ((tmp_path / "dense", True), (folder / "model", False)):
        shown = printed(capsys, "explain", model, folder / "new.csv", "-k", "40")
        weights = [line.split()[2] for line in shown.splitlines() if line.startswith("  h")]
        assert any(weight.startswith("-") for weight in weights) == is_signed
        assert shown.count(told) == is_signed


def test_a_row_of_the_bank_is_not_near_itself(folder, capsys):
    bank = load_model(folder / "model").bank_
    mine = bank.ids[3]
    hits = json.loads(printed(capsys, "search", folder / "model", "--id", mine, "-k", "500", "--json"))[0]["hits"]
    assert len(hits) == len(bank) - 1
    assert mine not in [hit["id"] for hit in hits]
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_a_score_that_is_as_good_as_zero_has_no_sign(capsys):
    print_hits(SimpleNamespace(queries=["q"], hits=[[Hit("a", -1e-9, 1.0, {"size": 1.0})]]))
    assert " 0.000 " in capsys.readouterr().out


def test_the_text_of_a_hit_is_shown_before_its_other_cells(capsys):
    row = {"date": "2025-07-05", "channel": "mail", "plan": "pro", "age": 3, "message": "my card was charged twice"}
    print_hits(SimpleNamespace(queries=["card"], hits=[[Hit("a", 0.7, "billing", row)]]))
    shown = capsys.readouterr().out
    assert "my card was charged twice" in " ".join(shown.split())
    assert shown.index("message") < shown.index("date")


def test_rows_as_json_from_files_and_line_by_line_are_searched_alike(folder, tmp_path, capsys, monkeypatch):
    ask = ["search", folder / "model", "-k", "3", "-q"]
    row = {"size": 4.5, "town": "york", "note": "a bad house"}
    by_json = json.loads(printed(capsys, *ask, "--row", json.dumps(row), "--json"))[0]["hits"]
    pd.DataFrame([row]).to_parquet(tmp_path / "q.parquet")
    printed(capsys, *ask, "--file", tmp_path / "q.parquet", "--out", tmp_path / "hits.csv")
    by_file = pd.read_csv(tmp_path / "hits.csv")
    assert by_file["id"].tolist() == [hit["id"] for hit in by_json]
    assert by_file["rank"].tolist() == [1, 2, 3]
    monkeypatch.setattr("sys.stdin", io.StringIO("a good house\n\na bad house\n"))
    lines = printed(capsys, *ask, "--interactive", "--json").splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["a good house", "a bad house"]


def test_an_own_row_in_a_file_of_queries_is_not_its_own_hit(folder, capsys):
    hits = json.loads(printed(capsys, "search", folder / "model", "--file", folder / "houses.csv", "--json", "-q"))
    assert all(one["query"] not in [hit["id"] for hit in one["hits"]] for one in hits)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], "query: expected words to look for, got ''"),
        ([], "query: expected one of TEXT, --id, --row, --file and --interactive, got none"),
        (["x", "--id", "h1"], "got TEXT and --id; for several rows say --id h1 --id x"),
        (["--id", "h999"], "--id: expected ids of rows that the model was given, got 'h999'"),
        (["--row", "{"], "--row: expected a JSON object"),
        (
            ["--row", '{"sise": 3}'],
            "expected at least one of the columns that the model reads ('size', 'town', 'note')",
        ),
        (["x", "-k", "0"], "-k: expected a whole number of at least 1, got 0"),
        (["x", "--column", "size"], "--column: expected one of 'note', got 'size'"),
    ],
)
def test_a_wrong_query_is_one_sentence(folder, capsys, arguments, words):
    assert words in error(capsys, "search", folder / "model", *arguments)


def test_words_need_a_column_of_texts_and_pictures_are_not_left_out(data_without_texts, capsys):
    model = data_without_texts
    with pytest.raises(ValueError, match="reads no column of texts"):
        model.search("a house")
    with pytest.raises(ValueError, match="expected the column 'v', which the model reads"):
        model.search(pd.DataFrame({"size": [1.0]}))
    assert [len(hits) for hits in model.search(pd.DataFrame({"v": [[0.0, 1.0]] * 2}), 3)] == [3, 3]
    assert model.search(pd.DataFrame({"v": [[0.0, 1.0]]}), 1)[0][0].label in ("one", "two")


@pytest.fixture
def data_without_texts():
    frame = table(40)[0][["size"]].assign(v=list(np.random.default_rng(0).normal(size=(40, 2))))
    return NeighborClassifier(**(QUICK | {"max_epochs": 1})).fit(frame, ["one", "two"] * 20)


@pytest.mark.parametrize("ending", ["parquet", "npy"])
def test_vectors_of_a_table_are_those_of_the_model(folder, tmp_path, capsys, ending):
    out = tmp_path / f"v.{ending}"
    said = printed(capsys, "embed", folder / "model", folder / "new.csv", "--out", out, "-q")
    assert said.startswith("4 vectors of 4 numbers in ")
    expected = load_model(folder / "model").embed(table(4, seed=5)[0])
    if ending == "npy":
        got = np.load(out)
    else:
        stored = pd.read_parquet(out)
        got = np.stack(stored["vector"])
        assert stored["id"].tolist() == ["n0", "n1", "n2", "n3"]
    assert got == pytest.approx(expected, abs=1e-5)


def test_vectors_go_into_a_database_by_whole_numbers(folder, tmp_path, capsys):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    from vicinal.index import open_index

    place = f"milvus:{tmp_path / 'v.db'}"
    assert "expected whole numbers" in error(capsys, "embed", folder / "model", folder / "new.csv", "--out", place)
    pd.read_csv(folder / "new.csv").drop(columns="house").to_csv(tmp_path / "d.csv", index=False)
    printed(capsys, "embed", folder / "model", tmp_path / "d.csv", "--out", place, "--collection", "houses", "-q")
    index = open_index(place, dim=4, similarity="l2", collection="houses")
    assert len(index) == 4
    index.close()


def test_rows_are_added_once_and_forgotten_exactly(folder, model, capsys):
    before = load_model(model)
    said = printed(capsys, "add", model, folder / "new.csv", "-q")
    assert said == f"4 rows added, named by column 'house'; the bank of {model} has {len(before.bank_) + 4} rows now\n"
    assert load_model(model).bank_.has(["n3"]).all()
    assert (model / "theirs.txt").read_text() == "mine"
    assert "expected ids that the bank has not yet" in error(capsys, "add", model, folder / "new.csv", "-q")
    assert json.loads(printed(capsys, "forget", model, "--ids", "n0", "n1", "--json"))["forgotten"] == 2
    (model.parent / "gone.txt").write_text("n2\nn3\n")
    printed(capsys, "forget", model, "--ids", model.parent / "gone.txt")
    frame = table(5, seed=8)[0]
    assert load_model(model).predict(frame) == pytest.approx(before.predict(frame), abs=1e-12)


def test_a_report_outlives_added_rows_but_no_forgotten_ones(folder, tmp_path, capsys):
    options = ["--target", "price", "--id", "house", "--max-epochs", "1", "--members", "1", "--hidden", "8,4"]
    out = tmp_path / "m"
    options += ["--metric", "network", "--no-baselines", "-q", "--out", str(out)]
    assert run(["fit", str(folder / "houses.csv"), *options]) == 0
    printed(capsys, "add", out, folder / "new.csv", "-q")
    assert (out / "report.html").is_file()
    printed(capsys, "forget", out, load_model(out).bank_.ids[0])
    assert not (out / "report.html").exists()


def test_a_refused_change_leaves_every_byte(folder, model, capsys):
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    frame = pd.read_csv(folder / "new.csv")
    wrong = folder / "wrong.csv"
    for odd, words in (
        (frame.assign(price=[1, None, 2, 3]), "row 2, column price: expected a label, got an empty cell"),
        (frame.assign(price=[1, "cheap", 2, 3]), "row 2, column price: expected a number, got 'cheap'"),
        (frame.drop(columns="price"), "target: expected one of"),
        (frame.drop(columns="size"), "column 'size', which the model reads, got none; add what is missing, with"),
        (frame.assign(house="n1"), "expected each id once"),
        (
            frame.assign(house=[load_model(model).bank_.ids[0], "n1", "n2", "n3"]),
            "expected ids that the bank has not yet",
        ),
        (frame.drop(columns="house"), "--id: expected one of"),
    ):
        odd.to_csv(wrong, index=False)
        assert words in error(capsys, "add", model, wrong, "-q")
    assert error(capsys, "forget", model, "--ids", "h77777").startswith("--ids: expected ids of rows")
    everything = load_model(model).bank_.ids.tolist()
    assert "at least one row" in error(capsys, "forget", model, "--ids", *everything)
    pd.DataFrame({"a": ["h1"], "b": ["h2"]}).to_csv(wrong, index=False)
    assert "expected a column id" in error(capsys, "forget", model, "--ids", wrong)
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


def test_a_change_waits_for_that_of_another(folder, model, monkeypatch):
    from vicinal.core import files
    from vicinal.workflows.bank import forget_rows

    monkeypatch.setattr(files, "_WAIT", 0.05)
    with files.locked(files.resolved(model), "update"), pytest.raises(ValueError, match="to be free"):
        forget_rows(model, load_model(model).bank_.ids[:1])
    assert forget_rows(model, load_model(model).bank_.ids[:1]).changed == 1


@pytest.mark.slow
def test_rows_of_classes_are_added_by_the_names_that_the_fit_gave_them(tmp_path, capsys):
    frame = table(60)[0].assign(grade=[1, 2] * 30)
    frame.to_csv(tmp_path / "d.csv", index=False)
    options = ["--target", "grade", "--max-epochs", "1", "--members", "1", "--hidden", "8,4", "--no-baselines", "-q"]
    assert run(["fit", str(tmp_path / "d.csv"), *options]) == 0
    frame.head(3).to_csv(tmp_path / "e.csv", index=False)
    said = printed(capsys, "add", tmp_path / "d-model", tmp_path / "e.csv", "-q")
    assert said.startswith("3 rows added")
    frame.head(3).assign(grade=7).to_csv(tmp_path / "e.csv", index=False)
    told = error(capsys, "add", tmp_path / "d-model", tmp_path / "e.csv", "-q")
    assert "expected a class that the model was fitted with, got '7'" in told
    assert printed(capsys, "add", tmp_path / "d-model", tmp_path / "e.csv", "--new-classes", "-q").startswith("3 rows")
    assert load_model(tmp_path / "d-model").classes_.tolist() == ["1", "2", "7"]


def test_a_folder_is_shown_without_its_rows_and_weights(model, capsys):
    shown = json.loads(printed(capsys, "show", model, "--json"))
    loaded = load_model(model)
    assert (shown["kind"], shown["task"], shown["target"], shown["id"]) == ("model", "regression", "price", "house")
    assert shown["rows"] == {"bank": len(loaded.bank_), "held out": len(loaded.calibration_)}
    assert {name: column["kind"] for name, column in shown["columns"].items()} == loaded.kinds_
    assert shown["settings"]["metric"] == loaded.metric_
    assert shown["scores"]["model"] == loaded.notes_["scores"]["model"]
    assert shown["files"]["bank.safetensors"] == (model / "bank.safetensors").stat().st_size
    (model / "bank.safetensors").write_bytes(b"torn")
    (model / "model.safetensors").unlink()
    assert f"regression of price (numbers from {shown['labels']['lowest']:.4g} to" in printed(capsys, "show", model)


def test_a_folder_that_cannot_be_shown_is_one_sentence(folder, model, tmp_path, capsys):
    assert "which is not there" in error(capsys, "show", tmp_path / "none")
    assert "a file" in error(capsys, "show", folder / "houses.csv")
    assert "got other files" not in error(capsys, "show", model / "held")
    assert "expected the folder of a model, a matcher or a recommender" in error(capsys, "show", folder)
    config = model / "config.json"
    config.write_text(config.read_text().replace('"regression"', '"regresion"'))
    assert "config.json: expected the checksum" in error(capsys, "show", model)


def test_corrected_labels_are_those_of_later_predictions_and_are_listed_with_who(model, tmp_path, capsys):
    bank = load_model(model).bank_
    one, other = bank.ids[:2].tolist()
    assert "No changes" in printed(capsys, "show", model, "--changes")
    pd.DataFrame({"house": [one, other], "price": [7.5, float(bank.labels[1])]}).to_csv(tmp_path / "c.csv", index=False)
    said = json.loads(printed(capsys, "relabel", model, tmp_path / "c.csv", "--who", "ann", "--json"))
    assert said["relabelled"] == 1
    assert said["labels"] == [{"id": one, "before": float(bank.labels[0]), "label": 7.5}]
    assert load_model(model).labels_of([one, other]) == [7.5, float(bank.labels[1])]
    listed = json.loads(printed(capsys, "show", model, "--changes", "--json"))
    assert [(change["who"], change["what"], change["ids"]) for change in listed] == [("ann", "relabel", [one])]
    assert f"{one}: " in printed(capsys, "show", model, "--changes")
    assert json.loads(printed(capsys, "show", model, "--json"))["journal"]["records"] == 1
    pd.DataFrame({"house": [one], "price": [52000.0]}).to_csv(tmp_path / "d.csv", index=False)
    assert f"{one}: 52,000, which was 7.5" in printed(capsys, "relabel", model, tmp_path / "d.csv")
    assert f"{one}: 7.5 to 52,000" in " ".join(printed(capsys, "show", model, "--changes").split())
    printed(capsys, "relabel", model, tmp_path / "c.csv")
    again = printed(capsys, "relabel", model, tmp_path / "c.csv")
    assert again == f"0 labels of {model} changed: the rows have these labels already\n"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("house,price\nh77777,1\n", "'h77777'"),
        ("house,price\nh1,x\n", "row 1, column price: expected a number, got 'x'"),
        ("house,price\nh1,\n", "expected a label, got an empty cell"),
        ("house,price\nh1,2\nh1,3\n", "expected each id once"),
        ("house,price\nh999,2\n", "--id: expected ids of rows that the model was given, got 'h999'; did you mean 'h9"),
        ("nr,price\nh1,2\n", "--id: expected one of 'nr', 'price', got 'house'"),
        ("house,prize\nh1,2\n", "--target: expected one of 'house', 'prize', got 'price'"),
    ],
)
def test_a_wrong_correction_is_one_sentence_and_changes_nothing(folder, tmp_path, capsys, cells, words):
    (tmp_path / "c.csv").write_text(cells)
    assert words in error(capsys, "relabel", folder / "model", tmp_path / "c.csv")
    assert not (folder / "model" / "changes.jsonl").exists()


def test_of_a_class_the_cells_that_its_trend_names_stand_first(monkeypatch, tmp_path, capsys):
    made = FittedModel.error_of_all
    both = "trees and kernel"
    monkeypatch.setattr(FittedModel, "error_of_all", lambda one: -1.0 if one.metric == both else made(one))
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 5)), columns=list("abcde"))
    frame.assign(kind=np.where(frame["e"] > 0, "yes", "no")).to_csv(tmp_path / "t.csv", index=False)
    assert run(["fit", str(tmp_path / "t.csv"), "--target", "kind", "--no-baselines", "-q"]) == 0
    heading = next(
        line for line in printed(capsys, "explain", tmp_path / "t-model", "--id", "7").splitlines() if "adds" in line
    )
    assert heading.split(")")[1].split()[0] == "e"


def test_an_explained_row_of_the_bank_is_predicted_as_that_row_of_a_table(folder, capsys):
    known = pd.read_csv(folder / "houses.csv").set_index("house", drop=False)
    name = load_model(folder / "model").bank_.ids[5]
    known.loc[[name]].to_json(folder / "one.jsonl", orient="records", lines=True)
    ask = ["explain", folder / "model", "-k", "4", "--json", "-q"]
    ways = (["--id", name], ["--file", folder / "one.jsonl"], [folder / "one.jsonl"])
    ways += ([folder / "houses.csv", "--id", name],)  # so rows of the table are explained that the bank has not
    by_id, by_file, by_argument, in_table = (json.loads(printed(capsys, *ask, *way))[0] for way in ways)
    assert by_argument == by_file
    assert in_table["prediction"] == pytest.approx(by_file["prediction"])
    lost = error(capsys, "explain", folder / "model", folder / "houses.csv", "--id", "h99", "-q")
    assert lost.startswith("--id: expected rows of the table, got 'h99'; did you mean 'h")
    assert by_id["label"] == in_table["label"] == pytest.approx(known["price"][name])
    assert by_id["prediction"] == pytest.approx(by_file["prediction"], rel=1e-4)
    assert by_id["interval"] == pytest.approx(by_file["interval"], rel=1e-4)
    assert by_id["nearest"] == pytest.approx(by_file["nearest"], abs=1e-4)
    assert by_file["neighbors"][0]["id"] == by_id["neighbors"][0]["id"] != name
    parts = [n["contribution"] for n in by_id["neighbors"]] + [by_id["others"]["contribution"]]
    assert sum(parts) == pytest.approx(by_id["prediction"])
    said = printed(capsys, "explain", folder / "model", "--id", name, "-k", "2")
    assert "90 % interval: " in said
    usual = Explainer(folder / "model").usual
    assert usual is not None
    known.loc[[name]].drop(columns="house").to_json(folder / "nameless.jsonl", orient="records", lines=True)
    near = printed(capsys, "explain", folder / "model", folder / "nameless.jsonl", "--include-own")
    assert "It is as good as equal to another row." in near
    assert f"ts nearest neighbor is {by_id['nearest'] / usual[0]:.2g} times as far as usual" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80, "columns of the row are shown where there is room"
    (two,) = json.loads(printed(capsys, "explain", folder / "model", "--id", name, "-k", "2", "--json", "-q"))
    rest, shown = two["others"], sum(abs(n["weight"]) for n in two["neighbors"])
    (others,) = (line.split() for line in said.splitlines() if " others" in line)
    assert float(others[2]) == pytest.approx(rest["contribution"] / rest["weight"], abs=1)  # the mean of their labels
    shown /= shown + abs(rest["weight"])
    told = f"The listed rows carry {100 * shown:.0f} % of the weight of all rows; -k 8 lists more."
    assert (told in said) == (shown < 0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "query: expected one of DATA, --id and --row, got none"),
        (["--id", "h1", "--row", "{}"], "got --id and --row"),
        (["new.csv", "--file", "new.csv"], "got DATA and --file"),
        (
            ["--id", "h999"],
            "got 'h999' (rows of the test and new ones need their table: `vicinal explain MODEL TABLE --id ID`)",
        ),
        (["--row", "["], "--row: expected a JSON object"),
        (["--row", '{"size": "x"}'], "size: expected a number"),
        (["--id", "h1", "--interval", "2"], "--interval: expected a number between 0 and 1"),
        (["--id", "h1", "-k", "0"], "-k: expected a whole number of at least 1"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(folder, capsys, arguments, words):
    assert words in error(capsys, "explain", folder / "model", *arguments, "-q")


def test_a_dry_run_says_what_is_learned_from_what_and_writes_nothing(folder, tmp_path, capsys):
    ask = ["fit", folder / "houses.csv", "--target", "price", "--id", "house", "--text", "note", "--dry-run"]
    said = json.loads(printed(capsys, *ask, "--out", tmp_path / "m", "--json", "-q"))
    kinds = {name: column["kind"] for name, column in said["columns"].items()}
    assert kinds == load_model(folder / "model").kinds_
    assert said["rows"] == {"train": 61, "validation": 11, "test": 18}
    assert said["columns"]["note"]["encoder"] == "ngrams"
    plan = printed(capsys, *ask, "--out", tmp_path / "m", "-q")
    assert "Will train a kernel model and a tree model, and keep the better or their mean.\n" in plan
    assert not (tmp_path / "m").exists()
    assert "--target: expected" in error(capsys, "fit", folder / "houses.csv", "--target", "prise", "--dry-run", "-q")


def test_scores_of_prices_are_written_as_prices_are(capsys):
    from vicinal.cli.output import print_scores

    print_scores(
        "On the test rows", {"model": {"mse": 1.48e11, "mae": 210123.4, "r2": 0.1334}, "mean": {"mae": 44.261}}
    )
    said = capsys.readouterr().out
    assert all(words in said for words in (" 148G ", " 210,123 ", " 0.133 ", " 44.26 "))


def test_a_row_may_hold_objects_as_the_file_did_that_was_fitted(tmp_path, capsys):
    things = [{"size": number % 9, "color": "red" if number % 2 else "blue"} for number in range(40)]
    table = pd.DataFrame(
        {"id": range(40), "thing": map(json.dumps, things), "price": [10.0 * t["size"] for t in things]}
    )
    table.to_csv(tmp_path / "things.csv", index=False)
    options = ["--target", "price", "--id", "id", "--metric", "kernel", "--no-baselines"]
    assert run(["fit", str(tmp_path / "things.csv"), *options, "-q"]) == 0
    capsys.readouterr()
    told = []
    for row in ({"thing": things[4]}, {"thing": json.dumps(things[4])}, {"thing.size": 4, "thing.color": "blue"}):
        assert run(["explain", str(tmp_path / "things-model"), "--row", json.dumps(row), "--json"]) == 0
        printed = capsys.readouterr()
        assert "left empty" not in printed.err
        told.append(json.loads(printed.out)[0]["prediction"])
    assert told[0] == told[1] == told[2]
