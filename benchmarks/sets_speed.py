"""What encoders of sets cost beside torch_geometric's aggregators, and Sinkhorn's plan beside POT and log-domain loops.

    python benchmarks/sets_speed.py

Processor seconds of one thread, medians of interleaved rounds, in one run; both packages are installed for it, and no
dependency. Sets are [256, 64, 128], all of 64 elements or of 1 to 64 ("ragged"), with gradients of parameters and
elements: forward alone, and forward and backward. Where torch_geometric's layers have a map that ours have not (after
the attention, before pooling), ours get it here: both must have equal numbers of parameters. Plans are of 1,000 x 1,000
squared distances, float64, each with as many steps (of ten) as the sum of the errors of all margins needs to be below
:data:`ERROR`; backward is through the cost of the squared plan.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.encoders.sets import (
    AttentionPooling,
    CommutativeFold,
    DeepSets,
    FeatureAttention,
    Moments,
    SelfAttentionBlock,
    SetEncoder,
)
from vicinal.transport import sinkhorn

BATCH, SIZE, WIDTH, HEADS, SEEDS = 256, 64, 128, 4, 32
POINTS, ERROR, LIMIT = 1000, 1e-6, 20_000
Step = Callable[[], object]


def medians(steps: dict[str, Step], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds of each step, and the median over rounds of the first's over each."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            step()
            if number:
                times[name].append(time.process_time() - start)
    first = next(iter(times.values()))
    ratios = {name: statistics.median(a / b for a, b in zip(first, each, strict=True)) for name, each in times.items()}
    return {name: statistics.median(each) for name, each in times.items()}, ratios


class Blocks(SetEncoder):
    """Blocks one after the other, of which those before the first pooling see the padding."""

    def __init__(self, *blocks: SelfAttentionBlock | AttentionPooling) -> None:
        super().__init__(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(blocks)
        self.before = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) if isinstance(block, AttentionPooling) else nn.Identity()
            for block in blocks
        )
        for block in blocks:
            block.block.out = nn.Sequential(nn.Linear(WIDTH, WIDTH), block.block.out)  # type: ignore[assignment]

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        mask = None if bool(valid.all()) else valid
        for before, block in zip(self.before, self.blocks, strict=True):
            elements = block(before(elements), mask)
            mask = None if isinstance(block, AttentionPooling) else mask
        return elements[:, 0]


class Fold(SetEncoder):
    """A feature attention or a fold as it is, behind the checks that every encoder of sets makes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(WIDTH, WIDTH)
        self.inner = inner

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        result: Tensor = self.inner(elements, valid)
        return result


def perceptron() -> nn.Sequential:
    """Linear, ReLU, Linear."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def pairs() -> dict[str, tuple[SetEncoder, nn.Module]]:
    """By name ours and torch_geometric's."""
    from torch_geometric.nn import aggr

    def pooling(seeds: int = 1) -> AttentionPooling:
        return AttentionPooling(WIDTH, seeds=seeds, heads=HEADS, normalize=True)

    def attention() -> SelfAttentionBlock:
        return SelfAttentionBlock(WIDTH, WIDTH, heads=HEADS, normalize=True)

    return {
        "DeepSets": (DeepSets(WIDTH, WIDTH), aggr.DeepSetsAggregation(perceptron(), perceptron())),
        "DeepSets(pool='max')": (DeepSets(WIDTH, WIDTH, pool="max"), _pooled("max")),
        "DeepSets(pool='mean')": (DeepSets(WIDTH, WIDTH, pool="mean"), _pooled("mean")),
        "Moments": (Moments(WIDTH), aggr.MultiAggregation(["mean", "std"])),
        "FeatureAttention": (Fold(FeatureAttention(WIDTH)), aggr.AttentionalAggregation(nn.Linear(WIDTH, WIDTH))),
        "CommutativeFold": (Fold(CommutativeFold(WIDTH, WIDTH)), aggr.LCMAggregation(WIDTH, WIDTH)),
        "SetTransformer: SAB, PMA, SAB": (
            Blocks(attention(), pooling(), attention()),
            aggr.SetTransformerAggregation(WIDTH, heads=HEADS, layer_norm=True),
        ),
        "PMA, SAB, PMA (graph multiset transformer)": (
            Blocks(pooling(SEEDS), attention(), pooling()),
            aggr.GraphMultisetTransformer(WIDTH, k=SEEDS, heads=HEADS, layer_norm=True),
        ),
    }


def _pooled(how: str) -> nn.Module:
    """torch_geometric's aggregator ``how`` between two networks."""
    from torch_geometric.nn import aggr

    class Between(aggr.Aggregation):  # type: ignore[misc]  # the package has no types here
        def __init__(self) -> None:
            super().__init__()
            self.phi, self.rho = perceptron(), perceptron()

        def forward(
            self, x: Tensor, index: Tensor, ptr: Tensor | None = None, dim_size: int | None = None, dim: int = -2
        ) -> Tensor:
            result: Tensor = self.rho(self.reduce(self.phi(x), index, ptr, dim_size, dim, reduce=how))
            return result

    return Between()


def parameters(module: nn.Module) -> int:
    """How many numbers are learned; ours has a vector of empty sets more, and a fold its identity for penalties."""
    return sum(each.numel() for name, each in module.named_parameters() if not name.endswith("identity"))


def encoders(rounds: int) -> list[dict[str, object]]:
    """A line for each pair, shape and direction."""
    torch.manual_seed(0)
    values, whole = torch.randn(BATCH, SIZE, WIDTH), torch.full((BATCH,), SIZE)
    ragged = torch.randint(1, SIZE + 1, (BATCH,))
    lines: list[dict[str, object]] = []
    for name, (ours, theirs) in pairs().items():
        mine, others = parameters(ours) - ours.dim, parameters(theirs)
        if mine != others:
            raise ValueError(f"{name}: expected {others} parameters as the other has, got {mine}")
        for shape, sizes in (("", whole), (", ragged", ragged)):
            valid = torch.arange(SIZE) < sizes[:, None]
            sets, rows = values.clone().requires_grad_(), values[valid].requires_grad_()
            index = torch.arange(BATCH).repeat_interleave(sizes)
            dense = {"max_num_elements": SIZE} if name.startswith(("Commutative", "Set", "PMA")) else {}
            forward = (partial(ours, sets, valid), partial(theirs, rows, index, dim_size=BATCH, **dense))
            both = tuple(
                trained(module, inputs, step)
                for module, inputs, step in zip((ours, theirs), (sets, rows), forward, strict=True)
            )
            for what, steps in (("forward", forward), ("forward and backward", both)):
                spent, ratio = medians(dict(zip(("ours", "theirs"), steps, strict=True)), rounds)
                seconds = {"seconds": spent["ours"], "beside": spent["theirs"], "ratio": ratio["theirs"]}
                lines.append({"what": f"{name}{shape}, {what}"} | seconds)
                print(lines[-1], flush=True)
    return lines


def trained(module: nn.Module, inputs: Tensor, forward: Callable[[], Tensor]) -> Step:
    """A step with the gradients of the inputs and of all parameters."""
    wanted = [inputs, *module.parameters()]

    def step() -> None:
        torch.autograd.grad(forward().square().sum(), wanted, allow_unused=True)

    return step


def log_loop(costs: Tensor, temperature: float, steps: int) -> Tensor:
    """The plan of a loop on logarithms as geomloss writes it, potentials in turn."""
    mass = -torch.log(torch.tensor(float(POINTS), dtype=costs.dtype))
    g = torch.zeros(POINTS, dtype=costs.dtype)
    for _ in range(steps):
        f = -temperature * ((g - costs) / temperature + mass).logsumexp(dim=1)
        g = -temperature * ((f[:, None] - costs) / temperature + mass).logsumexp(dim=0)
    return ((f[:, None] + g - costs) / temperature + 2 * mass).exp()


def off(plan: Tensor) -> float:
    """Sum of the errors of all margins."""
    return float(sum((plan.detach().sum(axis) - 1 / POINTS).abs().sum() for axis in (0, 1)))


def plans(temperature: float, costs: Tensor) -> dict[str, Callable[[int], Tensor]]:
    """Plans after so many steps, by name, ours first; the two of POT's numpy backend have no gradient."""
    import ot

    masses = torch.full((POINTS,), 1 / POINTS, dtype=costs.dtype)
    plain = [each.detach().numpy() for each in (masses, masses, costs)]

    def pot(method: str, inputs: list[object]) -> Callable[[int], Tensor]:
        def plan(steps: int) -> Tensor:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it has not converged: the error is looked at here
                found = ot.sinkhorn(*inputs, temperature, method=method, numItermax=steps, stopThr=0)
            return torch.as_tensor(found)

        return plan

    return {
        "ours": lambda steps: sinkhorn(-costs, temperature=temperature, steps=steps, tolerance=0),
        "POT, sinkhorn_log, numpy": pot("sinkhorn_log", plain),
        "POT, sinkhorn_log, torch": pot("sinkhorn_log", [masses, masses, costs]),
        "POT, sinkhorn, numpy": pot("sinkhorn", plain),
        "log-domain loop, torch": lambda steps: log_loop(costs, temperature, steps),
    }


def enough(plan: Callable[[int], Tensor], guess: int) -> int | None:
    """The least steps, of ten, after which the margins are right to :data:`ERROR`; None: not in :data:`LIMIT`."""
    with torch.no_grad():
        low, high = 0, guess
        while not off(plan(high)) <= ERROR:
            low, high = high, high + max(10, high // 40 * 10)
            if high > LIMIT:
                return None
        if low == 0 and high > 10 and not off(plan(high - 10)) <= ERROR:
            return high
        while high - low > 10:
            middle = (low + high) // 20 * 10
            low, high = (low, middle) if off(plan(middle)) <= ERROR else (middle, high)
    return high


def transport(rounds: int, temperatures: list[float]) -> list[dict[str, object]]:
    """A line for each plan and direction."""
    generator, lines = torch.Generator().manual_seed(0), list[dict[str, object]]()
    points = torch.rand(2, POINTS, 2, generator=generator, dtype=torch.float64)
    costs = (torch.cdist(*points).square() / 2).requires_grad_()
    for temperature in temperatures:
        found = plans(temperature, costs)
        needed: dict[str, int | None] = {}
        for name, plan in found.items():
            needed[name] = enough(plan, needed.get("ours") or 10)
        print(temperature, needed, flush=True)
        known = {name: (found[name], steps) for name, steps in needed.items() if steps is not None}
        with_gradient = {name: one for name, one in known.items() if "numpy" not in name}
        for what, some in (("forward", known), ("forward and backward", with_gradient)):

            def run(plan: Callable[[int], Tensor], steps: int, what: str = what) -> None:
                with torch.set_grad_enabled(what != "forward"):
                    value = plan(steps)
                if what != "forward":
                    torch.autograd.grad((value * value * costs.detach()).sum(), costs)

            spent, ratio = medians({n: lambda one=one: run(*one) for n, one in some.items()}, rounds)  # type: ignore[misc]
            for name, (_, steps) in list(some.items())[1:]:
                label = f"sinkhorn at {temperature:g}, {what}, beside {name} ({steps} steps, ours {known['ours'][1]})"
                lines.append({"what": label, "seconds": spent["ours"], "beside": spent[name], "ratio": ratio[name]})
                print(lines[-1], flush=True)
    return lines


def table(path: Path) -> None:
    """The lines of the CSV as a table."""
    print("| what | ours, ms | other, ms | ratio |\n| --- | --- | --- | --- |")
    for _, row in pd.read_csv(path).iterrows():
        print(f"| {row['what']} | {1000 * row['seconds']:.1f} | {1000 * row['beside']:.1f} | {row['ratio']:.2f} |")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--temperatures", nargs="*", type=float, default=[0.1, 0.01])
    parser.add_argument("--parts", nargs="*", choices=("encoders", "transport"), default=["encoders", "transport"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/sets-speed.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = encoders(options.rounds) if "encoders" in options.parts else []
    lines += transport(5, options.temperatures) if "transport" in options.parts else []
    if lines:
        pd.DataFrame(lines).to_csv(options.out, index=False, float_format="%.5f")
    table(options.out)


if __name__ == "__main__":
    main()
