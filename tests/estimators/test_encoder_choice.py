"""Encoders that nobody named: chosen by a ridge regression on the vectors of each, said, and saved."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from vicinal.core.progress import ending_in
from vicinal.encoders import EmbeddingCache, MiniLMEncoder, build_table_encoder
from vicinal.estimators import NeighborRegressor, TuningPlan, encoder_choice, load_model
from vicinal.estimators.encoder_choice import MINILM, EncoderChoice, choose_encoders, planned_encoders

GOOD = ("wonderful", "lovely", "superb", "delightful", "charming", "splendid", "marvelous", "pleasant")
BAD = ("dreadful", "awful", "nasty", "horrible", "miserable", "vile", "dismal", "disgusting")
QUICK = ((1, ()), (1, ("pair0", "pair1")), (3, ()))
"""How many columns beside which of a pair that is named are tried by ``make test``."""
needs_minilm = pytest.mark.skipif(not MINILM.installed, reason="the package of MiniLM's weights is not installed")


def reviews(rows=60, seed=0):
    """Texts whose words say the label, few of them twice, so that meaning helps and letters do not."""
    rng = np.random.default_rng(seed)
    good = rng.random(rows) < 0.5
    words = [rng.choice(GOOD if one else BAD) for one in good]
    return pd.DataFrame({"text": [f"a {word} little place {i}" for i, word in enumerate(words)]}), good.astype(float)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Vectors of the texts of all tests."""
    return EmbeddingCache(tmp_path_factory.mktemp("vectors"))


@pytest.fixture
def few(monkeypatch):
    """Choices from 40 rows on."""
    monkeypatch.setattr(encoder_choice, "FEWEST", 40)


@needs_minilm
def test_a_long_text_takes_the_encoder_whose_vectors_explain_more_and_says_so(few, tmp_path, monkeypatch):
    frame, y = reviews()
    encoded = []
    forward = MiniLMEncoder.forward
    monkeypatch.setattr(MiniLMEncoder, "forward", lambda self, batch: encoded.append(1) or forward(self, batch))
    model = NeighborRegressor(columns={"text": "text"}, max_epochs=2, members=2, cache_dir=tmp_path / "c").fit(frame, y)
    (choice,) = model.encoder_choices_
    assert choice.encoder == max(choice.explained, key=choice.explained.get)
    assert set(choice.explained) == {"minilm", "ngrams"}
    assert model.encoders is None
    assert model.named_encoders() == {"text": choice.encoder}
    assert [part.encoder for part in model.table_encoder.describe()] == [choice.encoder]
    assert len(encoded) <= 2 * -(-len(frame) // 16), "the vectors of the choice are used again"
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.named_encoders() == {"text": choice.encoder}
    np.testing.assert_allclose(loaded.predict(frame[:5]), model.predict(frame[:5]), atol=1e-5)


@pytest.mark.slow
@needs_minilm
def test_the_choice_is_by_left_out_rows_and_the_same_again(few, cache):
    frame, y = reviews()
    job = frame, {"text": "text"}, y, None
    one, again = (choose_encoders(*job, cache, classes=False) for _ in range(2))
    assert one == again
    as_classes = choose_encoders(*job, cache, classes=True)[0].explained
    assert as_classes["minilm"] == pytest.approx(one[0].explained["minilm"], abs=0.05)
    noise = torch.randn(len(y), generator=torch.Generator().manual_seed(0)).numpy()
    explained = choose_encoders(frame, {"text": "text"}, noise, None, cache, classes=False)[0].explained
    assert max(explained.values()) < 0.2


@pytest.mark.parametrize("why", ["named", "kind named", "few words", "few rows", "not installed", "folds"])
def test_nothing_is_chosen_where_there_is_nothing_to_choose(few, why, monkeypatch, cache):
    frame, y = reviews()
    named = {"named": {"text": "ngrams"}, "kind named": {"text": "ngrams"}}.get(why)
    if why == "few words":
        frame = frame.assign(text=[cell.split()[1] for cell in frame["text"]])
        monkeypatch.setattr(encoder_choice, "MOST", len(frame) - 1)
    if why == "few rows":
        frame, y = frame[:30], y[:30]
    if why == "not installed":
        missing = dataclasses.replace(MINILM, package="no_such_package")
        monkeypatch.setitem(encoder_choice.CANDIDATES, "text", ("ngrams", missing))
    if why == "folds":
        with pytest.raises(ValueError, match=r"^validation_fraction: expected a share above 0 for an encoder that is"):
            NeighborRegressor(columns={"text": "text"}, validation_fraction=0).fit(frame, y)
        return
    assert choose_encoders(frame, {"text": "text"}, y, named, cache, classes=False) == []


@needs_minilm
def test_short_texts_of_a_table_of_few_rows_have_a_choice(few, cache):
    frame, y = reviews()
    short = frame.assign(text=[cell.split()[1] for cell in frame["text"]])
    (choice,) = choose_encoders(short, {"text": "text"}, y, None, cache, classes=False)
    assert set(choice.explained) == {"minilm", "ngrams"}


def test_the_sentence_names_the_chosen_encoder_first():
    choice = EncoderChoice("note", "ngrams", {"minilm": 0.484, "ngrams": 0.61})
    assert choice.sentence == "ngrams explains 61 % of the labels' variance linearly, minilm 48 %"
    of_logs = dataclasses.replace(choice, logs=True)
    assert of_logs.sentence == "ngrams explains 61 % of the variance of the labels' logarithms linearly, minilm 48 %"


@pytest.fixture
def vectors(monkeypatch):
    """Vectors of 80 texts by encoder, which a test may set, in place of what the encoders give."""
    known = {}
    monkeypatch.setattr(encoder_choice, "_vectors", lambda frame, *job: known[job[2]][frame.index])
    return known


@needs_minilm
def test_prices_are_explained_on_the_scale_on_which_texts_say_more_of_them(few, vectors, cache):
    rng = np.random.default_rng(0)
    log_price = rng.normal(scale=1.5, size=80)
    price = np.exp(log_price)
    vectors |= {"minilm": (price + 0.3 * price.std() * rng.normal(size=80))[:, None], "ngrams": log_price[:, None]}
    job = reviews(80)[0], {"text": "text"}
    (choice,) = choose_encoders(*job, price, None, cache, classes=False)
    assert (choice.encoder, choice.logs) == ("ngrams", True)
    assert choice.explained["ngrams"] > 0.99 > choice.explained["minilm"]
    (choice,) = choose_encoders(*job, price - price.mean(), None, cache, classes=False)
    assert (choice.encoder, choice.logs) == ("minilm", False)


@needs_minilm
def test_a_pretrained_encoder_that_many_rows_wait_for_must_explain_surely_more(few, vectors, monkeypatch, cache):
    label, noise = np.random.default_rng(0).normal(size=(2, 80))
    vectors |= {"minilm": (label + 0.05 * noise)[:, None], "ngrams": (label + 0.08 * noise)[:, None]}
    job = reviews(80)[0], {"text": "text"}, label, None, cache
    assert choose_encoders(*job, classes=False)[0].encoder == "minilm"
    monkeypatch.setattr(encoder_choice, "MOST", 79)
    assert choose_encoders(*job, classes=False)[0].encoder == "ngrams"
    vectors["ngrams"] = (label + 0.3 * noise)[:, None]
    assert choose_encoders(*job, classes=False)[0].encoder == "minilm"


@pytest.mark.slow
@needs_minilm
def test_a_chosen_encoder_is_tuned_as_one_that_was_named_is(few, tmp_path):
    frame, y = reviews()
    plan = TuningPlan(tune="last-1", epochs=1, rows=40, batch_size=20, learning_rate=1e-2, encoder_learning_rate=1e-4)
    settings = {
        "columns": {"text": "text"},
        "max_epochs": 1,
        "members": 2,
        "random_state": 0,
        "tune": "auto",
        "plan": plan,
        "metric": "network",
    }
    model = NeighborRegressor(**settings).fit(frame, y)
    (choice,) = model.encoder_choices_
    assert choice.encoder == "minilm"
    assert model.plan_.tune in ("last-1", "none")
    named = NeighborRegressor(**settings, encoders={"text": "minilm"}).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame[:5]), named.predict(frame[:5]))
    model.save(tmp_path / "m")
    np.testing.assert_allclose(load_model(tmp_path / "m").predict(frame[:5]), model.predict(frame[:5]), atol=1e-5)


@needs_minilm
def test_two_columns_whose_difference_says_the_label_are_read_as_a_pair(few, tmp_path, cache):
    frame, first = reviews(90)
    other, second = reviews(90, seed=1)
    frame, same = frame.assign(other=other["text"], size=0.5), (first == second).astype(float)
    kinds = {"text": "text", "other": "text", "size": "number"}
    choices = choose_encoders(frame, kinds, same, None, cache, classes=False)
    assert [choice.encoder for choice in choices] == ["pair:minilm"] * 2
    assert choices[0].explained["pair:minilm"] > choices[0].explained["minilm"] + 0.3
    assert choices[0].sentence.startswith("pair:minilm explains")
    beside = choose_encoders(frame, kinds, first + second, None, cache, classes=False)
    assert not any(choice.encoder.startswith("pair:") for choice in beside)
    settings = {"columns": kinds, "max_epochs": 1, "members": 2, "metric": "network", "cache_dir": cache.folder}
    model = NeighborRegressor(**settings).fit(frame, same)
    assert [part.columns for part in model.table_encoder.encoders] == [["size"], ["text", "other"]]
    model.save(tmp_path / "m")
    np.testing.assert_allclose(load_model(tmp_path / "m").predict(frame[:5]), model.predict(frame[:5]), atol=1e-5)
    assert planned_encoders(frame, kinds, None)["text"] == "pair:minilm or minilm or ngrams"


@needs_minilm
@pytest.mark.parametrize(
    ("columns", "named"),
    [
        pytest.param(many, dict.fromkeys(pair, "pair:minilm"), marks=[] if (many, pair) in QUICK else pytest.mark.slow)
        for many in range(1, 7)
        for pair in ((), ("pair0", "pair1"))
    ],
)
def test_any_number_of_text_columns_is_planned_probed_and_chosen_for(few, columns, named, cache):
    frame, first = reviews(48)
    kinds = {name: "text" for name in [*(f"text{place}" for place in range(columns)), *named]}
    frame = pd.DataFrame({name: reviews(48, seed)[0]["text"] for seed, name in enumerate(kinds)})
    planned = planned_encoders(frame, kinds, named)
    build_table_encoder(kinds, encoders={name: one.split(" or ")[0] for name, one in planned.items()})  # as it is timed
    choices = choose_encoders(frame, kinds, first, named, cache, classes=False)
    assert [choice.column for choice in choices] == [f"text{place}" for place in range(columns)]
    assert {choice.encoder for choice in choices} <= {one for each in planned.values() for one in each.split(" or ")}
    encoders = {**named, **{choice.column: choice.encoder for choice in choices}}
    assert sorted(build_table_encoder(kinds, encoders=encoders).columns) == sorted(kinds)


@needs_minilm
def test_a_pretrained_encoder_that_would_take_longer_than_there_is_time_is_not_taken(few, monkeypatch):
    frame, y = reviews()
    monkeypatch.setattr(encoder_choice, "_seconds", lambda *_: 10.0)
    job = frame, {"text": "text"}, y, None
    with ending_in(300):
        (choice,) = choose_encoders(*job, EmbeddingCache(), classes=False)
    assert (choice.encoder, set(choice.explained)) == ("ngrams", {"ngrams"})
    assert choice.sentence.endswith("; no time for minilm, about 10 min")
