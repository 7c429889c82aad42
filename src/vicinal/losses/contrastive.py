"""Losses of pairs, each by itself: related pairs above one score, unrelated pairs below another."""

import math
import warnings

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.blockwise.logsums import softplus
from vicinal.core.checks import check_between, check_number
from vicinal.losses.contract import (
    NUMPY,
    PAPER_CODE,
    PML,
    ROWS,
    Pairs,
    RowTerms,
    pair_loss,
    pair_terms,
    row_products,
    row_terms,
    some,
)
from vicinal.losses.ranges import NonNegative, Number, Positive, Share
from vicinal.ranks.pairs import check_label_chances


@pair_loss("contrastive", *ROWS, family="contrastive", paper="Hadsell et al., CVPR 2006", verified=PML)
def contrastive(pairs: Pairs, *, pos_margin: Number = 1.0, neg_margin: Number = 0.0) -> tuple[RowTerms, RowTerms]:
    r"""Related pairs above one score, unrelated pairs below another.

    $[m_+ - s_{ij}]_+$ for related pairs plus $[s_{ij} - m_-]_+$ for unrelated ones, averaged separately.

    The defaults are meant for cosine scores. For negative distances use ``pos_margin=0, neg_margin=-1``.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        pos_margin: related pairs should score at least this.
        neg_margin: unrelated pairs should score at most this.

    >>> contrastive(torch.tensor([[0.5, 0.25, -1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.6250)
    """
    return (
        pairs.related_terms(lambda score, *_: torch.relu(pos_margin - score)),
        pairs.terms(torch.relu(pairs.scores - neg_margin), pairs.negative),
    )


@pair_loss("margin", *ROWS, family="contrastive", paper="arXiv:1706.07567", verified=PML)
def margin(pairs: Pairs, *, margin: NonNegative = 0.2, boundary: float | Tensor = 0.3) -> RowTerms:
    r"""Related pairs above a boundary and unrelated ones below it, by a margin; the boundary may be learned.

    $[\beta + m - s_{ij}]_+$ for related pairs plus $[s_{ij} - \beta + m]_+$ for unrelated ones, in all triplets.

    A pair counts once for each triplet of its row: a related pair as often as the row has unrelated ones, and vice
    versa. The boundary may be learned: give a parameter.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: >= 0, on both sides of the boundary.
        boundary: the score between related and unrelated; a cosine of 0.3 is a distance of about 1.2 between unit
            vectors.

    >>> margin(torch.tensor([[0.4, 0.2]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1000)
    """
    related = pairs.related_terms(lambda score, *_: torch.relu(boundary + margin - score))
    unrelated = pairs.terms(torch.relu(pairs.scores - boundary + margin), pairs.negative)
    each = zip(related, unrelated, strict=True)
    return RowTerms(*(one * unrelated.number + other * related.number for one, other in each))


def _sums(pairs: Pairs, **_: float) -> tuple[Tensor, Tensor]:
    """Sums of the scores of related and of unrelated pairs, and of their weights, ``[1, 2]`` each."""
    sides = (pairs.positive, pairs.negative)
    sums = [row_products(pairs.scores, side).sum() for side in sides]
    return torch.stack(sums)[None], torch.stack([side.sum() for side in sides])[None]


def _means(sums: Tensor, numbers: Tensor) -> Tensor:
    total = numbers.sum(0)
    return sums.sum(0) / torch.where(total > 0, total, 1.0)


@pair_loss(
    "intra_pair_variance",
    "soft-relation",
    family="contrastive",
    paper="Yu and Tao, ICCV 2019",
    verified=PML,
    batch_stats=_sums,
)
def intra_pair_variance(
    pairs: Pairs, *, pos_eps: NonNegative = 0.01, neg_eps: NonNegative = 0.01
) -> tuple[RowTerms, RowTerms]:
    r"""Related pairs alike in score, and unrelated pairs alike in theirs.

    $[(1-\epsilon_+)\mu_+ - s_{ij}]_+^2$ for related and $[s_{ij} - (1+\epsilon_-)\mu_-]_+^2$ for unrelated pairs.

    Related pairs below the mean $\mu_+$ of all related pairs cost, as do unrelated pairs above theirs. It narrows the
    two distributions but does not separate them: add it to another loss. Made for means above 0.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        pos_eps: >= 0, the share of the mean that is allowed.
        neg_eps: likewise for unrelated pairs.

    >>> intra_pair_variance(torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[1.0, 1.0, 0.0]]))
    tensor(0.1225)
    """
    high, low = _means(*pairs.stats)
    return (
        pairs.related_terms(lambda score, *_: torch.relu((1 - pos_eps) * high - score).square()),
        pairs.terms(torch.relu(pairs.scores - (1 + neg_eps) * low).square(), pairs.negative),
    )


@pair_loss("ranked_list", *ROWS, family="contrastive", paper="arXiv:1903.03238", verified=PML)
def ranked_list(
    pairs: Pairs,
    *,
    margin: NonNegative = 0.4,
    threshold: float = 0.3,
    imbalance: Share = 0.5,
    pos_temperature: NonNegative = 0.0,
    neg_temperature: NonNegative = 3.0,
    smoothing: NonNegative = 0.0,
) -> RowTerms:
    r"""Weighted means of the gaps of hard related and hard unrelated columns of a row.

    Weighted mean of $t + m - s$ over related pairs below $t + m$, and of $s - t$ over unrelated above t.

    In each row the two sides are weighted by $e^{T (t + m - s)}$ and $e^{T (s - t)}$: the higher the temperature, the
    more the hardest pairs count.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: >= 0.
        threshold: unrelated pairs should score less; related ones more than ``threshold + margin``.
        imbalance: share of the unrelated side, 0 to 1.
        pos_temperature: >= 0.
        neg_temperature: >= 0.
        smoothing: >= 0, added to the sums of weights in the denominators.

    >>> ranked_list(torch.tensor([[0.5, 0.4]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1500)
    """
    related = _hard_mean(threshold + margin - pairs.scores, pairs.positive, pos_temperature, smoothing)
    unrelated = _hard_mean(pairs.scores - threshold, pairs.negative, neg_temperature, smoothing)
    return row_terms((1 - imbalance) * related + imbalance * unrelated, some(pairs.weight))


def _hard_mean(gap: Tensor, weight: Tensor, temperature: float, smoothing: float) -> Tensor:
    """Mean ``[b]`` of the gaps above 0, weighted by e^(temperature * gap), stable for any gap."""
    hard = torch.relu(gap)
    counted = weight * gap.detach().sign().relu_()
    if smoothing or not temperature:  # an absolute amount beside the sum, so it cannot be rescaled by its largest term
        mass = counted * (temperature * hard).exp() if temperature else counted
        total = mass.sum(-1) + smoothing
        return row_products(mass, hard) / torch.where(total > 0, total, 1.0)
    top = (hard.detach() * counted.sign()).amax(-1, keepdim=True) if gap.shape[1] else 0.0
    mass = counted * (temperature * (hard - top)).clamp(max=0.0).exp()
    total = mass.sum(-1)
    return row_products(mass, hard) / torch.where(total > 0, total, 1.0)


@pair_loss("tcm", *ROWS, family="contrastive", paper="arXiv:2307.04047", verified=PML)
def tcm(
    pairs: Pairs,
    *,
    pos_margin: float = 0.9,
    neg_margin: float = 0.5,
    pos_factor: NonNegative = 1.0,
    neg_factor: NonNegative = 1.0,
) -> tuple[RowTerms, RowTerms]:
    r"""Threshold-consistent margins: hard related pairs above one score, hard unrelated ones below another.

    $\lambda_+ (m_+ - s_{ij})$ for related pairs with $s_{ij} \le m_+$ plus $\lambda_- (s_{ij} - m_-)$ for unrelated
    ones with $s_{ij} \ge m_-$, averaged separately.

    The means are over the pairs at or beyond their margin only, including those exactly at it. Add it to another loss,
    so that one threshold fits all classes; :func:`vicinal.metrics.opis` measures whether it does. The defaults are
    those of cosine scores.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        pos_margin: $m_+$.
        neg_margin: $m_-$; there is a warning if it is above $m_+$.
        pos_factor: $\lambda_+ \ge 0$; 0 switches the related pairs off.
        neg_factor: $\lambda_- \ge 0$.

    >>> import torch
    >>> tcm(torch.tensor([[0.5, 0.95, 0.6, 0.1]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.5000)
    """
    if check_number("neg_margin", neg_margin) > check_number("pos_margin", pos_margin):
        warnings.warn(
            f"neg_margin: expected at most pos_margin = {pos_margin:g}, got {neg_margin:g}; pairs between them are "
            "hard whether related or not",
            stacklevel=4,
        )
    return (
        _violations(pairs, pos_margin - pairs.scores, pairs.positive, pos_factor),
        _violations(pairs, pairs.scores - neg_margin, pairs.negative, neg_factor),
    )


def _violations(pairs: Pairs, excess: Tensor, weight: Tensor, factor: float) -> RowTerms:
    """The pairs whose excess is at least 0."""
    number = row_products((excess >= 0).to(weight.dtype), weight)
    nonzero = row_products((factor * excess > 0).to(weight.dtype), weight) if pairs.counting else number
    return RowTerms(factor * row_products(torch.relu(excess), weight), number, nonzero)


@pair_loss("nlsh", *ROWS, family="contrastive", paper="arXiv:2401.18064", verified=NUMPY)
def nlsh(pairs: Pairs, *, radius: Positive = 0.5, factor: float = 2.0) -> tuple[RowTerms, RowTerms]:
    r"""Related pairs within a radius, unrelated ones beyond a multiple of it (neural locality-sensitive hashing).

    $[D_{ip} - R]_+$ for related and $[cR - D_{in}]_+$ for unrelated pairs, with $D = -s$, the distance.

    The paper's loss of a triplet, $\max(R, D_{ip}) - \min(cR, D_{in})$, is the sum of the two plus the constant $R(1 -
    c)$, its minimum; here the minimum is 0. Made for negative distances, such as those of hash outputs. Where all
    related pairs are within R and all unrelated ones beyond cR, :func:`vicinal.miners.bucket_pairs` and the nearest
    neighbors find the related pairs.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        radius: R > 0, in units of the distance.
        factor: c >= 1; distances between R and cR cost nothing.

    >>> import torch
    >>> nlsh(torch.tensor([[-0.75, -0.75]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """
    check_between("factor", factor, 1, math.inf, closed=True)
    near = pairs.terms((-pairs.scores - radius).relu(), pairs.positive)
    return near, pairs.terms((factor * radius + pairs.scores).relu(), pairs.negative)


@pair_loss("pair_cross_entropy", *ROWS, family="contrastive", paper="arXiv:2310.10636", verified=PAPER_CODE)
def pair_cross_entropy(
    pairs: Pairs,
    *,
    temperature: Positive = 1.0,
    bias: float = 0.0,
    missed: float | Tensor = 0.0,
    spurious: float | Tensor = 0.0,
) -> RowTerms:
    r"""Each pair by itself as related or not (binary cross-entropy).

    $-r_{ij} \log \sigma(z_{ij}) - (1 - r_{ij}) \log \sigma(-z_{ij})$ with $z = s / \tau + b$, a mean over all pairs.

    Labels may be wrong (NBPO, arXiv:2007.07204): let ``missed`` $\rho$ be the chance that a related pair is not
    labelled as related, and ``spurious`` $\rho'$ the chance that an unrelated one is. Then $\sigma(z)$ becomes $(1 -
    \rho) \sigma(z) + \rho' \sigma(-z)$, and $\sigma(-z)$ becomes 1 minus that, so a pair that is surely related is no
    longer pushed down for lack of a label; see :func:`vicinal.samplers.draw_unlabelled`. The chances get a gradient, so
    they may be learned with the scores, as sigmoids of a number for each column or row, or of a low-rank product.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        bias: b, the logit of a pair of score 0; below 0 where few pairs are related.
        missed: in [0, 1), a number or a tensor ``[N]``, ``[b, 1]`` or ``[b, N]``.
        spurious: likewise; the sum of both is below 1.

    >>> pair_cross_entropy(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    logits = pairs.scores / temperature + check_number("bias", bias)
    if not isinstance(missed, Tensor) and not isinstance(spurious, Tensor) and missed == spurious == 0:
        return pair_terms(softplus(logits) - pairs.relation * logits, pairs.weight)
    lost, wrong = check_label_chances(missed, spurious, logits)
    yes = logsigmoid(logits)
    no = yes - logits
    labelled, unlabelled = yes + torch.log1p(-lost), no + torch.log1p(-wrong)
    if isinstance(spurious, Tensor) or spurious:
        labelled = torch.logaddexp(labelled, no + _log(wrong))
    if isinstance(missed, Tensor) or missed:
        unlabelled = torch.logaddexp(unlabelled, yes + _log(lost))
    return pair_terms(pairs.relation * (unlabelled - labelled) - unlabelled, pairs.weight)


def _log(chance: Tensor) -> Tensor:
    """-infinity at 0, without a gradient."""
    return torch.where(chance > 0, torch.where(chance > 0, chance, 1.0).log(), -torch.inf)
