"""The outlook of the paper's section 7, each against the base of ``ablations.py``, on the same sets, splits and seeds.

Ranks in place of similarities under the mask, S2 with a threshold of rejection, several heads with maps of queries and
keys, and blocks upstream in which rows look at rows (SAINT's and N3's); MLKR, the paper's kin, on the frozen vectors.
The library's own modules are trained, in the batches of ``trainer.py``; nothing is chosen by test errors.

    python benchmarks/nona/outlook.py --cache runs/nona --out benchmarks/results/nona-ablations.csv
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from results import Results
from sets import load
from torch import Tensor, nn
from trainer import Stream

from vicinal.encoders import Projector
from vicinal.heads import NONA, MultiHead, Refined
from vicinal.masks import RankStep, RejectingStep, SoftStep
from vicinal.similarity import Mapped

SIZES, BATCH, RATE, EPOCHS, PATIENCE = (200, 25), 32, 1e-3, 200, 10
WIDTH = SIZES[-1]
VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "base": lambda: NONA(mask=SoftStep(WIDTH)),
    "S1 of ranks": lambda: NONA(mask=RankStep(WIDTH, "s1")),
    "S1 of ranks, global": lambda: NONA(mask=RankStep(WIDTH, "s1", "global")),
    "S2 of ranks": lambda: NONA(mask=RankStep(WIDTH, "s2")),
    "S2 of ranks, global": lambda: NONA(mask=RankStep(WIDTH, "s2", "global")),
    "S2 with a threshold": lambda: NONA(mask=RejectingStep(WIDTH)),
    "S2 with a threshold, global": lambda: NONA(mask=RejectingStep(WIDTH, "global")),
    "one head with query and key maps": lambda: MultiHead(WIDTH, 1, mask=SoftStep(WIDTH)),
    "5 heads with query and key maps": lambda: MultiHead(WIDTH, 5, mask=SoftStep(WIDTH)),
    "5 such heads of the whole width": lambda: MultiHead(WIDTH, 5, WIDTH, mask=SoftStep(WIDTH)),
    "SAINT's block upstream": lambda: Refined(WIDTH, "saint", NONA(mask=SoftStep(WIDTH))),
    "N3's block upstream": lambda: Refined(WIDTH, "n3", NONA(mask=SoftStep(WIDTH))),
}
MLKR = "MLKR, no network"


def network(variant: str, width: int, seed: int) -> tuple[nn.Module, nn.Module]:
    """What embeds the vectors, and the head."""
    torch.manual_seed(seed)
    if variant == MLKR:
        return nn.Identity(), NONA(Mapped("squared_l2", width, WIDTH, shared=True))
    return Projector(width, SIZES), VARIANTS[variant]()


def train(x: Tensor, stream: Stream, projector: nn.Module, head: nn.Module) -> tuple[Tensor, float, int]:
    """Predictions of the test rows by the epoch of least validation error, that error, and how many epochs ran."""
    both = nn.ModuleList([projector, head])
    optimizer = torch.optim.Adam(both.parameters(), lr=RATE)
    least, best, epoch, guess = float("inf"), 0, 0, stream.labels[stream.test]
    for epoch in range(EPOCHS):
        both.train()
        generator = torch.Generator().manual_seed(stream.seed * 1_000_003 + epoch)
        order = stream.train[torch.randperm(len(stream.train), generator=generator)]
        for rows in order.tensor_split(max(1, round(len(order) / BATCH))):
            groups = stream.groups[rows]
            some = (groups[:, None] != groups).any(1)
            z = projector(x[rows])
            keys = {"query_ids": rows[some], "bank_ids": rows, "query_groups": groups[some], "bank_groups": groups}
            loss = (head(z[some], z, stream.labels[rows], **keys) - stream.labels[rows][some]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        both.eval()
        said = predict(x, stream, projector, head)
        error = float((said[: len(stream.validation)] - stream.labels[stream.validation]).square().mean())
        if error < least:
            least, best, guess = error, epoch, said[len(stream.validation) :]
        if epoch - best >= PATIENCE:
            break
    return guess, least, epoch + 1


@torch.no_grad()
def predict(x: Tensor, stream: Stream, projector: nn.Module, head: nn.Module) -> Tensor:
    """Of the validation and the test rows, by the training rows."""
    queries = torch.cat([stream.validation, stream.test])
    keys = {"query_ids": queries, "bank_ids": stream.train}
    return head(projector(x[queries]), projector(x[stream.train]), stream.labels[stream.train], **keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=["houses", "tweets"])
    parser.add_argument("--variants", nargs="*", default=[*VARIANTS, MLKR])
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = Results(options.out)
    for name in options.sets:
        data = load(name, options.cache)
        x = torch.from_numpy(data.features)
        for variant in options.variants:
            for split in data.splits(options.splits):
                if results.has(name, split.seed, "outlook", variant):
                    continue
                stream, started = Stream.of(split, data.labels, data.groups, split.seed), time.process_time()
                guess, least, epochs = train(x, stream, *network(variant, x.shape[1], split.seed))
                facts = {"validation": least, "epochs": epochs, "seconds": time.process_time() - started}
                results.add(name, stream, "outlook", variant, guess, **facts)
            print(name, variant, flush=True)


if __name__ == "__main__":
    main()
