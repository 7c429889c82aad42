"""Eight data sets of the paper's Table 1, each from a folder in its public lay-out, as a table for `vicinal fit`.

Houses and books, the other two, are at hand and stand in ``sets.py``. Nothing is downloaded here. What the authors'
code says is done as they do it (gray images of 224 by 224, labels between 0 and 1 by their range, rows split 80/20 and
then 85/15 with labels in bins); where it does not say, the docstring of the loader says what was chosen.

    python benchmarks/nona/paper_sets.py rsna --data FOLDER --out runs/rsna
"""

import argparse
import shlex
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from vicinal.data import Split, make_splits

BINS = 10
"""Bins of a label, of equal numbers of rows, by which splits are stratified; the paper has bins, and not how many."""
SIDE = 224
SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
SURE_COUGH = 0.8
"""Recordings that are less surely coughs are left out, as those who made the set advise."""
FRAMES, REVIEWS = 15_000, 1_500  # rows that the authors' code draws


@dataclass(frozen=True)
class PaperSet:
    """A table and what to learn from it.

    Attributes:
        name: of the set.
        frame: one row a thing: ``id``, the column of texts or of paths, the target; ``group`` where rows belong
            together, ``tested`` where the set has rows of its own to test on.
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
        """80/20, then 85/15 of the rest; a set with rows of its own to test on: 85/15 of the others."""
        bins = self.bins()
        if "tested" not in self.frame:
            return make_splits(len(self.frame), number=number, stratify=bins)
        tested = np.flatnonzero(self.frame["tested"])
        others = np.flatnonzero(~self.frame["tested"])
        inner = make_splits(len(others), number=number, test=0.15, stratify=None if bins is None else bins[others])
        return [
            Split(others[np.sort(np.concatenate([s.train, s.validation]))], others[s.test], tested, s.seed)
            for s in inner
        ]

    def command(self, table: str, encoder: str) -> str:
        """The command that trains the encoder along, as the paper does."""
        dropped = "".join(f" --drop {name}" for name in ("group", "tested") if name in self.frame)
        return (
            f"vicinal fit {shlex.quote(table)} --target {self.target} --id id --{self.kind} {self.column}{dropped} "
            f"--root {shlex.quote(str(self.root))} --encoder {self.column}={encoder} --tune all"
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


def rsna(folder: Path, work: Path) -> PaperSet:
    """RSNA bone age (Kaggle "rsna-bone-age"): age of the bones in months, from an X-ray of the hand.

    Expected: ``boneage-training-dataset.csv`` (id, boneage, male) and ``boneage-training-dataset/ID.png``, also one
    folder deeper, as the archive unpacks.
    """
    hint = "unpack the training part of the RSNA bone age challenge there"
    path = existing("rsna", folder / "boneage-training-dataset.csv", hint)
    table = columns_of("rsna", path, pd.read_csv(path), ("id", "boneage"))
    images = existing("rsna", folder / "boneage-training-dataset", hint)
    images = images / images.name if (images / images.name).is_dir() else images
    frame = pd.DataFrame({"id": table["id"].astype(str), "boneage": table["boneage"].astype(float)})
    frame["image"] = frame["id"] + ".png"
    frame = there("rsna", frame, "image", images)
    frame["image"] = gray_images([images / file for file in frame["image"]], frame["id"], work)
    return PaperSet("rsna", frame, "image", "image", "boneage", work)


def brifiseg(folder: Path, work: Path) -> PaperSet:
    """MedSegBench BriFiSeg: the share of a brightfield image that nuclei cover.

    Expected: ``brifiseg_256.npz`` (or _512, _128) of MedSegBench, with ``train_images``, ``train_label`` and so on
    ``[n, side, side]``. The three parts are pooled and split anew. That the label is the share of the mask is our
    reading: the authors' public code does not have this set.
    """
    names = [f"brifiseg_{side}.npz" for side in (256, 512, 128)]
    path = first_of("brifiseg", folder, names, "get it from the archive of MedSegBench")
    from PIL import Image

    arrays, shares, ids = [], [], []
    with np.load(path, allow_pickle=False) as stored:
        for part in ("train", "val", "test"):
            for key in (f"{part}_images", f"{part}_label"):
                if key not in stored:
                    raise ValueError(f"brifiseg: expected an array {key!r} in {path.name}, got {', '.join(stored)}")
            images, masks = stored[f"{part}_images"], stored[f"{part}_label"]
            arrays += list(images.reshape(len(images), *images.shape[1:3]))
            shares += [float((mask > 0).mean()) for mask in masks]
            ids += [f"{part}-{number:04d}" for number in range(len(images))]
    paths = gray_images((Image.fromarray(array) for array in arrays), ids, work)
    frame = pd.DataFrame({"id": ids, "image": paths, "share": shares})
    return PaperSet("brifiseg", frame, "image", "image", "share", work)


def adresso(folder: Path, work: Path) -> PaperSet:
    """ADReSSo 2021: the score of a mini-mental state examination, from what was said, as text.

    Expected: ``diagnosis/train/adresso-train-mmse-scores.csv`` (adressfname, dx, mmse) and a transcript of each
    recording, ``diagnosis/train/text/ad/ID.txt`` and ``.../cn/ID.txt``: the set itself has sounds only
    (``audio/ad/ID.wav``), so write transcripts with a speech recognizer first; which one the paper used is not known.
    The rows to test on are the challenge's where their scores are there: ``diagnosis/test-dist/text/ID.txt`` and
    ``diagnosis/test-dist/adresso-test-mmse-scores.csv`` (the name is our choice; ID or adressfname, and mmse); else
    20 % of the training rows.
    """
    del work
    hint = "ask DementiaBank for the diagnosis part of ADReSSo"
    train = folder / "diagnosis" / "train"
    frame = _scores("adresso", existing("adresso", train / "adresso-train-mmse-scores.csv", hint))
    texts = {path.stem: path for path in sorted((train / "text").glob("*/*.txt"))}
    scores = folder / "diagnosis" / "test-dist" / "adresso-test-mmse-scores.csv"
    if scores.is_file():
        tested = _scores("adresso", scores)
        texts |= {path.stem: path for path in sorted((scores.parent / "text").glob("*.txt"))}
        frame["tested"], tested["tested"] = False, True
        frame = pd.concat([frame, tested], ignore_index=True)
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
    """CoughVid: age, from a cough.

    Expected: ``metadata_compiled.csv`` (uuid, cough_detected, age), in the folder or in ``public_dataset``, and the
    sounds beside it as .wav, .flac, .ogg or .mp3. Most are published as .webm, which is not read here:
    ``for f in *.webm; do ffmpeg -i "$f" -ar 16000 "${f%.webm}.wav"; done``. Rows without an age, and those that are a
    cough with less than 0.8, are left out: the second is our choice, by the advice that comes with the set.
    """
    del work
    hint = "unpack the public data set of CoughVid there"
    names = ("metadata_compiled.csv", "public_dataset/metadata_compiled.csv")
    path = first_of("coughvid", folder, names, hint)
    table = columns_of("coughvid", path, pd.read_csv(path), ("uuid", "cough_detected", "age"))
    age = pd.to_numeric(table["age"], errors="coerce")
    valid = age.between(1, 120) & (table["cough_detected"] >= SURE_COUGH)
    frame = pd.DataFrame({"id": table["uuid"].astype(str), "age": age})[valid].reset_index(drop=True)
    sounds = {each.stem: each.name for each in sorted(path.parent.iterdir()) if each.suffix in SOUNDS}
    frame["audio"] = frame["id"].map(sounds)
    frame = frame[frame["audio"].notna()].reset_index(drop=True)
    if frame.empty:
        webm = len(list(path.parent.glob("*.webm")))
        raise ValueError(
            f"coughvid: expected sounds named by their uuid ({', '.join(SOUNDS)}) in {path.parent}, got none and "
            f"{webm} of .webm; turn those into .wav with ffmpeg"
        )
    return PaperSet("coughvid", frame, "audio", "audio", "age", path.parent)


def nosemic(folder: Path, work: Path) -> PaperSet:
    """NoseMic: breaths a minute, from a microphone at the nose.

    Expected: ``audio/PERSON_x_x_RATE.wav``, as the respiratory benchmark OPERA hands them out: the last part of the
    name is the label. The paper splits by recordings, so that a person may be on both sides; ``group`` has the
    persons, for ``vicinal fit --group group``, which is the harder and the honest question.
    """
    del work
    audio = existing("nosemic", folder / "audio", "put the recordings of NoseMic there")
    rows = []
    for path in sorted(each for each in audio.iterdir() if each.suffix in SOUNDS):
        parts = path.stem.split("_")
        try:
            rows.append((path.stem, path.name, float(parts[-1]), parts[0]))
        except ValueError as error:
            raise ValueError(
                f"nosemic: expected a name that ends in _RATE, a number of breaths a minute, got {path.name}"
            ) from error
    if not rows:
        raise ValueError(f"nosemic: expected recordings PERSON_x_x_RATE.wav in {audio}, got none")
    frame = pd.DataFrame(rows, columns=["id", "audio", "rate", "group"])
    return PaperSet("nosemic", frame, "audio", "audio", "rate", audio)


def udacity(folder: Path, work: Path) -> PaperSet:
    """Udacity steering: the angle of the wheel, from a frame of the center camera.

    Expected: ``interpolated.csv`` of the second challenge (frame_id, filename, angle) with the images it names, or
    ``driving_log.csv`` of the simulator (center, steering first and fourth, with a header or without) with ``IMG``:
    which of the two the paper used is not known. 15,000 rows are drawn and split without bins, as in the authors'
    code; frames that follow each other are on both sides, so the error is that of interpolating a drive.
    """
    hint = "extract the frames of the second challenge there"
    path = first_of("udacity", folder, ("interpolated.csv", "driving_log.csv"), hint)
    if path.name == "interpolated.csv":
        table = columns_of("udacity", path, pd.read_csv(path), ("frame_id", "filename", "angle"))
        table = table[table["frame_id"].astype(str).str.startswith("center")]
        frame = pd.DataFrame({"file": table["filename"].astype(str), "angle": table["angle"].astype(float)})
    else:
        table = pd.read_csv(path, header=None).iloc[:, :4]
        table = table[pd.to_numeric(table[3], errors="coerce").notna()]  # without the header, if there is one
        files = "IMG/" + table[0].astype(str).str.replace("\\", "/").str.rsplit("/").str[-1].str.strip()
        frame = pd.DataFrame({"file": files, "angle": table[3].astype(float)})
    frame = draw(there("udacity", frame.reset_index(drop=True), "file", folder), FRAMES)
    frame.insert(0, "id", [Path(file).stem for file in frame["file"]])
    frame["image"] = gray_images([folder / file for file in frame["file"]], frame["id"], work)
    return PaperSet("udacity", frame.drop(columns="file"), "image", "image", "angle", work, stratified=False)


def pitchfork(folder: Path, work: Path) -> PaperSet:
    """Pitchfork reviews: the score of an album, from the review.

    Expected: ``database.sqlite`` of the 18,393 reviews (tables reviews: reviewid, score; content: reviewid, content),
    or ``reviews.csv`` (text, score). 1,500 rows are drawn and split without bins, as in the authors' code; Table 1 may
    have more.
    """
    del work
    path = first_of("pitchfork", folder, ("database.sqlite", "reviews.csv"), "put the data base of reviews there")
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


def austin(folder: Path, work: Path) -> PaperSet:
    """Austin housing (Kaggle "austinhousingprices"): the price of a house, from the listing's text.

    Expected: ``austinHousingData.csv`` (zpid, description, latestPrice). The label is the logarithm of the price, as
    for houses and books; that the text and not the photo (``homeImages``) is read is our choice.
    """
    del work
    path = existing("austin", folder / "austinHousingData.csv", "unpack the Austin housing prices there")
    table = columns_of("austin", path, pd.read_csv(path), ("zpid", "description", "latestPrice"))
    table = table[(table["latestPrice"] > 0) & table["description"].notna()].drop_duplicates("zpid")
    frame = pd.DataFrame({"id": table["zpid"].astype(str), "text": table["description"].astype(str)})
    frame["log_price"] = np.log10(table["latestPrice"].astype(float))
    return PaperSet("austin", frame.reset_index(drop=True), "text", "text", "log_price", folder)


LOADERS: dict[str, Callable[[Path, Path], PaperSet]] = {
    "rsna": rsna,
    "brifiseg": brifiseg,
    "adresso": adresso,
    "coughvid": coughvid,
    "nosemic": nosemic,
    "udacity": udacity,
    "pitchfork": pitchfork,
    "austin": austin,
}
EXTRACTORS = {
    "image": ("hub:microsoft/resnet-18", "hub:microsoft/swin-tiny-patch4-window7-224"),
    "text": ("hub:distilbert/distilbert-base-uncased", "hub:google-bert/bert-base-uncased"),
    "audio": ("hub:facebook/hubert-base-ls960", "hub:openai/whisper-tiny"),
}
"""Two for each kind, those of the authors' code (which has EfficientNet-B0 for steering as well)."""


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(LOADERS))
    parser.add_argument("--data", type=Path, required=True, help="the folder of the set")
    parser.add_argument("--out", type=Path, required=True, help="for the table, and for images made ready")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = load_paper_set(given.set, given.data, given.out / "images")
    path = given.out / f"{data.name}.parquet"
    data.frame.to_parquet(path, index=False)
    print(f"{path}: {len(data.frame)} rows. To train with the encoder, as the paper does:")
    for encoder in EXTRACTORS[data.kind]:
        print("  " + data.command(str(path), encoder))


if __name__ == "__main__":
    main()
