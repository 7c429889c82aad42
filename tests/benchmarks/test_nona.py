"""The stacked members of benchmarks/nona train exactly as the library trains one network."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vicinal.training import NeighborNetwork, Rows, TrainingSettings, train

FOLDER = Path(__file__).parents[2] / "benchmarks" / "nona"
MODULES = ("attention", "members", "plots", "results", "summary", "trainer")


@pytest.fixture
def bench(monkeypatch):
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__("trainer")
    for name in MODULES:
        sys.modules.pop(name, None)


class Vectors:
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def select(self, rows):
        return self.values[rows]


def streams_of(bench, sizes, *, repeat=1):
    """Splits of drawn rows whose training parts have the given sizes; ``repeat`` rows share a group."""
    generator = np.random.default_rng(3)
    x = torch.from_numpy(generator.normal(size=(130, 6)).astype(np.float32))
    labels = np.tanh(x[:, 0].numpy()) + 0.1 * generator.normal(size=130)
    made = []
    for seed, size in enumerate(sizes):
        rows = torch.from_numpy(generator.permutation(130))
        parts = rows[:size], rows[size : size + 20], rows[size + 20 :]
        low, high = labels[parts[0]].min(), labels[parts[0]].max()
        scaled = torch.from_numpy(((labels - low) / (high - low)).astype(np.float32))
        groups = torch.arange(130)
        groups[parts[0]] = parts[0][torch.arange(size) // repeat * repeat]  # no group is in two parts
        made.append(bench.Stream(*parts, scaled, groups, seed))
    return x, made


def single(bench, x, stream, recipe, parts):
    """The library's training of one member, from the modules ``parts``."""
    projector, dense, nona = parts
    head = dense if recipe.stop == "dense" else nona
    network = NeighborNetwork(nn.Identity(), projector, head)

    def rows(positions):
        return Rows(Vectors(x[positions]), stream.labels[positions], positions, stream.groups[positions])

    settings = TrainingSettings(
        max_epochs=recipe.epochs,
        batch_size=recipe.batch,
        learning_rate=recipe.rates[0],
        weight_decay=recipe.decays[0],
        patience=recipe.patience,
        seed=stream.seed,
        accelerator="cpu",
    )
    history = train(network, rows(stream.train), rows(stream.validation), settings)
    with torch.no_grad():
        bank, queries = projector(x[stream.train]), projector(x[stream.test])
        return history, head(queries, bank, stream.labels[stream.train])


CASES = [
    {"dense": 1.0, "nona": 0.0, "stop": "dense"},
    {},
    {"mask": "s1", "parameters": "global"},
    {"mask": None, "similarity": "cosine"},
    {"similarity": "squared_l2", "extent": "all"},
    {"simplex": "sparsemax", "decays": (0.1,)},
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("changes", CASES, ids=str)
def test_equals_the_library(bench, changes):
    recipe = bench.Recipe(sizes=(8, 3), batch=16, epochs=6, patience=4, rates=(3e-3,), bias_at_mean=True)
    recipe = recipe.but(**changes)
    # 80 and 83 training rows are both five batches, one of them of rows that the other must pad
    x, streams = streams_of(bench, (80, 83), repeat=2)
    torch.manual_seed(0)
    start = [bench.modules(recipe, 6, 0.5) for _ in streams]
    fitted = bench.fit(x, streams, recipe, 1, bench.stack(start))
    for member, stream in enumerate(streams):
        history, expected = single(bench, x, stream, recipe, start[member])
        assert history.best_epoch == fitted.best[member]
        assert len(history.validation_error) == fitted.epochs[member]
        np.testing.assert_allclose(min(history.validation_error), fitted.validation[member], rtol=2e-3)
        own = {name: value[member] for name, value in fitted.parameters.items()}
        attention = sys.modules["attention"]
        fixed = fitted.parameters, fitted.running, recipe, member
        queries, bank = bench.embed_rows(*fixed, x[stream.test]), bench.embed_rows(*fixed, x[stream.train])
        neighbor, dense, _ = attention.readouts(recipe, own, queries, bank, stream.labels[stream.train])
        found = dense if recipe.stop == "dense" else neighbor
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)


def test_members_do_not_touch_each_other(bench):
    """A member trained beside others of other rates is the member trained alone."""
    recipe = bench.Recipe(sizes=(8, 3), batch=16, epochs=4, rates=(1e-3, 1e-2), decays=(0.0, 0.1))
    x, streams = streams_of(bench, (80,))
    torch.manual_seed(0)
    start = bench.stack([bench.modules(recipe, 6, 0.5) for _ in range(2)])
    both = bench.fit(x, streams, recipe, 2, start)
    alone = bench.fit(
        x, streams, recipe.but(rates=(1e-2,), decays=(0.1,)), 1, {name: value[1:] for name, value in start.items()}
    )
    for name, value in alone.parameters.items():
        torch.testing.assert_close(both.parameters[name][1], value[0], rtol=1e-4, atol=1e-5)


def test_results_cut_off_a_torn_line_and_know_what_is_done(bench, tmp_path):
    results = __import__("results")
    _, (stream,) = streams_of(bench, (80,))
    path = tmp_path / "runs.csv"
    first = results.Results(path)
    for method in ("dense", "nona"):
        first.add("houses", stream, "paper", method, np.full(len(stream.test), 0.5), settings={"k": 3})
    whole = path.read_text()
    path.write_text(whole[:-20])
    again = results.Results(path)
    assert again.has("houses", 0, "paper", "dense")
    assert not again.has("houses", 0, "paper", "nona")
    again.add("houses", stream, "paper", "nona", np.full(len(stream.test), 0.5), settings={"k": 3})
    assert path.read_text() == whole


def test_the_page_is_filled_between_its_marks(bench, tmp_path):
    summary = __import__("summary")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- /one -->\nb\n<!-- two -->\n<!-- /two -->\n")
    for _ in range(2):
        summary.fill(page, {"one": "new", "three": "not there"})
        assert page.read_text() == "a\n<!-- one -->\n\nnew\n\n<!-- /one -->\nb\n<!-- two -->\n<!-- /two -->\n"
