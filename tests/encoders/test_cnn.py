"""The residual networks that are trained from scratch."""

import io

import numpy as np
import pandas as pd
import torch
from PIL import Image

from vicinal.encoders import AudioCNN, ImageCNN, ImagePixels
from vicinal.encoders.cnn import RealNorm, ResidualNet


def test_what_is_behind_the_end_changes_nothing():
    torch.manual_seed(0)
    net = ResidualNet(1, (4, 6, 8)).eval()
    for length in (1, 2, 7, 8, 13):
        row = torch.randn(1, 1, length, 16)
        alone = net(row, torch.tensor([length]))
        noise = torch.cat([row, 100 * torch.randn(1, 1, 9, 16)], dim=2)
        torch.testing.assert_close(net(noise, torch.tensor([length])), alone)


def test_padding_enters_no_statistic_while_training():
    torch.manual_seed(0)
    rows = [torch.randn(1, 3, length, 4) for length in (2, 5, 5)]
    real = torch.tensor([[True, True, False, False, False], [True] * 5, [True] * 5])
    padded = torch.cat([torch.nn.functional.pad(row, (0, 0, 0, 5 - row.shape[2]), value=9) for row in rows])
    norm, plain = RealNorm(3), torch.nn.BatchNorm2d(3)
    found = norm(padded, real)
    want = plain(torch.cat(rows, dim=2))
    torch.testing.assert_close(found[0, :, :2], want[0, :, :2])
    torch.testing.assert_close(found[2], want[0, :, 7:])
    assert (found[0, :, 2:] == 0).all()
    torch.testing.assert_close(norm.running_var, plain.running_var)


def test_full_length_equals_no_lengths():
    torch.manual_seed(0)
    net = ResidualNet(1, (4, 6)).eval()
    image = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(net(image, torch.tensor([16, 16])), net(image))


def test_images_can_be_learned(make_image):
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    cells = [make_image(k, (16, 16)) for k in range(24)]
    encoder = ImageCNN("p", side=16, widths=(8, 16))
    inputs = encoder.prepare(pd.DataFrame({"p": cells}))
    target = torch.from_numpy(generator.normal(size=24)).float()
    line = torch.nn.Linear(encoder.dim, 1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *line.parameters()], lr=1e-2)
    losses = []
    for _ in range(40):
        loss = (line(encoder(inputs.select(torch.arange(24))))[:, 0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_features_of_images_are_small_images(make_image):
    frame = pd.DataFrame({"p": [make_image(k) for k in range(3)]})
    encoder = ImageCNN("p")
    inputs = encoder.prepare(frame)
    features = encoder.features(frame, inputs)
    assert features.shape == (3, 768)
    want = inputs.values[1, 2].double().reshape(16, 4, 16, 4).mean(dim=(1, 3)) / 255
    np.testing.assert_allclose(features[1, 512:], want.flatten().numpy())


def test_features_of_sounds_are_means_and_deviations(make_sound):
    frame = pd.DataFrame({"c": [make_sound(k, 0.2 + 0.1 * k) for k in range(2)]})
    encoder = AudioCNN("c", bands=16)
    inputs = encoder.prepare(frame)
    rows = inputs.values[inputs.offsets[1] : inputs.offsets[2]].double().numpy()
    features = encoder.features(frame, inputs)
    np.testing.assert_allclose(features[1], np.concatenate([rows.mean(0), rows.std(0)]), atol=1e-12)


def test_pixels_are_those_of_the_image(make_image):
    frame = pd.DataFrame({"p": [make_image(3, (8, 8))]})
    encoder = ImagePixels("p", side=8).fit(frame)
    with Image.open(io.BytesIO(frame["p"][0])) as image:
        want = (np.asarray(image.convert("RGB"), dtype=np.float32).transpose(2, 0, 1) / 255 - 0.45) / 0.25
    got = encoder(encoder.prepare(frame).select(torch.arange(1)))
    assert (encoder.dim, encoder.image_shape, encoder.learned) == (192, (3, 8, 8), False)
    np.testing.assert_allclose(got.numpy().reshape(3, 8, 8), want, rtol=1e-6, atol=1e-6)
