"""The training loop of stacked members: the library's batches, optimizer and early stopping, one step for all."""

from dataclasses import dataclass

import numpy as np
import torch
from attention import batch_loss, combine, readouts
from members import Recipe, buffers, embed_batch, embed_rows, modules, stack
from torch import Tensor

from vicinal.data import Split


@dataclass(frozen=True)
class Stream:
    """Rows of one split on the device of training: labels are scaled to [0, 1] by the range of the training rows."""

    train: Tensor
    validation: Tensor
    test: Tensor
    labels: Tensor
    groups: Tensor
    seed: int

    @staticmethod
    def of(split: Split, labels: np.ndarray, groups: np.ndarray, seed: int) -> "Stream":
        """A split of a set; ``seed``: of the order of rows and of the random start."""
        low, high = labels[split.train].min(), labels[split.train].max()
        scaled = torch.from_numpy(((labels - low) / (high - low)).astype(np.float32))
        rows = (torch.from_numpy(part) for part in (split.train, split.validation, split.test))
        return Stream(*rows, scaled, torch.from_numpy(groups), seed)


@dataclass
class Fitted:
    """Members at their best epoch.

    Attributes:
        parameters: ``[M, ...]`` by name; ``running`` likewise: statistics of the batch norms.
        validation: best validation error of each member ``[M]``.
        best: epoch of it ``[M]``.
        epochs: how many epochs each member ran ``[M]``.
    """

    parameters: dict[str, Tensor]
    running: dict[str, Tensor]
    validation: np.ndarray
    best: np.ndarray
    epochs: np.ndarray


def fit(features: Tensor, streams: list[Stream], recipe: Recipe, each: int, start: dict[str, Tensor] | None = None):
    """Train ``len(streams) * each`` members, member ``g * each + k`` on stream g; gives :class:`Fitted`.

    Args:
        features: ``[n, f]`` float32.
        streams: splits.
        recipe: what is trained; its rates, decays and dropouts are for the ``each`` members of a stream.
        each: members a stream.
        start: parameters to begin with; None: torch's random start, seeded by the streams.
    """
    return _Run(features, streams, recipe, each, start).run()


class _Run:
    def __init__(self, features, streams, recipe, each, start):
        self.x, self.streams, self.recipe, self.each = features, list(streams), recipe, each
        count = len(streams) * each
        self.p = {name: value.clone().requires_grad_() for name, value in (start or _start(self)).items()}
        self.running = buffers(recipe, count, features.shape[1])
        self.moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in self.p.items()}
        self.setting = torch.tensor([_spread(v, each) for v in (recipe.rates, recipe.decays, recipe.dropouts)])
        self.setting = self.setting.repeat(1, len(streams))  # [3, M]
        self.place = torch.arange(count)  # where each member that still trains belongs in the result
        self.result = Fitted(
            {name: v.detach().clone() for name, v in self.p.items()},
            {name: v.clone() for name, v in self.running.items()},
            np.full(count, np.inf),
            np.zeros(count, dtype=int),
            np.zeros(count, dtype=int),
        )
        self.steps = max(1, round(float(np.mean([len(s.train) for s in streams])) / recipe.batch))
        self.taken = 0

    def run(self) -> Fitted:
        for epoch in range(self.recipe.epochs):
            self._epoch(epoch)
            self._validate(epoch)
            if not self._drop_finished(epoch):
                break
        return self.result

    def _epoch(self, epoch: int) -> None:
        orders = []
        for stream in self.streams:
            generator = torch.Generator().manual_seed(stream.seed * 1_000_003 + epoch)
            order = torch.randperm(len(stream.train), generator=generator)
            orders.append(stream.train[order].tensor_split(self.steps))
        torch.manual_seed(self.streams[0].seed * 7919 + epoch)  # of dropout
        for blocks in zip(*orders, strict=True):
            self._step(blocks)

    def _step(self, blocks: tuple[Tensor, ...]) -> None:
        longest = max(map(len, blocks))
        real = None
        if any(len(block) < longest for block in blocks):
            real = torch.stack([torch.arange(longest) < len(block) for block in blocks])  # [G, b]
            blocks = tuple(torch.cat([block, block[:1].expand(longest - len(block))]) for block in blocks)
        rows = torch.stack(blocks)  # [G, b]
        labels = torch.stack([s.labels[r] for s, r in zip(self.streams, rows, strict=True)])
        groups = torch.stack([s.groups[r] for s, r in zip(self.streams, rows, strict=True)])
        allowed = groups[:, :, None] != groups[:, None, :]
        if real is not None:
            allowed = allowed & real[:, None, :] & real[:, :, None]
        counted = allowed.any(-1) if self.recipe.uses_neighbors else torch.ones_like(labels, dtype=torch.bool)
        counted = counted if real is None else counted & real
        keep = 1 - self.setting[2][:, None, None]
        z = embed_batch(self.p, self.running, self.recipe, self.x[rows], real, keep)

        def spread(tensor):
            return tensor.repeat_interleave(self.each, dim=0)

        open_to = allowed | ~counted[:, :, None]  # a row that does not count may look anywhere: its weights stay finite
        barred = torch.zeros(allowed.shape).masked_fill_(~open_to, -torch.inf)
        loss = batch_loss(self.recipe, self.p, z, spread(labels), spread(barred), spread(counted).float())
        names = list(self.p)
        found = torch.autograd.grad(loss, [self.p[name] for name in names], allow_unused=True)
        self._adam({name: g for name, g in zip(names, found, strict=True) if g is not None})

    @torch.no_grad()
    def _adam(self, gradients: dict[str, Tensor]) -> None:
        self.taken += 1
        names = list(gradients)
        parts = [
            [self.p[name].detach() for name in names],
            [gradients[name].contiguous() for name in names],
            [self.moments[name][0] for name in names],
            [self.moments[name][1] for name in names],
        ]
        rates, decays = self.setting[0].tolist(), self.setting[1].tolist()
        if len(set(rates)) == len(set(decays)) == 1:
            return _adamw(parts, self.taken, rates[0], decays[0])
        cut = [list(zip(*(tensor.unbind(0) for tensor in part), strict=True)) for part in parts]
        for member, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
            _adamw([list(part[member]) for part in cut], self.taken, rate, decay)
        return None

    @torch.no_grad()
    def _validate(self, epoch: int) -> None:
        for first in range(0, len(self.place), self.each):
            stream = self.streams[first // self.each]
            guesses = torch.stack([self._guess(first + k, stream) for k in range(self.each)])
            if self.recipe.together:
                guesses = guesses.mean(0, keepdim=True).expand(self.each, -1)
            errors = (guesses - stream.labels[stream.validation]).square().mean(-1).tolist()
            for member, error in enumerate(errors, first):
                self._note(member, error, epoch)

    def _guess(self, member: int, stream: Stream) -> Tensor:
        """What a member says of the validation rows."""
        own = {name: v.detach()[member] for name, v in self.p.items()}
        queries = embed_rows(self.p, self.running, self.recipe, member, self.x[stream.validation])
        bank = queries[:1]
        if self.recipe.uses_neighbors:
            bank = embed_rows(self.p, self.running, self.recipe, member, self.x[stream.train])
        return combine(
            self.recipe.stop, *readouts(self.recipe, own, queries, bank, stream.labels[stream.train[: len(bank)]])
        )

    def _note(self, member: int, error: float, epoch: int) -> None:
        place = int(self.place[member])
        self.result.epochs[place] = epoch + 1
        if error < self.result.validation[place]:
            self.result.validation[place], self.result.best[place] = error, epoch
            for kept, now in ((self.result.parameters, self.p), (self.result.running, self.running)):
                for name, value in now.items():
                    kept[name][place] = value.detach()[member]

    def _drop_finished(self, epoch: int) -> int:
        """Leave out streams of which all members are done, and member numbers that are done in every stream."""
        best = torch.from_numpy(self.result.best)[self.place]
        alive = (epoch - best < self.recipe.patience).unflatten(0, (len(self.streams), self.each))
        streams, numbers = alive.any(1), alive.any(0)
        if not (streams.all() and numbers.all()):
            kept = (streams[:, None] & numbers[None, :]).flatten()
            self.place, self.setting = self.place[kept], self.setting[:, kept]
            self.streams = [s for s, on in zip(self.streams, streams.tolist(), strict=True) if on]
            self.each = int(numbers.sum())
            self.p = {name: v.detach()[kept].requires_grad_() for name, v in self.p.items()}
            self.running = {name: v[kept] for name, v in self.running.items()}
            self.moments = {name: (m[kept], v[kept]) for name, (m, v) in self.moments.items()}
        return len(self.place)


def _spread(values: tuple[float, ...], each: int) -> list[float]:
    return list(values) * each if len(values) == 1 else list(values)


def _start(run: _Run) -> dict[str, Tensor]:
    made = []
    for stream in run.streams:
        torch.manual_seed(stream.seed)
        mean = float(stream.labels[stream.train].mean())
        made += [modules(run.recipe, run.x.shape[1], mean) for _ in range(run.each)]
    return stack(made)


def _adamw(parts: list[list[Tensor]], step: int, rate: float, decay: float) -> None:
    values, gradients, first, second = parts
    torch._fused_adamw_(
        values,
        gradients,
        first,
        second,
        [],
        [torch.tensor(float(step)) for _ in values],
        lr=rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=decay,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
