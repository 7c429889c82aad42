"""Columns of images: reading them safely, and holding them as bytes of one size."""

import contextlib
import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core.checks import optional_import
from vicinal.encoders.base import refuse
from vicinal.encoders.inputs import Inputs, LazyInputs, RowInputs
from vicinal.encoders.media import map_rows, read_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image

MOST_PIXELS = 50_000_000
"""Pixels of the largest image that is decoded: a small file can hold an image that fills the memory."""

MOST_ASPECT = 100
"""By how much one side of an image may be longer: what is scaled by its shorter side becomes as long."""

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What is decoded: no format that starts another program or reads other files."""

IN_MEMORY = 2**30
"""Bytes of prepared images that a column may hold; beyond, each batch is decoded again."""

_STRIP = 1 << 22
"""Pixels of a transparent image that are put on white at a time."""

_AT_A_TIME = 64_000_000
"""Pixels that several threads decode at a time, 7 bytes each or so."""

_KEPT_FROM = 1_000_000
"""Pixels of an image from which on its prepared form is kept."""

_SMALL_FILE = 1 << 16
"""Bytes of a thumbnail, at most."""


def _checked(data: bytes, column: str, row: object) -> "Image":
    """An image that is not decoded yet, and may be by its size."""
    pil = import_pillow()
    limit = f"an image of at most {MOST_PIXELS // 10**6} megapixels"
    try:
        image: Image = pil.Image.open(io.BytesIO(data), formats=FORMATS)
    except pil.UnidentifiedImageError:
        expected = f"an image ({', '.join(FORMATS)})"
        raise refuse(column, row, expected, f"{len(data)} bytes that are none", "replace the file") from None
    except (pil.Image.DecompressionBombError, pil.Image.DecompressionBombWarning) as error:
        raise refuse(column, row, limit, "a far larger one", "make it smaller") from error
    except Exception as error:  # readers of damaged files raise nearly every class there is
        raise _damaged(column, row, error) from None
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise refuse(column, row, limit, f"{width} x {height}", "make it smaller")
    if max(width, height) > MOST_ASPECT * min(width, height):
        expected = f"an image whose sides differ by at most {MOST_ASPECT} times"
        raise refuse(column, row, expected, f"{width} x {height}", "cut it")
    return image


def _decoded(image: "Image", column: str, row: object) -> "Image":
    pil = import_pillow()
    try:
        image.load()
        pil.ImageOps.exif_transpose(image, in_place=True)
        return to_rgb(image)
    except MemoryError:
        expected, got = "an image that can be decoded in the memory there is", f"{image.width} x {image.height}"
        raise refuse(column, row, expected, got, "make it smaller") from None
    except Exception as error:  # so do decoders
        raise _damaged(column, row, error) from None


def _damaged(column: str, row: object, error: Exception) -> ValueError:
    got = f"one that cannot be decoded ({error})"
    return refuse(column, row, "a whole image", got, "the file is cut short or damaged: replace it")


def to_rgb(image: "Image") -> "Image":
    """An image in RGB, transparent parts on white, 16-bit gray scaled to 8 bits."""
    pil = import_pillow()
    if image.mode.startswith("I;16"):
        gray: Image = pil.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return gray.convert("RGB")
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image if image.mode == "RGB" else image.convert("RGB")
    opaque: Image = pil.Image.new("RGB", image.size)
    step = max(1, _STRIP // image.width)
    for top in range(0, image.height, step):
        strip = image.crop((0, top, image.width, min(top + step, image.height))).convert("RGBA")
        ground = pil.Image.new("RGBA", strip.size, "white")
        opaque.paste(pil.Image.alpha_composite(ground, strip).convert("RGB"), (0, top))
    return opaque


def thumbnail(data: bytes, side: int = 128) -> bytes | None:
    """A small JPEG of an image, at most ``side`` pixels each way, or None if it cannot be read.

    An image that is already small is returned as it is.
    """
    try:
        image = _checked(data, "", "")
        if image.format == "JPEG" and max(image.size) <= side and len(data) <= _SMALL_FILE:
            return data
        with _room(image):
            image.draft("RGB", (side, side))
            image = _decoded(image, "", "")
            image.thumbnail((side, side))
    except ValueError:
        return None
    small = io.BytesIO()
    image.save(small, "JPEG", quality=80)
    return small.getvalue()


def contact_sheet(images: Iterable[bytes], side: int = 128) -> bytes | None:
    """Thumbnails of images beside one another as a JPEG, of one the thumbnail; None if none can be read."""
    files = [data for data in (thumbnail(one, side) for one in images) if data is not None]
    if len(files) < 2:
        return files[0] if files else None
    pil = import_pillow()
    small = [pil.Image.open(io.BytesIO(data)) for data in files]
    sheet = pil.Image.new("RGB", (sum(one.width for one in small), max(one.height for one in small)), "white")
    left = 0
    for one in small:
        sheet.paste(one, (left, 0))
        left += one.width
    file = io.BytesIO()
    sheet.save(file, "JPEG", quality=80)
    return file.getvalue()


_decoding, _pixels = threading.Condition(), 0
"""How many pixels are being decoded, and what tells of a change."""


@contextlib.contextmanager
def _room(image: "Image") -> Iterator[None]:
    """Wait until an image of this size may be decoded beside the others."""
    global _pixels
    area = image.width * image.height
    with _decoding:
        _decoding.wait_for(lambda: _pixels == 0 or _pixels + area <= _AT_A_TIME)
        _pixels += area
    try:
        yield
    finally:
        with _decoding:
            _pixels -= area
            _decoding.notify_all()


def to_square(image: "Image", side: int, shorter: int | None = None) -> Tensor:
    """uint8 ``[3, side, side]``.

    Args:
        image: in RGB.
        side: of the result.
        shorter: the image is scaled until its shorter side has this length, and the middle is cut out. None: the
            whole image is squeezed into the square.
    """
    pil = import_pillow()
    resample = pil.Image.Resampling.BICUBIC
    if shorter is None:
        image = image.resize((side, side), resample)
    else:
        factor = shorter / min(image.size)
        size = [max(side, round(length * factor)) for length in image.size]
        image = image.resize((size[0], size[1]), resample)
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        image = image.crop((left, top, left + side, top + side))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def prepare_images(
    series: "pd.Series[Any]", column: str, root: Path | None, make: "Callable[[Image], Tensor]", recipe: str
) -> Inputs:
    """Decode all images once, so that each is known to be whole; hold what ``make`` gives while it fits.

    What large ones gave is kept for the next call: a fit prepares each row several times.

    Args:
        series: the cells.
        column: named in errors.
        root: see :func:`vicinal.encoders.media.read_cell`.
        make: of an image in RGB.
        recipe: what ``make`` does, in words that no other has.

    Raises:
        ValueError: naming the row of the first image that cannot be used.
    """

    def load(label: object, cell: Any) -> Tensor:
        data = read_cell(cell, column=column, row=label, what="an image", root=root)
        image = _checked(data, column, label)
        key = (hashlib.sha256(data).digest(), recipe) if image.width * image.height > _KEPT_FROM else None
        content = None if key is None else _recent.get(key)
        if content is None:
            with _room(image):
                content = make(_decoded(image, column, label))
            if key is not None:
                _recent.put(key, content)
        return content

    labels, cells = list(series.index), list(series)
    if not cells:
        return RowInputs(torch.zeros(0, 3, 1, 1, dtype=torch.uint8))
    first = load(labels[0], cells[0])
    if first.nbytes * len(cells) <= IN_MEMORY:
        return RowInputs(torch.stack(map_rows(load, zip(labels, cells, strict=True))))
    map_rows(lambda label, cell: load(label, cell) is None, zip(labels, cells, strict=True))
    return LazyInputs(cells, lambda row, cell: load(labels[row], cell))


class _Recent:
    """The latest prepared images, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._images: OrderedDict[tuple[bytes, str], Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[bytes, str]) -> Tensor | None:
        """The prepared image, or None."""
        with self._lock:
            if key in self._images:
                self._images.move_to_end(key)
            return self._images.get(key)

    def put(self, key: tuple[bytes, str], image: Tensor) -> None:
        """Keep an image; the oldest go."""
        with self._lock:
            if key not in self._images:
                self._images[key] = image
                self.size += image.nbytes
            while self.size > self.most:
                self.size -= self._images.popitem(last=False)[1].nbytes


_recent = _Recent(64 * 2**20)


def import_pillow() -> Any:
    """The package PIL, with the modules that are used here."""
    for module in ("PIL.Image", "PIL.ImageOps"):
        optional_import("image", module, "image", "pillow")
    return optional_import("image", "PIL", "image", "pillow")
