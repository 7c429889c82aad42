"""The page "from pytorch-metric-learning" is true: each line that says "same" is run against that package."""

import re
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

import vicinal.losses
from vicinal import miners
from vicinal.core import entries
from vicinal.losses import EmbeddingLoss, MinerForPML, ProxyLoss
from vicinal.losses.elsewhere import PEERS, peer_hint
from vicinal.losses.pml import weight_of_indices
from vicinal.similarity.base import resolve_similarity

PAGE = Path(__file__).parents[1] / "docs" / "from-pytorch-metric-learning.md"
if not PAGE.is_file():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an optional package")
    from pytorch_metric_learning import distances, losses
    from pytorch_metric_learning import miners as their_miners

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs warns of its use of numpy and torch
TEXT = PAGE.read_text(encoding="utf-8")
LABELS = torch.repeat_interleave(torch.arange(6), torch.tensor([5, 4, 3, 6, 2, 4]))
OURS = {**vars(vicinal.losses), "partial": partial, "miners": miners}


def lines(part):
    """Rows of a table that is checked: (theirs, ours, what is said of the value)."""
    (table,) = re.findall(rf"<!-- checked: {part} -->\n(.*?)<!-- end", TEXT, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in table.splitlines() if "`" in line]
    return [(row[0].strip("`"), row[1].strip("`"), row[2]) for row in rows]


def same(part):
    return [pytest.param(*row, id=row[0]) for row in lines(part) if row[2].startswith("same")]


def embeddings(seed=0):
    return torch.randn(24, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def share_proxies(theirs, ours):
    weight = next(iter(theirs.parameters())).data
    ours.proxies.data.copy_(weight if weight.shape == ours.proxies.shape else weight.T)


@pytest.mark.parametrize(("theirs", "ours", "said"), same("losses"))
def test_losses_have_the_same_value_and_gradient(theirs, ours, said, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            their_loss = eval(theirs, {**vars(losses), "losses": losses, "distances": distances})
            our_loss = eval(ours, dict(OURS))
            if isinstance(our_loss, ProxyLoss):
                share_proxies(their_loss, our_loss)
            for seed in range(1 if "first batch" in said else 2):  # a second batch, for those that remember the first
                results = []
                for loss in (their_loss, our_loss):
                    x = embeddings(seed)
                    x = (torch.nn.functional.normalize(x) if "length 1" in said else x).requires_grad_()
                    results.append((value_of(loss, x), x))
                values = [value for value, _ in results]
                torch.testing.assert_close(values[1], values[0], rtol=1e-6, atol=1e-9)
                if not ("length 1" in said or "value" in said):  # what theirs differs in
                    slopes = [torch.autograd.grad(value, x)[0] for value, x in results]
                    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-5, atol=1e-7)
        finally:
            torch.set_default_dtype(before)


def value_of(loss, x):
    if loss is vicinal.losses.vicreg:
        return loss(x, x.detach().flip(0))
    if isinstance(loss, losses.VICRegLoss):
        return loss(x, ref_emb=x.detach().flip(0))
    return loss(x, LABELS)


@pytest.mark.parametrize(("theirs", "ours", "said"), same("miners"))
def test_miners_choose_the_same_pairs(theirs, ours, said):
    their_miner = eval(theirs, {**vars(their_miners), "distances": distances})
    our_miner = MinerForPML(eval(ours, dict(OURS)), similarity="l2")
    x = torch.nn.functional.normalize(embeddings())
    weights = [weight_of_indices(miner(x, LABELS), 24, 24) for miner in (their_miner, our_miner)]
    assert weights[0].any()
    assert torch.equal(weights[0], weights[1])


@pytest.mark.parametrize(("theirs", "ours", "said"), same("distances"))
def test_distances_are_the_same(theirs, ours, said):
    matrix = eval(theirs, vars(distances))(embeddings())
    settings = eval(f"dict({ours})")
    x = torch.nn.functional.normalize(embeddings()) if settings.get("normalize") else embeddings()
    scores = resolve_similarity(settings["similarity"])(x, x)
    torch.testing.assert_close(scores, -matrix if "negative" in said else matrix, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize(("part", "package"), [("losses", losses), ("miners", their_miners), ("distances", distances)])
def test_every_name_of_theirs_is_there(part, package):
    classes = [n for n, c in vars(package).items() if isinstance(c, type) and not n.startswith("Base")]
    names = {name for name in classes if not name.endswith("Mixin")}
    assert names == {re.match(r"\w+", row[0])[0] for row in lines(part)}


@pytest.mark.parametrize("name", ["reducers", "samplers", "regularizers"])
def test_every_other_name_of_theirs_is_there(name):
    import importlib

    package = importlib.import_module(f"pytorch_metric_learning.{name}")
    for found, kind in vars(package).items():
        if isinstance(kind, type) and not found.startswith("Base"):
            assert f"`{found}" in TEXT, found


def test_the_names_that_errors_suggest_are_those_of_the_page():
    table, names = {}, [entry.name for entry in entries("pair_loss")]
    for theirs, ours, said in lines("losses"):
        if said.startswith("same") and re.match(r'(EmbeddingLoss|ProxyLoss)\("', ours):
            table.setdefault(re.match(r"\w+", theirs)[0], []).append(ours.replace("6, 8", "num_classes, dim"))
    for name in set(table) - {"CrossBatchMemory", "RankedListLoss"}:  # a bank, and settings without a default
        hint = peer_hint(name, names, call=True)
        assert hint.removeprefix("; did you mean ").removesuffix("?") in table[name]
    assert not {name for name in PEERS if hasattr(losses, name)} - set(table)


def test_every_name_of_ours_is_there():
    known = {entry.name for entry in entries("pair_loss")}
    named = set(re.findall(r'(?:EmbeddingLoss|ProxyLoss)\("(\w+)"', TEXT))
    assert named <= known
    for _, ours, said in lines("losses"):
        if said == "other":
            assert isinstance(eval(ours, dict(OURS)), EmbeddingLoss)
