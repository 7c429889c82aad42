"""Classes without rows: terms of losses that claim them, groups beside spectral clustering, and descriptions alone.

    python benchmarks/unknown_classes.py --data ../shared/data --cache runs/learning

- terms: MAP@R on a quarter of the classes by ``EmbeddingLearner``, its default loss alone and with a term.
- groups: characters of that quarter, their number told; Hungarian accuracy of the groups.
- described: books of genres with 60 to a class, half of the genres hidden: share of the rows of hidden genres that get
  their genre, among the hidden ones and among all. The text of a class is its name.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from learning import DEFAULT, learned, load, scores
from resumable import RESULTS, Lines, asked
from sklearn.cluster import KMeans, SpectralClustering

from vicinal.clustering import cluster_accuracy, discover_groups, known_class_spectral, partial_assignment
from vicinal.encoders import EmbeddingCache, PrincipalProjector, build_table_encoder
from vicinal.estimators import NeighborClassifier
from vicinal.estimators.kernel_metric import encoded
from vicinal.heads import class_distances, frechet_scores

TERMS = ("", " + 0.05*energy_confusion", " + 0.01*t_regs", " - 0.01*coding_rate")
ROWS = 60


def terms(name, data, cache, seed):
    rows, _, y, held_out, test, _, truth = load(name, data, cache, seed)
    for loss in (*(DEFAULT + term for term in TERMS), "mcr2"):
        vectors = torch.from_numpy(learned(name, cache, rows, y, held_out, seed, loss).transform(test))
        yield loss, scores(vectors, torch.from_numpy(truth))["map_at_r"]


def surest_first(rows, centers):
    """Labels by partial assignment of a rising share, centers by what is assigned."""
    for share in (0.5, 0.7, 0.9, 1.0):
        mass = partial_assignment(-torch.cdist(rows, centers).square(), share)
        centers = (mass.T @ rows) / mass.sum(0)[:, None].clamp(min=1e-9)
    return mass.argmax(1)


def groups(name, data, cache, seed):
    _, x, y, _, _, test, truth = load(name, data, cache, seed)
    known, labels, codes = torch.from_numpy(x).double(), torch.from_numpy(y), torch.from_numpy(truth)
    whiten = PrincipalProjector(x.shape[1], 64).fit(known.float(), 1.0)
    unit = [torch.nn.functional.normalize(whiten(torch.from_numpy(v)).detach(), dim=1).double() for v in (test, x)]
    size, draw = len(codes.unique()), torch.Generator().manual_seed(seed)
    means = KMeans(size, n_init=10, random_state=seed).fit(unit[0].numpy())
    spectral = SpectralClustering(size, affinity="nearest_neighbors", n_neighbors=10, random_state=seed)
    found = {
        "discover": discover_groups(torch.from_numpy(test).double(), known, labels, groups=size, generator=draw).labels,
        "known_class_spectral": known_class_spectral(*unit, labels, size, generator=draw).labels,
        "k-means": torch.from_numpy(means.labels_),
        "k-means, then partial_assignment": surest_first(unit[0], torch.from_numpy(means.cluster_centers_)),
        "spectral clustering": torch.from_numpy(spectral.fit_predict(unit[0].numpy())),
    }
    yield from ((method, cluster_accuracy(labels, codes)) for method, labels in found.items())


def described(name, data, cache, seed):
    table = pd.read_parquet(data / "text" / "book_prices.parquet").drop_duplicates("synopsis")
    table = (
        table[table.groupby("genre")["title"].transform("size") >= ROWS].groupby("genre").sample(ROWS, random_state=0)
    )
    names, codes = np.unique(table["genre"].str.replace(r" ?\(?Books\)?$", "", regex=True), return_inverse=True)
    texts = pd.DataFrame({"text": [*table["synopsis"], *names]})
    encoder = build_table_encoder({"text": "text"}, encoders={"text": "minilm"}).fit(texts)
    vectors = encoded(encoder, encoder.cache(encoder.prepare(texts), store=EmbeddingCache(cache))).float()
    x, classes = (torch.nn.functional.normalize(part, dim=1) for part in (vectors[: len(codes)], vectors[len(codes) :]))
    hidden = np.random.default_rng(seed).permutation(len(names))[: len(names) // 2]
    of_hidden = np.isin(codes, hidden)
    model = NeighborClassifier(metric="kernel", random_state=seed).fit(x[~of_hidden].numpy(), codes[~of_hidden])
    p = torch.from_numpy(model.predict_proba(x[of_hidden].numpy()))
    distances = class_distances(classes.double(), kind="cosine")[torch.from_numpy(model.classes_)]
    for method, score in (
        ("cosine of the texts", x[of_hidden] @ classes.T),
        ("probabilities by distances", frechet_scores(p, distances)),
    ):
        yield method + ", among hidden", (hidden[score[:, hidden].argmax(1)] == codes[of_hidden]).mean()
        yield method + ", among all", (score.argmax(1).numpy() == codes[of_hidden]).mean()
    yield "chance, among hidden", 1 / len(hidden)


PARTS = ((terms, "omniglot"), (terms, "shops"), (groups, "omniglot"), (described, "genres"))


def main():
    given = asked(
        __doc__, data=Path("../shared/data"), cache=Path("runs/learning"), out=RESULTS / "unknown-classes.csv", seeds=3
    )
    lines = Lines(given.out, "part", "set", "seed")
    for seed, (part, name) in product(range(given.seeds), PARTS):
        key = (part.__name__, name, seed)
        if key not in lines:
            found = part(name, given.data, given.cache, seed)
            lines.add(
                [dict(zip(lines.key, key, strict=True)) | {"method": way, "figure": value} for way, value in found]
            )


if __name__ == "__main__":
    main()
