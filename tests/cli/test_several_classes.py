"""Several classes a row from the command line: fit, predict, evaluate, what it says of them and of bad input."""

import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from vicinal.calibration import f1_thresholds
from vicinal.cli import run
from vicinal.data.target import read_target
from vicinal.estimators import load_model
from vicinal.evaluation import several_scores
from vicinal.evaluation.scores import several_hot
from vicinal.workflows import TableJob
from vicinal.workflows.measured import measured_of
from vicinal.workflows.measuring import unknown_classes
from vicinal.workflows.opening import open_table

NAMES = ["folk", "jazz", "rock"]
BRIEF = ["--max-epochs", "15", "--learning-rate", "2e-2", "--hidden", "16,4", "--members", "2", "-q"]


def songs(count=150, seed=0):
    table = pd.DataFrame(np.random.default_rng(seed).normal(size=(count, 3)), columns=NAMES[::-1])
    lists = [[name for name in NAMES if row[name] > 0.4] for _, row in table.iterrows()]
    return table.set_axis(list("pqr"), axis=1).assign(id=[f"s{seed}{i}" for i in range(count)]), lists


def written(lists, between="; "):
    return [between.join(cell) or ";" for cell in lists]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("several")
    table, lists = songs()
    table["genres"] = written(lists)
    table.loc[3, "genres"] = None
    table.to_csv(place / "songs.csv", index=False)
    line = ["fit", str(place / "songs.csv"), "--target", "genres", "--separator", ";", "--id", "id"]
    assert run([*line, "--out", str(place / "m"), *BRIEF]) == 0
    return place


def error(capsys, arguments):
    capsys.readouterr()
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_fit_learns_the_classes_and_leaves_out_rows_without_a_label_but_not_those_without_classes(folder):
    model = load_model(folder / "m")
    assert model.classes_.tolist() == NAMES
    assert "s03" not in [*model.bank_.ids, *model.calibration_.ids]
    tested = json.loads((folder / "m" / "splits.json").read_text())["splits"][0]["test"]
    assert len(model.bank_) + len(tested) == 149
    assert (model.bank_.labels.sum(1) == 0).any()  # a separator alone: no class
    assert model.notes_["separator"] == ";"


def test_show_and_the_card_say_that_rows_have_several(folder, capsys):
    capsys.readouterr()
    assert run(["show", str(folder / "m")]) == 0
    assert "(3 classes, several a row: folk, jazz, rock)" in " ".join(capsys.readouterr().out.split())
    assert "Predicts the classes" in (folder / "m" / "README.md").read_text()


def test_a_class_of_test_rows_alone_is_told_and_counts_as_missed(folder):
    opened = open_table(TableJob(folder / "songs.csv", "genres", id="id", separator=";"))
    model = load_model(folder / "m")
    target = opened.table.target.copy()
    assert unknown_classes(model, target) == []
    target[0] = (*target[0], "polka")
    assert unknown_classes(model, target) == ["Classes that the model does not know count as missed: 'polka' (1 time)"]


def test_its_scores_are_those_of_its_predictions_on_the_test_rows(folder):
    model, table = load_model(folder / "m"), pd.read_csv(folder / "songs.csv").dropna()
    split = json.loads((folder / "m" / "splits.json").read_text())["splits"][0]
    trained, tested = split["train"], split["test"]
    rows = table.iloc[tested]
    cells = [tuple(name for name in map(str.strip, cell.split(";")) if name) for cell in table["genres"]]
    truth = [cells[place] for place in tested]
    chances = model.predict_proba(rows[list("pqr")])
    scores = several_scores(truth, chances, NAMES, model.thresholds_)
    told = model.notes_["scores"]
    assert told["model"] == pytest.approx(scores)
    assert scores["micro_f1"] > 0.85
    learned = several_hot([cells[place] for place in trained], NAMES)[0]
    shares = np.repeat(learned.mean(0, keepdims=True), 120, axis=0)
    limits = f1_thresholds(shares[: len(learned)], learned)  # of the shares themselves, not those of the model
    assert (
        measured_of(model, chances, truth, None, np.full(3, 1.1)).scores["micro_f1"] == 0
    )  # a method that never says a class
    assert told["mean"] == pytest.approx(several_scores(truth, shares[: len(truth)], NAMES, limits))
    assert set(told) == {
        "model",
        "mean",
        "k-NN (learned embeddings)",
        "logistic regression (raw features)",
        "k-NN (raw features)",
    }


def test_its_report_shows_thresholds_scores_and_rows_of_several_classes(folder):
    page = (folder / "m" / "report.html").read_text()
    for said in ("Micro F1 ", "Class by class", "Thresholds of F1 are those", "folk, jazz", "(none)"):
        assert said in page
    assert "1 dropped" in page
    assert "micro F1" in (folder / "m" / "README.md").read_text()


def test_lists_say_the_same_as_texts(folder, tmp_path):
    table, lists = songs()
    cells = pd.Series([None if place == 3 else cell for place, cell in enumerate(lists)])
    table.assign(genres=cells).to_parquet(tmp_path / "songs.parquet")
    line = {"source": folder / "songs.csv", "target": "genres", "id": "id", "separator": ";"}
    texts = open_table(TableJob(**line)).table
    read = open_table(TableJob(**line | {"source": tmp_path / "songs.parquet", "separator": None})).table
    assert read.several
    assert read.target.tolist() == texts.target.tolist()
    assert read.classes == texts.classes == NAMES
    assert [row.row for row in read.dropped] == [row.row for row in texts.dropped] == [4]


def test_predictions_are_classes_as_the_table_writes_them_and_a_probability_for_each(folder, tmp_path, capsys):
    table, _ = songs(12, 1)
    table.to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert run(["predict", str(folder / "m"), str(tmp_path / "new.csv"), "-q"]) == 0
    said = pd.read_csv(io.StringIO(capsys.readouterr().out), keep_default_na=False)
    assert list(said.columns) == ["row", "prediction", *(f"probability_{name}" for name in NAMES)]
    model = load_model(folder / "m")
    chances = said[[f"probability_{name}" for name in NAMES]].to_numpy()
    wanted = [";".join(np.array(NAMES)[row]) for row in chances >= model.thresholds_]
    assert said["prediction"].tolist() == wanted


def test_an_audit_measures_new_rows_and_names_the_class_that_is_missing_or_too_much(folder, tmp_path, capsys):
    table, lists = songs(80, 2)
    wrong = [*lists]
    wrong[0] = [name for name in NAMES if name not in wrong[0]]  # all of it
    table.assign(genres=[*written(wrong)]).to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert run(["evaluate", str(folder / "m"), str(tmp_path / "new.csv"), "-q", "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)
    model = load_model(folder / "m")
    scores = several_scores(list(map(tuple, wrong)), model.predict_proba(table[list("pqr")]), NAMES, model.thresholds_)
    assert audit["scores"] == pytest.approx(scores, abs=1e-6)
    assert set(audit["by_class"]) == set(NAMES)
    assert audit["suspects"][0]["row"] == "s20"
    sign, name = audit["suspects"][0]["expected"][0], audit["suspects"][0]["expected"][1:]
    assert (sign == "+") == (name in lists[0])
    line = ["evaluate", str(folder / "m"), str(tmp_path / "new.csv"), "--fair", "p", "-q", "-v"]
    assert run([*line, "--out", str(tmp_path / "a.html")]) == 0
    told = capsys.readouterr().out
    assert "Class by class" in told
    assert "Groups are not compared" in told
    assert "Class by class" in (tmp_path / "a.html").read_text()


def test_rows_without_a_label_are_not_added_and_other_separators_are_told(folder, tmp_path, capsys):
    table, lists = songs(40, 3)
    table.assign(genres=[*written(lists)[:39], None]).to_csv(tmp_path / "gap.csv", index=False)
    said = error(capsys, ["add", str(folder / "m"), str(tmp_path / "gap.csv")])
    assert "expected a label, got an empty cell; leave the row out, or write ; for a row without classes" in said
    table.assign(genres=written(lists, "|")).to_csv(tmp_path / "bars.csv", index=False)
    assert run(["evaluate", str(folder / "m"), str(tmp_path / "bars.csv"), "-q"]) == 0
    told = capsys.readouterr().out
    assert "Classes that the model does not know count as missed:" in told
    assert "it expects ';'" in told


@pytest.mark.parametrize(
    ("cells", "options", "said"),
    [
        ([["a"], "b"] * 10, {}, "row 1, column g: expected a list of classes, as other rows have, got 'b'; say"),
        ([["a"], [b"b"]] * 10, {}, "row 1, column g: expected a list of names of classes, got b'b' in it"),
        (
            [[120.0, 80.0], [110.0]] * 9,
            {},
            "row 0, column g: expected a number or names of classes, got a list of 2 numbers; put",
        ),
        (
            [[0.5]] * 20,
            {"task": "regression"},
            "row 0, column g: expected a number .* got a list of 1 number; put each into",
        ),
        ([[], []] * 10, {}, "column g: expected at least two classes, .* got none in 20 rows"),
        ([["a"], []] * 10, {}, "column g: expected at least two classes, .* got 'a' in 20 rows"),
        ([["a", "b"]] * 20, {}, "column g: expected at least two classes, and not the same in every row"),
        (
            [[f"t{i}"] for i in range(30)],
            {},
            "column g: expected classes that repeat, got 30 different ones in 30 rows",
        ),
        (["a;b", "c"] * 10, {"separator": " "}, "separator: expected a sign between classes"),
        ([["a"], ["b"]] * 10, {"task": "regression"}, "task: expected classification, as column g has several"),
    ],
)
def test_errors_of_targets_say_what_was_expected(cells, options, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        read_target(pd.Series(cells, name="g"), **options)


def test_rates_of_groups_are_for_classes_whatever_the_task_was_before_it_was_known(folder, capsys):
    line = ["fit", str(folder / "songs.csv"), "--fair", "p", "--fair-rate", "accuracy", "--dry-run", "-q"]
    assert run([*line, "--target", "genres", "--separator", ";"]) == 0
    assert "--fair-rate: expected 'positive' for numbers" in error(capsys, [*line, "--target", "q"])


def test_a_separator_is_for_one_target_whose_cells_have_it(folder, capsys):
    line = ["fit", str(folder / "songs.csv"), "--target", "genres", "--out", str(folder / "x"), "-q"]
    assert "got '|', which is in none; without it each cell is one class" in error(capsys, [*line, "--separator", "|"])
    several = [*line[:3], "p", "--target", "q", *line[4:], "--separator", ";"]
    assert "separator: expected none for several targets" in error(capsys, several)


def test_an_explanation_says_all_classes_and_of_which_its_sum_is(folder, capsys):
    capsys.readouterr()
    assert run(["explain", str(folder / "m"), "--id", "s05", "--json", "-q"]) == 0
    one = json.loads(capsys.readouterr().out)[0]
    model = load_model(folder / "m")
    limits = dict(zip(NAMES, model.thresholds_, strict=True))
    assert set(one["prediction"]) == {name for name in NAMES if one["probabilities"][name] >= limits[name]}
    assert one["label"] == model.labels_of(["s05"])[0]
    summed = sum(n["contribution"] for n in one["neighbors"]) + one["others"]["contribution"]
    assert summed == pytest.approx(one["probabilities"][one["explained"]])
    assert run(["explain", str(folder / "m"), "--id", "s05", "-q"]) == 0
    assert f"adds to {one['explained']}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_refit_keeps_corrected_classes_and_measures_both_models(folder, tmp_path, capsys):
    shutil.copytree(folder / "m", tmp_path / "m")
    table, lists = songs(60, 6)
    pd.DataFrame({"id": ["s05"], "genres": ["folk;jazz;rock"]}).to_csv(tmp_path / "right.csv", index=False)
    assert run(["relabel", str(tmp_path / "m"), str(tmp_path / "right.csv")]) == 0
    assert "s05: folk, jazz, rock, which was" in capsys.readouterr().out
    more = table.assign(genres=written(lists))
    pd.concat([pd.read_csv(folder / "songs.csv"), more]).to_csv(tmp_path / "all.csv", index=False)
    assert run(["refit", str(tmp_path / "m"), str(tmp_path / "all.csv"), "--even-if-worse", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["error"] == "log_loss"
    assert set(told["scores"]["new"]) == set(told["scores"]["old"]) >= {"micro_f1", "log_loss"}
    model = load_model(tmp_path / "m")
    assert model.labels_of(["s05"]) == [NAMES]
    assert model.bank_.has(["s659"]).all()
    assert model.notes_["separator"] == ";"
