"""Cells of images: where they may come from, and what is refused."""

import io
import os
import time

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import vicinal.encoders.images as images
from vicinal.encoders import ImageCNN, thumbnail
from vicinal.encoders.images import contact_sheet, prepare_images, to_square
from vicinal.encoders.media import read_cell


def frame_of(*cells):
    labels = [f"r{k}" for k in range(len(cells))]
    return pd.DataFrame({"photo": pd.Series(list(cells), index=labels, dtype=object)})


def prepare(*cells, root=None):
    return ImageCNN("photo", side=8, widths=(4, 4)).prepare(frame_of(*cells), root)


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def decoded(data):
    found = []
    prepare_images(
        pd.Series([data]), "photo", None, lambda image: found.append(image) or torch.zeros(1), str(id(found))
    )
    return np.asarray(found[0])


def test_paths_bytes_and_dictionaries_are_one(tmp_path, make_image, monkeypatch):
    data = make_image(1)
    (tmp_path / "a.png").write_bytes(data)
    cells = ["a.png", str(tmp_path / "a.png"), tmp_path / "a.png", data, bytearray(data)]
    cells += [{"bytes": data, "path": None}, {"bytes": None, "path": "a.png"}]
    inside = prepare(*cells, root=tmp_path)
    assert inside.values.shape == (7, 3, 8, 8)
    assert (inside.values == inside.values[0]).all()
    monkeypatch.chdir(tmp_path)
    assert torch.equal(prepare("a.png").values, inside.values[:1])


@pytest.mark.parametrize("cell", [None, np.nan, pd.NA, "", {"bytes": None, "path": None}])
def test_missing_is_refused_by_row(cell, make_image):
    with pytest.raises(ValueError, match=r"^photo: expected an image in row 'r1', got a missing value; drop the row"):
        prepare(make_image(), cell)


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("none.png", r"got 'none\.png'; no file at '.*none\.png'"),
        ("https://example.org/a.png", r"it is a web address: download it first"),
        (3.5, r"^photo: expected an image \(a path or bytes\) in row 'r0', got 3\.5"),
        (b"", r"^photo: expected an image in row 'r0', got no bytes"),
        ("a\0b.png", r"which cannot be read: .*null"),
        ("folder", r"which cannot be read: folder: expected a regular file, got a folder"),
        ("empty.png", r"^photo: expected an image in row 'r0', got 'empty\.png', an empty file"),
        (b"no image at all", r"^photo: expected an image \(JPEG, PNG.*\) in row 'r0', got 15 bytes that are none"),
        ("text.png", r"^photo: expected an image \(JPEG, PNG.*bytes that are none; replace the file"),
    ],
)
def test_what_is_no_image_is_refused(cell, sentence, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(ValueError, match=sentence):
        prepare(cell, root=tmp_path)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_truncated_is_refused(form, make_image):
    data = make_image(2, (60, 60), form)
    with pytest.raises(ValueError, match=r"^photo: expected .* in row 'r1', got "):
        prepare(data, data[: len(data) // 2])


def test_damaged_bytes_never_raise_anything_else(make_image):
    generator = np.random.default_rng(0)
    for form in ("PNG", "JPEG", "GIF", "TIFF", "BMP"):
        data = make_image(3, (20, 20), form)
        for _ in range(20):
            broken = np.frombuffer(data, dtype=np.uint8).copy()
            broken[generator.integers(0, len(broken), 8)] = generator.integers(0, 256, 8)
            try:
                decoded(broken.tobytes())
            except ValueError as error:
                assert str(error).startswith("photo: expected")  # noqa: PT017


def test_more_than_50_megapixels_is_refused():
    data = encoded(Image.new("1", (10_000, 5001)))
    assert len(data) < 20_000
    with pytest.raises(ValueError, match=r"of at most 50 megapixels in row 'r0', got 10000 x 5001; make it smaller"):
        prepare(data)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("side", [11_000, 20_000])
def test_a_bomb_beyond_the_limits_of_pillow_is_refused_alike(side):
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        data = encoded(Image.new("1", (side, side)))
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    with pytest.raises(ValueError, match=r"of at most 50 megapixels in row 'r0', got .*make it smaller"):
        prepare(data)


@pytest.mark.parametrize("path", ["../secret.png", "sub/../../secret.png", "link.png", "loop/secret.png", "ABSOLUTE"])
def test_a_path_that_leaves_the_folder_is_refused(path, tmp_path, make_image):
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.png"
    secret.write_bytes(make_image())
    (root / "link.png").symlink_to(secret)
    (root / "loop").symlink_to(tmp_path, target_is_directory=True)
    path = str(secret) if path == "ABSOLUTE" else path
    with pytest.raises(
        ValueError, match=r"^photo: expected a path inside '.*data' in row 'r0', got .*; give the folder"
    ):
        prepare(path, root=root)


def test_a_link_inside_the_folder_is_followed(tmp_path, make_image):
    (tmp_path / "a.png").write_bytes(make_image())
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    assert len(prepare("b.png", root=tmp_path)) == 1


def test_devices_and_rings_of_links_are_refused(tmp_path):
    (tmp_path / "ring.png").symlink_to(tmp_path / "ring.png")
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("ring.png", "pipe.png"):
        with pytest.raises(ValueError, match=r"^photo: expected an image in row 'r0'"):
            prepare(name, root=tmp_path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "big.png").open("wb") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(ValueError, match=r"an image of at most 256 MiB in row 0, got 'big\.png', a file of 300 MiB"):
        read_cell("big.png", column="photo", row=0, what="an image", root=tmp_path)


def test_modes_become_rgb():
    ramp = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)
    gray = np.repeat(ramp[:, :, None], 3, axis=2)
    assert (decoded(encoded(Image.fromarray(ramp))) == gray).all()
    assert (decoded(encoded(Image.fromarray(ramp.astype(np.uint16) * 257))) == gray).all()
    clear = np.concatenate([gray, np.zeros((8, 8, 1), np.uint8)], axis=2)
    assert (decoded(encoded(Image.fromarray(clear))) == 255).all()
    palette = Image.fromarray(ramp).convert("P")
    assert (decoded(encoded(palette, transparency=b"\0" * 256)) == 255).all()


def test_images_are_turned_as_the_camera_says():
    pixels = np.zeros((4, 2, 3), dtype=np.uint8)
    pixels[0] = 255
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6
    assert decoded(encoded(image, exif=exif)).shape == (2, 4, 3)


def test_square_cuts_the_middle_or_squeezes():
    pixels = np.zeros((30, 90, 3), dtype=np.uint8)
    pixels[:, 30:60] = 200
    image = Image.fromarray(pixels)
    middle = to_square(image, 20, shorter=30)
    assert middle.shape == (3, 20, 20)
    assert (middle == 200).all()
    assert 60 < to_square(image, 20).float().mean() < 74


def test_columns_beyond_memory_are_decoded_again(monkeypatch, make_image):
    cells = [make_image(k) for k in range(3)]
    held = prepare(*cells)
    monkeypatch.setattr(images, "IN_MEMORY", 100)
    again = prepare(*cells)
    rows = torch.tensor([2, 0])
    assert type(again) is not type(held)
    assert len(again) == 3
    assert torch.equal(again.select(rows), held.select(rows))
    assert again.content(1) == held.content(1)
    with pytest.raises(ValueError, match="row 'r1'"):
        prepare(cells[0], b"x")


def test_pillow_absent_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    monkeypatch.delitem(__import__("sys").modules, "PIL", raising=False)
    with pytest.raises(
        ValueError, match=r"expected the package pillow, got none; install it with pip install 'vicinal\[image"
    ):
        prepare(b"x")


def test_a_side_far_longer_than_the_other_is_refused():
    sentence = r"whose sides differ by at most 100 times in row 'r0', got \d+ x \d+; cut it"
    for size in ((1, 101), (20_000, 1)):
        with pytest.raises(ValueError, match=sentence):
            prepare(encoded(Image.new("L", size)))
    assert len(prepare(encoded(Image.new("L", (1, 100))))) == 1


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_are_white_in_strips_as_in_one(mode, monkeypatch):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (40, 30, 4), dtype=np.uint8)).convert(mode)
    settings = {"transparency": bytes(range(256))} if mode == "P" else {}
    data = encoded(image, **settings)
    whole = decoded(data)
    alpha = Image.open(io.BytesIO(data)).convert("RGBA")
    wanted = Image.alpha_composite(Image.new("RGBA", alpha.size, "white"), alpha).convert("RGB")
    assert (whole == np.asarray(wanted)).all()
    monkeypatch.setattr(images, "_STRIP", 70)
    assert (decoded(data) == whole).all()


def test_large_images_are_decoded_once_and_a_few_at_a_time(monkeypatch):
    at_once, most, calls = [], [], []
    decode = images._decoded

    def counted(image, column, row):
        at_once.append(image.width * image.height)
        most.append(sum(at_once))
        calls.append(row)
        time.sleep(0.01)
        at_once.pop()
        return decode(image, column, row)

    monkeypatch.setattr(images, "_decoded", counted)
    monkeypatch.setattr(images, "_AT_A_TIME", 2_500_000)
    monkeypatch.setattr(images, "_recent", images._Recent(4 * 3 * 8 * 8))
    rng = np.random.default_rng(0)
    cells = [encoded(Image.fromarray(rng.integers(0, 9, (1100, 1000 + k), dtype=np.uint8))) for k in range(6)]
    first, again = prepare(*cells[:4]), prepare(*cells[:4])
    assert len(calls) == 4
    assert all(first.content(row) == again.content(row) for row in range(4))
    assert max(most) <= 2_500_000
    prepare(*cells)
    assert prepare(cells[5]).content(0) == prepare(cells[5]).content(0)
    assert len(calls) == 6
    prepare(*cells[:4])  # the two oldest had to go; which of the four were decoded first is up to the threads
    assert len(calls) >= 8


def test_thumbnails_are_small_upright_and_recent():
    small = thumbnail(encoded(Image.new("RGBA", (3000, 2000))))
    assert Image.open(io.BytesIO(small)).size == (128, 85)
    assert thumbnail(small) is small
    assert thumbnail(encoded(Image.new("1", (10_000, 5001)))) is None
    assert thumbnail(b"no image") is None
    assert thumbnail(encoded(Image.new("RGB", (50, 60)))[:60]) is None


def test_a_contact_sheet_has_images_beside_one_another(make_image):
    files = [make_image(0, (40, 30)), b"no image", make_image(1, (60, 20))]
    sheet = Image.open(io.BytesIO(contact_sheet(files, 20)))
    assert sheet.size == (20 + 20, 15)
    assert contact_sheet(files[:2], 20) == thumbnail(files[0], 20)
    assert contact_sheet([]) is None
