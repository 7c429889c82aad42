"""The program as a user meets it: what it prints, what it writes, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from references.tables import table
from vicinal.cli import run
from vicinal.cli.output import output, print_rows
from vicinal.data import cars_table
from vicinal.estimators import load_model
from vicinal.workflows import demo as workflows_demo
from vicinal.workflows.measured import Measured, Measurements
from vicinal.workflows.opening import TableJob

QUICK = ["--max-epochs", "3", "--members", "2", "--hidden", "16,4", "--learning-rate", "0.01", "-q", "--no-baselines"]
NETWORK = ["--metric", "network"]
DENSE = ["--metric", "kernel", "--readout", "dense"]


@pytest.fixture(scope="session")
def houses(tmp_path_factory):
    """A csv of houses with ids and groups, and one of new houses."""
    folder = tmp_path_factory.mktemp("houses")
    frame, price = table(150)
    frame.insert(0, "house", [f"h{i}" for i in range(len(frame))])
    frame["street"] = [f"s{i // 3}" for i in range(len(frame))]
    frame.assign(price=price).to_csv(folder / "houses.csv", index=False)
    table(20, seed=8)[0].to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def model(houses):
    out = houses / "model"
    options = ["--target", "price", "--id", "house", "--group", "street", "--text", "note", "--out", str(out)]
    assert run(["fit", str(houses / "houses.csv"), *options, *QUICK, *NETWORK]) == 0
    return out


def test_fit_writes_a_whole_model_folder(model):
    names = {path.name for path in model.iterdir()}
    wanted = {"config.json", "model.safetensors", "SHA256SUMS", "splits.json", "report.html", "README.md"}
    assert names == wanted | {"bank.json", "bank.safetensors", "names.parquet", "rows.parquet", "held"}
    assert not list(model.parent.glob(".model*"))
    assert (model / "report.html").read_text().count("<script") == 1, "the one that searches rows"
    card = (model / "README.md").read_text()
    assert "vicinal predict" in card
    assert "price" in card
    splits = json.loads((model / "splits.json").read_text())["splits"][0]
    assert len(splits["train"]) + len(splits["validation"]) == len(load_model(model).bank_)


@pytest.mark.slow
def test_a_model_with_a_database(houses, tmp_path, capsys):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    out, database = tmp_path / "m", tmp_path / "bank.db"
    options = ["--target", "price", "--id", "house", "--group", "street", "--out", str(out)]
    more = ["--index", f"milvus:{database}"]
    assert run(["fit", str(houses / "houses.csv"), *options, *more, *QUICK, *NETWORK]) == 0
    capsys.readouterr()
    assert database.exists()
    ask = ["predict", str(out), str(houses / "new.csv"), "--explain", "2", "--json", "-q"]
    assert run(ask) == 2
    assert f"say --index milvus:{database} " in capsys.readouterr().err
    assert f"--index milvus:{database}" in (out / "README.md").read_text()
    assert run([*ask, "--index", f"milvus:{database}"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 20
    assert run(["fit", str(houses / "houses.csv"), *options, "--index", "milvus", *QUICK]) != 0
    assert "index: expected a file or an address behind 'milvus:'" in capsys.readouterr().err


def test_fit_prints_what_it_took_and_what_it_found(houses, tmp_path, capsys):
    options = ["--target", "price", "--drop", "house", "--out", str(tmp_path / "m"), *QUICK, *NETWORK, "--baselines"]
    assert run(["fit", str(houses / "houses.csv"), *options, "-v"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "kernel ridge (raw features)" in printed.out
    for word in ("size", "number", "note", "category", "model", "mean", "k-NN", "ridge", "report.html", "MSE", "R2"):
        assert word in printed.out


@pytest.mark.slow
def test_fit_json_is_json(houses, tmp_path, capsys):
    options = ["--target", "price", "--out", str(tmp_path / "m"), "--json", *QUICK]
    assert run(["fit", str(houses / "houses.csv"), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["scores"]["model"]) == {"mse", "mae", "r2"}
    assert found["task"] == "regression"


@pytest.mark.slow
def test_fit_classes(houses, tmp_path, capsys):
    options = ["--target", "note", "--group", "street", "--out", str(tmp_path / "m"), *QUICK]
    assert run(["fit", str(houses / "houses.csv"), *options]) == 0
    shown = capsys.readouterr().out
    assert "Columns: 3 used (2 numbers, 1 category); 1 left out (house); -v lists them\n" in shown
    assert "\nAccuracy " in shown
    assert "because" not in shown
    assert run(["predict", str(tmp_path / "m"), str(houses / "houses.csv"), "--explain", "2", "-q"]) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert header.startswith("row,prediction,probability_a bad house")


@pytest.mark.slow
def test_columns_that_give_the_target_away_are_named_and_kept(houses, tmp_path, capsys):
    frame = pd.read_csv(houses / "houses.csv").assign(dollars=lambda rows: (1.1 * rows["price"]).round(1))
    frame.to_csv(tmp_path / "d.csv", index=False)
    out = tmp_path / "m"
    options = ["--target", "price", "--drop", "house", "--out", str(out), *DENSE]
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--no-baselines"]) == 0
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert "dollars alone ranks the target almost perfectly" in text
        assert "say --drop dollars" in text
    assert printed.err.index("dollars alone") < printed.err.index("measuring"), "before anything is trained"
    for page in ("README.md", "report.html"):
        assert "dollars alone ranks the target almost perfectly" in (out / page).read_text().replace("\\", "")
    assert "dollars" in load_model(out).kinds_, "it is only said"
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--json", "-q", "--no-baselines", "--drop", "dollars"]) == 0
    assert json.loads(capsys.readouterr().out)["leaks"] == []
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--json", "-q", "--no-baselines"]) == 0
    leaks = json.loads(capsys.readouterr().out)["leaks"]
    assert [(leak["column"], leak["form"]) for leak in leaks] == [("dollars", "target")]
    compared = ["--target", "price", "--splits", "1", "--heads", "nona", "--out", str(tmp_path / "c"), "--no-baselines"]
    assert run(["compare", str(tmp_path / "d.csv"), *compared, "--max-epochs", "1", "--members", "1"]) == 0
    assert "dollars alone" in capsys.readouterr().err


def test_predict_explains_and_bounds(houses, model, capsys):
    options = ["--explain", "2", "--interval", "0.8", "--json", "-q"]
    assert run(["predict", str(model), str(houses / "new.csv"), *options]) == 0
    for record in json.loads(capsys.readouterr().out):
        total = sum(n["contribution"] for n in record["neighbors"]) + record["others"]["contribution"]
        assert total == pytest.approx(record["prediction"], abs=1e-9)
        assert record["low"] <= record["high"]
        assert all(n["id"].startswith("h") for n in record["neighbors"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_predict_writes_what_the_name_asks_for(houses, model, tmp_path, ending):
    out = tmp_path / f"prices.{ending}"
    assert run(["predict", str(model), str(houses / "new.csv"), "--out", str(out), "-q"]) == 0
    readers = {
        "csv": pd.read_csv,
        "tsv": lambda path: pd.read_csv(path, sep="\t"),
        "parquet": pd.read_parquet,
        "jsonl": lambda path: pd.read_json(path, lines=True),
    }
    found = readers[ending](out)
    assert len(found) == 20
    assert np.isfinite(found["prediction"]).all()


def test_predicted_bank_rows_never_see_themselves(houses, model, capsys):
    assert run(["predict", str(model), str(houses / "houses.csv"), "--explain", "150", "--json", "-q"]) == 0
    streets = dict(pd.read_csv(houses / "houses.csv")[["house", "street"]].itertuples(index=False))
    for record in json.loads(capsys.readouterr().out):
        seen = {n["id"] for n in record["neighbors"] if n["weight"] > 0}
        assert record["row"] not in seen
        assert streets[record["row"]] not in {streets[name] for name in seen}


def test_predict_passes_over_extra_columns_and_says_so(houses, model, tmp_path, capsys):
    pd.read_csv(houses / "new.csv").assign(color="red").to_csv(tmp_path / "more.csv", index=False)
    assert run(["predict", str(model), str(tmp_path / "more.csv")]) == 0
    printed = capsys.readouterr()
    assert "passed over 1 column that the model does not read: color" in printed.err


@pytest.mark.slow
def test_compare_resumes(houses, tmp_path, capsys):
    options = ["--target", "price", "--drop", "house", "--drop", "street", "--out", str(tmp_path / "c"), *QUICK]
    assert run(["compare", str(houses / "houses.csv"), "--splits", "2", *options]) == 0
    first = capsys.readouterr().out
    assert "nona+knn" in first
    before = (tmp_path / "c" / "runs.json").read_text()
    assert run(["compare", str(houses / "houses.csv"), "--splits", "2", *options]) == 0
    assert (tmp_path / "c" / "runs.json").read_text() == before
    assert capsys.readouterr().out == first
    assert run(["compare", str(houses / "houses.csv"), "--splits", "3", *options]) == 0
    runs = pd.read_csv(tmp_path / "c" / "runs.csv")
    assert len(runs) == 12
    changed = [*options, "--batch-size", "16"]
    assert run(["compare", str(houses / "houses.csv"), "--splits", "2", *changed]) == 2
    assert "batch_size = 16, got stored ones with 128" in capsys.readouterr().err


def test_compare_shows_baselines_beside_the_heads(houses, tmp_path, capsys):
    options = ["--target", "price", "--drop", "house", "--drop", "street", "--out", str(tmp_path / "c"), *QUICK]
    more = ["--splits", "1", "--heads", "nona", "--baselines"]
    assert run(["compare", str(houses / "houses.csv"), *options, *more]) == 0
    assert "support vectors" in capsys.readouterr().out
    methods = pd.read_csv(tmp_path / "c" / "runs.csv")["method"].tolist()
    assert methods == ["nona", "ridge", "kernel ridge", "support vectors", "boosting", "k-NN"]


@pytest.mark.slow
def test_compare_of_two_tables_tests_over_them(houses, tmp_path, capsys):
    two = tmp_path / "flats.csv"
    frame, price = table(100, seed=5)
    frame.assign(rent=price).to_csv(two, index=False)
    options = ["--target", "price", "--target", "rent", "--splits", "1", "--heads", "dense,nona,nona+knn"]
    names = [str(houses / "houses.csv"), str(two)]
    assert run(["compare", *names, *options, "--out", str(tmp_path / "c"), *QUICK]) == 0
    assert "average ranks over 2 data sets" in capsys.readouterr().out
    assert (tmp_path / "c" / "report.html").stat().st_size > 1000


def test_compare_takes_a_number_for_missing_values_in_a_column_of_one_table(tmp_path, capsys):
    names = [str(tmp_path / name) for name in ("homes.csv", "flats.csv")]
    for name, column in zip(names, ("age", "floor"), strict=True):
        frame = pd.DataFrame({column: np.arange(60) % 40, "price": np.arange(60) % 37 + 0.5})
        frame.to_csv(name, index=False)
    planned = ["compare", *names, "--target", "price", "--splits", "1", "--heads", "nona", "--dry-run", "--missing"]
    assert run([*planned, "age=7"]) == 0
    assert "age: 7 among numbers reads as missing" in capsys.readouterr().err
    assert run([*planned, "agee=7"]) == 2
    assert "--missing: expected a column of the data, got 'agee'; did you mean 'age'?" in capsys.readouterr().err


def test_help_lists_the_commands_in_the_order_of_a_first_use(capsys):
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"│ {name} ") for name in ("fit", "predict", "search", "evaluate", "compare", "add", "links")]
    assert places == sorted(places)


def test_help_shows_an_example_for_each_verb(capsys):
    assert run(["--help"]) == 0
    printed = capsys.readouterr().out
    for verb in ("fit", "predict", "compare", "demo"):
        assert f"vicinal {verb}" in " ".join(printed.split())
        assert run([verb, "--help"]) == 0
        assert f"Example: vicinal {verb}" in " ".join(capsys.readouterr().out.split())


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("vicinal 0.")


def test_demo_of_a_few_cars(monkeypatch, tmp_path, capsys):
    cars = cars_table()[["car", "mpg", "weight", "year"]].iloc[::4]
    monkeypatch.setattr("vicinal.workflows.demo.cars_table", lambda: cars.reset_index(drop=True))
    assert run(["demo", "--out", str(tmp_path / "demo"), "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = " ".join(" ".join(lines).split())
    told = lines[lines.index("Test cars, their miles per gallon as predicted, and the cars behind it:") + 1 :]
    told = told[: told.index("A wrong label, found and corrected:")]
    assert max(map(len, told)) <= output.width  # broken where the terminal ends, not by words
    assert sum("had" in line for line in told) >= 9  # a car a line
    for words in (
        "Miles per gallon of 100 cars, five-fold cross-validation",
        "on 100 rows, out of fold",
        "model",
        "ridge",
        "like this one",
        "report.html",
        "on purpose",
    ):
        assert words in printed
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]  # no working folder, though the model predicted
    corrected = load_model(tmp_path / "demo")
    known = cars[cars["car"].isin([*corrected.bank_.ids, *corrected.calibration_.ids])]
    np.testing.assert_allclose(corrected.labels_of(known["car"]), known["mpg"])  # relabel took the wrong label out
    assert len(known) == 80
    (change,) = map(json.loads, (tmp_path / "demo" / "changes.jsonl").read_text().splitlines())
    liters = 235.215 / known.set_index("car")["mpg"][change["ids"]]
    np.testing.assert_allclose(change["before"], liters, atol=0.05)


def test_demo_predicts_each_car_by_a_fit_that_has_not_seen_it(monkeypatch):
    job, splits = TableJob(source=cars_table(), target="mpg", id="car"), []

    def measure(job, model, opened, split):
        splits.append(split)
        truth = opened.table.target[split.test]
        return Measurements({"model": Measured(truth + 1, truth)}, {}, [])

    monkeypatch.setattr(workflows_demo, "fit_split", lambda model, opened, split: None)
    monkeypatch.setattr(workflows_demo, "measure", measure)
    pooled = workflows_demo.cross_measured(job, lambda line: None)
    for split in splits:
        assert sorted([*split.train, *split.validation, *split.test]) == list(range(398))
    assert sorted(row for split in splits for row in split.test) == list(range(398))
    assert pooled.scores["model"]["mse"] == pytest.approx(1)
    assert len(pooled.model.truth) == 398


def start_fit(houses, out, more=()):
    command = [sys.executable, "-c", "from vicinal.cli import main; main()", "fit", str(houses / "houses.csv")]
    options = ["--target", "price", "--out", str(out), "--hidden", "16,4", "--max-epochs", "3000", "--patience", "3000"]
    options += ["--metric", "network"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *options, *more], env=environment, stderr=subprocess.PIPE)


def wait_for_checkpoint(out):
    working = out.with_name(f".{out.name}.fit")  # a fit that may tune trains the head in a folder inside
    deadline = time.monotonic() + 120
    while not list(working.rglob("last.ckpt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_kill_in_the_middle_of_a_fit_keeps_the_old_model_and_resumes(houses, model, tmp_path, capsys):
    import shutil

    out = tmp_path / "m"
    shutil.copytree(model, out)
    strangers = {"groups": [f"new {row}" for row in range(20)]}
    before = load_model(out).predict(pd.read_csv(houses / "new.csv"), **strangers)
    with start_fit(houses, out) as process:
        wait_for_checkpoint(out)
        time.sleep(0.5)
        process.kill()
    np.testing.assert_allclose(load_model(out).predict(pd.read_csv(houses / "new.csv"), **strangers), before)
    with start_fit(houses, out) as process:
        line = b""
        deadline = time.monotonic() + 60
        while b"taking up the run" not in line and time.monotonic() < deadline:
            line = process.stderr.readline()
        assert b"taking up the run that was interrupted" in line
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_control_c_ends_with_a_sentence_and_keeps_the_run(houses, tmp_path):
    out = tmp_path / "m"
    with start_fit(houses, out, ["-q"]) as process:
        wait_for_checkpoint(out)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"stopped; nothing was overwritten, and the same command resumes" in err
    assert b"Traceback" not in err
    assert not out.exists()
    assert list((tmp_path / ".m.fit").rglob("last.ckpt"))


def test_a_table_of_long_names_wraps_them_and_cuts_no_number(capsys, monkeypatch):
    monkeypatch.setattr(output, "_width", 40)
    print_rows(
        "", ["id", "label", "expected"], [["oldsmobile cutlass ciera (diesel) 1982", "38.25", "24.09"]], names=True
    )
    said = capsys.readouterr().out
    assert "38.25" in said
    assert "24.09" in said
    assert "expected" in said


def test_a_long_text_is_folded_and_columns_that_do_not_fit_are_left_out(capsys, monkeypatch):
    monkeypatch.setattr(output, "_width", 40)
    lines = [["linalg.pascal", "Returns the n x n Pascal matrix of binomials.", "yes"]]
    print_rows("", ["id", "help", "known"], lines, numbers=False, names=True, least=1)
    said = capsys.readouterr().out
    assert "linalg.pascal" in said
    assert "binomials" in said
    assert "known" not in said


def test_a_text_is_cut_where_columns_of_numbers_would_be_left_out(capsys, monkeypatch):
    monkeypatch.setattr(output, "_width", 40)
    headings = ["id", "label", "weight", "text"]
    print_rows("", headings, [["a", "good", "0.1953", "a dreary film " * 9]], numbers=False, names=True, least=3)
    said = capsys.readouterr().out
    assert all(word in said for word in ("text", "dreary", "...", "0.1953"))
    print_rows("", [*headings[:2], "size"], [["a" * 30, "good", "17"]], numbers=False, names=True, least=2)
    assert "size" not in capsys.readouterr().out


def test_long_names_are_folded_before_short_columns(capsys):
    row = ["chevrolet chevelle concours (sw) 1972", "17", "15.3", "0.213", "3.4", "weight -1.23, horsepower +0.221"]
    headings = ["id", "label", "adjusted", "weight", "adds", "adjusted by"]
    print_rows("", headings, [row], numbers=False, names=True, least=len(headings))
    printed = capsys.readouterr().out
    assert all(f" {word} " in f"{printed} " for word in ("label", "adjusted", "weight", "15.3", "0.213", "horsepower"))


def test_a_file_in_the_place_of_a_text_is_told_how_to_be_searched_for(model, houses, capsys):
    new = str(houses / "new.csv")
    assert run(["search", str(model), new, "-q"]) == 2
    assert f"got the file {new}; for its rows say --file {new}" in capsys.readouterr().err
