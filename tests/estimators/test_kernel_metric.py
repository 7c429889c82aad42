"""The metric of plain tables by a kernel: kriging equals the Gaussian process, and all that an estimator promises."""

import functools
import hashlib
import json

import numpy as np
import pandas as pd
import pytest
import torch

import references.table_kernel as reference
from references.tables import QUICK, table
from vicinal.cli import run
from vicinal.encoders import build_table_encoder
from vicinal.encoders.components import Components
from vicinal.encoders.kernel_projector import KernelProjector
from vicinal.estimators import NeighborClassifier, NeighborRegressor, kernel_metric, load_model
from vicinal.estimators.kernel_metric import (
    kernel_columns,
    may_be_kernel,
    nearness_by_column,
    own_lengths,
    take_kernel,
)
from vicinal.estimators.presets import settings_of
from vicinal.heads import Kriging
from vicinal.training.likelihood import TableKernel

READOUTS = ("rows", "dense")
FEW = {"metric": "kernel", "max_neighbors": 32}
"""Predictions by few rows, for promises that do not hang on how many they are: 256 take most of a test's time."""


def houses(count, seed=0):
    """Two columns of numbers, one with missing cells, and a category."""
    frame, _ = table(count, seed)
    rng = np.random.default_rng(seed)
    frame = frame[["size", "town"]].assign(age=rng.exponential(10, count))
    size = frame["size"].fillna(5.0).to_numpy()
    return frame, 3 * size + 12 * (frame["town"] == "york").to_numpy() + np.sin(frame["age"]) + rng.normal(size=count)


@pytest.fixture(scope="module")
def rows():
    return houses(260)


@pytest.fixture(scope="module", params=READOUTS)
def model(request, rows):
    frame, price = rows
    return NeighborRegressor(metric="kernel", readout=request.param, max_neighbors=16).fit(frame, price)


def test_intervals_of_several_coverages_are_those_of_each(model):
    fresh = houses(30, seed=9)[0]
    together = model.predict_intervals(fresh, (0.5, 0.9))
    for coverage, ends in together.items():
        model.fitted_.computed.answers.clear()  # calibrated again, for this coverage alone
        np.testing.assert_array_equal(ends, model.predict_interval(fresh, coverage))
    with pytest.raises(ValueError, match=r"^coverage: expected a number between 0 and 1, got 1"):
        model.predict_intervals(fresh, (0.5, 1.0))


def test_a_kernel_that_the_scale_was_chosen_by_is_not_learned_again(rows, monkeypatch):
    frame, price = rows
    fits = []
    learned = kernel_metric.fit_kernel
    monkeypatch.setattr(kernel_metric, "fit_kernel", lambda *a, **k: fits.append(1) or learned(*a, **k))
    chosen = NeighborRegressor(metric="kernel", target_transform="auto", max_neighbors=16, random_state=0)
    chosen.fit(frame[:120], np.exp(price[:120] / 20))
    assert len(fits) == 2
    name = chosen.target_transform_.name
    again = NeighborRegressor(metric="kernel", target_transform=name, max_neighbors=16, random_state=0)
    again.fit(frame[:120], np.exp(price[:120] / 20))
    np.testing.assert_array_equal(chosen.predict(frame[120:130]), again.predict(frame[120:130]))


def test_no_encoder_is_copied_where_no_kernel_and_no_trees_are_fitted(rows, monkeypatch):
    frame, price = rows
    monkeypatch.setattr("vicinal.estimators.fitting.FitJob.copied", None)  # of a tuned one 270 MB for three texts
    network = NeighborRegressor(metric="network", target_transform="auto", max_epochs=1, random_state=0)
    assert network.fit(frame[:60], price[:60]).metric_ == "network"


@pytest.mark.parametrize(("clear", "more"), [(0.0, [(110, False)]), (1e9, [(110, False)] * 2)])
def test_of_more_rows_a_scale_goes_on_and_one_that_is_clearly_better_is_learned_on_alone(
    rows, monkeypatch, clear, more
):
    frame, price = rows
    asked, learned = [], kernel_metric.fit_kernel
    monkeypatch.setattr("vicinal.estimators.fitting.FIRST_ROWS", (50, 110))
    monkeypatch.setattr("vicinal.estimators.fitting.CLEAR", clear)
    monkeypatch.setattr(
        kernel_metric, "fit_kernel", lambda *a, **k: asked.append((k["most"], k["start"])) or learned(*a, **k)
    )
    NeighborRegressor(metric="kernel", max_neighbors=16, random_state=0).fit(frame[:120], np.exp(price[:120] / 20))
    assert [(most, start is None) for most, start in asked] == [(50, True)] * 2 + more


def gaussian_process(model, x, y, fresh):
    """Its prediction from the kernel of a model for a matrix, in numpy."""
    projector, head, encoder = model.network_.projector, model.network_.head, model.table_encoder.encoders[0]
    train = [(part - np.array(encoder.mean)) * np.array(encoder.factor) for part in (x, fresh)]
    known = train[0][np.setdiff1d(np.arange(len(x)), model.calibration_.ids)]
    features = [np.hstack([reference.pieces(z[:, j], known[:, j]) for j in range(z.shape[1])]) for z in train]
    lengths, a, c = (
        getattr(projector, f"log_{name}").detach().exp().numpy() for name in ("lengths", "linear", "pieces")
    )
    with torch.no_grad():
        noise = float(head.log_noise.exp()) + 1e-6
    kernel = (lengths, 1.0, float(a), float(c))
    near = [None, None]
    if projector.steps is not None:
        each = range(known.shape[1])
        near = [[reference.steps_apart(z[:, j], train[0][:, j], known[:, j]) for j in each] for z in train]
    matrix = reference.covariance(train[0], train[0], features[0], features[0], *kernel, near[0])
    matrix += noise * np.eye(len(y))
    cross = reference.covariance(train[1], train[0], features[1], features[0], *kernel, near[1])
    return reference.posterior_mean(matrix, cross, y)


@pytest.mark.parametrize("jumps", [False, True])
def test_dense_of_all_rows_is_the_gaussian_process(jumps):
    rng, n = np.random.default_rng(0), 160 if jumps else 60
    x, fresh = rng.normal(size=(n, 3)), rng.normal(size=(20, 3)).clip(-2, 2)  # within the bounds of numbers
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=n)
    y = np.sign(x[:, 0] * x[:, 1]) + 0.1 * y if jumps else y
    model = NeighborRegressor(metric="kernel", readout="dense", max_neighbors=200).fit(x, y)
    assert model.fitted_.learned.stepped == jumps
    want = gaussian_process(model, x, y, fresh)
    with torch.no_grad():
        bank, queries = (torch.from_numpy(model.embed(part)) for part in (x, fresh))
        exact = model.network_.head(queries, bank, torch.from_numpy(y))
    np.testing.assert_allclose(exact, want, rtol=0, atol=1e-8)
    np.testing.assert_allclose(model.predict(fresh), want, rtol=0, atol=1e-5)  # the bank's vectors are float32


@pytest.mark.parametrize("settings", [{"metric": "kernel", "readout": "comparables"}, {"readout": "auto"}], ids=str)
def test_a_kernel_of_steps_is_saved_and_says_by_which_columns_rows_are_near(settings, tmp_path):
    rng = np.random.default_rng(0)
    a, town, b = rng.normal(size=200), rng.choice(["york", "bath"], 200), rng.normal(size=200)
    frame, y = pd.DataFrame({"a": a, "town": town, "b": b}), np.sign(a * b) + (town == "york")
    model = NeighborRegressor(**settings).fit(frame, y)
    model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    network = again.network_
    assert any(name.endswith("steps.edges") for name in network.state_dict())
    if settings.get("metric"):
        assert kernel_columns(network) == ["town"] * 2 + ["a"] * 16 + ["b"] * 16 + ["a", "b", "town", "town"]
    wild = pd.concat([frame[:3], frame[:1].assign(a=1e30)])
    np.testing.assert_allclose(model.predict(wild)[:3], model.predict(frame[:3]), rtol=0, atol=1e-9)
    assert abs(model.predict(wild)[3]) < 2 * np.ptp(y)


def test_a_kernel_divided_by_its_amplitude_predicts_the_same():
    generator = torch.Generator().manual_seed(0)
    x, fresh = torch.randn(30, 2, generator=generator).double(), 2 * torch.randn(9, 2, generator=generator).double()
    y = torch.randn(30, generator=generator).double()
    kernel = TableKernel.of(torch.tensor([0.4, -0.3, 1.2, -0.8, -1.5, -2.0]).double())
    projector = KernelProjector(2, [0, 1]).fit(x)
    head = Kriging(30, convex=False, linear=projector.linear)
    take_kernel(projector, head, kernel)
    (inputs, pieces), (others, more) = projector.terms(x), projector.terms(fresh)
    lengths, b, a, c, noise = kernel.log_lengths.exp().numpy(), *kernel.values()[2:].exp().tolist()
    arguments = [part.numpy() for part in (inputs, inputs, pieces, pieces)], (lengths, b, a, c)
    matrix = reference.covariance(*arguments[0], *arguments[1]) + (noise + 1e-6) * np.eye(30)
    cross = reference.covariance(others.numpy(), inputs.numpy(), more.numpy(), pieces.numpy(), *arguments[1])
    with torch.no_grad():
        got = head(projector(fresh), projector(x), y).numpy()
    np.testing.assert_allclose(got, reference.posterior_mean(matrix, cross, y.numpy()), rtol=0, atol=1e-8)


def test_nothing_is_learned_from_the_labels_held_out(rows):
    frame, price = rows
    held_out = np.arange(50)
    other = np.where(np.arange(len(price)) < 50, 1000.0, price)
    first, second = (
        NeighborRegressor(**FEW, readout="rows").fit(frame, y, validation=held_out) for y in (price, other)
    )
    for one, another in zip(first.network_.state_dict().values(), second.network_.state_dict().values(), strict=True):
        assert torch.equal(one, another)


def test_it_predicts_better_than_the_mean_of_a_town(rows):
    frame, price = rows
    fresh, truth = houses(200, seed=1)
    for readout in READOUTS:
        assert NeighborRegressor(**FEW, readout=readout).fit(frame, price).score(fresh, truth) > 0.9


def test_the_order_of_the_rows_does_not_matter(rows):
    frame, price = rows
    held_out = np.arange(40)
    order = np.random.default_rng(0).permutation(len(frame))
    place = np.argsort(order)[held_out]
    fresh, _ = houses(50, seed=1)
    settings = FEW | {"readout": "dense"}
    first = NeighborRegressor(**settings).fit(frame, price, validation=held_out)
    second = NeighborRegressor(**settings).fit(frame.iloc[order], price[order], validation=place)
    np.testing.assert_allclose(first.predict(fresh), second.predict(fresh), atol=0.02)


def test_the_unit_of_columns_and_labels_does_not_matter(rows):
    frame, price = rows
    fresh, _ = houses(50, seed=1)
    scaled, other = (part.assign(size=1e6 * part["size"], age=1e-6 * part["age"]) for part in (frame, fresh))
    settings = FEW | {"readout": "rows"}
    first = NeighborRegressor(**settings).fit(frame, price).predict(fresh)
    second = NeighborRegressor(**settings).fit(scaled, 1e6 * price - 3e6).predict(other)
    np.testing.assert_allclose((second + 3e6) / 1e6, first, atol=0.02)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize(
    "change",
    [
        {"same": 1.0},
        {"one": pd.Categorical(["a"] * 260)},
        {"again": lambda f: 2 * f["age"] + 1},
        {"flag": lambda f: (f["age"] > 10).astype(float)},
        {"vector": lambda f: [[value, 1.0, -value] for value in f["age"]]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_columns_that_say_nothing_new_do_no_harm(rows, readout, change):
    frame, price = rows
    changed = frame.assign(**change)
    columns = {name: "number" for name in change if name in ("same", "flag")} | {
        n: "category" for n in change if n == "one"
    }
    train, test = np.arange(200), np.arange(200, 260)
    model = NeighborRegressor(**FEW, readout=readout, columns=columns).fit(changed.iloc[train], price[train])
    assert model.score(changed.iloc[test], price[test]) > 0.9


@pytest.mark.parametrize(("width", "own"), [(63, 64), (64, 0), (65, 1)])
def test_entries_of_short_vectors_have_a_length_each(width, own):
    settings = settings_of(NeighborRegressor())
    assert may_be_kernel(settings)
    assert not may_be_kernel(settings | {"tune": "all"})
    encoder = build_table_encoder({"size": "vector", "age": "number", "title": "text"})
    encoder.fit(pd.DataFrame({"size": 3 * [[1.0] * width], "age": [1.0, 2.0, 3.0], "title": ["a", "b", "c"]}))
    assert own_lengths(encoder) == own


def test_more_than_64_numbers_share_a_length_and_are_told_apart(tmp_path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(160, 4))
    frame = pd.DataFrame(hidden @ rng.normal(size=(4, 70)) + 0.02 * rng.normal(size=(160, 70))).add_prefix("c")
    y, learn = hidden[:, 3] + np.sin(hidden[:, 2]), slice(0, 120)
    model = NeighborRegressor(random_state=0).fit(frame[learn], y[learn])
    kernel = next(trial for trial in model.fitted_.trials if trial.metric == "kernel")
    assert kernel.out_of_fold < 0.3 * y.std()
    assert model.score(frame[120:], y[120:]) > 0.9
    one = NeighborRegressor(metric="kernel", readout="dense").fit(frame[learn], y[learn])
    assert len({*one.network_.projector.log_lengths.tolist()}) == 1
    assert kernel_columns(one.network_)[:70] == [*frame]
    one.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(frame), one.predict(frame))


def test_many_categories_share_one_length_a_column(tmp_path):
    rng = np.random.default_rng(0)
    street, town = rng.integers(0, 40, 300), rng.integers(0, 35, 300)
    frame = pd.DataFrame({"size": rng.normal(size=300), "street": [f"s{i}" for i in street]})
    frame["town"], y = [f"t{i}" for i in town], frame["size"] + 2 * rng.normal(size=40)[street]
    columns = {"street": "category", "town": "category"}
    model = NeighborRegressor(columns=columns, random_state=0).fit(frame, y)
    assert {trial.metric for trial in model.fitted_.trials} >= {"kernel", "trees"}
    few = NeighborRegressor(columns={"street": "category"}, random_state=0).fit(frame.drop(columns="town"), y)
    kernel = NeighborRegressor(metric="kernel", columns=columns, readout="dense", random_state=0).fit(frame, y)
    assert [own_lengths(one.table_encoder) for one in (few, kernel)] == [few.table_encoder.dim, 1]
    lengths = kernel.network_.projector.log_lengths.tolist()
    different = {*zip(kernel_columns(kernel.network_)[: len(lengths)], lengths, strict=True)}
    assert sorted(name for name, _ in different) == ["size", "street", "town"]
    assert np.square(kernel.predict(frame) - y).mean() < 0.1 * y.var()
    kernel.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(frame), kernel.predict(frame))


def test_ten_rows_and_equal_rows():
    x = np.repeat([[0.0, 1.0], [2.0, 1.0]], 5, axis=0)
    y = np.repeat([1.0, 3.0], 5)
    for readout in READOUTS:
        model = NeighborRegressor(metric="kernel", readout=readout).fit(x, y)
        np.testing.assert_allclose(model.predict([[0.0, 1.0], [2.0, 1.0]]), [1, 3], atol=0.1)


def test_a_line_is_followed_half_a_range_beyond_its_end_and_stops():
    x = np.linspace(0, 1, 60)[:, None]
    model = NeighborRegressor(metric="kernel", readout="dense").fit(x, 5 * x[:, 0])
    assert model.predict([[1.45]])[0] == pytest.approx(7.25, abs=0.3)
    assert model.predict([[2.0], [1e9]]) == pytest.approx(7.5, abs=0.3)
    inside = NeighborRegressor(metric="kernel", readout="rows").fit(x, 5 * x[:, 0])
    assert inside.predict([[1.5]])[0] <= 5


def test_no_row_predicts_itself_nor_its_group(rows):
    frame, price = rows
    groups = np.arange(len(frame)) // 3
    model = NeighborRegressor(**FEW, readout="rows").fit(frame, price, groups=groups)
    ids = model.bank_.ids[:20]
    for row, one in zip(ids, model.explain(frame.iloc[ids], 90, ids=ids, groups=groups[ids]), strict=True):
        assert not set(groups[[n.id for n in one.neighbors]]) & {groups[row]}


def test_a_folder_without_a_metric_is_of_a_network(rows, tmp_path):
    frame, price = rows
    model = NeighborRegressor(metric="network", **{**QUICK, "max_epochs": 1}).fit(frame, price)
    model.save(tmp_path / "m")
    edit(tmp_path / "m", lambda config: (config["parameters"].pop("metric"), config.pop("metric")))
    again = load_model(tmp_path / "m")
    assert again.metric == "network"
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def edit(folder, change):
    """Change the settings of a model folder as whoever can reckon checksums."""
    path, sums = folder / "config.json", folder / "SHA256SUMS"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"metric": "kernels"}, r"^config.json: .*metric"),
        ({"metric": "network"}, r"^model.safetensors: expected the weights of 8 members"),
        ({"readout": "attention", "max_neighbors": None}, r"^readout: expected 'dense' or 'rows'"),
    ],
)
def test_what_a_folder_says_is_checked(model, tmp_path, change, sentence):
    model.save(tmp_path / "m")
    edit(tmp_path / "m", lambda config: (config["parameters"].update(change), config.update(kriging=None, metric=None)))
    with pytest.raises(ValueError, match=sentence):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(("shift", "below"), [(0, False), (0.5, True), (-1, True)])
def test_intervals_of_counts_end_at_0(shift, below):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 2))
    y = draw.poisson(np.exp(x[:, 0] - 1)) + shift
    model = NeighborRegressor(metric="kernel", target_transform="none").fit(x, y)
    low, high = model.predict_interval(x, 0.9).T
    said = model.predict(x)
    assert ((low <= said) & (said <= high)).all()
    assert (low < np.minimum(said, 0)).any() == below


@pytest.mark.slow
def test_intervals_cover():
    frame, price = houses(500, seed=3)
    settings = {"metric": "kernel", "readout": "rows", "max_neighbors": 24}
    model = NeighborRegressor(**settings, validation_fraction=0.4).fit(frame, price)
    fresh, truth = houses(1500, seed=4)
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(fresh, coverage).T
        assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(coverage, abs=0.08)  # 2 sd of 200 rows


@pytest.mark.parametrize("name", ["exact", "faiss:Flat"])
def test_an_index_below_it_gives_the_same(name, rows, tmp_path):
    pytest.importorskip("faiss" if name.startswith("faiss") else "torch")
    frame, price = rows
    settings = {"metric": "kernel", "readout": "dense", "max_neighbors": 20}
    plain = NeighborRegressor(**settings).fit(frame, price)
    indexed = NeighborRegressor(index=name, **settings).fit(frame, price)
    indexed.save(tmp_path / "m")
    for one in (indexed, load_model(tmp_path / "m")):
        np.testing.assert_allclose(one.predict(frame), plain.predict(frame), rtol=0, atol=0.02)


def test_training_is_told_in_one_step(model, rows):
    _, price = rows
    history = model.history_
    assert len(history.train_error) == len(history.validation_error) == 1
    scale = np.ptp(price) ** 2
    assert history.validation_error[0] * scale == pytest.approx(1.5, abs=1.0)
    again = model.predict(model.calibration_.rows, ids=model.calibration_.ids)
    low, high = model.label_range_
    assert history.validation_error[0] == pytest.approx(
        np.square((again - model.calibration_.labels.numpy()) / (high - low)).mean(), rel=1e-4
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"metric": "kernal"}, r"^metric: expected one of .*did you mean 'kernel'"),
        (
            {"readout": "attention"},
            r"^readout: expected 'dense' or 'rows' for metric='kernel'.*say readout=",
        ),
        ({"head": "dense"}, r"^head: expected 'nona' for metric='kernel', got 'dense'"),
        ({"loss": "crps"}, r"^loss: expected None for metric='kernel'"),
        ({"validation_fraction": 0}, r"^validation_fraction: expected a share above 0 for metric='kernel'"),
    ],
)
def test_what_cannot_be_is_said_before_training(rows, settings, sentence):
    frame, price = rows
    with pytest.raises(ValueError, match=sentence):
        NeighborRegressor(**{"metric": "kernel", "readout": "rows", **settings}).fit(frame, price)


@pytest.fixture(scope="module")
def noted(rows):
    """Rows with a text whose words say as much as the numbers, and the labels."""
    frame, price = rows
    draw = np.random.default_rng(3)
    words = draw.choice(["leaking", "solid", "sunny", "dark", "quiet"], (len(frame), 2))
    gain = {"leaking": -20.0, "solid": 8.0, "sunny": 12.0, "dark": -9.0, "quiet": 4.0}
    notes = [f"a {first} house, {second} as people say" for first, second in words]
    return frame.assign(note=notes), price + np.array([sum(gain[word] for word in pair) for pair in words])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("readout", ["rows", "dense", "comparables"])
def test_texts_are_read_as_components_with_one_length(noted, readout, tmp_path):
    frame, price = noted
    settings = {"metric": "kernel", "columns": {"note": "text"}, "random_state": 0, "encoders": {"note": "ngrams"}}
    model = NeighborRegressor(**settings, readout=readout).fit(frame[:120], price[:120])
    bare = NeighborRegressor(metric="kernel", readout=readout, random_state=0).fit(
        frame[:120][frame.columns[:-1]], price[:120]
    )
    assert model.score(frame[200:], price[200:]) > max(
        0.75, bare.score(frame[200:][frame.columns[:-1]], price[200:]) + 0.1
    )
    projector = model.network_.projector
    kernel = getattr(projector, "kernel", projector)
    lengths = kernel.log_lengths[-30:]
    assert torch.equal(lengths, lengths[:1].expand(30))
    assert kernel.parts[-30:] == [kernel.parts[-1]] * 30
    known = frame[200:205]
    for one, prediction in zip(model.explain(known, 300), model.predict(known), strict=True):
        assert sum(n.contribution for n in one.neighbors) == pytest.approx(prediction) or readout == "comparables"
    assert model.importance()["note"] > 0.1
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    np.testing.assert_allclose(loaded.predict(known), model.predict(known), rtol=0, atol=1e-5)
    assert list(loaded.importance()) == list(model.importance())
    loaded.add(frame[205:206], [1e3], ids=[999])
    assert abs(loaded.predict(frame[205:206])[0] - model.predict(frame[205:206])[0]) > 10
    loaded.forget([999])
    np.testing.assert_allclose(loaded.predict(known), model.predict(known), rtol=0, atol=1e-5)


def test_all_components_of_a_column_weigh_as_one_standardized_number():
    rows = torch.randn(50, 9, generator=torch.Generator().manual_seed(0)).double()
    projector = KernelProjector(3, [0], components=Components([1, 8], [True, False], most=2)).fit(rows)
    spread = projector.columns(rows).var(dim=0, correction=0)
    assert float(spread[1:].sum()) == pytest.approx(1)
    assert torch.equal(projector.columns(rows)[:, 0], rows[:, 0])
    assert projector.parts == [0, 1, 1]


def test_several_classes_are_refused(rows):
    frame, price = (one[:40] for one in rows)
    several = [["dear"] * int(one) for one in price > 30]
    with pytest.raises(ValueError, match=r"^metric: expected 'network' for several classes a row, got 'kernel'"):
        NeighborClassifier(metric="kernel").fit(frame, several)


def test_the_command_takes_it(rows, tmp_path, capsys):
    frame, price = rows
    frame.assign(price=price).to_csv(tmp_path / "rows.csv", index=False)
    options = [
        "--target",
        "price",
        "--metric",
        "kernel",
        "--readout",
        "dense",
        "-q",
        "--no-baselines",
        "--out",
        str(tmp_path / "m"),
    ]
    assert run(["fit", str(tmp_path / "rows.csv"), *options]) == 0, capsys.readouterr().err
    head = load_model(tmp_path / "m").network_.head
    assert isinstance(head, Kriging)
    assert (head.k, head.convex, head.linear > 0) == (256, False, True)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "it may leave their range" in card
    assert "| metric | kernel |" in card
    assert "| members |" not in card
    assert "Learning curves" not in (tmp_path / "m" / "report.html").read_text()
    assert run(["predict", str(tmp_path / "m"), str(tmp_path / "rows.csv"), "--explain", "3"]) == 0
    attention = ["--target", "price", "--metric", "kernel", "--readout", "attention", "-q"]
    assert run(["fit", str(tmp_path / "rows.csv"), *attention]) == 2
    assert "say readout='dense'" in capsys.readouterr().err


def test_a_folder_says_by_how_many_rows_it_is_read_out(tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=(80, 2))
    model = NeighborRegressor(metric="kernel", readout="dense").fit(x, x[:, 0])
    assert model.network_.head.k == 256
    model.save(tmp_path / "m")
    assert load_model(tmp_path / "m").network_.head.k == 256
    monkeypatch.setattr("vicinal.estimators.fitting.kernel_neighbors", lambda rows, **_: 99)
    NeighborRegressor(metric="kernel", readout="dense").fit(x, x[:, 0]).save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.network_.head.k, again.max_neighbors) == (99, None)
    edit(tmp_path / "m", lambda config: config.pop("neighbors"))  # as in a folder from before it was said
    assert load_model(tmp_path / "m").network_.head.k == 128
    edit(tmp_path / "m", lambda config: (config.update(neighbors=9), config["parameters"].update(max_neighbors=8)))
    with pytest.raises(ValueError, match=r"^config.json: .*9 neighbors where max_neighbors is 8"):
        load_model(tmp_path / "m")


def test_what_makes_a_row_near_is_told_apart_by_column(rows, model):
    frame, _ = rows
    bank, network = model.bank_.vectors.double(), model.network_
    query = frame.iloc[[3]]
    other = query.assign(town="bath" if query["town"].item() == "york" else "york")
    vectors = torch.from_numpy(model.embed(pd.concat([query, other, frame.iloc[[5, 17]]])))
    by_column = nearness_by_column(network, vectors[0], vectors, bank)
    assert set(by_column) == {"size", "age", "town"}
    distances = (vectors[0] - vectors).square().sum(dim=1)
    usual = (vectors[0] - bank).square().sum(dim=1).mean()
    torch.testing.assert_close(sum(by_column.values()), usual - distances)
    for name, values in by_column.items():
        assert (values[0] == values[1]) == (name != "town")  # the other row differs in its town alone
    assert by_column["town"][1] < by_column["town"][0]


def test_explain_says_by_which_columns_a_row_is_near(model, tmp_path, capsys):
    model.save(tmp_path / "model")
    ask = ["explain", str(tmp_path / "model"), "--row", '{"size": 4.0, "town": "york", "age": 3.0}', "-k", "2", "-q"]
    assert run([*ask, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    near = record["neighbors"][0]["near_by"]
    assert set(near) == {"size", "age", "town"}
    assert max(near.values()) > 0
    assert run(ask) == 0
    said = capsys.readouterr().out
    assert "near by" in said
    best = sorted((name for name in near if near[name] > 0), key=lambda name: -near[name])[0]
    assert f"{best} {100 * near[best] / sum(value for value in near.values() if value > 0):.0f} %" in said


def test_a_step_of_the_search_that_float64_cannot_factor_is_made_shorter():
    rng = np.random.default_rng(0)
    zips = rng.integers(0, 10, 80)
    zips[rng.random(80) < 0.6] = 0
    frame = pd.DataFrame({"zip": [f"z{i}" for i in zips], "beds": rng.integers(1, 5, 80)})
    price = rng.normal(size=10)[zips] * 3 + (zips > 0) * frame["beds"]
    kinds = {"zip": "category", "beds": "number"}
    model = NeighborRegressor(metric="kernel", columns=kinds).fit(frame, price)
    assert np.square(model.predict(frame) - price).mean() < 0.1 * price.var()


def test_a_folder_whose_wide_vectors_had_a_length_for_each_entry_still_opens(monkeypatch, tmp_path):
    random = np.random.default_rng(0)
    x = pd.DataFrame({"v": list(random.normal(size=(60, 70))), "a": random.normal(size=60)})
    alone = functools.partial(kernel_metric.make_kernel_network, share_lengths=False)
    with monkeypatch.context() as before:
        before.setattr("vicinal.estimators.fitting.make_kernel_network", alone)
        model = NeighborRegressor(metric="kernel", random_state=0).fit(x, x["a"] + random.normal(size=60))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(x), model.predict(x))
