"""Losses of embeddings written as text: every registered one is read, and what is wrong is named."""

import functools
import itertools

import numpy as np
import pytest
import torch

from vicinal.core import entries
from vicinal.losses import EmbeddingLoss, ProxyLoss, parse, supcon
from vicinal.losses.elsewhere import PEERS, as_call
from vicinal.losses.spec import Term, check_label_kind, label_kind, losses_for, read_loss
from vicinal.miners import semihard

ENTRIES = entries("pair_loss")
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
X = torch.nn.functional.normalize(torch.randn(12, 8, generator=torch.Generator().manual_seed(3)))
LABELS = torch.arange(12) // 3


@each
def test_every_pair_loss_can_be_written_and_made(entry):
    (term,) = read_loss(entry.name).terms
    assert term == Term(entry.name)
    criterion = term.make(num_classes=4, dim=8)
    value = criterion(X.clone().requires_grad_(), LABELS.float() if "number-relation" in entry.facts else LABELS)
    value.backward()
    assert value.isfinite()
    assert isinstance(criterion, ProxyLoss if {"proxies", "proxy-rows"} & entry.facts else EmbeddingLoss)


def test_no_name_stands_for_a_loss_of_pairs_and_one_of_predictions():
    names = {entry.name for entry in ENTRIES}
    for kind in ("loss", "link", "curve"):
        assert not names & {entry.name for entry in entries(kind)}, kind


def test_settings_reach_the_loss():
    relation, weight = (LABELS[:, None] == LABELS).float(), 1 - torch.eye(12)
    expected = supcon(X @ X.T, relation, weight, temperature=0.3, reduction="sum")
    criterion = parse("supcon(temperature=.3, reduction=sum)")
    torch.testing.assert_close(criterion(X, LABELS), expected)
    other = EmbeddingLoss("triplet", similarity="l2", normalize=True, miner=functools.partial(semihard, margin=0.1))
    written = parse("triplet(similarity=l2, normalize=True, miner=semihard(margin=0.1))")
    torch.testing.assert_close(written(X, LABELS), other(X, LABELS))


@pytest.mark.parametrize("name", ["rank_n_contrast", "log_ratio", "nlsh"])
def test_losses_of_distances_compare_by_distance(name):
    if name not in {entry.name for entry in ENTRIES}:
        pytest.skip("not registered")
    assert type(parse(name).similarity).__name__ == "NegativeL2"
    assert type(parse(f"{name}(similarity=cosine)").similarity).__name__ == "Cosine"


@pytest.mark.parametrize(
    ("text", "main", "terms"),
    [
        ("supcon", None, [("supcon", 1.0, {})]),
        ("SupCon()", None, [("supcon", 1.0, {})]),
        ("0.5*supcon(temperature=.1)", None, [("supcon", 0.5, {"temperature": 0.1})]),
        ("5e-1 * nt-xent + 2*triplet", None, [("nt_xent", 0.5, {}), ("triplet", 2.0, {})]),
        ("contrastive(neg_margin=-1e+0)", None, [("contrastive", 1.0, {"neg_margin": -1.0})]),
        ("triplet(triplets=semi-hard)", None, [("triplet", 1.0, {"triplets": "semi-hard"})]),
        ("triplet(triplets='semi-hard')", None, [("triplet", 1.0, {"triplets": "semi-hard"})]),
        ("matching:sinh + 0.2*sigmoid + supcon", "matching:sinh + 0.2*sigmoid", [("supcon", 1.0, {})]),
        ("supcon + matching:exp", "matching:exp", [("supcon", 1.0, {})]),
        ("composite_softmax: sinh(scale=.5), gamma=2 + nca", "composite_softmax: sinh(scale=.5), gamma=2", None),
        ("matching:piecewise([0, 1], [0, 2])", "matching:piecewise([0, 1], [0, 2])", []),
        ("dwell_time(doubling=2)", "dwell_time(doubling=2)", []),
    ],
)
def test_texts_are_taken_apart(text, main, terms):
    found = read_loss(text)
    assert found.main == main
    if terms is not None:
        assert [(term.name, term.weight, term.settings) for term in found.terms] == terms
    if found.main:
        parse(found.main)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("supcn", "did you mean 'supcon'?"),
        ("supcon(temprature=.1)", "got 'temprature'; did you mean 'temperature'?"),
        ("supcon(temperature=-1)", "temperature: expected a number above 0"),
        ("supcon(temperature=hot)", "temperature: expected a number, got 'hot'"),
        ("supcon(.1)", "settings by name, as supcon(temperature=0.1)"),
        ("supcon(similarity=cosin)", "did you mean 'cosine'?"),
        ("supcon(reduction=none)", "reduction: expected one of 'mean', 'sum', 'mean_nonzero'"),
        ("supcon(normalize=2)", "normalize: expected True or False"),
        ("triplet(miner=semihrad)", "did you mean 'semihard'?"),
        ("triplet(miner=semihard(margn=1))", "did you mean 'margin'?"),
        ("triplet(miner=guided)", "miner: expected one of"),
        ("arcface(miner=hard)", "'miner'"),
        ("supcon(per_class=2)", "'per_class'"),
        ("0*supcon", "weight: expected a number above 0"),
        ("-1*supcon", "loss: expected supcon to be added, got it subtracted"),
        ("supcon+", "+ between them"),
        ("supcon()()", "loss: expected"),
        ("supcon(**{})", "loss: expected"),
        ("supcon(temperature=(1)", "loss: expected"),
        ("__import__('os').getcwd()", "loss: expected"),
        ("supcon(temperature=__import__('os').getpid())", "loss: expected numbers and words"),
        ("supcon(temperature=[1])", "loss: expected numbers and words"),
        ("supcon(" + "(" * 500 + ")" * 500 + ")", "expected"),
        ("supcon(temperature=" + "1" * 5000 + ")", "at most 2000 characters"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(text, sentence):
    with pytest.raises(ValueError, match="expected") as caught:
        read_loss(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_other_packages_suggest_a_loss_that_can_be_written():
    for name, text in PEERS.items():
        with pytest.raises(ValueError, match=r"^loss: expected") as caught:
            read_loss(name)
        if text is None:
            assert "leave it out" in str(caught.value)
            continue
        assert str(caught.value).endswith(f"did you mean {text!r}?")
        (term,) = (written := read_loss(text)).terms or [None]
        if term is None:
            assert parse(written.main) is not None
        else:
            fixed = {"num_classes": 4, "dim": 8}
            call = eval(as_call(text), {"EmbeddingLoss": EmbeddingLoss, "ProxyLoss": ProxyLoss, **fixed})
            with torch.no_grad():
                ours = term.make(**fixed)
                ours.load_state_dict(call.state_dict())
                torch.testing.assert_close(ours(X, LABELS), call(X, LABELS))


@pytest.mark.parametrize("name", ["BatchHardTripletLoss", "BatchHardSoftMarginTripletLoss", "BatchAllTripletLoss"])
def test_triplets_of_sentence_transformers_by_their_definition(name):
    x = 3 * torch.randn(12, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64).numpy()
    labels, d = LABELS.numpy(), np.sqrt(((x[:, None] - x) ** 2).sum(-1))
    same, other = labels[:, None] == labels, labels[:, None] != labels
    gaps = np.array([max(d[i][same[i]]) - min(d[i][other[i]]) for i in range(12)])  # d[i, i] = 0 is never the largest
    triplets = [
        max(0, d[i, p] - d[i, n] + 5)
        for i, p, n in itertools.product(range(12), repeat=3)
        if same[i, p] and i != p and other[i, n]
    ]
    expected = {
        "BatchHardTripletLoss": np.maximum(gaps + 5, 0).mean(),
        "BatchHardSoftMarginTripletLoss": np.log1p(np.exp(gaps)).mean(),
        "BatchAllTripletLoss": np.mean([one for one in triplets if one > 0]),
    }[name]
    assert float(parse(PEERS[name])(torch.from_numpy(x), LABELS)) == pytest.approx(expected)


def test_a_miner_by_its_name_is_of_the_losses_of_pairs_that_name_none():
    terms = read_loss("proxy_anchor + triplet + contrastive(miner=hard) + 0.1*coding_rate", "semihard(margin=.1)").terms
    assert [term.miner for term in terms] == [None, ("semihard", {"margin": 0.1}), ("hard", {}), None]
    for text, miner, sentence in [
        ("triplet", "BatchHardMiner", "did you mean 'hard'"),
        ("triplet", "semihard)(", "loss: expected"),
        ("proxy_anchor", "hard", "miner: expected a loss of pairs"),
    ]:
        with pytest.raises(ValueError, match="expected") as caught:
            read_loss(text, miner)
        assert sentence in str(caught.value)
    with pytest.raises(TypeError, match="miner: expected a name"):
        read_loss("triplet", semihard)


@pytest.mark.parametrize("text", ["0.5*supcon", "supcon + nca", "supcon + matching:exp"])
def test_a_sum_is_no_single_criterion(text):
    with pytest.raises(ValueError, match=r"^loss: expected one loss without a factor"):
        parse(text)


def test_learned_vectors_need_to_know_the_classes():
    with pytest.raises(ValueError, match=r"ProxyLoss\('arcface', num_classes, dim\)"):
        parse("arcface")
    criterion = read_loss("soft_triple(per_class=3)").terms[0].make(num_classes=4, dim=8)
    assert criterion.proxies.shape == (12, 8)


def test_a_miner_that_needs_the_width_is_told_it():
    (term,) = read_loss("triplet(miner=distance_weighted)").terms
    assert term.make(dim=8)(X, LABELS).isfinite()
    with pytest.raises(ValueError, match=r"distance_weighted\(dim="):
        parse("triplet(miner=distance_weighted)")
    assert parse("triplet(miner=distance_weighted(dim=8))")(X, LABELS).isfinite()


@each
def test_a_loss_is_offered_for_the_labels_that_it_takes(entry):
    kind = label_kind(entry.facts)
    assert entry.name in losses_for(kind)
    check_label_kind(entry.name, entry.facts, kind)
    other = {"numbers": "classes", "classes": "numbers"}[kind]
    with pytest.raises(ValueError, match=f"labels that are {other}") as caught:
        check_label_kind(entry.name, entry.facts, other)
    assert all(name in str(caught.value) for name in losses_for(other))


def test_a_miner_of_a_saved_model_is_known_by_its_former_name():
    (term,) = read_loss("supcon(miner=whiskers(reach=2.0))").terms
    assert term.miner == ("iqr_filter", {"reach": 2.0})
