"""What is done in the cases of ``test_crashes``, and the kill in the middle of it."""

import contextlib
import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from faults.warm import command
from references.tables import table
from vicinal.core import files
from vicinal.core.files import replace_text
from vicinal.encoders import EmbeddingCache
from vicinal.encoders.cache import content_key
from vicinal.estimators import RowMatcher, load_model, save_model
from vicinal.evaluation import Run
from vicinal.evaluation.store import RunStore
from vicinal.index import ExactIndex, NeighborBank, load_index
from vicinal.training import NeighborModule
from vicinal.workflows import fit as fit_workflow
from vicinal.workflows.match import add_rows

QUICK = ["--epochs", "3", "--batch-size", "16", "--hidden", "8,3", "--learning-rate", "0.01", "-q", "--no-baselines"]
COLUMNS = ["--target", "price", "--id", "house"]
INDEX = ["--index", "faiss:Flat" if find_spec("faiss") else "exact"]
WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link")


# The kill.


class Points:
    """Counts the points at which a process can be killed: calls on files below ``root``, and steps of training.

    Args:
        root: calls elsewhere are not counted.
        last: the point at which the process is killed; None: it only counts.
    """

    def __init__(self, root, last=None):
        self.root, self.last, self.kinds = str(root), last, []
        sys.addaudithook(self._hear)
        files.layer = Killable(self)
        train = NeighborModule.training_step
        NeighborModule.training_step = lambda *args: (self.pass_by("training"), train(*args))[1]

    def _hear(self, event, args):
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in WRITES) and str(args[0]).startswith(self.root):
            self.pass_by("file")

    def pass_by(self, kind):
        """Count a point, or end the process there."""
        if len(self.kinds) == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.kinds.append(kind)


class Killable(files.FileLayer):
    """Calls whose moments before and after are points."""

    def __init__(self, points):
        self.points = points


def _killable(name):
    call = getattr(files.FileLayer, name)

    def wrapped(self, *paths):
        self.points.pass_by("file")
        call(self, *paths)
        self.points.pass_by("file")

    return wrapped


for _name in ("make_folder", "sync", "rename", "exchange", "link", "unlink", "remove_folder"):
    setattr(Killable, _name, _killable(_name))


def count(root, told, work, *args):
    """Do ``work`` and write the kinds of its points to the file ``told``."""
    points = Points(root)
    code = work(Path(root), *args)
    Path(told).write_text(json.dumps(points.kinds))
    return code


def killed(root, last, work, *args):
    """Do ``work`` up to the point ``last``."""
    Points(root, last)
    work(Path(root), *args)
    return 99  # it had fewer points


# The work, each on a folder that ``prepare`` has made.


def prepare(root):
    """What is there before: tables, a model with a file of the user's in it, a bank, an index, runs, a cache."""
    root = Path(root)
    frame, price = table(60)
    frame.insert(0, "house", [f"h{i}" for i in range(len(frame))])
    frame.assign(price=price).to_csv(root / "houses.csv", index=False)
    frame.drop(columns="house").iloc[:9].to_csv(root / "new.csv", index=False)
    command("fit", root / "houses.csv", *COLUMNS, "--out", root / "m", "--seed", 5, "--members", 2, *INDEX, *QUICK)
    (root / "m" / "notes.txt").write_text("mine")
    bank = NeighborBank(4)
    bank.add(np.arange(50), np.eye(50, 4, dtype=np.float32), np.arange(50.0), rows=frame.iloc[:50])
    bank.save(root / "b")
    index = ExactIndex(4)
    index.add(np.arange(50), torch.eye(50, 4))
    index.save(root / "i")
    names = [f"{letter * 3} {row * 7919 % 1000} street" for row, letter in enumerate("abcdefghijklmnopqrst" * 2)]
    pairs = pd.DataFrame({"id": range(40), "name": names, "town": [name[::-1] for name in names]})
    copies = pairs[:30].assign(id=range(100, 130), name=pairs["name"] + " n")
    pd.concat([pairs, copies]).to_csv(root / "people.csv", index=False)
    pairs[:3].assign(id=[200, 201, 202]).to_csv(root / "people-1.csv", index=False)
    pairs[2:5].assign(id=[300, 301, 302]).to_csv(root / "people-2.csv", index=False)
    command("dedupe", root / "people.csv", "--encoder", "text=none", "--out", root / "links", "-q")
    add_runs(root, [0])
    fill_cache(root, [0, 1])
    (root / "new-prices.csv").write_text("old")


def fit(root, head, members):
    """A model in the place of the old one; its report has no pictures, which take longer than all the rest."""
    fit_workflow.write_page = lambda record, path: replace_text(path, record.name)
    options = ["--head", head, "--metric", "network", "--members", members, "--out", root / "m"]
    return command("fit", root / "houses.csv", *COLUMNS, *options, *QUICK)


def fit_slowly(root, started, go):
    """The same, with a wait before the first step of training until there is a file ``go``."""
    train = NeighborModule.training_step

    def wait(*args):
        Path(started).touch()
        while not Path(go).exists():
            time.sleep(0.01)
        return train(*args)

    NeighborModule.training_step = wait
    return fit(root, "nona", 1)


def resave(root):
    """Rows forgotten and added, and the model saved where it was."""
    model, new = load_model(root / "m"), ["n1", "n2", "n3", "n4"]
    frame = pd.read_csv(root / "houses.csv")
    if not model.bank_.has(new).all():
        model.forget(model.bank_.ids[:3].tolist())
        model.add(frame.drop(columns=["house", "price"]).iloc[:4], frame["price"].iloc[:4], ids=new)
    save_model(model, root / "m")


def change_bank(root):
    """Rows added to a bank on disk and forgotten."""
    bank = NeighborBank.load(root / "b")
    if 100 not in bank.ids:
        bank.add([100, 101], np.ones((2, 4), dtype=np.float32), np.ones(2), rows=bank.rows.iloc[:2])
        bank.remove([3, 4, 5])
    bank.save(root / "b")


def change_index(root):
    """Rows added to an index on disk and removed."""
    index = load_index(root / "i")
    if len(index) == 50:
        index.add([100, 101], torch.ones(2, 4))
        index.remove([3])
    index.save(root / "i")


def link_rows(root, number=1):
    """New rows linked with those of a match; a second time they are there."""
    with contextlib.suppress(ValueError):
        add_rows(root / "links", root / f"people-{number}.csv")


def link_rows_slowly(root, started, go):
    """The same, with a wait while they are linked until there is a file ``go``."""
    add = RowMatcher.add

    def wait(*args, **settings):
        Path(started).touch()
        while not Path(go).exists():
            time.sleep(0.01)
        return add(*args, **settings)

    RowMatcher.add = wait
    link_rows(root)


def link_rows_meanwhile(root, go):
    """Others, with the file ``go`` made as soon as anything is locked."""
    locked = files.locked

    def tell(*args):
        Path(go).touch()
        return locked(*args)

    files.locked = tell
    link_rows(root, 2)


def add_runs(root, splits=(1, 2, 3)):
    """Results added to the store of a comparison, one at a time."""
    store = RunStore(root / "c" / "runs.json", {"epochs": 5})
    for split in splits:
        store.add([Run("houses", split, 7, "nona", {"mse": split / 8}, 1.5, "abc", (68, 12, 20))])


def compare(root):
    """Two heads on two splits."""
    options = ["--target", "price", "--drop", "house", "--splits", 2, "--heads", "nona+knn,dense", "--members", 2]
    return command("compare", root / "houses.csv", *options, "--out", root / "d", *QUICK)


def fill_cache(root, parts=range(5)):
    """Embeddings kept on disk, some at a time."""
    cache = EmbeddingCache(root / "cache")
    for part in parts:
        keys = [content_key(bytes([part, row])) for row in range(3)]
        cache.put("encoder", keys, torch.full((3, 2), float(part)))


def predict(root):
    """Predictions in the place of an old file."""
    return command("predict", root / "m", root / "new.csv", "--out", root / "new-prices.csv", "-q")


# Writers and a reader.


def save_again_and_again(source, place, end, *, exchange=True, bank=False):
    """Save what ``source`` holds to ``place`` until there is a file ``end``."""
    if not exchange:
        files.layer = NoExchange()
    model = NeighborBank.load(source) if bank else load_model(source)
    rounds = 0
    while not Path(end).exists():
        if bank:
            model.save(place)
        else:
            save_model(model, place)
        rounds += 1
    print(rounds)


class NoExchange(files.FileLayer):
    """As on a file system where two names cannot change places."""

    def exchange(self, one, other):
        raise OSError(22, "Invalid argument")


def read_again_and_again(place, rounds, table_file, known):
    """Load the model ``rounds`` times and let it answer; every answer must be one of ``known``, one a model."""
    frame = pd.read_csv(table_file)
    seen = set()
    for _ in range(rounds):
        seen.add(known.index(answer(load_model(place), frame)))
    print(len(seen))


def read_banks_again_and_again(place, rounds, known):
    """The same for a bank, which is mapped."""
    for _ in range(rounds):
        assert bank_digest(NeighborBank.load(place)) in known


def answer(model, frame):
    """What a model says, and which rows say so."""
    told = [[str(one), [n.row["note"] for n in one.neighbors]] for one in model.explain(frame, 2)]
    return json.dumps([np.round(model.predict(frame), 9).tolist(), told])


def bank_digest(bank):
    """What a bank holds."""
    return content_key(bank.vectors.numpy().tobytes() + bank.labels.numpy().tobytes() + str(bank.rows.shape).encode())


def predict_and_die(model, given, out, parts):
    """Predict a file, and be killed before the part behind ``parts`` parts of 128 rows is put aside."""
    from vicinal.workflows import streaming
    from vicinal.workflows.streaming import predict_file

    put = streaming._put_aside

    def put_aside(frames, work):
        if len(streaming._parts(work)) == parts:
            os.kill(os.getpid(), signal.SIGKILL)
        put(frames, work)

    streaming.BATCH, streaming._MOST, streaming._put_aside = 64, 128, put_aside
    predict_file(model, given, out)
