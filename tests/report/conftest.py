"""Records with made-up values that look like real ones: words, houses with pictures, digits, a comparison."""

import io

import numpy as np
import pytest

from vicinal.report.records import CompareRecord, FitRecord, NeighborPanel

WORDS = (
    "horrible -2.5,horrid -2.2,horrific -3.0,horrified -2.5,horrifying -2.7,horror -2.7,happily 2.6,happy 2.7,"
    "happiness 2.6,happiest 3.2,unhappy -1.8,mishap -1.2,perhaps 0.1,delight 2.9,delighted 2.3,delightful 2.8,"
    "light 0.4,freight -0.2,slight -0.3,plight -1.4"
)
LEXICON = {word: float(value) for word, value in (pair.split() for pair in WORDS.split(","))}


def panel_of_words(title, word, truth, near, count=8, other=0.12):
    """A panel whose weights and contributions are consistent."""
    shares = np.exp(-0.45 * np.arange(count))
    weights = (1 - other) * shares / shares.sum()
    names = [name for name in LEXICON if name[:3] in near][:count]
    names += [name for name in LEXICON if name not in names][: count - len(names)]
    neighbors = [({"word": n}, LEXICON[n], w, w * LEXICON[n], n) for n, w in zip(names, weights, strict=True)]
    rest = -0.31 * other
    prediction = sum(neighbor[3] for neighbor in neighbors) + rest
    return NeighborPanel(title, {"word": word}, prediction, truth, neighbors, other, rest, 5091, id=word)


def make_words(rows=1501):
    """Regression on one text column."""
    rng = np.random.default_rng(7)
    truth = np.clip(rng.normal(0, 1.7, rows), -3.9, 3.4).round(1)
    predicted = 0.75 * truth + rng.normal(0, 0.75, rows)
    bank = rng.normal(size=(2000, 25)) * np.linspace(2, 0.3, 25)
    labels = np.tanh(bank[:, 0] + 0.4 * bank[:, 1]) * 2.5 + rng.normal(0, 0.4, 2000)
    epochs = np.arange(1, 25)
    grid = np.linspace(0, 1, 101)
    curves = [
        (name, np.where(grid < b, (grid / b) ** ((b - grid) * t / (1 - t)), 1))
        for name, b, t in (("lower quartile", 0.62, 0.93), ("median", 0.8, 0.95), ("upper quartile", 0.93, 0.97))
    ]
    return FitRecord(
        name="Valence of words",
        target_name="valence",
        task="regression",
        settings={
            "head": "nona",
            "similarity": "l2",
            "mask": "s2, pointwise",
            "simplex": "softmax",
            "projector": [200, 25],
            "learning rate": 0.001,
            "batch size": 256,
            "patience": 10,
            "seed": 0,
        },
        columns=[
            ("word", "text", "ngrams", "5,101 different short texts"),
            ("line", None, "", "one value a row: an id"),
        ],
        rows_used=7502,
        dropped={"no target": 3, "same word rated twice, kept the first": 12},
        duplicates="No equal rows across the splits.",
        scores={
            "model": {"mse": 0.9817, "mae": 0.7521, "r2": 0.6603},
            "knn": {"mse": 1.104, "mae": 0.801, "r2": 0.6179},
            "ridge": {"mse": 1.213, "mae": 0.8441, "r2": 0.5802},
            "mean": {"mse": 2.89, "mae": 1.52, "r2": -0.0003},
        },
        history={
            "train_mse": (0.02 + 0.08 * np.exp(-epochs / 4)).tolist(),
            "validation_mse": (0.026 + 0.05 * np.exp(-epochs / 3) + 0.0003 * np.maximum(0, epochs - 13)).tolist(),
        },
        predicted=predicted,
        truth=truth,
        embedding=bank,
        embedding_labels=labels,
        panels=[
            panel_of_words("Best prediction", "horribly", -2.3, ("hor",)),
            panel_of_words("Median prediction", "unhappily", -1.0, ("hap", "unh", "mis")),
            panel_of_words("Worst prediction", "blight", -2.6, ("del", "lig", "sli", "fre")),
        ],
        mask_curves=(grid, curves),
        split_sizes={"train": 5101, "validation": 900, "test": 1501},
        duration_s=141.3,
        versions={"vicinal": "0.2.0", "torch": "2.13.0", "python": "3.11.9"},
    )


def house_picture(seed, side=180):
    """A small drawing of a house, as the bytes of a JPEG."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    sky = tuple(int(v) for v in rng.integers((150, 190, 215), (205, 225, 250)))
    image = Image.new("RGB", (side * 4 // 3, side), sky)
    draw = ImageDraw.Draw(image)
    width, height = image.size
    draw.rectangle(
        (0, height * 0.78, width, height), fill=tuple(int(v) for v in rng.integers((70, 120, 50), (130, 170, 90)))
    )
    wall = tuple(int(v) for v in rng.integers((150, 110, 90), (245, 230, 215)))
    roof = tuple(int(v) for v in rng.integers((80, 40, 30), (160, 90, 80)))
    left, right, top = width * rng.uniform(0.12, 0.25), width * rng.uniform(0.72, 0.9), height * rng.uniform(0.4, 0.52)
    draw.rectangle((left, top, right, height * 0.82), fill=wall)
    draw.polygon(((left - 12, top), (right + 12, top), ((left + right) / 2, top - height * 0.26)), fill=roof)
    for k in range(int(rng.integers(2, 5))):
        x = left + 12 + k * (right - left) / 4.6
        draw.rectangle((x, top + 16, x + 20, top + 40), fill=(225, 235, 245), outline=(90, 90, 90))
    draw.rectangle(((left + right) / 2, height * 0.64, (left + right) / 2 + 22, height * 0.82), fill=(90, 60, 45))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def make_houses():
    """Regression on a picture, numbers and a category: large target values, few rows."""
    rng = np.random.default_rng(3)
    truth = np.exp(rng.normal(13.0, 0.45, 107)).round(-3)
    predicted = truth * np.exp(rng.normal(0.03, 0.28, 107))

    def house(seed, price):
        area, rooms = int(rng.integers(900, 5200)), int(rng.integers(2, 6))
        row = {"photo": house_picture(seed), "area": f"{area}", "rooms": f"{rooms}", "zip": f"9{seed:04d}"}
        return {**row, "note": "corner lot" if seed % 3 else ""}, price

    panels = []
    for place, (title, truth_price) in enumerate(
        (("Best prediction", 548000.0), ("Median prediction", 415000.0), ("Worst prediction", 1850000.0))
    ):
        query, _ = house(100 + place, truth_price)
        weights = np.array([0.28, 0.21, 0.12, 0.09, 0.06])
        prices = (truth_price * np.exp(rng.normal(0, 0.3, 5))).round(-3) * (0.45 if place == 2 else 1)
        neighbors = []
        for k, (weight, price) in enumerate(zip(weights, prices, strict=True)):
            row, _ = house(10 * place + k, price)
            neighbors.append((row, price, weight, weight * price))
        other = 1 - weights.sum()
        prediction = float((weights * prices).sum() + other * 520000)
        panels.append(NeighborPanel(title, query, prediction, truth_price, neighbors, other, None, 364, id=f"h{place}"))
    embedding = rng.normal(size=(369, 25))
    return FitRecord(
        name="Houses",
        target_name="price in $",
        task="regression",
        settings={"head": "nona", "mask": None, "tune": "none", "seed": 1},
        columns=[
            ("photo", "image", "efficientnet-lite0", "paths of pictures"),
            ("area", "number", "numbers", "422 different numbers"),
            ("rooms", "number", "numbers", "6 different numbers"),
            ("zip", "category", "categories", "63 different values"),
        ],
        rows_used=535,
        duplicates="4 rows of the test split equal rows of the training split in all features; they are kept.",
        scores={
            "model": {"mse": 5.13e10, "mae": 151230.2, "r2": 0.612},
            "knn": {"mse": 5.84e10, "mae": 160221.0, "r2": 0.559},
            "ridge": {"mse": 4.91e10, "mae": 149003.0, "r2": 0.629},
            "mean": {"mse": 1.33e11, "mae": 270120.0, "r2": -0.004},
        },
        history={
            "train_mse": [0.08, 0.04, 0.03, 0.024, 0.02],
            "validation_mse": [0.05, 0.034, 0.031, 0.03, 0.0312],
            "validation_mae": [0.2, 0.14, 0.13, 0.128, 0.13],
        },
        predicted=predicted,
        truth=truth,
        embedding=embedding,
        embedding_labels=np.exp(13 + 0.4 * embedding[:, 0]),
        panels=panels,
        split_sizes={"train": 364, "validation": 64, "test": 107},
        duration_s=63,
        versions={"vicinal": "0.2.0"},
    )


def make_digits(classes=("zero", "one", "two", "three", "four")):
    """Classification."""
    rng = np.random.default_rng(5)
    count, rows = len(classes), 600
    true = rng.integers(0, count, rows)
    logits = rng.normal(0, 1, (rows, count))
    logits[np.arange(rows), true] += 2.2
    probabilities = np.exp(1.6 * logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    centers = rng.normal(0, 2.5, (count, 8))
    labels = rng.integers(0, count, 900)
    weights = np.array([0.35, 0.22, 0.14, 0.1])
    names = [classes[0], classes[0], classes[1], classes[0]]
    neighbors = [
        ({"speaker": s, "take": str(k)}, name, w, w if name == classes[0] else 0.0)
        for k, (s, name, w) in enumerate(zip(("jackson", "nicolas", "theo", "yweweler"), names, weights, strict=True))
    ]
    panels = [
        NeighborPanel(
            "Best", {"speaker": "lucas", "take": "3"}, classes[0], classes[0], neighbors, 0.19, None, 2100, 0.8
        ),
        NeighborPanel(
            "Worst", {"speaker": "george", "take": "9"}, classes[0], classes[2], neighbors, 0.19, None, 2100, 0.8
        ),
    ]
    return FitRecord(
        name="Spoken digits",
        target_name="digit",
        task="classification",
        settings={"head": "nona"},
        columns=[("clip", "audio", "ge2e", "paths of sounds")],
        rows_used=3000,
        scores={
            "model": {"accuracy": 0.948, "log_loss": 0.2113},
            "knn": {"accuracy": 0.9361, "log_loss": 0.52},
            "ridge": {"accuracy": 0.9512, "log_loss": 0.1821},
            "mean": {"accuracy": 0.2, "log_loss": 1.61},
        },
        predicted=probabilities,
        truth=np.array(classes)[true],
        classes=classes,
        embedding=centers[labels] + rng.normal(size=(900, 8)),
        embedding_labels=np.array(classes)[labels],
        panels=panels,
        split_sizes={"test": rows},
    )


def make_comparison():
    """Four methods on four data sets."""
    rng = np.random.default_rng(9)
    results, factors = {}, {"dense": 1, "dense+knn": 1.12, "nona": 0.9, "nona+knn": 1.0}
    for dataset, base in (
        ("houses", 0.0313),
        ("vader tweets", 0.0121),
        ("spoken digits", 0.0042),
        ("diabetes", 0.0284),
    ):
        level = base * rng.normal(1, 0.05, 5)
        results[dataset] = {m: (level * f * rng.normal(1, 0.06, 5)).tolist() for m, f in factors.items()}
    return CompareRecord(
        name="Comparison of heads",
        results=results,
        friedman=(9.3, 0.0256),
        ranks={"nona": 1.25, "dense": 2.5, "nona+knn": 2.25, "dense+knn": 4.0},
        critical_difference=2.345,
        test_note="Taken over 4 data sets (mean over the splits each), at the 5 % level: few data sets, little power.",
        seconds={"houses": 41.2, "vader tweets": 66.0, "spoken digits": 30.3, "diabetes": 8.1},
        settings={"splits": 5, "seed": 0, "patience": 10},
        versions={"vicinal": "0.2.0"},
    )


@pytest.fixture
def words():
    return make_words()


@pytest.fixture
def houses():
    return make_houses()


@pytest.fixture
def digits():
    return make_digits()


@pytest.fixture
def comparison():
    return make_comparison()
