"""The one random generator of torch, its default dtype and the caller's modes, around what vicinal does."""

import functools
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.core.seeding import seeded, usual_settings
from vicinal.estimators import EmbeddingLearner, NeighborClassifier, NeighborRegressor

draw = np.random.default_rng(3)
X = draw.normal(size=(60, 3))
Y = X @ [1.0, -2.0, 0.5]
NAMES = [f"{word} {place}" for place, word in enumerate(draw.choice(["red sea", "old town", "green hill"], 60))]
TABLE = pd.DataFrame(X, columns=["a", "b", "c"]).assign(name=NAMES)
QUICK = {"members": 2, "max_epochs": 2}


def network(seed):
    return NeighborRegressor(metric="network", random_state=seed, **QUICK).fit(X, Y).predict(X[:8])


def texts(seed):
    return NeighborRegressor(columns={"name": "text"}, random_state=seed, **QUICK).fit(TABLE, Y).predict(TABLE[:8])


def classes(seed):
    return NeighborClassifier(metric="network", random_state=seed, **QUICK).fit(X, Y > 0).predict_proba(X[:8])


def learned(seed):
    return EmbeddingLearner(max_epochs=2, unseen=False, random_state=seed).fit(X, np.digitize(Y, [-1, 0, 1])).embed(X)


FITS = [network, texts, classes, learned]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # catch_warnings of one thread undoes that of another
def test_fits_of_all_kinds_in_threads_are_those_of_one_thread():
    alone = [fit(0) for fit in FITS]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda fit: fit(0), FITS))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("fit", FITS)
def test_a_fit_leaves_the_generators_of_the_process_alone(fit):
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    fit(0)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2][1]).all()


class float64_default:
    def __enter__(self):
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *error):
        torch.set_default_dtype(torch.float32)


MODES = {
    "float64": float64_default,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "device": lambda: torch.device("meta"),
}


@functools.cache
def fitted(metric):
    """In no mode at all."""
    return NeighborRegressor(metric=metric, **QUICK).fit(X, Y)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("metric", ["kernel", "network"])
def test_modes_of_the_caller_change_no_prediction(mode, metric):
    usual = fitted(metric)
    with MODES[mode]():
        before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        model = NeighborRegressor(metric=metric, **QUICK).fit(X, Y)
        for name in ("predict", "predict_interval", "embed"):
            np.testing.assert_array_equal(getattr(model, name)(X), getattr(usual, name)(X))
        assert str(model.explain(X[:1])) == str(usual.explain(X[:1]))
        assert before == (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    np.testing.assert_array_equal(model.predict(X), usual.predict(X))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("mode", MODES)
def test_classes_and_added_rows_are_the_same_in_every_mode(mode):
    usual = NeighborClassifier(metric="kernel").fit(X, Y > 0).add(X[:3] + 0.1, Y[:3] > 0)
    with MODES[mode]():
        model = NeighborClassifier(metric="kernel").fit(X, Y > 0).add(X[:3] + 0.1, Y[:3] > 0)
        np.testing.assert_array_equal(model.predict_proba(X), usual.predict_proba(X))
        assert model.predict_set(X).tolist() == usual.predict_set(X).tolist()


def test_a_seeded_block_keeps_other_threads_out_and_lets_its_own_in():
    seen = []

    def other():
        with seeded(1):
            seen.append("other")

    with seeded(0):
        thread = threading.Thread(target=other)
        thread.start()
        with seeded(2):
            first = float(torch.rand(()))
        thread.join(0.05)
        seen.append("first")
    thread.join()
    assert seen == ["first", "other"]
    with seeded(2):
        assert float(torch.rand(())) == first


def test_whoever_predicts_while_another_fits_under_another_default_waits_for_it():
    order, inside = [], threading.Event()

    def fit():
        with usual_settings():
            inside.set()
            order.append(("fit", torch.get_default_dtype()))
            threading.Event().wait(0.05)
            order.append(("fit", torch.get_default_dtype()))

    with float64_default():
        thread = threading.Thread(target=fit)
        thread.start()
        inside.wait()
        with usual_settings():
            order.append(("predict", torch.get_default_dtype()))
        thread.join()
        assert torch.get_default_dtype() == torch.float64
    assert order == [("fit", torch.float32), ("fit", torch.float32), ("predict", torch.float32)]
