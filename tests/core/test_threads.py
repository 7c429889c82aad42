import threading

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from vicinal import NeighborRegressor
from vicinal.core.threads import _blas, all_threads, one_thread
from vicinal.encoders import EmbeddingCache, NgramEncoder, build_table_encoder
from vicinal.estimators import fitted, fitting
from vicinal.training import trees


@pytest.fixture(autouse=True)
def _two():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(limits=2, user_api="blas"):
        yield
    torch.set_num_threads(before)


def used():
    """Threads of torch, and of the BLAS of numpy and scipy; that of an index, say, may have come later."""
    known = {each["filepath"] for each in _blas().info()}
    return torch.get_num_threads(), {each["num_threads"] for each in threadpool_info() if each["filepath"] in known}


def test_torch_and_blas_have_one_thread_inside_and_what_they_had_afterwards():
    with one_thread():
        assert used() == (1, {1})
        with one_thread(), all_threads():
            assert torch.get_num_threads() == 2
        assert used() == (1, {1})
    assert used() == (2, {2})
    with all_threads():
        assert used() == (2, {2})


def test_they_have_it_after_an_error():
    with pytest.raises(KeyError), one_thread(), all_threads():
        raise KeyError
    assert used() == (2, {2})


def test_threads_that_overlap_have_what_they_had_before():
    """The first inside leaves first: what the other saw as it came is not how it was before."""
    inside, left, seen = threading.Event(), threading.Event(), []

    def other():
        with one_thread():
            inside.set()
            left.wait(10)
            seen.append(used())
        seen.append(used())

    second = threading.Thread(target=other)
    with one_thread():
        second.start()
        assert inside.wait(10)
    left.set()
    second.join()
    assert [threads for threads, _ in seen] == [1, 2]
    assert used() == (2, {2})


def test_fits_and_predictions_take_one_thread(monkeypatch):
    """Two on two cores that others used, too, took ten times the processor time."""
    x = np.random.default_rng(0).normal(size=(90, 3))
    seen = []

    def watch(where, name):
        original = getattr(where, name)

        def watched(*given, **settings):
            seen.append((name, *used()))
            return original(*given, **settings)

        monkeypatch.setattr(where, name, watched)

    for name in ("fit_kernel", "fit_trees", "blended"):
        watch(fitting, name)
    watch(fitted, "local_means")
    model = NeighborRegressor().fit(x, x[:, 0] + np.abs(x[:, 1]))
    assert {name for name, *_ in seen} == {"fit_kernel", "fit_trees", "blended", "local_means"}
    assert used() == (2, {2})
    fits = len(seen)
    model.predict(x)
    assert len(seen) > fits
    assert {tuple(each[1:3]) == (1, {1}) for each in seen} == {True}


def test_networks_that_stay_as_they_are_read_with_all_threads(monkeypatch):
    encoder = build_table_encoder({"text": "text"}).fit(pd.DataFrame({"text": ["red hat", "blue hat"]}))
    for each in encoder.encoders:
        each.hold()
    inputs, seen, reads = encoder.prepare(pd.DataFrame({"text": ["red"]})), [], NgramEncoder.forward

    def watched(*given, **more):
        seen.append(torch.get_num_threads())
        return reads(*given, **more)

    monkeypatch.setattr(NgramEncoder, "forward", watched)
    with one_thread():
        encoder.cache(inputs, store=EmbeddingCache())
    assert seen == [2]


def test_trees_of_many_cells_take_all_threads(monkeypatch):
    monkeypatch.setattr(trees, "_SHARED", 100)
    settings = []
    original = trees._Target

    class Watched(original):
        def best(self):
            settings.append(self.settings["num_threads"])
            return super().best()

    monkeypatch.setattr(trees, "_Target", Watched)
    columns = torch.arange(120, dtype=torch.float64)[:, None]
    folds = torch.arange(120) % 2
    with one_thread():
        trees.boosted_folds(columns, columns[:, 0].sin(), folds)
        trees.boosted_folds(columns[:90], columns[:90, 0].sin(), folds[:90])
    assert settings == [2, 1]
