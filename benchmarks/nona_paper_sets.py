"""The ten data sets of the paper's Table 1, each from a folder in its public layout, as a table for `vicinal fit`.

What the paper says of a set (section 5, appendix C) is done; what only the authors' public code says is done as they
do it (gray images squeezed to 224 by 224, rows split with labels in bins); where neither says it, the docstring of the
loader says what was chosen. Nothing is downloaded here.

    python benchmarks/nona_paper_sets.py --set rsna --data FOLDER --out runs/rsna
"""

import shlex
import sqlite3
import wave
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from resumable import asked

from vicinal.data import Split, make_splits
from vicinal.encoders.sounds import RATE, open_sound

BINS = 10
"""Bins of a label, of equal numbers of rows, by which splits are stratified; the paper has bins, and not how many."""
SIDE = 224
SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
COUGHS, REVIEWS = 6_250, 1_500
"""Rows that the paper has of CoughVid and of Pitchfork."""
EVERY = 5
"""One frame of so many of the road: 20 a second become 4."""


@dataclass(frozen=True)
class PaperSet:
    """A table and what to learn from it.

    Attributes:
        name: of the set.
        frame: one row a thing: ``id``, the column of texts or of paths, the target; ``group`` where rows belong
            together.
        kind: "image", "text" or "audio".
        column: that of the things.
        target: that of the labels.
        root: the folder that paths start from.
        stratified: whether splits keep the shares of the label's bins.
    """

    name: str
    frame: pd.DataFrame
    kind: str
    column: str
    target: str
    root: Path
    stratified: bool = True

    def bins(self) -> np.ndarray | None:
        """The bin of each row's label ``[n]``."""
        if not self.stratified:
            return None
        ranks = self.frame[self.target].rank(method="first")
        return pd.qcut(ranks, min(BINS, len(ranks) // 3), labels=False).to_numpy()

    def splits(self, number: int) -> list[Split]:
        """80/20, then 85/15 of the rest."""
        return make_splits(len(self.frame), number=number, stratify=self.bins())

    @property
    def encoder(self) -> str:
        """The paper's extractor for this set."""
        return EXTRACTORS[self.name]

    def command(self, table: str) -> str:
        """The command that trains the encoder along, by the paper's recipe."""
        dropped = " --drop group" if "group" in self.frame else ""
        return (
            f"vicinal fit {shlex.quote(table)} --target {self.target} --id id --{self.kind} {self.column}{dropped} "
            f"--root {shlex.quote(str(self.root))} --encoder {self.column}={self.encoder} --preset nona"
        )


def existing(name: str, path: Path, hint: str) -> Path:
    """``path``, or one sentence that says what was expected."""
    if not path.exists():
        raise ValueError(f"{name}: expected {path.name} in {path.parent}, got none; {hint}")
    return path


def first_of(name: str, folder: Path, names: Iterable[str], hint: str) -> Path:
    """The first of ``names`` that is in ``folder``."""
    names = list(names)
    for each in names:
        if (folder / each).exists():
            return folder / each
    raise ValueError(f"{name}: expected {' or '.join(names)} in {folder}, got none; {hint}")


def columns_of(name: str, path: Path, frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """``frame``, which has the columns ``names``."""
    missing = [each for each in names if each not in frame]
    if missing:
        raise ValueError(
            f"{name}: expected a column {missing[0]!r} in {path.name}, got {', '.join(map(str, frame.columns[:8]))}"
        )
    return frame


def there(name: str, frame: pd.DataFrame, column: str, root: Path) -> pd.DataFrame:
    """The rows whose file is there; none at all is an error that names the first that is missing."""
    found = [(root / path).is_file() for path in frame[column]]
    if not any(found):
        first = frame[column].iloc[0] if len(frame) else "any"
        raise ValueError(f"{name}: expected files such as {first} in {root}, got none of {len(frame)}")
    return frame[found].reset_index(drop=True)


def draw(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """At most ``rows`` rows, drawn with seed 0, in their order."""
    if len(frame) <= rows:
        return frame.reset_index(drop=True)
    rows = np.sort(np.random.default_rng(0).choice(len(frame), rows, replace=False))
    return frame.iloc[rows].reset_index(drop=True)


def gray_images(images: Iterable, names: Iterable[str], folder: Path) -> list[str]:
    """Write images gray, in three channels, squeezed to 224 by 224, as the authors' code does; gives their paths."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for image, name in zip(images, names, strict=True):
        path = folder / f"{name}.png"
        if not path.is_file():
            with image if isinstance(image, Image.Image) else Image.open(image) as opened:
                gray = opened.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR).convert("RGB")
            aside = folder / f".{name}.png"
            gray.save(aside)
            aside.replace(path)
        paths.append(path.name)
    return paths


def sounds_of(folder: Path) -> dict[str, Path]:
    """The sounds of a folder by their names without the ending."""
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in SOUNDS}


def write_sound(path: Path, samples: np.ndarray) -> None:
    """Write ``samples [n]``, from -1 to 1 at 16,000 a second, as a .wav of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("." + path.name)
    with wave.open(str(aside), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples.clip(-1, 1) * 32_767).round().astype("<i2").tobytes())
    aside.replace(path)


def loudest_second(samples: np.ndarray) -> np.ndarray:
    """The second ``[16000]`` with the largest sum of squares; a shorter sound is padded with silence."""
    if len(samples) <= RATE:
        return np.pad(samples, (0, RATE - len(samples)))
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    start = int(np.argmax(energy[RATE:] - energy[:-RATE]))
    return samples[start : start + RATE]


def rsna(folder: Path, work: Path) -> PaperSet:
    """RSNA bone age: age of the bones in months, from an X-ray of the hand; 14,036 images.

    Expected: ``boneage-training-dataset.csv`` (id, boneage, male) and ``boneage-training-dataset/ID.png``, also one
    folder deeper, as the archive of Kaggle "rsna-bone-age" unpacks. 12,611 images are these, and 1,425 those of the
    challenge's validation part, if it is there: ``Validation Dataset.csv`` (Image ID, male, Bone Age (months)) and
    ``boneage-validation-dataset-1`` and ``-2``.
    """
    hint = "unpack the training part of the RSNA bone age challenge there"
    path = existing("rsna", folder / "boneage-training-dataset.csv", hint)
    table = columns_of("rsna", path, pd.read_csv(path), ("id", "boneage"))[["id", "boneage"]]
    images = existing("rsna", folder / "boneage-training-dataset", hint)
    others = folder / "Validation Dataset.csv"
    if others.is_file():
        names = {"Image ID": "id", "Bone Age (months)": "boneage"}
        second = columns_of("rsna", others, pd.read_csv(others), names).rename(columns=names)
        table = pd.concat([table, second[["id", "boneage"]]], ignore_index=True)
    files = {
        each.stem: each
        for part in (images, *folder.glob("boneage-validation-dataset*"))
        for each in part.rglob("*.png")
    }
    frame = pd.DataFrame({"id": table["id"].astype(str), "boneage": table["boneage"].astype(float)})
    frame = frame[frame["id"].isin(files)].reset_index(drop=True)
    if frame.empty:
        raise ValueError(f"rsna: expected files such as {table['id'].iloc[0]}.png in {images}, got none; {hint}")
    frame["image"] = gray_images([files[name] for name in frame["id"]], frame["id"], work)
    return PaperSet("rsna", frame, "image", "image", "boneage", work)


def brifiseg(folder: Path, work: Path) -> PaperSet:
    """MedSegBench BriFiSeg: the area of the mask of a brightfield image, in pixels.

    Expected: ``brifiseg_256.npz`` (or _512, _128) of MedSegBench, with ``train_images``, ``train_label`` and so on
    ``[n, side, side]``. The three parts are pooled and split anew.
    """
    names = [f"brifiseg_{side}.npz" for side in (256, 512, 128)]
    path = first_of("brifiseg", folder, names, "get it from the archive of MedSegBench")
    from PIL import Image

    arrays, areas, ids = [], [], []
    with np.load(path, allow_pickle=False) as stored:
        for part in ("train", "val", "test"):
            for key in (f"{part}_images", f"{part}_label"):
                if key not in stored:
                    raise ValueError(f"brifiseg: expected an array {key!r} in {path.name}, got {', '.join(stored)}")
            images, masks = stored[f"{part}_images"], stored[f"{part}_label"]
            arrays += list(images.reshape(len(images), *images.shape[1:3]))
            areas += [float((mask > 0).sum()) for mask in masks]
            ids += [f"{part}-{number:04d}" for number in range(len(images))]
    paths = gray_images((Image.fromarray(array) for array in arrays), ids, work)
    frame = pd.DataFrame({"id": ids, "image": paths, "area": areas})
    return PaperSet("brifiseg", frame, "image", "image", "area", work)


def adresso(folder: Path, work: Path) -> PaperSet:
    """ADReSSo 2021: the score of a mini-mental state examination, from the transcript of a recording; 237 of them.

    Expected: ``diagnosis/train/adresso-train-mmse-scores.csv`` (adressfname, dx, mmse) and a transcript of each
    recording, ``diagnosis/train/text/ad/ID.txt`` and ``.../cn/ID.txt``: the set itself has sounds only
    (``audio/ad/ID.wav``), so write transcripts with a speech recognizer first; the paper does not say which one it
    used. 166 recordings are these, and 71 those of the challenge's test, which are pooled with them and split anew:
    ``diagnosis/test-dist/text/ID.txt`` and ``diagnosis/test-dist/adresso-test-mmse-scores.csv`` (ID or adressfname, and
    mmse; the file's name is this loader's).
    """
    del work
    hint = "ask DementiaBank for the diagnosis part of ADReSSo"
    train = folder / "diagnosis" / "train"
    frame = _scores("adresso", existing("adresso", train / "adresso-train-mmse-scores.csv", hint))
    texts = {path.stem: path for path in sorted((train / "text").glob("*/*.txt"))}
    scores = folder / "diagnosis" / "test-dist" / "adresso-test-mmse-scores.csv"
    if scores.is_file():
        texts |= {path.stem: path for path in sorted((scores.parent / "text").glob("*.txt"))}
        frame = pd.concat([frame, _scores("adresso", scores)], ignore_index=True)
    frame = frame[frame["id"].isin(texts)].reset_index(drop=True)
    if frame.empty:
        raise ValueError(
            f"adresso: expected transcripts such as text/ad/ID.txt in {train}, got none; write them from audio/ with a "
            f"speech recognizer"
        )
    frame["text"] = [texts[name].read_text(encoding="utf-8").strip() for name in frame["id"]]
    return PaperSet("adresso", frame, "text", "text", "mmse", folder)


def _scores(name: str, path: Path) -> pd.DataFrame:
    """``id`` and ``mmse`` of a table of scores; a row without a score is left out."""
    table = pd.read_csv(path)
    table = table.rename(columns={each: each.lower() for each in table.columns})
    table = columns_of(name, path, table.rename(columns={"adressfname": "id"}), ("id", "mmse"))
    table = pd.DataFrame({"id": table["id"].astype(str).str.strip(), "mmse": table["mmse"].astype(float)})
    return table[table["mmse"].notna()].reset_index(drop=True)


def coughvid(folder: Path, work: Path) -> PaperSet:
    """CoughVid: age in years, from one second of a cough; 6,250 recordings.

    Expected: ``metadata_compiled.csv`` (uuid, age), in the folder or in ``public_dataset``, and the sounds beside it as
    .wav, .flac, .ogg or .mp3. Most are published as .webm, which is not read here:
    ``for f in *.webm; do ffmpeg -i "$f" -ar 16000 "${f%.webm}.wav"; done``. Rows without an age are left out, and of
    more than 6,250 that many are drawn. The second is the loudest one; the paper does not say which it takes.
    """
    hint = "unpack the public data set of CoughVid there"
    names = ("metadata_compiled.csv", "public_dataset/metadata_compiled.csv")
    path = first_of("coughvid", folder, names, hint)
    table = columns_of("coughvid", path, pd.read_csv(path), ("uuid", "age"))
    age = pd.to_numeric(table["age"], errors="coerce")
    files = sounds_of(path.parent)
    frame = pd.DataFrame({"id": table["uuid"].astype(str), "age": age})[age.between(1, 120)]
    frame = draw(frame[frame["id"].isin(files)], COUGHS)
    if frame.empty:
        webm = len(list(path.parent.glob("*.webm")))
        raise ValueError(
            f"coughvid: expected sounds named by their uuid ({', '.join(SOUNDS)}) in {path.parent}, got none and "
            f"{webm} of .webm; turn those into .wav with ffmpeg"
        )
    for name in frame["id"]:
        if not (work / f"{name}.wav").is_file():
            write_sound(work / f"{name}.wav", loudest_second(read_sound(files[name])))
    frame["audio"] = frame["id"] + ".wav"
    return PaperSet("coughvid", frame, "audio", "audio", "age", work)


def read_sound(path: Path) -> np.ndarray:
    """Samples ``[n]`` at 16,000 a second."""
    return open_sound(path.read_bytes(), column="audio", row=path.name).numpy()


def nosemic(folder: Path, work: Path) -> PaperSet:
    """NoseMic: heart rate in beats a minute, from 30 seconds of sound in the ear canal, denoised; 1,297 recordings.

    Expected: ``audio/PERSON_x_x_RATE.wav``: the last part of the name is the label. Denoising is that of the package
    noisereduce, as in the paper. The paper splits by recordings, so that a person may be on both sides; ``group`` has
    the persons, for ``vicinal fit --group group``, which is the harder and the honest question. The benchmark OPERA
    hands out recordings under the same name whose rate is that of breaths; the label is whatever the names say.
    """
    try:
        from noisereduce import reduce_noise
    except ImportError as error:
        raise ValueError("nosemic: expected the package noisereduce, got none; pip install noisereduce") from error
    audio = existing("nosemic", folder / "audio", "put the recordings of NoseMic there")
    rows = []
    for name, path in sounds_of(audio).items():
        parts = name.split("_")
        try:
            rows.append((name, f"{name}.wav", float(parts[-1]), parts[0]))
        except ValueError as error:
            raise ValueError(
                f"nosemic: expected a name that ends in _RATE, a number of beats a minute, got {path.name}"
            ) from error
        if not (work / f"{name}.wav").is_file():
            write_sound(work / f"{name}.wav", reduce_noise(y=read_sound(path), sr=RATE))
    if not rows:
        raise ValueError(f"nosemic: expected recordings PERSON_x_x_RATE.wav in {audio}, got none")
    frame = pd.DataFrame(rows, columns=["id", "audio", "heart_rate", "group"])
    return PaperSet("nosemic", frame, "audio", "audio", "heart_rate", work)


def udacity(folder: Path, work: Path) -> PaperSet:
    """Udacity steering: the angle of the wheel, from a frame of the center camera, 4 frames a second; 6,762 images.

    Expected: ``interpolated.csv`` of the second challenge (frame_id, filename, angle) with the images it names. The
    camera has 20 frames a second, so every fifth is taken; of the 33,808 of the challenge's training part these are
    6,762. They are split without bins, as in the authors' code; frames that follow each other are on both sides, so the
    error is that of interpolating a drive.
    """
    path = existing("udacity", folder / "interpolated.csv", "extract the frames of the second challenge there")
    table = columns_of("udacity", path, pd.read_csv(path), ("frame_id", "filename", "angle"))
    table = table[table["frame_id"].astype(str).str.startswith("center")].iloc[::EVERY]
    frame = pd.DataFrame({"file": table["filename"].astype(str), "angle": table["angle"].astype(float)})
    frame = there("udacity", frame.reset_index(drop=True), "file", folder)
    frame.insert(0, "id", [Path(file).stem for file in frame["file"]])
    frame["image"] = gray_images([folder / file for file in frame["file"]], frame["id"], work)
    return PaperSet("udacity", frame.drop(columns="file"), "image", "image", "angle", work, stratified=False)


def pitchfork(folder: Path, work: Path) -> PaperSet:
    """Pitchfork reviews: the score of an album, 0 to 10, from the review; 1,500 drawn of 24,649.

    Expected: ``reviews.csv`` (text, score), or ``database.sqlite`` of Kaggle's 18,393 reviews (tables reviews:
    reviewid, score; content: reviewid, content). They are split without bins, as in the authors' code.
    """
    del work
    path = first_of("pitchfork", folder, ("reviews.csv", "database.sqlite"), "put the reviews there")
    if path.suffix == ".csv":
        frame = columns_of("pitchfork", path, pd.read_csv(path), ("text", "score"))
        frame = pd.DataFrame({"id": np.arange(len(frame)), "text": frame["text"], "score": frame["score"]})
    else:
        query = "select r.reviewid as id, c.content as text, r.score from reviews r join content c using (reviewid)"
        try:
            with closing(sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)) as base:
                frame = pd.read_sql(query, base)
        except (sqlite3.Error, pd.errors.DatabaseError) as error:
            raise ValueError(
                f"pitchfork: expected tables reviews (reviewid, score) and content (reviewid, content) in {path.name}, "
                f"got {str(error).splitlines()[-1]}"
            ) from error
        frame = frame.drop_duplicates("id")
    frame = frame[frame["text"].astype(str).str.strip().ne("") & frame["text"].notna()]
    frame["score"] = frame["score"].astype(float)
    return PaperSet("pitchfork", draw(frame, REVIEWS), "text", "text", "score", folder, stratified=False)


def houses(folder: Path, work: Path) -> PaperSet:
    """Houses: the logarithm of the price, from the photo of the front; 535 houses.

    Expected: ``HousesInfo.txt`` (a line a house: bedrooms, bathrooms, area, zip code, price) and ``N_frontal.jpg``, N
    from 1, also in a folder "Houses Dataset"; or ``houses.csv`` (id, price) and ``frontal256/ID.jpg``, ID of three
    digits. The photos stay in color: ResNet's processor brings them to 256, cuts 224 out of the middle and normalizes.
    """
    del work
    path = first_of(
        "houses", folder, ("HousesInfo.txt", "Houses Dataset/HousesInfo.txt", "houses.csv"), "unpack it there"
    )
    if path.suffix == ".csv":
        table = columns_of("houses", path, pd.read_csv(path), ("id", "price"))
        files = [f"frontal256/{number:03d}.jpg" for number in table["id"]]
    else:
        table = pd.read_csv(path, sep=r"\s+", header=None).rename(columns={4: "price"})
        table = columns_of("houses", path, table, ("price",)).assign(id=np.arange(1, len(table) + 1))
        files = [f"{number}_frontal.jpg" for number in table["id"]]
    frame = pd.DataFrame({"id": table["id"], "image": files, "log_price": np.log(table["price"].astype(float))})
    return PaperSet("houses", there("houses", frame, "image", path.parent), "image", "image", "log_price", path.parent)


def books(folder: Path, work: Path) -> PaperSet:
    """Books of MachineHack: the logarithm of the price, from the synopsis; 6,237 books.

    Expected: ``book_prices.parquet`` (synopsis, price), or ``Data_Train.csv`` (Synopsis, Price), the challenge's table.
    """
    del work
    path = first_of("books", folder, ("book_prices.parquet", "Data_Train.csv"), "put the table of the challenge there")
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    table = table.rename(columns={each: each.lower() for each in table.columns})
    table = columns_of("books", path, table, ("synopsis", "price"))
    table = table[table["synopsis"].notna() & (table["price"] > 0)].reset_index(drop=True)
    frame = pd.DataFrame({"id": table.index, "text": table["synopsis"].astype(str)})
    frame["log_price"] = np.log10(table["price"].astype(float))
    return PaperSet("books", frame, "text", "text", "log_price", folder)


def austin(folder: Path, work: Path) -> PaperSet:
    """Austin housing (Kaggle "austinhousingprices"): the logarithm of the price of a house, from its description.

    Expected: ``austinHousingData.csv`` (zpid, description, latestPrice), of over 15,000 houses.
    """
    del work
    path = existing("austin", folder / "austinHousingData.csv", "unpack the Austin housing prices there")
    table = columns_of("austin", path, pd.read_csv(path), ("zpid", "description", "latestPrice"))
    table = table[(table["latestPrice"] > 0) & table["description"].notna()].drop_duplicates("zpid")
    frame = pd.DataFrame({"id": table["zpid"].astype(str), "text": table["description"].astype(str)})
    frame["log_price"] = np.log10(table["latestPrice"].astype(float))
    return PaperSet("austin", frame.reset_index(drop=True), "text", "text", "log_price", folder)


EXTRACTORS = {
    "rsna": "hub:microsoft/resnet-18",
    "brifiseg": "hub:google/efficientnet-b0",
    "adresso": "hub:distilbert/distilbert-base-uncased",
    "coughvid": "hub:facebook/hubert-base-ls960",
    "nosemic": "hub:openai/whisper-tiny",
    "udacity": "hub:google/efficientnet-b0",
    "pitchfork": "hub:google-bert/bert-base-uncased",
    "houses": "hub:microsoft/resnet-34",
    "books": "hub:distilbert/distilbert-base-uncased",
    "austin": "hub:distilbert/distilbert-base-uncased",
}
"""One for each set, those of appendix C; which EfficientNet it is the paper leaves to its code, which has B0."""

LOADERS: dict[str, Callable[[Path, Path], PaperSet]] = {
    loader.__name__: loader
    for loader in (rsna, brifiseg, adresso, coughvid, nosemic, udacity, pitchfork, houses, books, austin)
}


def load_paper_set(name: str, folder: Path, work: Path) -> PaperSet:
    """A set from the user's ``folder``; images made ready go to ``work``.

    Raises:
        ValueError: in one sentence, for an unknown name and for what is missing.
    """
    if name not in LOADERS:
        raise ValueError(f"set: expected one of {', '.join(LOADERS)}, got {name!r}")
    if not folder.is_dir():
        raise ValueError(f"{name}: expected a folder, got {folder}")
    return LOADERS[name](folder, work)


def main() -> None:
    given = asked(__doc__, set=str, data=Path, out=Path)
    given.out.mkdir(parents=True, exist_ok=True)
    data = load_paper_set(given.set, given.data, given.out / "images")
    path = given.out / f"{data.name}.parquet"
    data.frame.to_parquet(path, index=False)
    print(f"{path}: {len(data.frame)} rows. To train with the encoder, as the paper does:")
    print("  " + data.command(str(path)))


if __name__ == "__main__":
    main()
