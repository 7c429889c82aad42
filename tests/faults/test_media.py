"""Media files of all sorts, through a command: a result, or one sentence and exit code 2."""

import shutil

import numpy as np
import pandas as pd
import pytest

from faults.media import IMAGES, PLACES, SOUNDS, encoded, picture, plain, sound
from faults.warm import check_promise, command, run_case, seeded_tenth

KINDS = {"image": (IMAGES, "photo", "png"), "audio": (SOUNDS, "clip", "wav")}
FILES = [(kind, name) for kind, (files, _, _) in KINDS.items() for name in files]
ODD_PLACES = [(kind, name) for kind in KINDS for name in PLACES]


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder for each kind: a model, and files that may be used beside the one of the case."""
    from vicinal.estimators import NeighborRegressor, save_model

    folder = tmp_path_factory.mktemp("media")
    rng = np.random.default_rng(0)
    for kind, (_, column, end) in KINDS.items():
        (folder / kind).mkdir()
        for i in range(12):
            made = encoded(picture(size=(20 + i, 20))) if kind == "image" else sound(2000 + 100 * i)
            (folder / kind / f"{i}.{end}").write_bytes(made)
        frame = pd.DataFrame({column: [f"{i}.{end}" for i in range(12)]})
        settings = {"columns": {column: kind}, "root": folder / kind, "max_epochs": 1, "hidden": (4,), "members": 1}
        model = NeighborRegressor(**settings).fit(frame, rng.normal(size=12))
        save_model(model, folder / kind / "model")
    return folder


def table(folder, kind, *names):
    """A table of files beside three good ones."""
    _, column, end = KINDS[kind]
    path = folder / "rows.csv"
    pd.DataFrame({column: [f"{i}.{end}" for i in range(3)] + list(names), "price": range(3 + len(names))}).to_csv(path)
    return path


def checked(folder, *arguments):
    """The outcome of a command that may change nothing in ``folder``."""
    before = listing(folder)
    outcome = run_case(folder.with_name("case"), command, *arguments)
    assert listing(folder) == before
    check_promise(outcome)
    return outcome


def listing(folder):
    """What is in a folder; not by its content, as some files are too large to be read."""
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_size) for path in folder.rglob("*"))


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("kind", "name"), seeded_tenth(FILES))
def test_a_media_file(kind, name, models, tmp_path):
    files, column, end = KINDS[kind]
    make, right = files[name]
    shutil.copytree(models / kind, tmp_path / "data")
    (tmp_path / "data" / f"odd.{end}").write_bytes(make())
    outcome = checked(
        tmp_path / "data", "predict", models / kind / "model", table(tmp_path / "data", kind, f"odd.{end}")
    )
    assert outcome.code in right, outcome.err
    if outcome.code == 2:
        assert f"error: {column}: expected " in outcome.err or "error: data: expected finite embeddings" in outcome.err
        assert " in row 4" in outcome.err or "the row at 3" in outcome.err
    else:
        assert np.isfinite([float(line.split(",")[1]) for line in outcome.out.splitlines()[1:]]).all()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("way", ["predict", "fit"])
@pytest.mark.parametrize(("kind", "name"), seeded_tenth(ODD_PLACES))
def test_what_stands_in_the_place_of_a_file(kind, name, way, models, tmp_path):
    _, column, end = KINDS[kind]
    data = tmp_path / "data"
    shutil.copytree(models / kind, data)
    PLACES[name](data / f"odd.{end}")
    rows = table(data, kind, *(f"{i}.{end}" for i in range(3, 12)), f"odd.{end}")
    arguments = {
        "predict": ("predict", data / "model", rows),
        "fit": ("fit", rows, "--target", "price", "--epochs", 1, "--out", data / "made"),
    }
    outcome = checked(data, *arguments[way])
    assert outcome.code == 2
    assert f"error: {column}: expected " in outcome.err


@pytest.mark.slow
def test_six_images_of_49_megapixels_are_fitted(models, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(models / "image", data)
    for i in range(6):
        (data / f"large{i}.png").write_bytes(plain((7000 + i, 6900), mode="RGB"))
    rows = table(data, "image", *(f"{i}.png" for i in range(3, 12)), *(f"large{i}.png" for i in range(6)))
    arguments = ("--target", "price", "--epochs", 1, "--out", tmp_path / "made", "--accelerator", "cpu")
    outcome = run_case(tmp_path / "case", command, "fit", rows, *arguments)
    check_promise(outcome)
    assert outcome.code == 0, outcome.err
