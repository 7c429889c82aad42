"""A row never meets its own label nor that of its group, in whatever type its id or group comes."""

import copy
import functools
import itertools

import numpy as np
import pytest

from references.identity import FORMS, KEPT, KINDS
from vicinal.blockwise import block_policy
from vicinal.core.identity import IdentityWarning, as_texts, canonical_ids
from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model

pytestmark = pytest.mark.sweep(9)

ROWS, HELD = 64, 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
X[1::2] = X[::2] + 1e-3 * RNG.normal(size=(ROWS // 2, 3))  # the nearest row of each is its twin
LABELS = RNG.permutation(np.linspace(-1, 1, ROWS))
IDS = RNG.permutation(3 * ROWS)[:ROWS]
GROUPS = np.arange(ROWS) // 2  # twins
BANK = np.arange(ROWS)
NEAREST = {"readout": "attention", "mask": "topk", "n_neighbors": 1, "similarity": "squared_l2", "members": 1}
FOUND = {"metric": "network", "readout": "rows", "max_neighbors": 1, "similarity": "squared_l2", "members": 1}
UNTRAINED = {"max_epochs": 1, "learning_rate": 1e-12, "hidden": (16, 8)}
"""A random projection that predicts the label of the nearest row: any leak is the label itself."""


PAIRS = sorted({*itertools.product(KEPT, FORMS), *itertools.product(KINDS, KINDS)})
"""Forms that a model is fitted with and asked in: each with what a bank keeps, and one of each kind with each."""


@functools.cache
def fitted(form, what, index=None, *, found=False):
    """A model with ids or groups in that form; with an index, or ``found``, of the row that is found nearest."""
    model = NeighborRegressor(**(FOUND if index or found else NEAREST), **UNTRAINED, index=index)
    ids = FORMS[form](IDS.tolist()) if what == "ids" else None
    groups = FORMS[form](GROUPS.tolist()) if what == "groups" else None
    return model.fit(X, LABELS, ids=ids, groups=groups, validation=np.arange(ROWS - HELD, ROWS))


def changeable(form):
    """A copy of a model with ids that may be changed."""
    model = copy.copy(fitted(form, "ids"))
    model.bank_, model.calibration_ = (bank.take(np.arange(len(bank))) for bank in (model.bank_, model.calibration_))
    return model


@pytest.fixture
def blockwise(monkeypatch):
    """Banks and predictions of any size count as large."""
    monkeypatch.setattr("vicinal.estimators.attention.LARGE", 1)
    with block_policy(streamed_entries=1):
        yield


def asked(form, what, rows):
    values = {"ids": IDS, "groups": GROUPS}[what][rows].tolist()
    return {what: FORMS[form](values)}


@functools.cache
def wanted(what, *, found=False):
    """Predictions and intervals of the rows of the bank, of a model that is fitted and asked with int64."""
    model, identity = fitted("int64", what, found=found), asked("int64", what, BANK)
    return model.predict(X[BANK], **identity), model.predict_interval(X[BANK], 0.5, **identity)


def check_no_leak(model, what, form):
    """No method shows a row of the bank its own label, and each says what it says for ids of the fitted type."""
    identity, rows = asked(form, what, BANK), X[BANK]
    own = GROUPS[BANK][:, None] == GROUPS[BANK] if what == "groups" else np.eye(len(BANK), dtype=bool)
    predicted, same = model.predict(rows, **identity), wanted(what, found=model.readout_ == "rows")
    assert (np.abs(predicted[:, None] - LABELS[BANK])[own] > 1e-9).all()
    np.testing.assert_allclose(predicted, same[0], atol=1e-6)
    np.testing.assert_allclose(model.predict_interval(rows, 0.5, **identity), same[1], atol=1e-6)
    place = {name: row for row, name in enumerate(as_texts(canonical_ids("ids", model.bank_.ids)).tolist())}
    for row, found in enumerate(model.explain(rows, 2, **identity)):
        neighbors = [place[str(n.id)] for n in found.neighbors if n.weight > 0]
        assert neighbors
        assert not own[row, neighbors].any()
    found = as_texts(canonical_ids("ids", model.kneighbors(rows, 5, **identity)[1].ravel())).tolist()
    neighbors = np.array([place[name] for name in found]).reshape(len(rows), 5)
    assert not own[np.arange(len(rows))[:, None], neighbors].any()


@pytest.mark.parametrize(("fitted_form", "form"), PAIRS)
@pytest.mark.parametrize("what", ["ids", "groups"])
def test_a_row_never_meets_its_own_label(what, fitted_form, form):
    check_no_leak(fitted(fitted_form, what), what, form)


@pytest.mark.parametrize("form", KINDS)
@pytest.mark.parametrize("fitted_form", KEPT)
@pytest.mark.parametrize("what", ["ids", "groups"])
def test_nor_where_the_bank_is_read_in_blocks(what, fitted_form, form, blockwise):
    check_no_leak(fitted(fitted_form, what), what, form)


@pytest.mark.parametrize("form", KINDS)
@pytest.mark.parametrize("fitted_form", KEPT)
@pytest.mark.parametrize("what", ["ids", "groups"])
@pytest.mark.parametrize("index", ["exact", "faiss:Flat"])
def test_nor_with_an_index(index, what, fitted_form, form):
    if index.startswith("faiss"):
        pytest.importorskip("faiss", reason="faiss is an optional package")
    check_no_leak(fitted(fitted_form, what, index), what, form)


@pytest.mark.slow
def test_nor_with_a_database(tmp_path):
    pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")
    for what in ("ids", "groups"):
        model = fitted.__wrapped__("str", what, f"milvus:{tmp_path / 'bank.db'}")
        check_no_leak(model, what, "mixed")
        model.fitted_.near.index.close()


@pytest.mark.parametrize("fitted_form", [*KEPT, "mixed"])
@pytest.mark.parametrize("what", ["ids", "groups"])
def test_nor_in_a_model_that_was_saved(what, fitted_form, tmp_path):
    fitted(fitted_form, what).save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    for form in KINDS:
        check_no_leak(loaded, what, form)


@pytest.mark.parametrize("what", ["ids", "groups"])
def test_nor_in_probabilities(what):
    classes = np.array([f"c{row % (ROWS // 2)}" for row in range(ROWS)])  # of twins they differ
    model = NeighborClassifier(**NEAREST, **UNTRAINED)
    model.fit(X, classes, validation=np.arange(ROWS - HELD, ROWS), **asked("int64", what, np.arange(ROWS)))
    want = model.predict_proba(X[BANK], **asked("int64", what, BANK))
    for form in FORMS:
        np.testing.assert_array_equal(model.predict_proba(X[BANK], **asked(form, what, BANK)), want)
        assert what == "groups" or (model.predict(X[BANK], **asked(form, what, BANK)) != classes[BANK]).all()


def test_a_leak_would_show():
    """Without an id, or with the id of another row, each row is given its own label."""
    model = fitted("int64", "ids")
    np.testing.assert_allclose(model.predict(X[BANK]), LABELS[BANK], atol=1e-6)
    np.testing.assert_allclose(model.predict(X[BANK], ids=IDS[BANK] + 1000), LABELS[BANK], atol=1e-6)
    grouped = fitted("int64", "groups")
    np.testing.assert_allclose(grouped.predict(X[BANK], groups=GROUPS[BANK] + 1000), LABELS[BANK], atol=1e-6)


def test_unknown_ids_and_groups_hide_nothing():
    """Also where a group has the number that stands for no group."""
    groups = GROUPS - 5
    model = NeighborRegressor(**NEAREST, **UNTRAINED)
    model.fit(X, LABELS, groups=groups, validation=np.arange(ROWS - HELD, ROWS))
    for unknown in (["x"] * len(BANK), [0.5] * len(BANK), [2**70] * len(BANK), [str(2**63)] * len(BANK)):
        np.testing.assert_allclose(model.predict(X[BANK], groups=unknown), LABELS[BANK], atol=1e-6)


@pytest.mark.parametrize(("fitted_form", "form"), PAIRS)
def test_rows_are_forgotten_and_refused_by_id(fitted_form, form):
    model = changeable(fitted_form)
    gone = IDS[[3, 0, ROWS - 1]].tolist()
    fresh = {"X": X[:2], "y": LABELS[:2]}
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet, got "):
        model.add(**fresh, ids=FORMS[form]([gone[0], 1000]))
    with pytest.raises(ValueError, match=r"^ids: expected ids that the bank has not yet, got "):
        model.add(**fresh, ids=FORMS[form]([gone[2], 1000]))
    assert (len(model.bank_), len(model.calibration_)) == (ROWS, HELD)
    model.forget(FORMS[form]([*gone, gone[1]]))
    assert (len(model.bank_), len(model.calibration_)) == (ROWS - 3, HELD - 1)
    left = as_texts(canonical_ids("ids", model.bank_.ids)).tolist()
    assert sorted(left) == sorted(str(name) for name in IDS[BANK] if name not in gone)
    with pytest.raises(ValueError, match=rf"^ids: expected ids of rows that the model was given, got '?{gone[0]}'?"):
        model.forget(FORMS[form](gone[:1]))
    model.add(X[[3, 0]], LABELS[[3, 0]], ids=FORMS[form](gone[:2]))
    predicted = model.predict(X[[3, 0]], ids=gone[:2])
    assert (np.abs(predicted - LABELS[[3, 0]]) > 1e-9).all()
    with pytest.raises(ValueError, match=r"^ids: expected to leave at least one row in the bank, got all of them$"):
        model.forget(FORMS[form](IDS[BANK[:-1]].tolist()))


@pytest.mark.parametrize("index", [None, "exact"])
def test_a_row_that_is_held_out_is_not_put_into_the_bank_too(index):
    model = fitted.__wrapped__("str", "ids", index)
    bounds, held = model.predict_interval(X, 0.5), IDS[-1]
    with pytest.raises(ValueError, match=rf"^ids: expected ids that the bank has not yet, got '?{held}'?"):
        model.add(X[-1:], LABELS[-1:], ids=[held])
    np.testing.assert_array_equal(model.predict_interval(X, 0.5), bounds)
    model.forget([held]).add(X[-1:], LABELS[-1:], ids=[held])
    assert held in model.bank_.store
    assert held not in model.calibration_.store


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_groups_are_kept_together_by_the_split(form):
    """Half of each pair of twins bears its group in one type, half in another."""
    given = list(FORMS[form](GROUPS.tolist()))
    mixed = [given[row] if row % 2 else int(GROUPS[row]) for row in range(ROWS)]
    model = NeighborRegressor(**UNTRAINED, members=1).fit(X, LABELS, groups=mixed)
    held = model.calibration_.has(model.bank_.ids)
    trained, held = (set(GROUPS[model.bank_.ids[part]].tolist()) for part in (~held, held))
    assert not trained & held
    assert trained | held == set(GROUPS.tolist())


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([*range(ROWS - 1), "0"], "got 0 in row 0 and '0' in row 63, which are one id"),
        ([*map(str, range(ROWS - 1)), " 7"], "got '7' in row 7 and ' 7' in row 63, which are one id"),
        ([*map(float, range(ROWS - 1)), "3.0"], "got 3.0 in row 3 and '3.0' in row 63, which are one id"),
    ],
)
def test_ids_that_become_one_are_refused_by_row(ids, told):
    with pytest.raises(ValueError, match=rf"^ids: expected each id once, {told}"):
        NeighborRegressor(**UNTRAINED).fit(X, LABELS, ids=ids)
    model = changeable("str")
    with pytest.raises(ValueError, match=r"^ids: expected each id once, got 1000 in row 0 and '1000' in row 1, which"):
        model.add(X[:2], LABELS[:2], ids=[1000, "1000"])


def test_neighbors_are_searched_among_rows_of_other_ids_and_groups():
    model, bank = fitted("int64", "groups"), ROWS
    _, without_self = model.kneighbors(None, 1)
    _, without_group = model.kneighbors(None, 1, groups=GROUPS[BANK])
    assert (GROUPS[without_self[:, 0]] == GROUPS[BANK]).all(), "the twin is nearest"
    assert (GROUPS[without_group[:, 0]] != GROUPS[BANK]).all()
    assert model.kneighbors(X[:3], bank)[1].shape == (3, bank)
    sentence = rf"^n_neighbors: expected at most {bank - 2}, the rows of other ids and groups of row 0, got {bank - 1}$"
    with pytest.raises(ValueError, match=sentence):
        model.kneighbors(X[BANK], bank - 1, groups=GROUPS[BANK])
    with pytest.raises(ValueError, match=rf"^n_neighbors: expected at most {bank - 1}, the rows of other ids"):
        model.kneighbors(None, bank)
    with pytest.raises(ValueError, match=r"^ids: expected none without X"):
        model.kneighbors(None, 1, ids=IDS[BANK])


METHODS = {
    "predict": lambda model, **identity: model.predict(X[:4], **identity),
    "predict_interval": lambda model, **identity: model.predict_interval(X[:4], 0.5, **identity),
    "explain": lambda model, **identity: model.explain(X[:4], **identity),
    "predict_proba": lambda model, **identity: model.predict_proba(X[:4], **identity),
}


@pytest.mark.parametrize("name", METHODS)
def test_groups_that_are_not_given_are_asked_for(name):
    method, grouped, alone = METHODS[name], fitted("str", "groups"), fitted("str", "ids")
    if name == "predict_proba":
        classes = np.array(["a", "b"])[(LABELS > 0).astype(int)]
        alone = NeighborClassifier(**UNTRAINED, members=1).fit(X, classes)
        grouped = NeighborClassifier(**UNTRAINED, members=1).fit(X, classes, groups=GROUPS)
    with pytest.warns(IdentityWarning, match=r"^groups: expected those .*, got none, .*; give groups=") as seen:
        method(grouped)
    (one,) = (one for one in seen if str(one.message).startswith("groups"))  # rows of the fit are named beside it
    assert one.filename == __file__
    method(grouped, groups=GROUPS[:4])
    method(alone)
    dense = NeighborRegressor(head="dense", **UNTRAINED).fit(X, LABELS, groups=GROUPS)
    dense.predict(X)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_groups_that_are_the_ids_are_told(form):
    model = NeighborRegressor(**UNTRAINED, members=1)
    with pytest.warns(IdentityWarning, match=r"^groups: expected some rows to share one, got another") as seen:
        model.fit(X, LABELS, ids=IDS, groups=FORMS[form](IDS.tolist()))
    assert seen[0].filename == __file__
    model.fit(X, LABELS, ids=IDS, groups=FORMS[form](GROUPS.tolist()))
