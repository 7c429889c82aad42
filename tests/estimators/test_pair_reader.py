"""An encoder that reads both rows of a pair: when it is taken, what it adds, and that it is saved and forgets."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

from references.models import tiny_bert
from vicinal.core.folders import _seal
from vicinal.estimators import NeighborClassifier, RowMatcher, TuningPlan
from vicinal.estimators.pair_reader import UNREAD, WORDS, PairReader, pair_texts

pytest.importorskip("transformers")

PLAN = TuningPlan(tune="all", epochs=4, rows=150, batch_size=16, learning_rate=1e-2, encoder_learning_rate=3e-3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return {"text": f"folder:{tiny_bert(tmp_path_factory.mktemp('bert'))}"}


def tables(rows=220, *, shared=False):
    """A pair matches where the right row has a "hat" among words that say nothing, and not "shoes".

    With ``shared`` they share a number besides, by which matches are known.
    """
    random = np.random.default_rng(0)
    match = random.integers(0, 2, rows)

    def name(*words):
        others = random.choice(["red", "blue", "old", "shoe"], 4 - len(words)).tolist()
        return " ".join(random.permutation([*words, *others]))

    left = pd.DataFrame({"id": range(rows), "name": [f"{name()} a{row}" for row in range(rows)]})  # no two are equal
    names = [f"{name('hat' if one else 'shoes')} b{row}" for row, one in enumerate(match)]
    right = pd.DataFrame({"id": range(rows), "name": names})
    if shared:
        left["size"] = np.arange(rows, dtype=float)
        right["size"] = np.where(match == 1, np.arange(rows), np.arange(rows) + 500.0)
    return left, right, pd.DataFrame({"left": range(rows), "right": range(rows), "match": match})


@pytest.fixture(scope="module")
def model(encoder):
    left, right, pairs = tables()
    settings = {"encoders": encoder}
    return RowMatcher(tune="all", plan=PLAN, **settings).fit(left, right, pairs)


class Read:
    """In the place of a model: a pair matches by the length of its text, and what was read is kept."""

    def __init__(self):
        self.texts = []

    def predict_proba(self, frame):
        self.texts += frame["pair"].tolist()
        chances = np.array([len(text) / 10 for text in frame["pair"]])
        return np.stack([1 - chances, chances], axis=1)


def test_both_probabilities_are_weighed_as_log_odds_and_sure_pairs_are_not_read():
    reader = PairReader(Read(), (0.5, 2.0, -1.0))
    scored, texts = np.array([0.3, UNREAD / 2, 0.999999, UNREAD]), ["aaa", "bbbb", "ccccc", "dddddd"]
    read = reader.read(scored, lambda at: [texts[place] for place in at])
    assert read.tolist() == [0.3, 0.0, 0.5, 0.6]
    assert reader.model.texts == ["aaa", "ccccc", "dddddd"]

    def odds(chance):
        chance = min(max(chance, 1e-3), 1 - 1e-3)
        return np.log(chance / (1 - chance))

    want = [1 / (1 + np.exp(-(0.5 * odds(s) + 2.0 * odds(r) - 1.0))) for s, r in zip(scored, read, strict=True)]
    np.testing.assert_allclose(reader.together(scored, read), want, rtol=1e-12)
    assert reader.read(np.zeros(3), lambda some: []).tolist() == [0, 0, 0]


def test_rows_are_cut_so_that_both_are_read():
    (text,) = pair_texts([" ".join(["a"] * 500)], ["b " * 500])
    assert text == " ".join(["a"] * WORDS + ["[SEP]"] + ["b"] * WORDS)


def test_weights_are_those_of_a_logistic_regression_and_the_gain_is_measured_on_other_rows():
    random = np.random.default_rng(0)
    matches = random.integers(0, 2, 400)
    rows, noise = np.arange(400), random.uniform(0.4, 0.6, 400)
    told = np.clip(0.5 + 0.3 * (2 * matches - 1) + 0.2 * random.normal(size=400), 0.01, 0.99)
    reader = PairReader(None)
    alone, both, is_better = reader.weigh(noise, told, matches, rows)
    assert both < 0.6 * alone
    assert is_better
    assert reader.weights[1] > 0.5
    alone, both, is_better = reader.weigh(told, noise, matches, rows)
    assert both == pytest.approx(alone, abs=0.02)
    assert not is_better
    # each left row has one label, and its own probability: of no use for other rows
    owner = np.repeat(np.arange(4), 100)
    labels = np.array([0, 1, 0, 1])[owner]
    assert not reader.weigh(np.full(400, 0.5), np.array([0.2, 0.6, 0.9, 0.7])[owner], labels, owner)[2]


def test_it_is_taken_where_likeness_says_nothing(model):
    pairs = tables()[2]
    assert (
        "pairs are read as texts, too (plan: tune all layers for 4 epochs of 150 rows in float32): by boosting"
        in str(model.notes_)
    )
    chances = model.predict_proba(pairs)[:, 1]
    assert ((chances > 0.5) == pairs["match"]).mean() > 0.95
    assert model.explain(pairs.iloc[:2])[0].probability == pytest.approx(chances[0])


def test_it_is_not_taken_where_nothing_is_gained(encoder):
    left, right, pairs = tables(shared=True)
    model = RowMatcher(encoders=encoder, tune="all", plan=PLAN.model_copy(update={"epochs": 2}))
    model.fit(left, right, pairs)
    assert model.learned_.reader is None
    assert "pairs are not read as texts: by boosting alone the log loss on" in str(model.notes_)


def test_it_is_saved_and_the_folder_is_checked(model, encoder, tmp_path):
    pairs = tables()[2]
    model.save(tmp_path / "m")
    again = RowMatcher.load(tmp_path / "m", encoders=encoder)
    np.testing.assert_array_equal(again.predict_proba(pairs), model.predict_proba(pairs))
    assert (again.tune, again.plan) == ("all", None)
    config = json.loads((tmp_path / "m" / "matcher.json").read_text())
    config["reader"] = [0.0, 1.0]
    (tmp_path / "m" / "matcher.json").write_text(json.dumps(config))
    _seal(tmp_path / "m")
    with pytest.raises(ValueError, match=r"^matcher\.json: expected"):
        RowMatcher.load(tmp_path / "m", encoders=encoder)


def test_a_model_of_something_else_is_no_reader(tmp_path):
    x = np.arange(40.0)[:, None]
    NeighborClassifier(metric="network", members=2, max_epochs=1).fit(x, [0, 1] * 20).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"^other: expected a model of pairs of texts that match or not, got another"):
        PairReader.load(tmp_path / "other", (1.0, 1.0, 0.0), {})


def test_forgotten_rows_leave_its_bank(model):
    (left, _, pairs), model = tables(), copy.deepcopy(model)
    gone = int(model.labelled_["left"].iloc[0])
    assert model.learned_.reader.model.bank_.has([f"{gone}\t{gone}"]).all()
    before = model.predict_proba(pairs.iloc[-3:])
    model.forget(left=[gone])
    assert not model.learned_.reader.model.bank_.has([f"{gone}\t{gone}"]).any()
    np.testing.assert_allclose(model.predict_proba(pairs.iloc[-3:]), before, atol=1e-12)
    assert not model.learned_.reader.forget([f"{i}\t{i}" for i in range(len(left))])


@pytest.mark.slow
def test_a_killed_run_goes_on_and_leaves_nothing(encoder, tmp_path, monkeypatch):
    left, right, pairs = tables(140)
    settings = {"encoders": encoder, "tune": "all", "plan": PLAN.model_copy(update={"epochs": 2})}
    whole = RowMatcher(**settings).fit(left, right, pairs)
    calls, fit = [], NeighborClassifier.fit

    def stopped(self, *args, **kwargs):
        calls.append(self.checkpoint_dir)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return fit(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(NeighborClassifier, "fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            RowMatcher(cache_dir=tmp_path, **settings).fit(left, right, pairs)
        again = RowMatcher(cache_dir=tmp_path, **settings).fit(left, right, pairs)
    assert calls[0] == calls[1]
    assert calls[0].parent == tmp_path
    assert not calls[0].exists()
    np.testing.assert_allclose(again.predict_proba(pairs), whole.predict_proba(pairs), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encoders": {"text": "none"}}, "tune: expected a pretrained encoder of texts to tune, got 'none'"),
        ({"encoders": {"text": "ngrams"}}, "tune: expected a pretrained encoder of texts to tune, got 'ngrams'"),
        ({"tune": "some"}, "tune: expected 'auto', 'all', 'none', 'lora' or 'last-N'"),
        ({"tune": "last-1", "plan": PLAN}, "tune: expected 'auto' or 'all', as the plan says, got 'last-1'"),
        ({"minutes": 0}, "minutes: expected a number"),
    ],
)
def test_what_cannot_be_is_one_sentence(encoder, settings, sentence):
    left, right, pairs = tables(40)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        RowMatcher(**{"encoders": encoder, "tune": "all"} | settings).fit(left, right, pairs)


def test_tables_without_texts_and_few_pairs_are_told(encoder):
    left, right, pairs = tables(40)
    model = RowMatcher(encoders=encoder, tune="all").fit(left, right, pairs)
    assert "no pair was read: tuning takes 100 labelled pairs of both kinds, got 30" in str(model.notes_)
    numbers = [pd.DataFrame({"id": range(40), "size": np.arange(40.0) + shift}) for shift in (0.0, 0.5)]
    with pytest.raises(ValueError, match=r"^tune: expected tables that share a column of texts, got none"):
        RowMatcher(encoders=encoder, tune="all").fit(*numbers, pairs)
