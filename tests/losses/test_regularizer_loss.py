"""Regularizers as terms of a loss: their values, their class centers, and who refuses which."""

import numpy as np
import pytest
import torch

from vicinal.core import entry
from vicinal.estimators.label_codec import ClassCodec
from vicinal.estimators.loss import check_loss, make_added
from vicinal.losses import RegularizerLoss, energy_confusion, neural_collapse
from vicinal.losses.elsewhere import ELSEWHERE
from vicinal.losses.regularizer_loss import of_embeddings
from vicinal.losses.spec import read_loss, read_teacher_loss
from vicinal.report.losses import KINDS, method_sheets

CLASSES = torch.arange(12) % 3
ROWS = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SETTINGS = {"hidden": (2,), "members": 2}


def test_a_term_has_the_value_of_its_regularizer():
    unit = ROWS / ROWS.norm(dim=1, keepdim=True)
    for name, rows in (("coding_rate", unit), ("mcr2", unit), ("flops", ROWS), ("zero_mean", ROWS), ("t_regs", ROWS)):
        labels = [CLASSES] if name == "mcr2" else []
        torch.testing.assert_close(
            RegularizerLoss(name)(ROWS, CLASSES), entry("regularizer", name).factory(rows, *labels)
        )
    two = ROWS[:2]  # of one row each, the squared distance
    expected = 0.5 * (two[0] - two[1]).square().sum()
    torch.testing.assert_close(RegularizerLoss("energy_confusion", factor=0.5)(two, CLASSES[:2]), expected)


def test_centers_of_classes_are_made_and_trained():
    term = RegularizerLoss("neural_collapse", 3, 4, within=1.0, between=0.0).double()
    (centers,) = term.parameters()
    expected = torch.stack([(ROWS[k == CLASSES] - centers[k]).square().sum(1).mean() for k in range(3)]).mean()
    value = term(ROWS, CLASSES)
    torch.testing.assert_close(value, expected)
    value.backward()
    torch.testing.assert_close(centers.grad[1], 2 / 3 * (centers[1] - ROWS[CLASSES == 1].mean(0)).detach())
    with pytest.raises(ValueError, match=r"^loss: expected num_classes and dim for neural_collapse"):
        RegularizerLoss("neural_collapse")


@pytest.mark.parametrize("name", of_embeddings())
def test_a_batch_that_holds_too_little_adds_nothing(name):
    term = RegularizerLoss(name, 3, 4)
    rows = torch.randn(1, 4, requires_grad=True)
    value = term(rows, CLASSES[:1])
    value.backward()
    assert (value.item(), rows.grad.abs().sum().item()) == (0, 0)
    if "class-labels" in entry("regularizer", name).facts:
        assert term(torch.randn(5, 4), torch.zeros(5, dtype=torch.int64)).item() == 0


def test_terms_are_added_with_their_factors_and_subtracted():
    written = "2*energy_confusion(factor=.5) - 0.1*coding_rate + neural_collapse"
    added = make_added({"loss": written, **SETTINGS}, ClassCodec(classes=np.arange(3)))
    one_hot = torch.eye(3, dtype=torch.float64)[CLASSES]
    unit = ROWS / ROWS.norm(dim=1, keepdim=True)
    centers = added.criteria[2].centers
    assert centers.shape == (3, 4)
    expected = energy_confusion(ROWS, CLASSES) + neural_collapse(ROWS, CLASSES, centers)
    expected = expected - 0.1 * entry("regularizer", "coding_rate").factory(unit)
    torch.testing.assert_close(added(ROWS, one_hot, torch.arange(12)), expected)


def test_the_text_of_a_sum():
    weights = [(term.name, term.weight) for term in read_loss("supcon + 1e-2*energy-confusion - coding_rate").terms]
    assert weights == [("supcon", 1.0), ("energy_confusion", 0.01), ("coding_rate", -1.0)]
    assert read_loss("matching:sinh - 0.2*sigmoid").main == "matching:sinh - 0.2*sigmoid"  # the link says what it wants


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("supcon - triplet", "classes", "expected triplet to be added, got it subtracted"),
        (
            "energy_confusion",
            "numbers",
            r"expected a term for labels that are numbers \(coding_rate, flops, t_re",
        ),
        ("energy_confusion(class_pairs=2)", "classes", r"expected settings of energy_confusion \(factor; also normali"),
        ("mcr2(gama=2)", "classes", "did you mean 'gamma'"),
        ("neural_colapse", "classes", "did you mean 'neural_collapse'"),
        ("0*flops", "classes", "expected a number above 0"),
        ("supcon + kl_top", "classes", "got kl_top, which is of a teacher's scores; use distill --loss kl_top"),
        ("equal_rates", "classes", "use fit --fair COLUMN"),
        ("cauchy_schwarz", "classes", "see examples/tidy_weights.py"),
        ("best_of_k", "numbers", "'vicinal losses --kind predictions' says which train"),
    ],
)
def test_what_does_not_go_is_said_before_training(text, kind, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_loss(text, kind)


def test_terms_of_one_class_are_refused_for_several():
    with pytest.raises(ValueError, match=r"several classes a row \(coding_rate, .*\), got mcr2, which takes one class"):
        check_loss("supcon + mcr2", "classes", multilabel=True)
    check_loss("supcon + t_regs", "classes", multilabel=True)


def test_every_listed_loss_is_trained_by_a_command_or_says_where_it_is_used():
    """``fit`` and ``learn`` take the command of each that names them; all others say so, and are refused by name."""
    for kind in ("pairs", "proxies", "class scores", "predictions", "teachers", "regularizers"):
        for sheet in method_sheets(kind):
            assert kind in KINDS
            assert sheet.used
            if "fit" in sheet.used.split(", "):
                written = sheet.command.partition('--loss "')[2].rstrip('"')
                read_loss(written)
                continue
            assert sheet.name in ELSEWHERE
            with pytest.raises(ValueError, match=rf"got {sheet.name}, which is of .*; \w+ "):
                read_loss(sheet.name)
            if sheet.used == "distill":
                assert read_teacher_loss(sheet.name)(torch.eye(3), torch.eye(3)).isfinite()


def test_settings_of_a_teacher_loss_are_read_and_checked():
    taught, scores = torch.tensor([[1.0, 0.0, -9.0]]), torch.zeros(1, 3)
    q = torch.tensor([1.0, 0.0]).softmax(0)
    expected = (q * (q / 0.5).log()).sum()  # among the two highest
    torch.testing.assert_close(read_teacher_loss("kl_top(k=2)")(scores, taught), expected)
    for text, sentence in (("kl_tip", "did you mean 'kl_top'"), ("kl_top(t=1)", "expected settings of kl_top")):
        with pytest.raises(ValueError, match=sentence):
            read_teacher_loss(text)
