"""Predictions read out of the trained metric by kriging: few rows, and all that an estimator promises."""

import copy
import hashlib
import re

import numpy as np
import pytest
import torch

from references.tables import QUICK, table
from vicinal.cli import run
from vicinal.estimators import NeighborClassifier, NeighborRegressor, fitting, load_model
from vicinal.estimators.attention import range_of
from vicinal.estimators.comparables import SHARE
from vicinal.estimators.readout import USUAL, Tried, candidates, errors_of, surely_less
from vicinal.heads import Kriging

FAR = pytest.mark.filterwarnings("ignore::vicinal.core.ExtrapolationWarning")

BRIEF = {**QUICK, "max_epochs": 3}
READOUTS = ("rows", "dense")


def houses(count, seed=0):
    frame, _ = table(count, seed)
    frame = frame[["size", "town"]].assign(size=frame["size"].fillna(5.0))
    noise = np.random.default_rng(seed).normal(size=count)
    return frame, 3 * frame["size"].to_numpy() + 12 * (frame["town"] == "york").to_numpy() + noise


@pytest.fixture(scope="module")
def rows():
    return houses(160)


@pytest.fixture(scope="module", params=READOUTS)
def model(request, rows):
    frame, price = rows
    return NeighborRegressor(readout=request.param, max_neighbors=12, **QUICK).fit(frame, price)


def choose(head, queries, truth, bank, labels):
    heads, mass = candidates(head, bank), torch.ones(len(queries))
    error, _ = errors_of(heads, queries, truth, bank, labels, {}, mass, numbers=False)
    return Tried(heads, error, torch.zeros(len(queries))).choice()


def test_at_most_so_many_rows_make_the_whole_prediction(model, rows):
    fresh, price = houses(80, seed=1)
    assert model.score(fresh, price) > 0.9
    for one, prediction in zip(model.explain(fresh, k=100), model.predict(fresh), strict=True):
        assert 1 <= len(one.neighbors) <= 12
        assert sum(n.weight for n in one.neighbors) == pytest.approx(1)
        assert sum(n.contribution for n in one.neighbors) == pytest.approx(prediction)
        assert one.other_weight == pytest.approx(0, abs=1e-9)
        sizes = [abs(n.weight) for n in one.neighbors]
        assert sizes == sorted(sizes, reverse=True)
        if model.readout == "rows":
            assert min(n.weight for n in one.neighbors) > 0


@FAR
def test_signed_weights_beyond_1_are_told_as_they_are(rows):
    frame, price = rows
    model = NeighborRegressor(metric="network", readout="dense", max_neighbors=12, **QUICK).fit(frame, price)
    with torch.no_grad():  # little noise and a smooth kernel: weights beyond the rows
        model.network_.head.log_noise.fill_(-9.0)
        model.network_.head.log_scale += 2
    far = frame.assign(size=frame["size"] + 20)
    predictions, rests = model.predict(far), []
    for k in (1, 3, 6, 9):
        for one, prediction in zip(model.explain(far, k), predictions, strict=True):
            assert sum(n.weight for n in one.neighbors) + one.other_weight == pytest.approx(1)
            assert sum(n.contribution for n in one.neighbors) + one.other_contribution == pytest.approx(prediction)
            rests.append(one.other_weight)
    assert min(rests) < -0.01
    whole = model.explain(far, k=12)
    against = [one for one in whole if min(n.weight for n in one.neighbors) < -0.01]
    assert against
    assert all(re.search(r"\(-\d+ %\)", str(one)) for one in against)


def test_no_row_predicts_itself_nor_its_group(rows):
    frame, price = rows
    groups = np.arange(len(frame)) // 3
    model = NeighborRegressor(readout="rows", metric="network", **BRIEF).fit(frame, price, groups=groups)
    ids = model.bank_.ids[:20]
    for row, one in zip(ids, model.explain(frame.iloc[ids], 40, ids=ids, groups=groups[ids]), strict=True):
        assert not set(groups[[n.id for n in one.neighbors]]) & {groups[row]}
    alone = NeighborRegressor(readout="rows", metric="network", **BRIEF).fit(frame, price)
    for row, one in zip(ids, alone.explain(frame.iloc[ids], 40, ids=ids), strict=True):
        assert row not in {n.id for n in one.neighbors}


def test_added_and_forgotten_rows_count_at_once(model, rows):
    frame, _ = rows
    query = frame.iloc[:1]
    before = model.predict(query)
    model.add(query, [5000.0], ids=[9000])
    assert model.predict(query)[0] > before[0] + 100
    assert 9000 in {n.id for n in model.explain(query, 12)[0].neighbors}
    np.testing.assert_array_equal(model.forget([9000]).predict(query), before)


@FAR
def test_intervals_cover_and_are_wider_where_rows_are_far():
    frame, price = houses(600, seed=3)
    settings = {"metric": "network", "readout": "rows", "validation_fraction": 0.4, **BRIEF}
    model = NeighborRegressor(**settings).fit(frame, price)
    fresh, truth = houses(800, seed=4)
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(fresh, coverage).T
        assert ((low <= truth) & (truth <= high)).mean() == pytest.approx(coverage, abs=0.06)
    widths = np.ptp(model.predict_interval(fresh), axis=1)  # of rows among those of the fit: not only far ones differ
    assert widths.max() > 1.01 * widths.min()
    far = frame.iloc[:1].assign(size=frame["size"].max() * 3)
    assert np.ptp(model.predict_interval(far), axis=1)[0] > 1.05 * np.median(widths)
    vectors = torch.from_numpy(np.concatenate([model.embed(each) for each in (frame[:1], far)]))
    near, beyond = range_of(model.fitted_, vectors, {"ids": None, "groups": None}, 0.9)[2].tolist()
    assert beyond > 1.05 * near


def test_scale_and_noise_are_those_of_least_error_on_the_rows_held_out():
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.rand(count, 1, generator=generator, dtype=torch.float64) for count in (400, 100))
    smooth, truth = (6 * bank[:, 0]).sin(), (6 * queries[:, 0]).sin()
    noisy = torch.randn(400, generator=generator, dtype=torch.float64)
    clear = choose(Kriging(16), queries, truth, bank, smooth)
    blurred = choose(Kriging(16), queries, truth + noisy[:100], bank, smooth + 3 * noisy)
    assert clear.log_noise < -4
    assert blurred.log_noise > -2
    assert clear.k == blurred.k == 16


def test_the_luckiest_scale_and_noise_are_not_taken_of_few_rows():
    generator = torch.Generator().manual_seed(1)
    bank, queries = (torch.rand(count, 2, generator=generator, dtype=torch.float64) for count in (200, 40))
    noise = torch.randn(240, generator=generator, dtype=torch.float64)
    head = choose(Kriging(16), queries, noise[:40], bank, noise[40:])
    unit = float(torch.pdist(bank).median())
    assert head.log_scale.exp().item() == pytest.approx(USUAL[0] * unit, rel=1e-6)
    assert head.log_noise.exp().item() == pytest.approx(USUAL[1], rel=1e-6)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_the_unit_of_errors_says_nothing_of_what_is_surely_less(unit):
    others, mass = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert not surely_less(unit * (others - torch.tensor([1.0, -0.5, 0.0])), unit * others, mass)
    assert surely_less(unit * (others - torch.tensor([1.0, 0.9, 1.0])), unit * others, mass)
    assert not surely_less(0 * others, 0 * others, mass)


def test_signed_weights_are_chosen_by_error_alone():
    generator = torch.Generator().manual_seed(1)
    bank, queries = (torch.rand(count, 2, generator=generator, dtype=torch.float64) for count in (200, 6))
    noise = torch.randn(206, generator=generator, dtype=torch.float64)
    labels, truth = noise[6:], noise[:6]
    signed = choose(Kriging(16, convex=False), queries, truth, bank, labels)
    usual = Kriging(16, scale=float(torch.pdist(bank).median()), noise=USUAL[1], convex=False)
    lucky, others = ((head(queries, bank, labels).detach() - truth).square().mean() for head in (signed, usual))
    assert lucky < 0.99 * others


@pytest.mark.parametrize(("answers", "most"), [([False], 30), ([True, False], 60), ([True] * 3, None)])
def test_attention_of_all_rows_is_taken_only_where_it_is_surely_better_than_few(answers, most, rows, monkeypatch):
    given, left = [], list(answers)
    monkeypatch.setattr(fitting, "surely_less", lambda *each: given.append(each) or left.pop(0))
    model = NeighborRegressor(**{**BRIEF, "metric": "network", "readout": "auto"}).fit(rows[0], rows[1])
    assert getattr(model.network_.head, "k", None) == most
    assert [each[3:] for each in given] == [(SHARE,)] * len(answers)
    errors = model.fitted_.honest_errors[0]
    torch.testing.assert_close(given[-1][most is not None], errors)  # those of attention come first
    assert not left


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"readout": "row"}, r"^readout: expected one of .*did you mean 'rows'"),
        ({"readout": "attention", "max_neighbors": 5}, r"^max_neighbors: expected None for readout='attention', which"),
        ({"readout": "rows", "max_neighbors": 0}, r"^max_neighbors: expected a whole number of at least 1, got 0"),
        ({"readout": "rows", "head": "dense"}, r"^readout: expected 'attention' for head='dense'"),
        ({"head": "rows"}, r"^head: expected one of"),
    ],
)
def test_what_cannot_be_is_said_before_training(rows, settings, sentence, monkeypatch):
    monkeypatch.setattr("vicinal.training.fit.train", None)
    frame, price = rows
    with pytest.raises(ValueError, match=sentence):
        NeighborRegressor(**settings).fit(frame, price)


def test_classes_are_not_read_out_with_signed_weights(rows, monkeypatch):
    monkeypatch.setattr("vicinal.training.fit.train", None)
    frame, price = rows
    with pytest.raises(ValueError, match=r"^readout: expected 'attention' or 'rows' for classes, got 'dense'"):
        NeighborClassifier(readout="dense").fit(frame, price > 30)


INDEXES = ("exact", "faiss:Flat", "faiss:HNSW16", "milvus")


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("exact", "faiss:Flat") else []) for name in INDEXES],
)
def test_an_index_below_it_gives_the_same(name, rows, tmp_path):
    pytest.importorskip({"faiss": "faiss", "milvus": "milvus_lite"}.get(name.partition(":")[0], "torch"))
    frame, price = rows
    frame = frame.assign(size=frame["size"] + 0.01 * np.arange(len(frame)))  # of rows as near any k may be taken
    name = f"milvus:{tmp_path / 'bank.db'}" if name == "milvus" else name
    ids, groups = np.arange(len(frame)) + 500, np.arange(len(frame)) // 3
    keys = {"ids": ids[:40], "groups": groups[:40]}
    settings = {"metric": "network", "readout": "dense", "max_neighbors": 9, **BRIEF}
    plain = NeighborRegressor(**settings).fit(frame, price, ids=ids, groups=groups)
    model = NeighborRegressor(index=name, **settings).fit(frame, price, ids=ids, groups=groups)
    close = {"rtol": 0, "atol": 0.02}  # rows as near in float32
    for changed in (plain, model):
        changed.add(frame[:2].assign(size=[3.456, 1.234]), [40.0, 50.0], ids=[9000, 9001], groups=[7000, 7001]).forget(
            ids[100:110]
        )
    for one in (model, load_model(save(model, tmp_path / "m"), index=name)):
        np.testing.assert_allclose(one.predict(frame[:40], **keys), plain.predict(frame[:40], **keys), **close)
        bounds = plain.predict_interval(frame[:40], **keys)
        np.testing.assert_allclose(one.predict_interval(frame[:40], **keys), bounds, **close)
        explained = one.explain(frame[:40], 9, **keys)
        for told, prediction, group in zip(explained, one.predict(frame[:40], **keys), groups, strict=False):
            assert sum(n.contribution for n in told.neighbors) == pytest.approx(prediction)
            assert not {n.id for n in told.neighbors} & set(ids[groups == group])
        one.fitted_.near.index.close()


def save(model, folder):
    model.save(folder)
    return folder


@pytest.mark.slow
def test_classes_by_an_index(rows):
    frame, price = rows
    moods = np.where(price > np.median(price), "high", "low")
    plain, model = (
        NeighborClassifier(metric="network", readout="rows", index=index, **BRIEF).fit(frame, moods)
        for index in (None, "exact")
    )
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(frame), rtol=0, atol=1e-3)


def test_what_a_folder_says_is_checked(model, tmp_path):
    model.save(tmp_path / "m")
    path, sums = tmp_path / "m" / "config.json", tmp_path / "m" / "SHA256SUMS"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(path.read_text().replace('"max_neighbors": 12', '"max_neighbors": 1048576'))
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(ValueError, match=r"^config.json: .*max_neighbors"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(("name", "value"), [("log_scale", -1e4), ("log_noise", 1e4)])
def test_a_scale_or_noise_beyond_all_numbers_is_said(model, rows, name, value):
    frame, _ = rows
    broken = copy.deepcopy(model)
    with torch.no_grad():
        getattr(broken.network_.head, name).fill_(value)
    with pytest.raises(ValueError, match=r"^X: expected finite predictions by this model, got NaN"):
        broken.predict(frame)


@pytest.mark.sweep(9)
@pytest.mark.parametrize("readout", READOUTS)
def test_the_command_takes_it(rows, tmp_path, capsys, readout):
    frame, price = rows
    frame.assign(price=price).to_csv(tmp_path / "rows.csv", index=False)
    options = ["--target", "price", "--max-epochs", "2", "--members", "2", "--hidden", "8,4", "-q"]
    options += ["--readout", readout, "--max-neighbors", "7", "--out", str(tmp_path / "m")]
    assert run(["fit", str(tmp_path / "rows.csv"), *options]) == 0
    assert load_model(tmp_path / "m").network_.head.k == 7
    assert "rows" in (tmp_path / "m" / "report.html").read_text()
    assert run(["predict", str(tmp_path / "m"), str(tmp_path / "rows.csv"), "--explain", "3"]) == 0


@pytest.mark.slow
def test_what_the_bank_holds_for_searches_follows_its_rows(rows):
    """Predictions, neighbors and explanations are those of a bank that knows nothing yet."""
    frame, price = rows
    model = NeighborRegressor(readout="rows", max_neighbors=12, **BRIEF).fit(frame, price)
    fresh, _ = houses(40, seed=3)
    before, known = model.predict(fresh), model.bank_.prepared()
    more, prices = houses(30, seed=4)
    ids = model.bank_.ids
    steps = (
        lambda: model.add(more, prices, ids=range(1000, 1030)),
        lambda: model.forget([1003, 1029, *ids[:50].tolist()]),
        lambda: model.add(frame.iloc[:1].assign(size=40.0), [9.0], ids=[2000]),
        lambda: model.forget(model.bank_.ids[-100:-1].tolist()),
    )
    for step in steps:
        step()
        assert model.bank_.prepared() is known
        after = model.predict(fresh, ids=ids[:40]), *model.kneighbors(fresh, 7), str(model.explain(fresh))
        again = copy.copy(model)
        again.bank_ = type(model.bank_).over(model.bank_.store)
        assert again.bank_.prepared() is not known
        want = again.predict(fresh, ids=ids[:40]), *again.kneighbors(fresh, 7), str(again.explain(fresh))
        for one, other in zip(after, want, strict=True):
            assert np.array_equal(one, other)
        assert not np.array_equal(after[0], before)


@pytest.mark.parametrize("similarity", ["l2", pytest.param("squared_l2", marks=pytest.mark.slow)])
def test_kneighbors_are_those_of_all_distances_in_float64(similarity):
    frame, price = houses(260)
    groups = np.arange(len(frame)) % 9
    settings = {**BRIEF, "similarity": similarity}
    model = NeighborRegressor(**settings).fit(frame, price, groups=groups)
    bank, queries = model.bank_, model.bank_.vectors.double()
    squared = (queries[:, None] - queries[None]).square().sum(dim=-1).numpy()
    hidden = bank.groups[:, None] == bank.groups
    order = np.where(hidden, np.inf, squared).argsort(axis=1, kind="stable")[:, :5]
    distances, ids = model.kneighbors(None, 5, groups=bank.groups)
    want = np.take_along_axis(squared, order, axis=1)
    np.testing.assert_allclose(distances, np.sqrt(want) if similarity == "l2" else want, rtol=1e-12)
    assert np.array_equal(ids, bank.ids[order])
