"""The network of MiniLM, beside the same weights read by transformers."""

import pandas as pd
import pytest
import torch

from vicinal.encoders import MiniLMEncoder, TextTransformer
from vicinal.encoders.base import embed
from vicinal.encoders.minilm import MINILM

pytestmark = pytest.mark.skipif(not MINILM.installed, reason="the package of MiniLM's weights is not installed")

TEXTS = [
    "Lovely phone, poor battery!", "", " ", "na\u00efve \u4e2d\u6587 \U0001f600 \x00\u200b", "word " * 300, "no.",
]  # fmt: skip


def both(**settings):
    pytest.importorskip("transformers")
    theirs = TextTransformer("x", f"folder:{MINILM.folder() / 'model'}", **settings)
    theirs.normalized, theirs.longest = True, lambda: 256
    return MiniLMEncoder("x", **settings), theirs


@pytest.mark.sweep(2)
@pytest.mark.parametrize("tune", ["none", pytest.param("last-1", marks=pytest.mark.slow), "all"])
def test_tokens_vectors_and_gradients_are_those_of_transformers(tune):
    results = []
    texts = [text for text in TEXTS if tune == "none" or len(text) < 100]
    for encoder in both(tune=tune):
        encoder.train()
        inputs = encoder.prepare(pd.DataFrame({"x": texts}))
        torch.manual_seed(0)  # dropout draws the same numbers in the same order
        vectors = encoder(inputs.select(torch.arange(len(texts))))
        if tune != "none":
            (vectors * torch.arange(384)).sum().backward()
        gradients = {name: each.grad for name, each in encoder.named_parameters() if each.grad is not None}
        results.append((inputs.values, inputs.offsets, vectors.detach(), gradients))
    (tokens, offsets, vectors, gradients), theirs = results
    assert torch.equal(tokens, theirs[0])
    assert torch.equal(offsets, theirs[1])
    torch.testing.assert_close(vectors, theirs[2], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients, theirs[3], rtol=1e-4, atol=1e-4)
    assert (len(gradients) > 0) == (tune != "none")


def test_its_state_has_the_names_that_model_folders_have():
    ours, theirs = both()
    assert {name: tuple(value.shape) for name, value in ours.state_dict().items()} == {
        name: tuple(value.shape) for name, value in theirs.state_dict().items()
    }


def test_training_does_not_change_the_published_file():
    texts = pd.DataFrame({"x": TEXTS[:2]})
    before = embed(MiniLMEncoder("x"), MiniLMEncoder("x").prepare(texts))
    encoder = MiniLMEncoder("x", tune="all")
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
    again = MiniLMEncoder("x")
    assert torch.equal(embed(again, again.prepare(texts)), before)


def test_its_identity_is_that_of_the_file_until_a_weight_changes():
    first, second = MiniLMEncoder("x"), MiniLMEncoder("y")
    assert first.identity() == second.identity()
    with torch.no_grad():
        second.net.embeddings.LayerNorm.bias.add_(1)
    assert second.identity() != first.identity()
