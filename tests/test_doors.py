"""Every method has a door: a command, setting or example of the catalogue that runs it.

The column ``door`` of ``tests/catalogue.tsv`` is run here on a small table, as it stands there, and the calls of the
method's own function are counted. The first word says what is run: a command with its options, a function with its
settings, or the file of an example. For a new kind of door, add its first word to ``RUN``.
"""

import functools
import inspect
import runpy
import shlex
import sys
import threading
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import catalogue
from catalogue import NOTHING
from vicinal.cli import run
from vicinal.encoders import merge
from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor
from vicinal.losses.spec import read_teacher_loss
from vicinal.training import Teacher
from vicinal.workflows import fit, learn
from vicinal.workflows.learn import open_labelled
from vicinal.workflows.opening import draw_splits, fit_split, make_estimator, open_table

LINES = [line for line in catalogue.read() if line.door != NOTHING]
QUICK = {"max_epochs": 1, "members": 1, "hidden": (4,), "metric": "network", "batch_size": 32}


def table():
    """Eight classes in three columns, two of them in a row, a number, and four words of one kind."""
    draw = np.random.default_rng(0)
    kinds = np.repeat(np.arange(8), 6)
    rows = draw.normal(size=(8, 3))[kinds] + 0.1 * draw.normal(size=(48, 3))
    frame = pd.DataFrame(rows, columns=list("xyz")).assign(amount=rows.sum(1) + 0.1 * draw.normal(size=48))
    frame["kind"] = [f"k{kind}" for kind in kinds]
    frame["kinds"] = [f"k{kind}|k{(kind + at) % 8}" for at, kind in enumerate(kinds)]
    frame["sex"] = draw.choice(["f", "m"], 48)
    return frame.assign(**{f"w{place}": draw.choice(["a", "b", "c"], 48) for place in range(4)})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("doors") / "rows.csv"
    table().to_csv(path, index=False)
    return path


def job_of(monkeypatch, place, name, words):
    """What a command with these words would do, as the command itself reads them."""
    jobs = []

    def stop(job, *others):
        jobs.append(job)
        raise ValueError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(place, name, stop)
        run([*map(str, words), "-q"])
    return jobs[0]


OPENED = {}


def opened(job, read):
    """The table of a job, read once for all with the same columns."""
    key = repr(replace(job, parameters={}))
    if key not in OPENED:
        OPENED[key] = read(job)
    return OPENED[key]


def run_fit(words, data, monkeypatch):
    target = [] if "--target" in words else ["--target", "kind"]
    job = job_of(monkeypatch, fit, "open_table", ["fit", data, *target, *words])
    rows = opened(job, open_table)
    model = make_estimator(rows, job).set_params(**QUICK)
    return lambda: fit_split(model, rows, draw_splits(rows.table, job, 1)[0])


def run_learn(words, data, monkeypatch):
    same = [] if "--same" in words else ["--same", "kind"]
    job = job_of(monkeypatch, learn, "open_labelled", ["learn", data, *same, *words])
    rows = opened(job, open_labelled)
    steps = {} if "--sampler" in words else {"sampler": "random"}  # of others an epoch has at least 20
    model = EmbeddingLearner(labels=job.labels, **{**job.parameters, "max_epochs": 1, **steps})
    return lambda: model.fit(**rows.take(np.arange(len(rows.table))))


def run_on_model(name):
    """A command on a model of most of the rows, which is fitted once."""

    def run_it(words, data, monkeypatch):
        folder, rows = data.parent / "model", data.parent / "more.csv"
        if not folder.exists():
            frame = table()[["x", "y", "z", "kind"]].assign(id=[f"r{row}" for row in range(48)])
            frame["note"] = frame["kind"] + " of it"
            columns, some = ["x", "y", "z", "note"], frame["kind"] < "k6"
            settings = {
                **QUICK,
                "members": 2,
                "readout": "attention",
                "validation_fraction": 0.6,
                "encoders": {"note": "ngrams"},
                "columns": {"note": "text"},
            }
            model = NeighborClassifier(**settings, random_state=0)
            known = frame[some]
            model.fit(known[columns], known["kind"].to_numpy(), ids=known["id"].tolist())
            model.notes_ = {"target": "kind", "id": "id"}
            model.save(folder)
            frame["id"] = [f"n{row}" for row in range(48)]  # all are new to it
            frame[["x", "y", "z"]] += 0.01
            frame.to_csv(rows, index=False)
        out = data.parent / f"{name}{len(list(data.parent.iterdir()))}"
        read = {"compress": [], "search": ["--file", rows]}.get(name, [rows])
        written = {"evaluate": ".html", "discover": ".csv", "predict": ".csv", "search": ".csv"}
        saved = ["--out", out.with_suffix(written.get(name, ""))]
        return lambda: run(list(map(str, [name, folder, *read, *words, *saved, "-q"])))

    return run_it


def run_distill(words, data, monkeypatch):
    """A fit that is taught by what the command gives it: predictions, vectors, and a loss by its text."""
    frame, loss = table(), read_teacher_loss(words[words.index("--loss") + 1])
    rows, amounts = frame[["x", "y", "z"]].to_numpy(), frame["amount"].to_numpy()
    teacher = Teacher(torch.from_numpy(amounts), 0.5, torch.from_numpy(rows), loss)
    return lambda: NeighborRegressor(loss=teacher, **QUICK).fit(rows, amounts)


def run_merge(words, data, monkeypatch):
    """Two networks of four numbers, by the settings of the door."""
    networks = [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)) for _ in range(2)]
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    settings = {name: float(value) if name == "budget" else value for name, value in (w.split("=") for w in words)}
    return lambda: merge(*networks, rows, **settings)


def run_recommend(words, data, monkeypatch):
    draw = np.random.default_rng(0)
    clicks, folder = data.with_name("clicks.csv"), data.with_name("shop")
    pd.DataFrame({"user": draw.integers(0, 20, 120), "item": draw.integers(0, 15, 120)}).to_csv(clicks, index=False)

    def fit_and_read():
        assert run(["recommend", str(clicks), "--rank", "3", "--out", str(folder), "-q"]) == 0
        assert not words or run(["recommend", str(folder), *words, "-q"]) == 0

    return fit_and_read


def run_dedupe(words, data, monkeypatch):
    """Chains of three names, each with one word more that is another; one other word is a copy, two are none."""
    folder, draw = data.with_name("names"), np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    syllables = [a + b + c for a in "bdklmnprst" for b in "aeiou" for c in "mnrst"]
    things = [draw.choice(syllables, 7, replace=False).tolist() for _ in range(120)]
    names = [" ".join(name) for one in things for name in (one[:5], one[:4] + one[5:6], one[:3] + one[5:])]
    pd.DataFrame({"id": range(360), "name": names}).to_csv(folder / "names.csv", index=False)
    pairs = [(3 * thing, 3 * thing + far, int(far == 1)) for thing in range(105) for far in (1, 2)]
    pd.DataFrame(pairs, columns=["left", "right", "match"]).to_csv(folder / "pairs.csv", index=False)
    files = [str(folder / "names.csv"), "--pairs", str(folder / "pairs.csv"), "--out", str(folder / "out")]
    return lambda: run(["dedupe", *files, *words, "-q"])


def run_example(path):
    def run_it(words, data, monkeypatch):
        monkeypatch.setattr(sys, "argv", [path.name])
        return lambda: runpy.run_path(str(path), run_name="__main__")

    return run_it


EXAMPLES = Path(__file__).parents[1] / "examples"
RUN = {"fit": run_fit, "learn": run_learn, "distill": run_distill, "merge": run_merge, "recommend": run_recommend}
MODELED = ("compress", "discover", "evaluate", "predict", "search")
RUN |= {name: run_on_model(name) for name in MODELED} | {"dedupe": run_dedupe}
RUN |= {f"examples/{path.name}": run_example(path) for path in EXAMPLES.glob("*.py")}


def codes(thing):
    """Code of a function, or of the methods of a class but for those that make and print it."""
    if isinstance(thing, type):
        methods = [method for name, method in vars(thing).items() if name not in ("__init__", "__repr__", "extra_repr")]
    else:
        methods = [thing, *filter(None, [getattr(thing, "formula", None)])]
    methods = [getattr(inspect.unwrap(method), "__func__", method) for method in methods if callable(method)]
    return {inspect.unwrap(method).__code__ for method in methods if hasattr(method, "__code__")}


def counting(calls, thing):
    """``thing``, whose calls are counted by its code."""

    def wrapper(*positional, **named):
        calls[inspect.unwrap(thing).__code__] += 1
        return thing(*positional, **named)

    return functools.wraps(thing)(wrapper)


def counted_example(run, symbols, monkeypatch):
    """How often each of these was called; an example trains for a while, so that no other call is looked at."""
    calls, things = Counter(), list(map(catalogue.resolve, symbols))
    modules = [module for name, module in sys.modules.items() if name.startswith("vicinal")]
    for thing in things:
        if isinstance(thing, type):
            for name, method in list(vars(thing).items()):
                if inspect.isfunction(method) and name != "__init__":
                    monkeypatch.setattr(thing, name, counting(calls, method))
            continue
        for module in modules:
            for name in [name for name, value in vars(module).items() if value is thing]:
                monkeypatch.setattr(module, name, counting(calls, thing))
    run()
    return calls


def counted(run):
    """How often each function was called while ``run`` ran."""
    calls = Counter()

    def count(frame, event, argument):
        if event == "call":
            calls[frame.f_code] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


BEHIND = defaultdict(list)
for line in LINES:
    BEHIND[line.door].append(line.symbol)


LONG = {
    f"examples/{name}.py"
    for name in (
        "dear_scores",
        "exposure",
        "fewer_rows",
        "harder_columns",
        "hidden_links",
        "learners_of_slices",
        "many_classes",
        "missing_numbers",
        "odd_ones",
        "parts_of_vectors",
        "several_members",
        "shapes_as_sets",
        "shifted_digits",
        "taught_by_a_ranker",
        "tidy_weights",
        "two_halves",
        "ways_to_step",
        "what_is_forgotten",
    )
}
"""Doors that take most of a second or more, for ``make test-all``."""
DOORS = [pytest.param(door, marks=[pytest.mark.slow] if door in LONG else []) for door in sorted(BEHIND)]


def test_every_paper_has_a_door_or_is_left_out_with_a_reason():
    parts = defaultdict(list)
    for line in catalogue.read():
        parts[line.id].append(line)
    without = [id for id, lines in parts.items() if all(line.door == NOTHING for line in lines)]
    without = [id for id in without if any(line.is_here for line in parts[id])]
    assert without == [NOTHING]  # registered, and of no list


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS)
def test_a_door_calls_the_function_of_its_method(door, data, monkeypatch):
    first, *words = shlex.split(door)
    with torch.random.fork_rng():
        run_it, is_example = RUN[first](words, data, monkeypatch), first.startswith("examples/")
        calls = counted_example(run_it, BEHIND[door], monkeypatch) if is_example else counted(run_it)
    monkeypatch.undo()
    for symbol in BEHIND[door]:
        assert any(calls[code] for code in codes(catalogue.resolve(symbol))), f"{door}: {symbol} was not called"
