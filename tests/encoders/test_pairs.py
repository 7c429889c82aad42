"""Two columns read by one encoder: the formula, one network for both, what is kept, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from references.models import tiny_bert
from vicinal.encoders import PairEncoder, TableEncoder, build_table_encoder
from vicinal.encoders.names import check_encoder, encoder_from_config
from vicinal.encoders.pretrained import StateInputs
from vicinal.estimators import NeighborRegressor, load_model

FRAME = pd.DataFrame(
    {
        "question": ["a red cat", "the dog", "", "a small house", "the cat"],
        "size": [1.0, 2.0, 3.0, 4.0, 5.0],
        "answer": ["a cat", "the small dog", "a house", "", "the cat"],
    }
)
BOTH = ["question", "answer"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return f"folder:{tiny_bert(tmp_path_factory.mktemp('bert'))}"


def vectors(encoder, frame=FRAME):
    return encoder(encoder.prepare(frame).select(torch.arange(len(frame))))


@torch.no_grad()
def test_it_is_both_vectors_their_distance_and_their_product(bert):
    pair = PairEncoder(BOTH, f"pair:{bert}").eval()
    table = build_table_encoder({"question": "text", "answer": "text"}, encoders={"text": bert}).eval()
    u, v = np.split(vectors(table).double().numpy(), 2, axis=1)
    want = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    np.testing.assert_allclose(vectors(pair).numpy(), want, atol=1e-6)
    assert pair.dim == want.shape[1]
    assert pair.frozen


def test_both_columns_train_the_one_network(bert):
    pair = PairEncoder(BOTH, f"pair:{bert}", tune="all").eval()
    slopes = []
    for weigh in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        pair.zero_grad()
        u, v, _, _ = vectors(pair).chunk(4, dim=1)
        (weigh[0] * u[:, 0].sum() + weigh[1] * v[:, 0].sum()).backward()
        slopes.append(pair.one.by_layer()[0][0].grad.clone())
    assert min(float(slope.norm()) for slope in slopes) > 0
    torch.testing.assert_close(slopes[0] + slopes[1], slopes[2], rtol=1e-4, atol=1e-6)


def test_frozen_layers_run_once_for_all_epochs(bert):
    table = TableEncoder([PairEncoder(BOTH, f"pair:{bert}", tune="last-1")]).eval()
    inputs = table.prepare(FRAME)
    kept, rows = table.keep_states(inputs), torch.tensor([3, 0])
    assert isinstance(kept.parts[0].parts[0], StateInputs)
    with torch.no_grad():
        want = table(inputs.select(rows))
        torch.testing.assert_close(table(kept.select(rows)), want, rtol=0.01, atol=2e-3 * float(want.abs().max()))


def test_frozen_vectors_are_kept_by_text(bert, monkeypatch):
    table = build_table_encoder(dict.fromkeys(BOTH, "text"), encoders={"text": f"pair:{bert}"})
    read, forward = [], type(table.parts[0].one).forward
    counted = lambda self, batch: read.append(len(batch["values"])) or forward(self, batch)
    monkeypatch.setattr(type(table.parts[0].one), "forward", counted)
    whole = vectors(table).detach()
    read.clear()
    inputs = table.prepare(FRAME)
    embedded = table.cache(inputs)
    assert sum(read) == len({side.content(row) for side in inputs.parts[0].parts for row in range(5)})
    torch.testing.assert_close(table(embedded.select(torch.arange(5))), whole, rtol=1e-4, atol=1e-5)


def test_columns_of_one_pair_are_read_together_beside_others(bert):
    kinds = {"question": "text", "size": "number", "answer": "text", "note": "text"}
    named = {"question": f"pair:{bert}", "answer": f"pair:{bert}", "note": bert}
    table = build_table_encoder(kinds, encoders=named, tune="last-1")
    assert [part.columns for part in table.encoders] == [["size"], BOTH, ["note"]]
    assert [network.tune for network in table.tunable] == ["last-1", "last-1"]
    frame = FRAME.assign(note="a cat")
    table.fit(frame)
    again = TableEncoder.from_config(json.loads(json.dumps(table.config())))
    again.load_trained_state(table.trained_state())
    assert len(table.trained_state()) < len(table.state_dict())
    with torch.no_grad():
        assert torch.equal(vectors(table.eval(), frame), vectors(again.eval(), frame))


def test_features_are_those_of_the_published_weights(bert):
    pair = PairEncoder(BOTH, f"pair:{bert}", tune="all").eval()
    inputs, before = pair.prepare(FRAME), vectors(pair).detach().double().numpy()
    with torch.no_grad():
        for weight in pair.one.by_layer()[1]:
            weight.add_(torch.randn_like(weight))
    np.testing.assert_allclose(pair.features(FRAME, inputs), before, atol=1e-5)
    assert np.abs(vectors(pair).detach().numpy() - before).max() > 0.01


def test_held_it_learns_nothing(bert):
    pair = PairEncoder(BOTH, f"pair:{bert}", tune="all").hold().train()
    assert pair.frozen
    assert not any(module.training for module in pair.one.modules())


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["none", "all"])
def test_a_model_of_pairs_is_saved_and_loaded(bert, tune, tmp_path):
    frame = pd.concat([FRAME] * 12, ignore_index=True).drop(columns="size")
    settings = {"metric": "network", "members": 2, "hidden": (4,), "max_epochs": 2, "tune": tune}
    named = {"encoders": {"text": f"pair:{bert}"}, "columns": dict.fromkeys(BOTH, "text")}
    model = NeighborRegressor(**named, **settings)
    model.fit(frame, np.arange(60) % 5 + 0.1 * np.arange(60))
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"^encoders: expected pair:folder.* to be given again"):
        load_model(tmp_path / "model")
    again = load_model(tmp_path / "model", encoders={"text": f"pair:{bert}"})
    np.testing.assert_allclose(again.predict(frame[:5]), model.predict(frame[:5]), rtol=1e-6)
    assert [part.encoder for part in again.table_encoder.describe()] == [f"pair:{bert}"]


@pytest.mark.parametrize(
    ("columns", "name", "sentence"),
    [
        (["question"], "pair:minilm", r"columns: expected two for the encoder 'pair:minilm', got \['question'\]"),
        ([*BOTH, "third"], "pair:minilm", r"columns: expected two for the encoder 'pair:minilm', got .*'third'"),
        (BOTH, "pair:ngrams", "encoder: expected a pretrained one after 'pair:', got 'pair:ngrams'"),
        (BOTH, "pair:pair:minilm", "encoder: expected one of .*'pair:ENCODER', got 'pair:minilm'"),
        (BOTH, "pair:", "encoder: expected one of .*'minilm'.*, got ''"),
    ],
)
def test_what_is_no_pair_is_refused(columns, name, sentence):
    with pytest.raises(ValueError, match=sentence):
        PairEncoder(columns, name)


@pytest.mark.parametrize("kind", ["number", "category", "vector", "set"])
def test_other_kinds_have_no_pairs(kind):
    with pytest.raises(ValueError, match="expected"):
        check_encoder("pair:minilm", kind)


def test_a_cell_that_cannot_be_read_is_named_by_its_own_column(bert):
    with pytest.raises(ValueError, match=r"^answer: expected"):
        PairEncoder(BOTH, f"pair:{bert}").prepare(FRAME.assign(answer=[b"", 1, 2, 3, object()]))


def test_settings_of_an_unknown_form_are_refused(bert):
    config = PairEncoder(BOTH, f"pair:{bert}").config()
    for change in ({"kind": "set"}, {"tune": "some"}, {"one": {}}, {"columns": ["question"]}, {"encoder": "pair:x"}):
        with pytest.raises(ValueError, match="expected"):
            encoder_from_config({**config, **change})
