"""Image and sound files that are odd, broken or made to harm: each with what must come of it."""

import io
import os
import struct
import zlib

import numpy as np
import soundfile
from PIL import Image, ImageSequence  # noqa: F401 the second registers readers of animations

RESULT, REFUSED, EITHER = (0,), (2,), (0, 2)


def picture(mode="RGB", size=(40, 30)):
    """A small image of some mode."""
    ramp = np.linspace(0, 255, size[0] * size[1] * 3).astype(np.uint8).reshape(size[1], size[0], 3)
    image = Image.fromarray(ramp)
    if mode == "I;16":
        return Image.fromarray(ramp[:, :, 0].astype(np.uint16) * 257)
    return image.convert(mode)


def encoded(image, form="PNG", **settings):
    """The bytes of an image file."""
    file = io.BytesIO()
    image.save(file, form, **settings)
    return file.getvalue()


def plain(side, form="PNG", mode="1"):
    """A large image of one color."""
    return encoded(Image.new(mode, side), form)


def png_of_size(width, height):
    """A PNG that says it has this size, and holds next to nothing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 10)), (b"IEND", b"")]
    made = b"\x89PNG\r\n\x1a\n"
    for name, content in chunks:
        made += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return made


def png_with_text(size):
    """A PNG whose comment unpacks to ``size`` bytes."""
    raw = encoded(picture())
    content = b"Comment\0\0" + zlib.compress(b"x" * size)
    chunk = struct.pack(">I", len(content)) + b"zTXt" + content + struct.pack(">I", zlib.crc32(b"zTXt" + content))
    return raw[:33] + chunk + raw[33:]


def bmp_of_size(width, height):
    """The same as BMP."""
    return b"BM" + struct.pack("<IHHI", 200, 0, 0, 54) + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, *[0] * 6)


def tiff_of_size(width, height):
    """The same as TIFF, with one strip of 2 GiB."""
    tags = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, height), (279, 2**31)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + b"\0" * 4


def animated(form):
    """Three frames."""
    frames = [picture("RGB").rotate(angle) for angle in (0, 90, 180)]
    return encoded(frames[0], form, save_all=True, append_images=frames[1:])


def turned():
    """A photo that was taken sideways."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(picture(), "JPEG", exif=exif)


IMAGES = {
    "rgb": (lambda: encoded(picture()), RESULT),
    "gray": (lambda: encoded(picture("L")), RESULT),
    "gray-alpha": (lambda: encoded(picture("LA")), RESULT),
    "alpha": (lambda: encoded(picture("RGBA")), RESULT),
    "palette": (lambda: encoded(picture("P")), RESULT),
    "palette-transparent": (lambda: encoded(picture("P"), transparency=3), RESULT),
    "bilevel": (lambda: encoded(picture("1")), RESULT),
    "16-bit": (lambda: encoded(picture("I;16")), RESULT),
    "32-bit": (lambda: encoded(picture("I"), "TIFF"), RESULT),
    "floating": (lambda: encoded(picture("F"), "TIFF"), RESULT),
    "floating-nan": (lambda: encoded(Image.fromarray(np.full((9, 9), np.nan, np.float32)), "TIFF"), EITHER),
    "cmyk": (lambda: encoded(picture("CMYK"), "JPEG"), RESULT),
    "lab": (lambda: encoded(picture("LAB"), "TIFF"), EITHER),
    "bmp": (lambda: encoded(picture(), "BMP"), RESULT),
    "ppm": (lambda: encoded(picture(), "PPM"), RESULT),
    "gif": (lambda: animated("GIF"), RESULT),
    "webp": (lambda: animated("WEBP"), RESULT),
    "apng": (lambda: animated("PNG"), RESULT),
    "pages": (lambda: animated("TIFF"), RESULT),
    "sideways": (turned, RESULT),
    "one-pixel": (lambda: encoded(picture(size=(1, 1))), RESULT),
    "ribbon": (lambda: encoded(picture(size=(500, 5))), RESULT),
    "49-megapixels": (lambda: plain((7000, 7000), mode="RGB"), RESULT),
    "needle": (lambda: encoded(Image.new("L", (1, 20_000))), REFUSED),
    "line": (lambda: encoded(Image.new("L", (20_000, 1))), REFUSED),
    "50-megapixels": (lambda: plain((10_000, 5001)), REFUSED),
    "declared-png": (lambda: png_of_size(2**31 - 1, 2**31 - 1), REFUSED),
    "declared-png-wide": (lambda: png_of_size(7000, 7000), REFUSED),
    "declared-bmp": (lambda: bmp_of_size(2**30, 2**30), REFUSED),
    "declared-bmp-negative": (lambda: bmp_of_size(-5, 2**30), REFUSED),
    "declared-tiff": (lambda: tiff_of_size(60_000, 60_000), REFUSED),
    "declared-tiff-strip": (lambda: tiff_of_size(600, 600), REFUSED),
    "comment": (lambda: png_with_text(300 << 20), EITHER),
    "cut-png": (lambda: encoded(picture())[:100], REFUSED),
    "cut-jpeg": (lambda: encoded(picture(), "JPEG")[:-100], REFUSED),
    "empty": (lambda: b"", REFUSED),
    "text": (lambda: b"no image at all", REFUSED),
    "svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:9/'/></svg>", REFUSED),
    "postscript": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n", REFUSED),
    "sound": (lambda: sound(), REFUSED),
}
"""Image files by name: bytes, and the exit codes that are right."""


def sound(samples=4000, rate=16_000, channels=1, form="WAV", subtype=None, value=0.5):
    """The bytes of a sound file."""
    wave = np.sin(np.arange(samples) / 9.0) * value if np.isfinite(value) else np.full(samples, value)
    file = io.BytesIO()
    soundfile.write(file, np.repeat(wave[:, None], channels, axis=1), rate, format=form, subtype=subtype)
    return file.getvalue()


def wav_that_says(*, channels=1, rate=16_000, size=None, data=b"\0" * 400):
    """A WAV file with just this head."""
    size = len(data) if size is None else size
    head = struct.pack("<HHIIHH", 1, channels, rate, (2 * channels * rate) % 2**32, (2 * channels) % 2**16, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", size % 2**32) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def flac_that_says(samples, rate=16_000):
    """A FLAC file of 4,000 samples that says it has others."""
    raw = bytearray(sound(form="FLAC"))
    info = int.from_bytes(raw[18:26], "big")  # rate in 20 bits, channels in 3, sample size in 5, samples in 36
    kept = info & (0xFF << 36)
    raw[18:26] = (rate << 44 | kept | samples).to_bytes(8, "big")
    return bytes(raw)


SOUNDS = {
    "wav": (lambda: sound(), RESULT),
    "8-bit": (lambda: sound(subtype="PCM_U8"), RESULT),
    "24-bit": (lambda: sound(subtype="PCM_24"), RESULT),
    "float": (lambda: sound(subtype="FLOAT"), RESULT),
    "double": (lambda: sound(subtype="DOUBLE"), RESULT),
    "stereo": (lambda: sound(channels=2), RESULT),
    "16-channels": (lambda: sound(channels=16), RESULT),
    "flac": (lambda: sound(form="FLAC"), RESULT),
    "ogg": (lambda: sound(form="OGG"), RESULT),
    "mp3": (lambda: sound(form="MP3"), RESULT),
    "one-sample": (lambda: sound(1), RESULT),
    "100-hertz": (lambda: sound(500, 100), RESULT),
    "192-kilohertz": (lambda: sound(40_000, 192_000), RESULT),
    "odd-rate": (lambda: sound(rate=44_101), RESULT),
    "ten-minutes": (lambda: sound(600 * 48_000, 48_000, form="FLAC", value=0.0), RESULT),
    "eleven-minutes": (lambda: sound(660 * 8000, 8000, form="FLAC", value=0.0), REFUSED),
    "no-samples": (lambda: sound(0), REFUSED),
    "nan": (lambda: sound(subtype="FLOAT", value=np.nan), REFUSED),
    "infinite": (lambda: sound(subtype="FLOAT", value=np.inf), REFUSED),
    "huge-values": (lambda: sound(subtype="FLOAT", value=3e38), EITHER),
    "64-channels": (lambda: sound(40, channels=64), REFUSED),
    "no-channels": (lambda: wav_that_says(channels=0), REFUSED),
    "channels-of-a-bomb": (lambda: wav_that_says(channels=65_535), REFUSED),
    "rate-of-a-bomb": (lambda: wav_that_says(rate=2**31 - 1), REFUSED),
    "prime-rate": (lambda: wav_that_says(rate=767_957), RESULT),
    "no-rate": (lambda: wav_that_says(rate=0), REFUSED),
    "declared-wav": (lambda: wav_that_says(size=2**32 - 1), EITHER),
    "declared-flac": (lambda: flac_that_says(2**36 - 1), REFUSED),
    "declared-flac-rate": (lambda: flac_that_says(390_000_000, 655_350), REFUSED),
    "undeclared-flac": (lambda: flac_that_says(0), EITHER),
    "cut-wav": (lambda: sound()[:3000], REFUSED),
    "cut-flac": (lambda: sound(form="FLAC")[:900], REFUSED),
    "empty": (lambda: b"", REFUSED),
    "text": (lambda: b"no sound at all", REFUSED),
    "image": (lambda: encoded(picture()), REFUSED),
}
"""Sound files by name: bytes, and the exit codes that are right."""


def put_pipe(path):
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def put_sparse(path):
    """6 GB of nothing."""
    with path.open("wb") as file:
        file.truncate(6_000_000_000)


def put_link_out(path):
    """A link to a file outside of the folder of the table."""
    outside = path.parent.with_name("outside")
    outside.write_bytes(encoded(picture()))
    path.symlink_to(outside)


PLACES = {
    "pipe": put_pipe,
    "sparse": put_sparse,
    "folder": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link-out": put_link_out,
    "link-ring": lambda path: path.symlink_to(path.name),
}
"""What may stand in the place of a file; all are refused."""
