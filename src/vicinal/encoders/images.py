"""Columns of images: reading them safely, and holding them as bytes of one size."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.encoders.base import refuse
from vicinal.encoders.inputs import Inputs, LazyInputs, RowInputs
from vicinal.encoders.media import map_rows, read_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image

MOST_PIXELS = 50_000_000
"""Pixels of the largest image that is decoded: a small file can hold an image that fills the memory."""

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What is decoded: no format that starts another program or reads other files."""

IN_MEMORY = 2**30
"""Bytes of prepared images that a column may hold; beyond, each batch is decoded again."""


def open_image(data: bytes, *, column: str, row: object) -> "Image":
    """Decode an image to RGB, turned as its camera says, transparent parts white; the first frame of several.

    Raises:
        ValueError: for what is no image, is cut short, or has more than ``MOST_PIXELS`` pixels.
    """
    pil = import_pillow()
    limit = f"an image of at most {MOST_PIXELS // 10**6} megapixels"
    try:
        image = pil.Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
        if width * height <= MOST_PIXELS:
            image.load()
            upright: Image = pil.ImageOps.exif_transpose(image)
            return to_rgb(upright)
    except pil.UnidentifiedImageError:
        wanted = f"an image ({', '.join(FORMATS)})"
        raise refuse(column, row, wanted, f"{len(data)} bytes that are none", "replace the file") from None
    except (pil.Image.DecompressionBombError, pil.Image.DecompressionBombWarning) as error:
        raise refuse(column, row, limit, "a far larger one", "make it smaller") from error
    except Exception as error:  # decoders of damaged files raise nearly every class there is
        got = f"one that cannot be decoded ({error})"
        raise refuse(column, row, "a whole image", got, "the file is cut short or damaged: replace it") from None
    raise refuse(column, row, limit, f"{width} x {height}", "make it smaller")


def to_rgb(image: "Image") -> "Image":
    """An image in RGB, transparent parts on white, 16-bit gray scaled to 8 bits."""
    pil = import_pillow()
    if image.mode.startswith("I;16"):
        gray: Image = pil.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return gray.convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = pil.Image.new("RGBA", image.size, "white")
        image = pil.Image.alpha_composite(ground, image)
    return image.convert("RGB")


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
    series: "pd.Series[Any]", column: str, root: Path | None, make: "Callable[[Image], Tensor]"
) -> Inputs:
    """Decode all images once, so that each is known to be whole; hold what ``make`` gives while it fits.

    Raises:
        ValueError: naming the row of the first image that cannot be used.
    """

    def load(label: object, cell: Any) -> Tensor:
        data = read_cell(cell, column=column, row=label, wanted="an image", root=root)
        return make(open_image(data, column=column, row=label))

    labels, cells = list(series.index), list(series)
    if not cells:
        return RowInputs(torch.zeros(0, 3, 1, 1, dtype=torch.uint8))
    first = load(labels[0], cells[0])
    if first.nbytes * len(cells) <= IN_MEMORY:
        return RowInputs(torch.stack(map_rows(load, zip(labels, cells, strict=True))))
    map_rows(lambda label, cell: load(label, cell) is None, zip(labels, cells, strict=True))
    return LazyInputs(cells, lambda row, cell: load(labels[row], cell))


def import_pillow() -> Any:
    """The package PIL, or a sentence on how to get it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise ValueError(
            "image: expected the package pillow, got none; install it with pip install 'vicinal[image]'"
        ) from error
    return PIL
