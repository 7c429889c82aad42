"""Where encoders run: on a GPU for many rows, if one may be used, and everything comes back."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from references.models import tiny_bert
from vicinal.estimators import NeighborRegressor, fitting
from vicinal.estimators.bank import embedded
from vicinal.training.settings import encoding_device

pytest.importorskip("transformers")


def test_a_gpu_is_taken_if_there_is_one_and_it_may_be_used(monkeypatch):
    for is_there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda is_there=is_there: is_there)
        types = [encoding_device(name).type for name in ("auto", "gpu", "cuda", "cpu", "mps")]
        assert types == (["cuda"] * 3 if is_there else ["cpu"] * 3) + ["cpu"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["none", "last-1"])
def test_many_rows_are_encoded_on_the_accelerator_and_few_on_the_processor(tmp_path, monkeypatch, tune):
    asked = []

    def device(name):
        asked.append(name)
        return torch.device("cpu")

    monkeypatch.setattr(fitting, "encoding_device", device)
    frame = pd.DataFrame({"text": [f"{'red ' * (1 + i % 3)}hat {'old' * (i % 2)}" for i in range(90)]})
    settings = {"columns": {"text": "text"}, "encoders": {"text": f"folder:{tiny_bert(tmp_path)}"}, "tune": tune}
    model = NeighborRegressor(members=2, hidden=(4, 2), max_epochs=1, **settings).fit(frame, np.sin(np.arange(90)))
    assert set(asked) == {"auto", "cpu"}  # the rows held out are few
    asked.clear()
    model.predict(frame[:63])
    assert set(asked) == {"cpu"}
    asked.clear()
    model.predict(frame[:64])
    assert set(asked) == {"auto"}


class Traveler(torch.nn.Module):
    """A network that notes where it is sent."""

    def __init__(self, *, tuned, fails=False):
        super().__init__()
        self.encoder = torch.nn.Module()
        self.encoder.encoders = [SimpleNamespace(learned=True, frozen=not tuned)]
        self.fails, self.places = fails, []

    def to(self, device):
        self.places.append(device.type)
        return self

    def embed_all(self, inputs, device, folds=None):
        if self.fails:
            raise ValueError("a broken row")
        self.places.append(f"at {device.type}")
        return torch.ones(len(inputs), 2)


def test_a_tuned_network_goes_to_the_device_and_comes_back():
    meta = torch.device("meta")

    class Three:
        def __len__(self):
            return 3

    network = Traveler(tuned=True)
    assert embedded(network, Three(), torch.float32, meta).tolist() == [[1, 1]] * 3
    assert network.places == ["meta", "at meta", "cpu"]
    network = Traveler(tuned=True, fails=True)
    with pytest.raises(ValueError, match="a broken row"):
        embedded(network, Three(), torch.float32, meta)
    assert network.places == ["meta", "cpu"]
    network = Traveler(tuned=False)
    embedded(network, Three(), torch.float32, meta)
    assert network.places == ["at cpu"]
