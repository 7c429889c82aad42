"""Promises of epochs of members: each is chosen by the other folds, and comes back bit by bit but for its input."""

from types import SimpleNamespace

import pytest
import torch

from vicinal.encoders import MemberProjectors
from vicinal.heads import NONA, Ensemble
from vicinal.heads.folds import FoldMembers
from vicinal.masks import SoftStep
from vicinal.training import NeighborModule, NeighborNetwork, Rows, TrainingSettings, train
from vicinal.training.fold_epochs import FoldEpochs, load_member_state, member_state


class Plain(torch.nn.Module):
    """An encoder that gives its batch."""

    def forward(self, batch):
        return batch


class Inputs:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def select(self, rows):
        return self.x[rows]


def network(members=4, seed=0):
    torch.manual_seed(seed)
    heads = Ensemble([NONA("l2", SoftStep(3, "s2")) for _ in range(members)])
    projector = MemberProjectors(5, (6, 3), 0.2, members=members, final_tanh=False)
    return NeighborNetwork(Plain(), projector, heads)


def rows(folds=4, count=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=generator)
    y = (x[:, 0] + 0.1 * torch.randn(count, generator=generator)).sigmoid().double()
    return Rows(Inputs(x), y, torch.arange(count), None, None if folds is None else torch.arange(count) % folds)


def moved(net, seed):
    """The network after its weights and statistics have changed."""
    torch.manual_seed(seed)
    net.train()
    for _ in range(5):
        net.embed(3 * torch.randn(20, 5) + 1)
    with torch.no_grad():
        for weight in net.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return net.eval()


def test_a_member_is_what_it_was_and_the_others_stay_what_they_are():
    net = moved(network(), 1)
    x = torch.randn(30, 5)
    before, state = net.embed(x), member_state(net, 2)
    heads = {name: value.clone() for name, value in net.head.heads[2].state_dict().items()}
    moved(net, 2)
    others = net.embed(x)
    load_member_state(net, 2, state)
    after = net.embed(x)
    torch.testing.assert_close(after[:, 6:9], before[:, 6:9], atol=1e-5, rtol=1e-5)
    untouched = torch.tensor([i for i in range(12) if not 6 <= i < 9])
    assert torch.equal(after[:, untouched], others[:, untouched])
    assert all(torch.equal(value, heads[name]) for name, value in net.head.heads[2].state_dict().items())


def test_the_epoch_of_a_fold_is_the_best_of_the_others_weighed_by_their_rows():
    net = network(3)
    chosen = FoldEpochs(torch.tensor([10, 20, 70]))
    module = NeighborModule(net, rows(3), TrainingSettings())
    curves = [[1.0, 5.0, 3.0], [9.0, 4.0, 2.0], [0.0, 4.0, 4.0]]  # one list an epoch
    for epoch, errors in enumerate(curves):
        module.fold_errors = errors
        chosen.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), module)
    assert chosen.epochs == [1, 0, 2]  # fold 0: 310, 220, 360 over 90; fold 1: 220, 230, 280; fold 2: 110, 170, 80
    assert chosen.least[0] == pytest.approx(220 / 90)


@pytest.fixture(scope="module")
def trained():
    net = network()
    history = train(net, rows(), None, TrainingSettings(max_epochs=3, batch_size=16, learning_rate=1e-2))
    return net, history


def test_labels_of_a_fold_do_not_reach_its_members(trained):
    part = rows()
    changed = part.labels.clone()
    changed[part.folds == 1] = 1 - changed[part.folds == 1]
    settings = TrainingSettings(max_epochs=1, batch_size=16, learning_rate=1e-2)  # one epoch: nothing to choose
    nets = [network(), network()]
    for net, labels in zip(nets, (part.labels, changed), strict=True):
        train(net, Rows(part.inputs, labels, part.ids, None, part.folds), None, settings)
    first, second = (member_state(net, 1) for net in nets)
    for name, value in first["projector"].items():
        assert torch.equal(value, second["projector"][name]), name
    assert not torch.equal(*(member_state(net, 0)["projector"]["gain"] for net in nets))
    said = [
        FoldMembers(net.head, 4, 4).out_of_fold(
            net.embed(part.inputs.x[part.folds == 1]),
            part.folds[part.folds == 1],
            net.embed(part.inputs.x),
            labels,
            part.folds,
        )
        for net, labels in zip(nets, (part.labels, changed), strict=True)
    ]
    torch.testing.assert_close(said[0], said[1], atol=0, rtol=0)


def test_the_error_that_stops_is_that_of_all_rows_out_of_fold(trained):
    net, history = trained
    assert len(history.validation_error) == 3
    part = rows()
    settings = TrainingSettings(max_epochs=1, batch_size=16, learning_rate=1e-2)
    net = network()
    history = train(net, part, None, settings)
    x = net.embed(part.inputs.x).detach()
    said = FoldMembers(net.head, 4, 4).out_of_fold(x, part.folds, x, part.labels, part.folds).detach()
    assert history.validation_error[0] == pytest.approx(float((said - part.labels).square().mean()), rel=1e-4)


def test_folds_or_validation_rows_and_one_process():
    settings = TrainingSettings(max_epochs=1)
    with pytest.raises(ValueError, match="validation_rows: expected these or folds of the training rows, got both"):
        train(network(), rows(), rows(None), settings)
    with pytest.raises(ValueError, match="got neither"):
        train(network(), rows(None), None, settings)
    with pytest.raises(ValueError, match="devices: expected one process to train members as folds"):
        train(network(), rows(), None, TrainingSettings(max_epochs=1, devices=2))
