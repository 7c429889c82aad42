"""How a loss, a miner or a sampler is used: a few lines of Python, and the option of the command line."""

import inspect

from vicinal.core import Entry
from vicinal.losses.spec import NEGATIVE_DISTANCES


def python_example(kind: str, entry: Entry, settings: tuple[tuple[str, str, str], ...]) -> str:
    """Lines that make it and use it."""
    given = "".join(f", {name}={default}" for name, default, _ in settings if default not in ("needed", "None"))
    name, made = entry.name, entry.make.__name__
    if kind == "pairs":
        if name in NEGATIVE_DISTANCES:
            given = f', similarity="l2"{given}'
        labels = "numbers" if "number-relation" in entry.facts else "classes"
        return (
            "from vicinal.losses import EmbeddingLoss\n\n"
            f'criterion = EmbeddingLoss("{name}"{given})\n'
            f"loss = criterion(embeddings, labels)  # [b, d] and {labels} [b]"
        )
    if kind == "proxies":
        return (
            "from vicinal.losses import ProxyLoss\n\n"
            f'criterion = ProxyLoss("{name}", num_classes=10, dim=64{given})\n'
            "loss = criterion(embeddings, labels)  # [b, 64] and classes 0 to 9\n"
            "learned = criterion.parameters()  # the vectors of the classes: give them to the optimizer too"
        )
    if kind == "predictions":
        return _of_predictions(entry, settings)
    if kind == "samplers":
        first = next(iter(inspect.signature(entry.make).parameters))
        also = ", parents" if "parents" in inspect.signature(entry.make).parameters else ""
        return (
            "from torch.utils.data import DataLoader\n"
            f"from vicinal.samplers import {made}\n\n"
            f"sampler = {made}({first}{also}{given})\n"
            "loader = DataLoader(dataset, batch_sampler=sampler)"
        )
    required = [name for name, default, _ in settings if default == "needed"]
    needed = "".join(f", {name}={64 if name == 'dim' else name}" for name in required)
    miner = f"functools.partial(miners.{made}{needed}{given})" if needed or given else f"miners.{made}"
    return (
        ("import functools\n\n" if "partial" in miner else "") + "from vicinal import miners\n"
        "from vicinal.losses import EmbeddingLoss\n\n"
        f"miner = {miner}\n"
        'criterion = EmbeddingLoss("triplet", miner=miner)\n'
        "loss = criterion(embeddings, labels)"
    )


def _of_predictions(entry: Entry, settings: tuple[tuple[str, str, str], ...]) -> str:
    made = entry.make.__name__
    if hasattr(entry.make, "steps"):
        return (
            f"from vicinal.losses import {made}\n\n"
            f"criterion = {made}().fit(labels)\n"
            "steps = criterion.steps(labels)  # [n, K]\n"
            "loss = criterion(weights @ steps, steps)  # weights of neighbors [n, n], rows sum to 1"
        )
    needed = [name for name, default, _ in settings if default == "needed"]
    example = {"link": "links.Sinh()", "scaling": "links.Exp()", "potential": "links.ConvexPotential(3)"}
    own = ", ".join(example.get(name, name) for name in needed)
    return (
        "from vicinal import links\n" if needed else ""
    ) + f"from vicinal.losses import {made}\n\ncriterion = {made}({own})\nloss = criterion({_called_with(entry)})"


def _called_with(entry: Entry) -> str:
    """What a loss of predictions is called with: mostly prediction and target."""
    parameters = list(inspect.signature(getattr(entry.make, "forward", entry.make)).parameters.values())
    return ", ".join(p.name for p in parameters if p.default is p.empty and p.name != "self")


def command_example(kind: str, entry: Entry, settings: tuple[tuple[str, str, str], ...]) -> str:
    """The option of ``vicinal fit`` that adds it, or ""."""
    if kind in ("pairs", "proxies"):
        given = ", ".join(f"{n}={d}" for n, d, _ in settings[:2] if d not in ("needed", "None") and "'" not in d)
        return f'vicinal fit data.csv --target label --loss "{entry.name}{f"({given})" if given else ""}"'
    if kind == "miners" and not any(default == "needed" and name != "dim" for name, default, _ in settings):
        return f'vicinal fit data.csv --target label --loss "triplet(miner={entry.name})"'
    if kind == "predictions":
        part = {"link": ":sinh", "scaling": ":exp"}
        first = next((name for name, default, _ in settings if default == "needed"), "")
        by_itself = _called_with(entry) == "prediction, target" or hasattr(entry.make, "steps")
        if first != "potential" and by_itself:
            return f'vicinal fit data.csv --target score --loss "{entry.name}{part.get(first, "")}"'
    return ""
