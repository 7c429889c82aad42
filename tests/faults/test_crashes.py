"""A kill at any point leaves the old or the new, whole, and the same command then works; readers see one of the two."""

import functools
import json
import random
import shutil
import time

import numpy as np
import pandas as pd
import pytest
import torch

from faults import crashing
from faults.warm import contents, end, run_case, start
from vicinal.encoders import EmbeddingCache
from vicinal.encoders.cache import content_key
from vicinal.estimators import RowMatcher, load_model
from vicinal.evaluation.store import RunStore
from vicinal.index import NeighborBank, load_index

CASES = [
    ("m", crashing.fit, "nona", 1),
    ("m", crashing.resave),
    ("b", crashing.change_bank),
    ("m", crashing.fit, "dense", 8),
    ("i", crashing.change_index),
    ("c", crashing.add_runs),
    ("m", crashing.fit, "nona", 8),
    ("d", crashing.compare),
    ("cache", crashing.fill_cache),
    ("new-prices.csv", crashing.predict),
    ("m", crashing.fit, "dense", 1),
    ("links", crashing.link_rows),
]
"""The name that changes, and how."""


# What is there, to be compared.


def model_state(path):
    """The files of a model that do not tell how long it took; loading it says that it is whole."""
    frame = pd.read_csv(path.parent / "new.csv")
    assert np.isfinite(load_model(path, verify=True).predict(frame)).all()
    assert (path / "notes.txt").read_text() == "mine"
    return {n: d for n, d in contents(path).items() if n not in ("README.md", "report.html", "SHA256SUMS", "held")}


def bank_state(path):
    bank = NeighborBank.load(path, verify=True)
    return [bank.ids.tolist(), bank.vectors.tolist(), bank.labels.tolist(), bank.rows["house"].tolist()]


def index_state(path):
    hits = load_index(path).search(torch.eye(4), 7)
    return [hits.ids.tolist(), hits.scores.tolist()]


def store_state(path):
    return [(run.split, run.metrics) for run in RunStore(path / "runs.json", {"epochs": 5}).runs]


def comparison_state(path):
    if not (path / "runs.json").is_file():
        return []
    runs = json.loads((path / "runs.json").read_text())["runs"]
    return [{name: value for name, value in run.items() if name != "seconds"} for run in runs]


def cache_state(path):
    keys = [content_key(bytes([part, row])) for part in range(5) for row in range(3)]
    return {key: value.tolist() for key, value in EmbeddingCache(path).get("encoder", keys).items()}


def links_state(path):
    """Rows, links and clusters of a match, of which no table knows a row that the matcher does not have."""
    rows = RowMatcher.load(path).tables_.left.ids.tolist()
    state = {("row", row): True for row in rows}
    for name, columns in {"links.parquet": 2, "links.csv": 2, "clusters.parquet": 1}.items():
        table = pd.read_csv(path / name) if name.endswith("csv") else pd.read_parquet(path / name)
        state |= {(name, *row): True for row in table.iloc[:, :2].itertuples(index=False)}
        assert set(table.iloc[:, :columns].to_numpy().ravel()) <= set(rows)
    return state


STATES = {"m": model_state, "b": bank_state, "i": index_state, "c": store_state, "d": comparison_state}
STATES |= {"cache": cache_state, "new-prices.csv": lambda path: path.read_bytes(), "links": links_state}
GROWS = ("c", "d", "cache", "links")
"""Where a part of what is added may be there, as it is added a whole piece at a time."""


def is_between(found, before, after):
    """Whether some of what is added is there."""
    if isinstance(found, dict):
        return before.items() <= found.items() <= after.items()
    return found == after[: len(found)] and len(found) >= len(before)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Work on a folder: what is there before it, what after it, and the points at which it can be killed."""
    origin = tmp_path_factory.mktemp("origin")
    assert run_case(tmp_path_factory.mktemp("told"), crashing.prepare, origin, seconds=120).code == 0
    assert sorted(path.name for path in origin.iterdir()) == sorted(
        ["b", "c", "cache", "houses.csv", "i", "links", "m", "new-prices.csv", "new.csv"]
        + [f"people{part}.csv" for part in ("", "-1", "-2")]
    )

    @functools.cache
    def whole(name, do, *args):
        root, told = tmp_path_factory.mktemp("whole") / "root", tmp_path_factory.mktemp("told")
        shutil.copytree(origin, root)
        outcome = run_case(told, crashing.count, root, told / "points", do, *args, seconds=120)
        assert outcome.code == 0, outcome.err
        assert not hidden(root)
        kinds = json.loads((told / "points").read_text())
        before = STATES[name](origin / name) if (origin / name).exists() else []
        return before, STATES[name](root / name), kinds

    whole.origin = origin
    return whole


def hidden(root):
    return [path for path in root.rglob(".*") if path.name != ".gitignore"]


def others(root, name):
    """All that the work is not about."""
    return {path: digest for path, digest in contents(root).items() if not path.startswith((name, "."))}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_a_kill_leaves_the_old_or_the_new_and_the_same_command_works(tmp_path, work, seed):
    name, do, *args = CASES[(seed // 10 + seed % 10) % len(CASES)]
    before, after, kinds = work(name, do, *args)
    assert before != after
    draw = random.Random(seed)
    kind = draw.choice(sorted(set(kinds)))
    point = draw.choice([place for place, own in enumerate(kinds) if own == kind])
    root = tmp_path / "root"
    shutil.copytree(work.origin, root)
    outcome = run_case(tmp_path / "told", crashing.killed, root, point, do, *args, seconds=100)
    assert outcome.code == -9, f"point {point} of {len(kinds)}: {outcome}"
    what = f"{do.__name__}{args}, killed at point {point} of {len(kinds)} ({kind})"
    found = STATES[name](root / name) if (root / name).exists() else before
    assert found in (before, after) or (name in GROWS and is_between(found, before, after)), what
    assert others(root, name) == others(work.origin, name), what
    again = run_case(tmp_path / "told", do, root, *args, seconds=100)
    assert again.code == 0, f"{what}\n{again.err}"
    assert STATES[name](root / name) == after, what
    assert others(root, name) == others(work.origin, name), what
    assert not hidden(root), what


@pytest.mark.parametrize("exchange", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_two_writers_and_a_reader(tmp_path, work, rounds, exchange):
    models = [tmp_path / "one", tmp_path / "other"]
    shutil.copytree(work.origin / "m", models[0])
    shutil.copytree(work.origin, tmp_path / "root")
    assert run_case(tmp_path / "told", crashing.resave, tmp_path / "root").code == 0
    (tmp_path / "root" / "m").rename(models[1])
    frame = pd.read_csv(work.origin / "new.csv")
    known = [crashing.answer(load_model(model), frame) for model in models]
    assert known[0] != known[1]
    place, ending = tmp_path / "place" / "m", tmp_path / "end"
    shutil.copytree(models[0], place)
    write = functools.partial(crashing.save_again_and_again, exchange=exchange)
    writers = [
        start(tmp_path / f"writer {i}", write, model, place, ending, seconds=280) for i, model in enumerate(models)
    ]
    args = (place, rounds, work.origin / "new.csv", known)
    outcome = run_case(tmp_path / "reader", crashing.read_again_and_again, *args, seconds=280)
    ending.touch()
    written = [end(writer, tmp_path / f"writer {i}") for i, writer in enumerate(writers)]
    assert outcome.code == 0, outcome.err
    assert [one.code for one in written] == [0, 0], "\n".join(one.err for one in written)
    assert all(int(one.out) > 0 for one in written)
    assert crashing.answer(load_model(place), frame) in known
    assert [path.name for path in place.parent.iterdir()] == ["m"]


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_two_writers_and_a_reader_of_a_mapped_bank(tmp_path, work, rounds):
    banks = [tmp_path / "one", tmp_path / "other"]
    shutil.copytree(work.origin / "b", banks[0])
    shutil.copytree(work.origin, tmp_path / "root")
    crashing.change_bank(tmp_path / "root")
    (tmp_path / "root" / "b").rename(banks[1])
    known = [crashing.bank_digest(NeighborBank.load(bank)) for bank in banks]
    assert known[0] != known[1]
    place, ending = tmp_path / "place" / "b", tmp_path / "end"
    shutil.copytree(banks[0], place)
    write = functools.partial(crashing.save_again_and_again, bank=True)
    writers = [start(tmp_path / f"writer {i}", write, bank, place, ending, seconds=280) for i, bank in enumerate(banks)]
    outcome = run_case(tmp_path / "reader", crashing.read_banks_again_and_again, place, rounds, known, seconds=280)
    ending.touch()
    written = [end(writer, tmp_path / f"writer {i}") for i, writer in enumerate(writers)]
    assert outcome.code == 0, outcome.err
    assert [one.code for one in written] == [0, 0], "\n".join(one.err for one in written)
    assert [path.name for path in place.parent.iterdir()] == ["b"]


def test_a_second_fit_of_one_folder_stops_and_the_first_goes_on(tmp_path, work):
    root = tmp_path / "root"
    shutil.copytree(work.origin, root)
    first = start(tmp_path / "first", crashing.fit_slowly, root, tmp_path / "started", tmp_path / "go")
    while not (tmp_path / "started").exists():
        assert first.exitcode is None
        first.join(0.02)
    second = run_case(tmp_path / "second", crashing.fit, root, "nona", 1)
    (tmp_path / "go").touch()
    assert second.code == 2
    sentence = f"which process {first.pid} fits; wait for it, stop it, or choose another --out"
    assert second.err.splitlines()[-1].endswith(sentence), second.err
    outcome = end(first, tmp_path / "first")
    assert outcome.code == 0, outcome.err
    assert model_state(root / "m") == work("m", crashing.fit, "nona", 1)[1]
    assert not hidden(root)


def test_two_who_add_rows_to_a_match_keep_the_links_of_both(tmp_path, work):
    root, began, go = tmp_path / "root", tmp_path / "began", tmp_path / "go"
    shutil.copytree(work.origin, root)
    first = start(tmp_path / "first", crashing.link_rows_slowly, root, began, go)
    while not began.exists() and first.exitcode is None:
        time.sleep(0.01)
    second = start(tmp_path / "second", crashing.link_rows_meanwhile, root, go)
    outcomes = end(first, tmp_path / "first"), end(second, tmp_path / "second")
    assert [each.code for each in outcomes] == [0, 0], outcomes
    links = pd.read_parquet(root / "links" / "links.parquet")
    assert {(200, 0), (201, 1), (202, 2), (300, 2), (301, 3), (302, 4)} <= set(
        zip(links["left"], links["right"], strict=True)
    )
    assert (300, 202) in set(zip(links["left"], links["right"], strict=True))  # of the rows that came first
    assert not hidden(root)
