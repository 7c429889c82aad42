"""Each kind of bad input gets one sentence and exit code 2, and nothing is written."""

import io
import json
import os
import stat

import numpy as np
import pandas as pd
import pytest
import typer.main
from PIL import Image

from references.tables import table
from vicinal.cli import run
from vicinal.cli.app import app
from vicinal.estimators import NeighborRegressor, save_model

QUICK = ["--max-epochs", "2", "--members", "1", "--hidden", "8,4", "-q", "--no-baselines"]


@pytest.fixture
def fails(tmp_path, capsys):
    """Run a fit on a frame; gives the one sentence that it ends with, after checking that nothing was written."""

    def check(frame, *options, target="price"):
        frame.to_csv(tmp_path / "data.csv", index=False)
        before = sorted(path.name for path in tmp_path.iterdir())
        code = run(["fit", str(tmp_path / "data.csv"), "--target", target, *QUICK, *options])
        printed = capsys.readouterr()
        assert code == 2
        assert printed.out == ""
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        return one_sentence(printed.err)

    return check


def one_sentence(text):
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text.removeprefix("error: ").strip()


def good(rows=40):
    frame, price = table(rows)
    return frame.assign(price=price)


def jpeg(side=32, color=(200, 10, 10)):
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), color).save(buffer, "JPEG")
    return buffer.getvalue()


def test_missing_target(fails):
    assert "got 'prise'; did you mean 'price'?" in fails(good(), target="prise")
    assert "price" in fails(good().assign(price=np.nan))


def test_a_few_odd_cells_are_missing_and_named_once(tmp_path, capsys):
    frame = good().astype({"price": object, "size": object})
    frame.loc[3, "price"], frame.loc[7, "size"] = "see note", "call me"
    frame.to_csv(tmp_path / "data.csv", index=False)
    quick = [each for each in QUICK if each != "-q"]
    assert run(["fit", str(tmp_path / "data.csv"), "--target", "price", *quick]) == 0
    said = capsys.readouterr().err
    for line in (
        "price: 1 of 40 cells read as missing, as the column holds numbers: 'see note' in row 4",
        "size: 1 of 40 cells read as missing, as the column holds numbers: 'call me' in row 8",
    ):
        assert said.count(line) == 1


def test_target_that_is_no_number(fails):
    frame = good()
    frame["price"] = frame["price"].round(3).astype(str)
    frame.loc[[17, 19, 21], "price"] = ["ask us", "soon", "sold"]  # more than a twentieth
    told = fails(frame)
    assert "row 18" in told
    assert "'ask us'" in told


def test_infinite_feature(fails):
    frame = good()
    frame.loc[5:, "size"] = np.inf  # a few would be gaps
    told = fails(frame)
    assert "size" in told
    assert "inf" in told


@pytest.mark.slow
def test_column_that_is_all_missing_is_left_out_and_said(tmp_path, capsys):
    good().assign(attic=np.nan).to_csv(tmp_path / "d.csv", index=False)
    assert run(["fit", str(tmp_path / "d.csv"), "--target", "price", "--out", str(tmp_path / "m"), *QUICK]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "attic" in line)
    assert "left out" in line


def test_nothing_but_missing(fails):
    told = fails(pd.DataFrame({"attic": [np.nan] * 30, "price": np.arange(30.0) ** 1.5}))
    assert "expected at least one column to learn from" in told


def test_fewer_than_ten_rows(fails):
    assert "expected at least 10 rows with a target, got 9" in fails(good(9))


def test_constant_target(fails):
    assert "price" in fails(good().assign(price=3.5))


def test_duplicate_ids(fails):
    told = fails(good().assign(house=["a", "a", *map(str, range(38))]), "--id", "house")
    assert "house" in told
    assert "got a again" in told


def test_group_that_spans_everything(fails):
    assert "group: expected at least 3 different groups" in fails(good().assign(street="one"), "--group", "street")


def test_unknown_columns(fails):
    assert "did you mean 'size'?" in fails(good(), "--number", "sise")
    assert "did you mean 'town'?" in fails(good(), "--group", "twon")
    assert "did you mean 'note'?" in fails(good(), "--drop", "not")
    assert "--missing: expected one of the columns" in fails(good(), "--missing", "sise=-1")


def test_unknown_settings(fails):
    assert "did you mean 'nona'?" in fails(good(), "--head", "nonna")
    assert "did you mean 'cosine'?" in fails(good(), "--similarity", "cosin")
    assert "--missing: expected COL=NUMBER or COL=NUMBER,NUMBER,..., got 'size'" in fails(good(), "--missing", "size")
    assert "expected COL=NAME" in fails(good(), "--encoder", "minilm")
    assert "--hidden: expected whole numbers" in fails(good(), "--hidden", "a,b")
    assert "for text too" in fails(good(), "--text", "note", "--category", "note")


def test_wrong_files(tmp_path, capsys):
    for name, content in (("nothing.csv", None), ("empty.csv", b""), ("odd.xyz", b"a"), ("bad.parquet", b"PAR1no")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert run(["fit", str(tmp_path / name), "--target", "price", *QUICK]) == 2
        assert name in one_sentence(capsys.readouterr().err)


def with_images(tmp_path, odd):
    rng = np.random.default_rng(0)
    names = []
    for i in range(30):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(color=tuple(int(c) for c in rng.integers(0, 255, 3))))
        names.append(f"{i}.jpg")
    names[4] = odd
    return pd.DataFrame({"photo": names, "price": np.arange(30.0) ** 1.1})


@pytest.mark.parametrize(
    ("odd", "content", "word"),
    [
        ("gone.jpg", None, "gone.jpg"),
        ("cut.jpg", jpeg(256)[:700], "expected a whole image"),
        ("text.jpg", b"not an image", "expected an image"),
        ("../outside.jpg", None, "outside.jpg"),
        ("/etc/hostname", None, "/etc/hostname"),
    ],
)
def test_images_that_cannot_be_used(fails, tmp_path, odd, content, word):
    if content is not None:
        (tmp_path / odd).write_bytes(content)
    (tmp_path.parent / "outside.jpg").write_bytes(jpeg())
    told = fails(with_images(tmp_path, odd), "--image", "photo")
    assert "row 5" in told
    assert word in told


def test_decompression_bomb(fails, tmp_path):
    buffer = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(buffer, "PNG")
    (tmp_path / "bomb.png").write_bytes(buffer.getvalue())
    told = fails(with_images(tmp_path, "bomb.png"), "--image", "photo")
    assert "expected an image of at most" in told
    assert "row 5" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_unwritable_out_folder(fails, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert "can be written to" in fails(good(), "--out", str(locked / "m"))


def test_out_folder_with_other_files(fails, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "which holds other files" in fails(good(), "--out", str(tmp_path / "mine"))
    assert "got the file" in fails(good(), "--out", str(tmp_path / "mine" / "thesis.txt"))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    frame, price = table(60)
    folder = tmp_path_factory.mktemp("saved") / "model"
    save_model(NeighborRegressor(max_epochs=2, hidden=(8, 4)).fit(frame, price), folder)
    return folder


def predict_fails(saved, frame, path, capsys, *options):
    frame.to_csv(path, index=False)
    assert run(["predict", str(saved), str(path), *options]) == 2
    return one_sentence(capsys.readouterr().err)


def test_predict_with_a_missing_column(saved, tmp_path, capsys):
    frame = table(5)[0].rename(columns={"size": "sizes"})
    told = predict_fails(saved, frame, tmp_path / "d.csv", capsys)
    assert "expected the column 'size', which the model reads, got none; did you mean 'sizes'?" in told


def test_predict_with_wrong_cells_options_and_models(saved, tmp_path, capsys):
    frame = table(5)[0]
    assert "size" in predict_fails(saved, frame.assign(size="big"), tmp_path / "d.csv", capsys)
    told = predict_fails(saved, frame, tmp_path / "d.csv", capsys, "--interval", "0.9999")
    assert told.startswith("--interval: expected at most")
    told = predict_fails(saved, frame, tmp_path / "d.csv", capsys, "--interval", "90")
    assert told == "--interval: expected a number between 0 and 1, got 90.0; for 90 % say 0.9"
    told = predict_fails(saved, frame, tmp_path / "d.csv", capsys, "--out", str(tmp_path / "d.docx"))
    assert "--out: expected a name that ends in" in told
    assert "model: expected a model folder" in predict_fails(tmp_path / "no", frame, tmp_path / "d.csv", capsys)


def test_unseen_category_and_missing_number_are_predicted(saved, tmp_path, capsys):
    frame = table(5)[0].assign(town="atlantis", size=np.nan)
    frame.to_csv(tmp_path / "d.csv", index=False)
    assert run(["predict", str(saved), str(tmp_path / "d.csv"), "-q"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_an_option_that_is_missing_is_said_with_what_it_is_for(capsys):
    assert run(["learn", "photos.csv"]) == 2
    assert one_sentence(capsys.readouterr().err).startswith("Missing option '--same': Column that says which rows are")


def test_unknown_command_and_option(capsys):
    assert run(["fti"]) == 2
    assert "fti" in one_sentence(capsys.readouterr().err)
    assert run(["fit", "--tarket", "x"]) == 2
    one_sentence(capsys.readouterr().err)


def numeric_options(verb):
    """Options of a command that take a number."""
    command = typer.main.get_command(app).commands[verb]
    return [parameter.opts[0] for parameter in command.params if type(parameter.default) in (int, float)]


@pytest.mark.parametrize("option", numeric_options("fit"))
def test_settings_are_named_as_they_were_typed(fails, option):
    assert fails(good(), option, "-7").startswith(f"{option}: expected ")


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (["--accelerator", "gpu"], "--accelerator: expected one that this computer has ('auto' or 'cpu'), got 'gpu'"),
        (["--accelerator", "tpuu"], "--accelerator: expected one of"),
        (["--precision", "8"], "--precision: expected one of"),
        (["--logger", "paper"], "--logger: expected one of"),
        (["--mask-parameters", "some"], "--mask-parameters: expected one of"),
        (["--index", "faiss:Nonsense"], "--index: expected what FAISS can use, got 'Nonsense'"),
        (["--encoder", "note=cnn"], "--encoder note: expected one of"),
        (["--tune", "most"], "--tune: expected"),
        (["--loss", "supco"], "--loss: expected"),
        (["--seed", "4294967296"], "--seed: expected a whole number of at most 4294967295"),
        (["--dropout", "20"], "--dropout: expected a number between 0 and 1, got 20.0; for 20 % say 0.2"),
        (["--id", "nope"], "--id: expected one of the columns"),
        (["--use", "nope"], "--use: expected one of the columns"),
        (
            ["--group", "town", "--target", "town"],
            "--target: expected columns that are not the id, group or weight too, got 'town'",
        ),
        (["--task", "rank"], "--task: expected one of"),
        (["--root", "nowhere"], "--root: expected a folder, got 'nowhere', which is none"),
        (["--hidden", "99999999999999999999"], "--hidden: expected a whole number of at most"),
    ],
)
def test_each_setting_is_named_as_it_was_typed(fails, monkeypatch, options, start):
    if "faiss" in options[1]:
        pytest.importorskip("faiss")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    assert fails(good(), *options).startswith(start)


def test_a_column_that_is_called_as_a_setting_stays_a_column(fails):
    told = fails(good().rename(columns={"size": "hidden"}).assign(hidden=["inf"] * 30 + ["1"] * 10))
    assert told.startswith("hidden: expected a finite number in row 1")


def test_epochs_goes_by_one_name_and_a_hidden_one(tmp_path, capsys):
    good().to_csv(tmp_path / "d.csv", index=False)
    options = ["--target", "price", "--hidden", "8,4", "--members", "1", "--out", str(tmp_path / "m"), "--json", "-q"]
    options += ["--metric", "network"]
    for name in ("--max-epochs", "--epochs"):
        assert run(["fit", str(tmp_path / "d.csv"), *options, name, "2"]) == 0
        assert json.loads(capsys.readouterr().out)["epochs"] == 2
    assert run(["fit", str(tmp_path / "d.csv"), *options, "--epochs", "2", "--max-epochs", "3"]) == 2
    assert one_sentence(capsys.readouterr().err).startswith("--max-epochs: expected one number, got 3 and --epochs 2")
    assert run(["fit", "--help"]) == 0
    told = capsys.readouterr().out
    assert "--max-epochs" in told
    assert "--epochs" not in told.replace("--max-epochs", "")


@pytest.mark.parametrize("place", range(4))
def test_an_address_on_the_web_is_repeated_as_it_was_typed(place, tmp_path, capsys):
    address = "https://example.org/houses.csv"
    arguments = [
        ["fit", address, "--target", "price"],
        ["predict", address, "d.csv"],
        ["predict", str(tmp_path), address],
        ["evaluate", str(tmp_path), "d.csv", "--out", address],
    ][place]
    assert run(arguments) == 2
    told = one_sentence(capsys.readouterr().err)
    assert repr(address) in told
    assert ("download it first" in told) is (place < 3)  # what is written is not to be downloaded


def test_a_table_in_the_place_of_the_model(saved, tmp_path, capsys):
    path = tmp_path / "d.csv"
    for arguments in ([path, path], [path, saved]):
        table(5)[0].to_csv(path, index=False)
        for verb in ("predict", "evaluate"):
            assert run([verb, *map(str, arguments)]) == 2
            told = one_sentence(capsys.readouterr().err)
            assert told.startswith("model: expected a model folder, got the file ")
            assert told.endswith("the model comes first and the table second, as in: vicinal predict MODEL DATA")


@pytest.mark.slow
def test_root_is_the_folder_that_paths_start_from(tmp_path, capsys):
    with_images(tmp_path, "4.jpg")
    (tmp_path / "4.jpg").write_bytes(jpeg())
    (tmp_path / "tables").mkdir()
    frame = with_images(tmp_path, "4.jpg")
    frame.to_csv(tmp_path / "tables" / "d.csv", index=False)
    data, out, page = (str(tmp_path / name) for name in ("tables/d.csv", "m", "a.html"))
    options = ["--target", "price", "--members", "1", "--out", out, *QUICK]
    assert run(["fit", data, *options]) == 2
    assert "photo: expected an image in row 1, got '0.jpg'; no file at " in one_sentence(capsys.readouterr().err)
    frame.assign(photo="../" + frame["photo"]).to_csv(tmp_path / "tables" / "up.csv", index=False)
    assert run(["fit", str(tmp_path / "tables" / "up.csv"), *options]) == 2
    assert "as root (--root on the command line)" in one_sentence(capsys.readouterr().err)
    root = ["--root", str(tmp_path)]
    assert run(["fit", data, *options, *root]) == 0
    assert run(["predict", out, data, "-q"]) == 2
    assert run(["predict", out, data, "-q", *root]) == 0
    assert run(["evaluate", out, data, "-q", "--out", page, *root]) in (0, 2)  # too few new rows are said
    assert "no file at" not in capsys.readouterr().err.splitlines()[-1]
    compared = ["compare", data, "--target", "price", "--splits", "1", "--heads", "nona", "--members", "1"]
    assert run([*compared, *QUICK, *root, "--out", str(tmp_path / "c")]) == 0
