"""Small saved things of every format, which the library of any later day must read: models, banks, indexes, modules.

    PYTHONPATH=OTHER/src python scripts/saved_formats.py tests/saved    # what the library in OTHER/src writes

Each becomes ``NAME.tar.xz``, and what it answers stands in ``expected.json``. Those in ``tests/saved`` were written by
commit 8bdd987, before the rooms were rebuilt, "trees" and "comparables" by 457a75e, when trees had no linear model
beside them; ``tests/estimators/test_saved_formats.py`` reads them. When a format changes, write its files of the last
state before that under new names, and keep the old ones.

Rows are made by arithmetic, so that any state of any package makes the same. Large weights are rounded to a few values
before they are saved, so that they compress.
"""

import contextlib
import io
import json
import math
import os
import shutil
import sys
import tarfile
import tempfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import nn

ROWS, FRESH = 48, 6
TINY = {"hidden": (8, 4), "members": 1, "max_epochs": 4, "learning_rate": 1e-2, "accelerator": "cpu"}
MOODS = ("good", "bad", "fair")


def table(rows: int = ROWS, start: int = 0) -> pd.DataFrame:
    """Columns of every kind, from the numbers of the rows alone."""
    places = range(start, start + rows)
    return pd.DataFrame(
        {
            "size": [i * 37 % 101 / 10 if i % 11 else math.nan for i in places],
            "age": [float(i * 53 % 89) for i in places],
            "town": [("york", "bath", "leeds", None)[i * 5 % 7 % 4] for i in places],
            "note": [f"a {MOODS[i * 7 % 5 % 3]} house, no {i % 4}" for i in places],
            "spot": [[i * 11 % 17 / 4, i * 13 % 19 / 5, i * 7 % 23 / 6] for i in places],
            "photo": [picture(i) for i in places],
            "clip": [sound(i) for i in places],
        }
    )


def numbers(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """A target that follows from size and note."""
    size = frame["size"].fillna(5).to_numpy()
    mood = [{"good": 5.0, "bad": -5.0, "fair": 0.0}[note.split()[1]] for note in frame["note"]]
    return size + mood + frame["age"].to_numpy() / 1000


def picture(i: int) -> bytes:
    """A PNG of 12 x 9 pixels."""
    from PIL import Image

    pixels = np.add.outer(np.arange(9) * (7 + i % 5), np.arange(12) * (3 + i % 7))[..., None] * [1, 2, 3] + 40 * i
    file = io.BytesIO()
    Image.fromarray((pixels % 256).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def sound(i: int) -> bytes:
    """A WAV of a fifth of a second."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(8000)
        time = np.arange(1600) / 8000
        values = np.sin(2 * np.pi * (200 + 90 * (i * 7 % 13)) * time) * (0.2 + i % 4 / 6)
        out.writeframes((values * 20_000).astype("<i2").tobytes())
    return file.getvalue()


def ids_of(count: int) -> list[str]:
    """Ids that are words."""
    return [f"h{i}" for i in range(count)]


def groups_of(count: int) -> list[str]:
    """Groups of three rows."""
    return [f"g{i // 3}" for i in range(count)]


MODELS: dict[str, dict[str, Any]] = {
    "regressor": {
        "use": ["size", "age", "town", "note"],
        "columns": {"note": "text"},
        "members": 2,
        "names": ["ids", "groups"],
    },
    "classifier": {
        "use": ["size", "age", "spot"],
        "classes": "words",
        "similarity": "cosine",
        "mask": "topk",
        "n_neighbors": 7,
        "members": 3,
    },
    "whole-classes": {"use": ["size", "age"], "classes": "numbers", "mask": None, "similarity": "squared_l2"},
    "s1-crps": {
        "use": ["size", "age", "town"],
        "mask": "s1",
        "mask_parameters": "global",
        "mask_extent": "all",
        "similarity": "l1",
        "simplex": "sparsemax",
        "loss": "crps",
    },
    "matching-loss": {
        "use": ["size", "age"],
        "similarity": "scaled_dot",
        "simplex": "softmax",
        "final_tanh": True,
        "loss": "matching:sigmoid(scale=2,shift=0.7)",
    },
    "dense": {"use": ["size", "age"], "head": "dense", "matrix": True},
    "index-exact": {"use": ["size", "age"], "index": "exact"},
    "index-faiss": {"use": ["size", "age"], "index": "faiss:HNSW8", "classes": "words", "names": ["ids"]},
    "pictures": {"use": ["photo", "clip"], "columns": {"photo": "image", "clip": "audio"}},
    "pretrained": {
        "use": ["note", "photo", "clip"],
        "columns": {"note": "text", "photo": "image", "clip": "audio"},
        "encoders": {"text": "minilm", "image": "efficientnet-lite0", "audio": "ge2e"},
    },
    "folder": {"use": ["note"], "columns": {"note": "text"}, "encoders": {"text": "folder:bert"}},
    "command": {"use": ["size", "age", "town"], "names": ["ids"]},
    "trees": {"use": ["size", "age", "town"], "metric": "trees", "names": ["ids"]},
    "comparables": {"use": ["size", "age", "town"], "metric": "kernel", "readout": "comparables", "names": ["ids"]},
}
"""Models by name: parameters of the estimator, and which rows it learns."""


def fit(name: str) -> Any:
    """A fitted model, its weights rounded."""
    from vicinal.estimators import NeighborClassifier, NeighborRegressor

    case = dict(MODELS[name])
    frame, prices = table(), numbers(table())
    use, classes = case.pop("use"), case.pop("classes", None)
    names, matrix = case.pop("names", []), case.pop("matrix", False)
    given = frame[use].fillna(3.0).to_numpy() if matrix else frame[use]
    more = identity(names, ROWS)
    if classes is None:
        return rounded(NeighborRegressor(**TINY | case).fit(given, prices, **more))
    labels = np.digitize(prices, [0, 5, 10])
    words = np.array(["low", "some", "more", "most"])[labels]
    return rounded(NeighborClassifier(**TINY | case).fit(given, words if classes == "words" else labels, **more))


def rounded(model: Any) -> Any:
    """The model with large weights rounded to a few values, and most of the largest to 0."""
    with torch.no_grad():
        for values in model.network_.state_dict().values():
            if values.is_floating_point() and values.numel() > 256:
                unit = 2.0 ** torch.log2(values.std().clamp_min(1e-9)).round()
                if values.numel() > 8192:
                    sparse = 400 if values.numel() > 16_384 else 50
                    least = values.abs().flatten().kthvalue(values.numel() - values.numel() // sparse).values
                    values.copy_(torch.where(values.abs() > least, math.sqrt(sparse) * unit * values.sign(), 0))
                else:
                    values.copy_((values / unit).round().clamp(-3, 3) * unit)
    return model


def queries(name: str) -> Any:
    """Rows that a model has not seen, as it reads them."""
    frame = table(FRESH, start=1000)[MODELS[name]["use"]]
    return frame.fillna(3.0).to_numpy() if MODELS[name].get("matrix") else frame


def tiny_bert(folder: Path) -> None:
    """A Hugging Face model of text."""
    import transformers

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "good",
        "bad",
        "fair",
        "house",
        "a",
        "no",
        ",",
        "1",
        "2",
        "3",
    ]
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.mul_(64).round_().div_(64)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))


def answers(name: str, model: Any) -> dict[str, Any]:
    """What a model says of fresh rows, and of rows that it has."""
    fresh, case = queries(name), MODELS[name]
    names = case.get("names", [])
    new = {"groups": [f"new{i}" for i in range(FRESH)]} if "groups" in names else {}
    result = {"predict": model.predict(fresh, **new).tolist(), "embedding": model.embed(fresh).tolist()}
    if "classes" in case:
        result["probabilities"] = model.predict_proba(fresh, **new).tolist()
    elif not new:  # rows of new groups are covered since: their intervals are wider than those of then
        result["interval"] = model.predict_interval(fresh, 0.8).tolist()
    if names:
        known = table()[case["use"]].iloc[:FRESH]
        predict = model.predict_proba if "classes" in case else model.predict
        result["known"] = predict(known, **identity(names, FRESH)).tolist()
    if case.get("head") != "dense":
        near = [one.neighbors for one in model.explain(fresh, 3, **new)]
        result["neighbors"] = [[one.id if isinstance(one.id, str) else int(one.id) for one in row] for row in near]
        result["weights"] = [[float(one.weight) for one in row] for row in near]
    return result


def identity(names: list[str], count: int) -> dict[str, list[str]]:
    """Ids and groups of the first rows, those that a model has."""
    return {name: {"ids": ids_of, "groups": groups_of}[name](count) for name in names}


BANKS: dict[str, dict[str, Any]] = {
    "bank-float32": {"names": True},
}


def vectors(count: int = ROWS, dim: int = 5, start: int = 0) -> torch.Tensor:
    """``[count, dim]``, all different."""
    at = torch.arange(start, start + count, dtype=torch.float64)[:, None] + 1
    return torch.sin(at * (torch.arange(dim) + 1) * 0.7).float()


def bank(name: str) -> Any:
    """A bank, some of whose rows were taken out again."""
    from vicinal.index import NeighborBank

    case = dict(BANKS[name])
    names = case.pop("names", False)
    made = NeighborBank(5, **case)
    labels = torch.arange(ROWS, dtype=torch.float64) / 8
    ids = ids_of(ROWS) if names else np.arange(ROWS) * 3
    more = {"groups": groups_of(ROWS), "rows": table()[["size", "town"]]} if names else {}
    made.add(ids, vectors(), labels, **more)
    made.remove(ids[5:9])
    return made


def contents(made: Any) -> dict[str, Any]:
    """What a bank holds, in its order."""
    return {
        "ids": made.ids.tolist(),
        "vectors": made.vectors.double().sum(1).tolist(),
        "labels": made.labels.tolist(),
        "groups": None if made.groups is None else made.groups.tolist(),
    }


INDEXES = {
    "exact": {},
    "faiss:Flat": {},
    "faiss:IVF4,Flat": {"search": "nprobe=2"},
}


def hits(index: Any) -> dict[str, Any]:
    """What an index finds."""
    found = index.search(vectors(FRESH, start=1000), 4)
    return {"ids": found.ids.tolist(), "scores": found.scores.tolist()}


Say = Callable[[Any], torch.Tensor]


def modules(*, filled: bool) -> dict[str, tuple[nn.Module, Say]]:
    """Modules with a state that users keep in checkpoints of their own, and what each says; empty ones, or filled."""
    from vicinal.heads import NONA, Dense, EquiangularHead, NearestClassMean
    from vicinal.links import ConvexPotential, MonotoneNet
    from vicinal.losses import CRPS, CrossBatchBank, DynamicSoftMargin, PairTemperature, ProxyLoss
    from vicinal.masks import SoftStep

    rows, others = vectors(6).double(), vectors(9, start=50).double()
    classes, labels = torch.arange(6) % 3, torch.arange(9).double()
    points = torch.linspace(-2, 2, 6, dtype=torch.float64)
    relation = (classes[:, None] == torch.arange(9) % 3).double()
    weights = torch.softmax(rows @ others.T, dim=-1)
    crps = CRPS(reduction="none").fit(labels if filled else labels / 2)
    margin, means, rolling = DynamicSoftMargin(bins=8), NearestClassMean(3, 5), CrossBatchBank(4, 5)
    if filled:
        margin(rows @ others.T / 3, relation)
        means.add(rows, classes)
        rolling.add(rows.float(), classes)
    return {
        "nona-s1-global": (NONA(mask=SoftStep(5, "s1", "global")), lambda m: m(rows, others, labels)),
        "nona-s2-pointwise": (NONA(mask=SoftStep(5, "s2")), lambda m: m(rows, others, labels)),
        "dense": (Dense(5), lambda m: m(rows, others, labels)),
        "class-means": (means, lambda m: m(rows)),
        "equiangular": (EquiangularHead(3, 5), lambda m: m(rows)),
        "proxies": (ProxyLoss("proxy_nca", num_classes=3, dim=5), lambda m: m(rows, classes)),
        "dynamic-margin": (margin, lambda m: m.eval()(rows @ others.T / 3, relation)),
        "crps": (crps, lambda m: m(weights @ m.steps(labels), m.steps(labels[:6]))),
        "monotone-net": (MonotoneNet(4), lambda m: m(points)),
        "convex-potential": (ConvexPotential(5), lambda m: m(rows)),
        "temperature": (PairTemperature(5), lambda m: m(rows, others)),
        "cross-batch": (rolling, lambda m: torch.cat([m.vectors.flatten(), m.labels, m.ids])),
    }


def splits() -> list[Any]:
    """Two splits of 30 rows."""
    from vicinal.data.splits import Split

    orders = [np.arange(30) * step % 31 % 30 for step in (7, 11)]
    orders = [np.argsort(order, kind="stable") for order in orders]
    return [Split(*(np.sort(part) for part in np.split(order, [20, 25])), seed) for seed, order in enumerate(orders)]


def tar(folder: Path, path: Path) -> None:
    """Write a folder as an archive that is the same each time."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                member = tarfile.TarInfo(file.relative_to(folder).as_posix())
                member.size = file.stat().st_size
                archive.addfile(member, io.BytesIO(file.read_bytes()))


def _shortened(value: Any) -> Any:
    """Values with numbers of ten digits."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def main(out: Path) -> None:
    """Write all."""
    from vicinal.data.splits import save_splits
    from vicinal.estimators import load_model, save_model
    from vicinal.evaluation import Run
    from vicinal.evaluation.store import RunStore
    from vicinal.index import load_index, open_index

    out.mkdir(parents=True, exist_ok=True)
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        os.chdir(here)
        (here / "folder").mkdir()
        tiny_bert(here / "bert")
        for name in MODELS:
            notes = {"name": "t", "target": "price", "id": "name", "group": None} if name == "command" else None
            save_model(fit(name), here / name / "model" if name == "folder" else here / name, notes)
            expected[name] = answers(name, load_model(here / name / "model" if name == "folder" else here / name))
        for name in BANKS:
            made = bank(name)
            made.save(here / name)
            expected[name] = contents(made)
        (here / "bank-state").mkdir()
        save_file(bank("bank-float32").state_dict(), here / "bank-state" / "state.safetensors")
        expected["bank-state"] = expected["bank-float32"]
        for name, more in INDEXES.items():
            folder = here / f"index-of-{name.replace(':', '-').replace(',', '-')}"
            index = open_index(name, dim=5, **more)
            if "IVF" in name:
                index.train(vectors())
            index.add(np.arange(ROWS) * 2, vectors())
            index.remove([4, 10])
            index.save(folder)
            expected[folder.name] = hits(load_index(folder))
        shutil.move(here / "bert", here / "folder" / "bert")
        with contextlib.closing(open_index("milvus:bank.db", dim=5, collection="rows", index_type="FLAT")) as index:
            index.add(np.arange(ROWS) * 2, vectors())
            index.save(here / "index-of-milvus")
            expected["index-of-milvus"] = hits(index)
        (here / "modules").mkdir()
        state, said = {}, {}
        torch.manual_seed(0)
        for name, (module, say) in modules(filled=True).items():
            module.double()
            for parameter in module.parameters():
                parameter.data.add_(0.1 * torch.randn_like(parameter))
            state |= {f"{name}/{key}": value.contiguous().clone() for key, value in module.state_dict().items()}
            said[name] = say(module).detach().tolist()
        save_file(state, here / "modules" / "state.safetensors")
        expected["modules"] = said
        (here / "files").mkdir()
        save_splits(here / "files" / "splits.json", splits(), fingerprint="abc")
        store = RunStore(here / "files" / "runs.json", {"epochs": 3})
        store.enter("houses", {"rows": 30})
        store.add([Run("houses", 0, 0, "nona", {"mse": 0.25, "r2": math.nan}, 1.5, "d1", (20, 5, 5))])
        expected["files"] = {"test": [one.test.tolist() for one in splits()]}
        for folder in sorted(path for path in here.iterdir() if path.is_dir() and path.name != "bank.db"):
            tar(folder, out / f"{folder.name}.tar.xz")
            print(folder.name, (out / f"{folder.name}.tar.xz").stat().st_size)
    (out / "expected.json").write_text(json.dumps(_shortened(expected)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
