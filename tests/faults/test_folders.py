"""Edited model folders, through everything that reads one: a result, or one sentence and exit code 2."""

import contextlib
import functools
import io
import json
import math
import os
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from faults.edits import edit
from faults.warm import MEMORY, Outcome, check_promise, command, contents, run_case, seeded
from references.tables import table

QUICK = {"max_epochs": 2, "learning_rate": 1e-2, "hidden": (8, 4), "members": 2, "random_state": 3}


def rows(count=48, seed=0):
    """A table of all kinds of columns but media."""
    frame, price = table(count, seed)
    rng = np.random.default_rng(seed)
    frame["shape"] = [rng.normal(size=3).tolist() for _ in range(count)]
    frame["id"] = [f"h{seed}-{i}" for i in range(count)]
    frame["street"] = [f"s{i // 3}" for i in range(count)]
    frame["price"] = price
    frame["mood"] = frame["note"].str.split().str[1]
    frame.loc[::3, "mood"] = rng.permutation(frame.loc[::3, "mood"])  # the note alone shall not tell it
    return frame


def pictures(count=24, seed=2):
    """A table of small images in its cells."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(file, "PNG")
        made.append(file.getvalue())
    return pd.DataFrame({"photo": made, "id": range(count), "price": rng.normal(size=count)})


BOTH = ("--explain", 2, "--interval", 0.6)
MODELS = {
    "houses": (["size", "town", "note"], "price", {"columns": {"note": "text"}}, True, BOTH),
    "again": (["size", "town", "note"], "price", {"columns": {"note": "text"}, "random_state": 8}, True, BOTH),
    "moods": (["size", "note"], "mood", {"mask": "s1", "mask_parameters": "global", "index": "exact"}, False, ()),
    "shapes": (["size", "shape"], "price", {"head": "dense"}, False, ("--interval", 0.6)),
    "cells": (["size", "town"], "price", {"index": "faiss:IVF4,Flat"}, True, BOTH),
    "few": (["size", "town"], "price", {"readout": "rows", "max_neighbors": 7}, True, BOTH),
    "photos": (["photo"], "price", {"members": 1}, False, BOTH),
}
"""Features, target, settings, whether ids and groups are given, and options of ``predict``."""


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of small fitted models, and the table that each is asked about."""
    from vicinal.estimators import NeighborClassifier, NeighborRegressor, save_model

    folder = tmp_path_factory.mktemp("models")
    for name, (features, target, settings, identity, _) in MODELS.items():
        if name == "cells":
            pytest.importorskip("faiss", reason="faiss-cpu is an optional package")
        frame = pictures() if name == "photos" else rows()
        kind = NeighborClassifier if target == "mood" else NeighborRegressor
        keys = {"ids": frame["id"].tolist(), "groups": frame["street"]} if identity else {}
        model = kind(**{**QUICK, **settings}).fit(frame[features], frame[target], **keys)
        notes = {"target": target, **({"id": "id", "group": "street"} if identity else {})}
        save_model(model, folder / name, notes)
        new = pictures(14, seed=7) if name == "photos" else rows(14, seed=7)
        asked = pd.concat([frame.iloc[:6], new])
        asked.to_parquet(folder / f"{name}.parquet")
    return folder


def use(folder, data, here):
    """A case: predict, evaluate, and load, add, forget and save; what each gave goes to ``outcomes.json``."""
    os.chdir(here)
    socket.socket.connect = _no_network
    options = MODELS[Path(data).stem][-1]
    ways = {
        "predict": lambda: command("predict", folder, data, *options, "--json", "--quiet"),
        "evaluate": lambda: command("evaluate", folder, data, "--json", "--quiet"),
        "change": lambda: change(folder, data),
    }
    outcomes = {}
    for name, way in ways.items():
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = way()
        outcomes[name] = (code, out.getvalue(), err.getvalue())
    (Path(here).parent / "outcomes.json").write_text(json.dumps(outcomes))


def change(folder, data):
    """Load a model, add rows, forget one, save it, and predict with what was saved."""
    from vicinal.cli.output import progress
    from vicinal.estimators import load_model

    progress.file = sys.stderr
    target = MODELS[Path(data).stem][1]
    asked = pd.read_parquet(data)
    try:
        model = load_model(folder)
        names = list(model.feature_names_in_)
        groups = {"groups": ["new", "new"]} if model.bank_.groups is not None else {}
        number = model.bank_.ids.dtype == np.int64
        own = [1001, 1002] if number else ["n1", "n2"]
        model.add(asked[names].iloc[:2], asked[target].iloc[:2], ids=own, **groups)
        model.forget([own[0], model.bank_.ids[0]])
        copy = Path(folder).with_name("saved")
        model.save(copy)
        print(json.dumps(load_model(copy).predict(asked[names]).tolist()))
    except ValueError as wrong:
        progress.print(f"error: {wrong}", markup=False)
        return 2
    return 0


def _no_network(*args):
    raise AssertionError("a connection")


def run(models, folder, name, here):
    """The outcomes of all ways to use ``folder``, each checked against the promise."""
    (here / "cwd").mkdir()
    whole = run_case(here / "case", use, folder, models / f"{name}.parquet", here / "cwd")
    assert whole.code == 0, f"exit code {whole.code} after {whole.seconds:.1f} s\n{whole.err[-3000:]}"
    outcomes = json.loads((here / "outcomes.json").read_text())
    for way, (code, out, err) in outcomes.items():
        check_promise(Outcome(code, out, err, whole.seconds, whole.grown))
        assert code == 0 or ": expected " in err, (way, err)
        assert code == 2 or all(map(math.isfinite, numbers(json.loads(out)))), (way, out[:1000])
    assert whole.grown < MEMORY
    assert not list((here / "cwd").iterdir())
    return {way: (code, json.loads(out) if code == 0 else None) for way, (code, out, _) in outcomes.items()}


def numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


@pytest.fixture(scope="session")
def plain(models, tmp_path_factory):
    """What the folder of a name gives before it is edited."""

    @functools.cache
    def given(name):
        here = tmp_path_factory.mktemp(name)
        shutil.copytree(models / name, here / "model")
        return run(models, here / "model", name, here)

    return given


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "shapes" else pytest.mark.slow) for name in MODELS]
)
def test_a_folder_is_read_before_it_is_edited(name, plain):
    codes = [code for code, _ in plain(name).values()]
    assert codes == ([0, 2, 0] if name == "shapes" else [0, 0, 0])  # a dense head has no neighbors to evaluate


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", seeded(300))
def test_an_edited_folder(seed, models, plain, tmp_path):
    rng = np.random.default_rng(seed)
    name = sorted(MODELS)[seed % len(MODELS)]
    folder = tmp_path / "model"
    shutil.copytree(models / name, folder)
    done, tellable = edit(rng, folder, [models / other for other in MODELS if other != name])
    before = contents(folder)
    found = run(models, folder, name, tmp_path)
    assert contents(folder) == before, done
    for way, (code, result) in found.items():
        if tellable and code == 0:
            assert (code, result) == plain(name)[way], f"{way}: {done}"
