"""The ten data sets of the NONA paper's Table 1 are read from folders of their public shape, and are run."""

import shlex
import sqlite3
import sys
import types
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from references.models import save, tiny_bert
from vicinal.cli import run
from vicinal.data import prepare_table

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = ("nona_paper", "nona_paper_sets", "nona_sets", "nona_table1", "resumable")
ROWS = 24


@pytest.fixture
def bench(monkeypatch):
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    threads = torch.get_num_threads()
    yield lambda name: __import__(name)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)  # a run takes tiny numbers for 0; other tests in this process do not
    for name in MODULES:
        sys.modules.pop(name, None)


def image(path, number, size=(40, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(number).integers(0, 256, size=(*size, 3), dtype=np.uint8)
    values[: 1 + number] //= 4
    Image.fromarray(values).save(path)


def sound(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = np.sin(np.arange(1600) * (0.05 + 0.01 * number)) * 12_000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(tone.astype("<i2").tobytes())


def make_rsna(folder):
    table = pd.DataFrame({"id": range(1377, 1377 + ROWS), "boneage": range(10, 10 + ROWS), "male": True})
    table.to_csv(folder / "boneage-training-dataset.csv", index=False)
    for number, name in enumerate(table["id"]):
        image(folder / "boneage-training-dataset" / "boneage-training-dataset" / f"{name}.png", number)


def make_brifiseg(folder):
    arrays = {}
    for part, count in (("train", 14), ("val", 4), ("test", 6)):
        masks = np.zeros((count, 16, 16), dtype=np.uint8)
        for number, mask in enumerate(masks):
            mask[: number + 1] = 1
        arrays |= {f"{part}_images": masks * 200, f"{part}_label": masks}
    np.savez(folder / "brifiseg_256.npz", **arrays)


def make_adresso(folder):
    train = folder / "diagnosis" / "train"
    (train / "text" / "ad").mkdir(parents=True)
    (train / "text" / "cn").mkdir()
    names = [f"adrso{number:03d}" for number in range(ROWS)]
    scores = pd.DataFrame({"adressfname": names, "mmse": range(6, 6 + ROWS), "dx": ["ad", "cn"] * (ROWS // 2)})
    scores.to_csv(train / "adresso-train-mmse-scores.csv", index=False)
    for name, dx in zip(names, scores["dx"], strict=True):
        (train / "text" / dx / f"{name}.txt").write_text(f"the boy {name} takes a cookie\n")


def make_coughvid(folder):
    names = [f"00{number:02d}-abcd" for number in range(ROWS + 3)]
    table = pd.DataFrame({"uuid": names, "cough_detected": 0.1, "age": np.arange(ROWS + 3) + 20.0})
    table.loc[ROWS, "age"], table.loc[ROWS + 1, "age"] = np.nan, 999  # and the last one has no sound
    table.to_csv(folder / "metadata_compiled.csv", index=False)
    for number, name in enumerate(names[: ROWS + 2]):
        sound(folder / f"{name}.wav", number)


def make_nosemic(folder):
    for number in range(ROWS):
        sound(folder / "audio" / f"p{number // 4}_rest_{number}_{12 + number / 2}.wav", number)


def make_udacity(folder):
    rows = []
    for number in range(5 * ROWS):  # 20 frames a second
        if number % 5 == 0:
            image(folder / "center" / f"{1000 + number}.jpg", number // 5)
        for camera in ("left", "center", "right"):
            rows.append((camera + "_camera", f"{camera}/{1000 + number}.jpg", 0.01 * number))
    pd.DataFrame(rows, columns=["frame_id", "filename", "angle"]).to_csv(folder / "interpolated.csv", index=False)


def make_pitchfork(folder):
    with sqlite3.connect(folder / "database.sqlite") as base:
        base.execute("create table reviews (reviewid integer, title text, score real)")
        base.execute("create table content (reviewid integer, content text)")
        for number in range(ROWS):
            base.execute("insert into reviews values (?, 'x', ?)", (number, number % 10 + 0.1 * (number // 10)))
            base.execute("insert into content values (?, ?)", (number, f"A record of {'red ' * number} noise."))
        base.execute("insert into reviews values (99, 'x', 5.0)")
        base.execute("insert into content values (99, '')")


def make_houses(folder):
    lines = [f"4 3.5 {1000 + number} 93510 {200_000 + 1000 * number}" for number in range(ROWS)]
    (folder / "HousesInfo.txt").write_text("\n".join(lines))
    for number in range(ROWS):
        image(folder / f"{number + 1}_frontal.jpg", number)


def make_books(folder):
    table = pd.DataFrame({"Title": "x", "Synopsis": [f"A tale of {n} cities" for n in range(ROWS)], "Price": 100.0})
    table["Price"] += np.arange(ROWS)
    table.to_csv(folder / "Data_Train.csv", index=False)


def make_austin(folder):
    table = pd.DataFrame({"zpid": range(ROWS), "latestPrice": 1e5 * 1.1 ** np.arange(ROWS), "homeImage": "x.jpg"})
    table["description"] = [f"A home with {number} rooms" for number in range(ROWS)]
    table.to_csv(folder / "austinHousingData.csv", index=False)


MAKERS = {name.removeprefix("make_"): maker for name, maker in list(globals().items()) if name.startswith("make_")}


@pytest.fixture(autouse=True)
def halving_denoiser(monkeypatch):
    """A stand-in for the package noisereduce, which the tests do without: it halves what it hears."""

    def reduce_noise(y, sr):
        assert sr == 16_000
        return y / 2

    monkeypatch.setitem(sys.modules, "noisereduce", types.SimpleNamespace(reduce_noise=reduce_noise))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_set_is_read_from_its_public_layout(bench, name, tmp_path):
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    MAKERS[name](data)
    sets = bench("nona_paper_sets")
    assert set(sets.LOADERS) == set(MAKERS)
    got = sets.load_paper_set(name, data, work)
    assert len(got.frame) == ROWS
    assert got.frame["id"].is_unique
    assert np.all(np.diff(got.frame.sort_values("id")[got.target]) != 0)  # each thing has its own label
    if got.kind != "text":
        assert all((got.root / path).is_file() for path in got.frame[got.column])
    if got.kind == "image":
        with Image.open(got.root / got.frame[got.column][0]) as first:
            assert first.size == ((30, 40) if name == "houses" else (224, 224))
            assert (len({channel.tobytes() for channel in first.split()}) == 1) == (name != "houses")
    table = prepare_table(got.frame, got.target, id="id", root=got.root)  # what `vicinal fit` makes of it
    assert (len(table), table.task) == (ROWS, "regression")


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_what_is_missing_is_said_in_a_sentence(bench, name, tmp_path):
    sets = bench("nona_paper_sets")
    with pytest.raises(ValueError, match=rf"^{name}: expected .* in .*, got none; ") as told:
        sets.load_paper_set(name, tmp_path, tmp_path / "work")
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match=f"^{name}: expected a folder, got"):
        sets.load_paper_set(name, tmp_path / "nowhere", tmp_path)


def test_an_unknown_set_names_them_all(bench, tmp_path):
    with pytest.raises(ValueError, match=r"^set: expected one of rsna, brifiseg, .* got 'mnist'"):
        bench("nona_paper_sets").load_paper_set("mnist", tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["rsna", "nosemic"])
def test_splits_keep_the_shares_of_the_bins_and_are_the_papers(bench, name, tmp_path):
    MAKERS[name](tmp_path)
    got = bench("nona_paper_sets").load_paper_set(name, tmp_path, tmp_path / "work")
    splits = got.splits(3)
    assert [split.seed for split in splits] == [0, 1, 2]
    for split in splits:
        together = np.concatenate([split.train, split.validation, split.test])
        assert sorted(together) == list(range(ROWS))
        assert len(split.test) == int(np.ceil(0.2 * ROWS))
    assert got.bins().max() == 7  # of 24 rows bins of three


def test_recordings_of_both_parts_of_adresso_are_split_anew(bench, tmp_path):
    make_adresso(tmp_path)
    test = tmp_path / "diagnosis" / "test-dist"
    (test / "text").mkdir(parents=True)
    names = [f"adrsdt{number}" for number in range(7)]
    pd.DataFrame({"ID": names, "MMSE": range(20, 27)}).to_csv(test / "adresso-test-mmse-scores.csv", index=False)
    for name in names:
        (test / "text" / f"{name}.txt").write_text("there is water on the floor")
    got = bench("nona_paper_sets").load_paper_set("adresso", tmp_path, tmp_path)
    assert len(got.frame) == ROWS + 7
    assert all(len(split.test) == int(np.ceil(0.2 * (ROWS + 7))) for split in got.splits(2))


def test_the_validation_part_of_rsna_is_taken_too(bench, tmp_path):
    make_rsna(tmp_path)
    table = pd.DataFrame({"Image ID": [5, 6], "male": True, "Bone Age (months)": [99.0, 98.5]})
    table.to_csv(tmp_path / "Validation Dataset.csv", index=False)
    image(tmp_path / "boneage-validation-dataset-1" / "5.png", 1)
    image(tmp_path / "boneage-validation-dataset-2" / "boneage-validation-dataset-2" / "6.png", 2)
    got = bench("nona_paper_sets").load_paper_set("rsna", tmp_path, tmp_path / "work").frame
    assert got["boneage"].tolist()[-2:] == [99.0, 98.5]
    assert got["id"].tolist()[-2:] == ["5", "6"]


def test_labels_rows_and_extractors_are_those_of_appendix_c(bench, tmp_path):
    """Area of the mask in pixels; every fifth frame of the road; one extractor a set, two at least a modality."""
    sets = bench("nona_paper_sets")
    frames = {}
    for name in ("brifiseg", "udacity", "books"):
        (tmp_path / name).mkdir()
        MAKERS[name](tmp_path / name)
        frames[name] = sets.load_paper_set(name, tmp_path / name, tmp_path / "work" / name).frame
    assert frames["brifiseg"]["area"].tolist() == [16.0 * (n + 1) for count in (14, 4, 6) for n in range(count)]
    np.testing.assert_allclose(frames["udacity"]["angle"], 0.05 * np.arange(ROWS))
    np.testing.assert_allclose(frames["books"]["log_price"], np.log10(100.0 + np.arange(ROWS)))
    assert set(sets.EXTRACTORS) == set(sets.LOADERS)
    short = {name: encoder.rpartition("/")[2].partition("-")[0] for name, encoder in sets.EXTRACTORS.items()}
    assert short == {
        "rsna": "resnet", "brifiseg": "efficientnet", "adresso": "distilbert", "coughvid": "hubert",
        "nosemic": "whisper", "udacity": "efficientnet", "pitchfork": "bert", "houses": "resnet",
        "books": "distilbert", "austin": "distilbert",
    }  # fmt: skip


def test_a_cough_is_its_loudest_second(bench, tmp_path):
    sets = bench("nona_paper_sets")
    quiet = 0.01 * np.ones(3 * sets.RATE)
    quiet[21_000:37_000] = 0.5
    np.testing.assert_array_equal(sets.loudest_second(quiet), np.full(sets.RATE, 0.5))
    short = sets.loudest_second(np.ones(10))
    assert (len(short), short.sum()) == (sets.RATE, 10)
    sets.write_sound(tmp_path / "x.wav", quiet)
    np.testing.assert_allclose(sets.read_sound(tmp_path / "x.wav"), quiet, atol=1e-4)


def test_more_rows_than_the_paper_has_are_drawn(bench, tmp_path, monkeypatch):
    sets = bench("nona_paper_sets")
    make_coughvid(tmp_path)
    monkeypatch.setattr(sets, "COUGHS", 10)
    got = sets.load_paper_set("coughvid", tmp_path, tmp_path / "work").frame
    assert len(got) == 10
    assert got["id"].is_monotonic_increasing
    assert sets.REVIEWS == 1500


def test_sounds_in_the_ear_are_denoised(bench, tmp_path, monkeypatch):
    make_nosemic(tmp_path)
    sets = bench("nona_paper_sets")
    got = sets.load_paper_set("nosemic", tmp_path, tmp_path / "work")
    name = got.frame["audio"][3]
    noisy = sets.read_sound(tmp_path / "audio" / name)
    np.testing.assert_allclose(sets.read_sound(got.root / name), noisy / 2, atol=1e-4)
    monkeypatch.setitem(sys.modules, "noisereduce", None)
    with pytest.raises(ValueError, match=r"^nosemic: expected the package noisereduce, got none; pip install"):
        sets.load_paper_set("nosemic", tmp_path, tmp_path / "work")


def test_the_command_that_is_printed_is_one_of_vicinal(bench, tmp_path, capsys, monkeypatch):
    make_nosemic(tmp_path)
    sets = bench("nona_paper_sets")
    monkeypatch.setattr(sys, "argv", ["x", "--set", "nosemic", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    sets.main()
    commands = [line.strip() for line in capsys.readouterr().out.splitlines() if "vicinal fit" in line]
    assert [command.split("--encoder ")[1].split()[0] for command in commands] == ["audio=hub:openai/whisper-tiny"]
    arguments = shlex.split(commands[0])[1:]
    arguments[arguments.index("--encoder") + 1] = "audio=cnn-mel"
    assert arguments[-2:] == ["--preset", "nona"]
    arguments[-2:] = ["--tune", "none"]
    assert run([*arguments, "--dry-run"]) == 0


def tiny_extractor(kind, folder):
    """A random model of the architecture that the authors' code has for images and sounds; BERT for texts."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "text":
        return tiny_bert(folder)
    if kind == "image":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
        save(transformers.ResNetModel(config), folder)
        transformers.ConvNextImageProcessor(size={"shortest_edge": 32}).save_pretrained(folder)
        return folder
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, decoder_layers=1,
        decoder_attention_heads=2, decoder_ffn_dim=16, vocab_size=12, num_mel_bins=8, max_source_positions=50,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    save(transformers.WhisperModel(config), folder)
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)
    return folder


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "kind", "tuned"),
    [("rsna", "image", False), ("pitchfork", "text", False), ("nosemic", "audio", False), ("pitchfork", "text", True)],
)
def test_a_row_of_the_table_is_run_and_resumed(bench, name, kind, tuned, tmp_path, monkeypatch, capsys):
    data, model, out = tmp_path / "data", tmp_path / "model", tmp_path / "out.csv"
    (data / name).mkdir(parents=True)
    model.mkdir()
    MAKERS[name](data / name)
    encoder = f"folder:{tiny_extractor(kind, model)}"
    table1 = bench("nona_table1")
    paper = sys.modules["nona_paper"]
    monkeypatch.setattr(paper, "HEADS", {head: replace(recipe, epochs=2) for head, recipe in paper.HEADS.items()})
    splits = 1 if tuned else 2
    arguments = ["--data", data, "--cache", tmp_path / "cache", "--out", out, "--splits", splits, "--epochs", 2]
    arguments += ["--batches", 8, "--tuned"] if tuned else []
    monkeypatch.setattr(sys, "argv", ["nona_table1.py", *map(str, arguments), "--encoders", encoder])
    table1.main()
    rows = pd.read_csv(out)
    assert sorted(rows["method"]) == sorted(["dense", "dense+knn", "nona", "nona+knn"] * splits)
    assert set(rows["set"]) == {f"{name}, model"}
    assert np.isfinite(rows["mse"]).all()
    assert set(rows["recipe"]) == {"tuned, batch 8, width 25" if tuned else "paper"}
    printed = capsys.readouterr().out
    other = next(each for each in MAKERS if each != name)
    assert f"{other}: skipped, there is no folder" in printed
    assert f"| the paper's | 10 | {' | '.join(map(str, table1.PAPER[name]))} |" in printed
    before = out.read_text()
    monkeypatch.setattr(table1, "embed", None)  # nothing is run again
    monkeypatch.setattr(table1, "fit_tuned", None)
    table1.main()
    assert out.read_text() == before
