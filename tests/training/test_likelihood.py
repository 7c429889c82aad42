"""The likelihood that the kernel of a plain table is learned by: against numpy, and what it promises."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import references.table_kernel as reference
import vicinal.training.likelihood as likelihood_module
from vicinal.core.progress import ending_in
from vicinal.encoders.kernel_projector import KernelProjector
from vicinal.training.likelihood import (
    GAIN,
    LEAST_NOISE,
    Covariance,
    KernelRows,
    TableKernel,
    corrected,
    fit_kernel,
    leave_one_out_error,
    most_likely_kernel,
    negative_log_likelihood,
    noisier,
    objective,
    unrelated_parts,
)

FLOAT = torch.float64


def problem(n=30, p=3, seed=0):
    """Columns, their pieces, labels, and a kernel."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, p, generator=generator, dtype=FLOAT)
    x[:, -1] = (x[:, -1] > 0).double()
    inputs, pieces = KernelProjector(p, range(p - 1)).fit(x).terms(x)
    labels = (2 * x[:, 0]).sin() + x[:, 1] + 0.1 * torch.randn(n, generator=generator, dtype=FLOAT)
    labels = (labels - labels.mean()) / labels.std(correction=0)
    kernel = TableKernel.of(0.5 * torch.randn(p + 4, generator=generator, dtype=FLOAT) - 0.3)
    return x, inputs, pieces, labels, kernel


def known(inputs, pieces, labels, parts, weights=None):
    return KernelRows(
        inputs, pieces, labels, torch.ones(len(inputs), dtype=FLOAT) if weights is None else weights, parts
    )


def covariance(kernel, inputs, pieces):
    """Without noise, in numpy."""
    rows = known(inputs, pieces, inputs[:, 0], [torch.arange(len(inputs))])
    quiet = replace(kernel, log_noise=torch.tensor(-math.inf, dtype=FLOAT))
    return Covariance(quiet, rows.related[0]).matrix.numpy() - LEAST_NOISE * np.eye(len(inputs))


def plain(kernel):
    """The kernel's numbers as the reference takes them."""
    rest = (kernel.log_amplitude, kernel.log_linear, kernel.log_pieces, kernel.log_noise)
    return kernel.log_lengths.exp().numpy(), *(math.exp(value) for value in rest)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernel_and_objective_equal_numpy(seed):
    x, inputs, pieces, labels, kernel = problem(seed=seed)
    features = np.hstack([reference.pieces(x[:, j].numpy(), x[:, j].numpy()) for j in (0, 1)])
    features -= features.mean(0)
    np.testing.assert_allclose(pieces.numpy(), features, atol=1e-12)
    centered = x.numpy() - x.numpy().mean(0)
    lengths, b, a, c, noise = plain(kernel)
    want = reference.covariance(centered, centered, features, features, lengths, b, a, c)
    np.testing.assert_allclose(covariance(kernel, inputs, pieces), want, atol=1e-7)  # a root at distance 0
    got, _ = objective(kernel, known(inputs, pieces, labels, [torch.arange(len(x))]))
    assert got == pytest.approx(
        reference.objective(centered, features, labels.numpy(), lengths, b, a, c, noise), abs=1e-8
    )


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize(("shared", "stepped"), [(None, False), ([0, 1, 1], False), ([2, *[0] * 16, *[1] * 16], True)])
def test_the_slope_is_that_of_differences(targets, shared, stepped):
    x, inputs, pieces, labels, kernel = problem(n=20)
    parts = None if shared is None else torch.tensor(shared)
    labels = torch.stack([labels ** (1 + place) for place in range(targets)], dim=1)
    weights = (torch.arange(20) % 3 + 1.0).double()
    rows = known(inputs, pieces, labels, [torch.arange(13), torch.arange(13, 20)], weights)
    if stepped:
        rows = replace(rows, near=KernelProjector(3, range(2)).fit(x).read_steps(x).near(x))
    point = torch.cat([kernel.values()[: 2 if shared and not stepped else 3], kernel.values()[-4:]])
    slope = objective(TableKernel.of(point, parts), rows)[1]
    for j in range(len(point)):
        step = torch.zeros(len(point), dtype=FLOAT)
        step[j] = 1e-5
        ends = [objective(TableKernel.of(point + s, parts), rows)[0] for s in (step, -step)]
        assert float(slope[j]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


@pytest.mark.parametrize("targets", [1, 3])
def test_the_slope_of_the_likelihood_is_that_of_differences(targets):
    root = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    matrix, labels = root @ root.T + torch.eye(5, dtype=FLOAT), torch.arange(5.0 * targets, dtype=FLOAT).view(5, -1)
    slope = negative_log_likelihood(matrix.clone(), labels)[1]
    assert torch.equal(slope, slope.triu())
    for i, j in ((0, 0), (1, 3), (2, 4)):
        step = torch.zeros(5, 5, dtype=FLOAT)
        step[i, j] = step[j, i] = 1e-6
        ends = [negative_log_likelihood(matrix + s, labels)[0] for s in (step, -step)]
        assert float(slope[i, j]) == pytest.approx(float(ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_learning_lowers_the_objective_and_ends_where_its_slope_is_small():
    _, inputs, pieces, labels, _ = problem(n=120, p=4)
    rows, start = known(inputs, pieces, labels, [torch.arange(120)]), TableKernel.start(4)
    kernel = most_likely_kernel(rows, start)
    best = objective(kernel, rows)[0]
    assert best < objective(start, rows)[0] - 20
    for step in torch.randn(20, 8, generator=torch.Generator().manual_seed(1), dtype=FLOAT):
        inside = (kernel.values() + 0.1 * step).clamp(math.log(1e-6), math.log(1e3))
        assert objective(TableKernel.of(inside), rows)[0] > best - 1e-3


@pytest.mark.parametrize("jumps", [True, False])
def test_distances_are_of_steps_where_labels_jump(jumps, monkeypatch):
    taken, learned = [], likelihood_module.most_likely_kernel
    monkeypatch.setattr(
        likelihood_module, "most_likely_kernel", lambda *known: taken.append(known[-1]) or learned(*known)
    )
    x = torch.randn(160, 2, generator=torch.Generator().manual_seed(0), dtype=FLOAT)
    projector = KernelProjector(2, range(2)).fit(x)
    inputs, pieces = projector.terms(x)
    labels = (4 * x).sign().prod(dim=1) if jumps else (2 * x[:, 0]).sin() * x[:, 1]
    projector.read_steps(x)
    steps = projector.near(x), torch.tensor(projector.places)
    kernel = fit_kernel(inputs, pieces, labels, steps=steps)
    assert kernel.stepped == jumps
    assert taken == ([40, 12, 40] if jumps else [40, 12])
    usual = fit_kernel(inputs, pieces, labels)
    if jumps:  # a start of that kind stays of it
        assert fit_kernel(inputs, pieces, labels, steps=steps, start=kernel).stepped
        standard = (labels - labels.mean()) / labels.std(correction=0)
        rows = known(inputs, pieces, standard, [torch.arange(160)])
        error = leave_one_out_error(kernel, replace(rows, near=steps[0]))
        assert error < 0.8 * leave_one_out_error(usual, rows)
    else:
        assert torch.equal(kernel.values(), usual.values())


def test_a_few_labels_far_out_do_not_hide_that_labels_jump():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(240, 2, generator=generator, dtype=FLOAT)
    projector = KernelProjector(2, range(2)).fit(x)
    labels = (4 * x).sign().prod(dim=1)
    labels[::60] += 5 * torch.randn(4, generator=generator, dtype=FLOAT)
    projector.read_steps(x)
    steps = projector.near(x), torch.tensor(projector.places)
    assert fit_kernel(*projector.terms(x), labels, steps=steps).stepped  # by 20 %, and by 1.6 standard errors of that


def test_noise_rises_tenfold_as_long_as_rows_are_more_likely():
    _, inputs, pieces, labels, _ = problem(n=60)
    rows = known(inputs, pieces, labels, [torch.arange(60)])
    kernel = most_likely_kernel(rows, TableKernel.start(3))
    assert torch.equal(noisier(kernel, rows).values(), kernel.values())
    quiet = replace(kernel, log_noise=kernel.log_noise - math.log(1000))
    torch.testing.assert_close(noisier(quiet, rows).log_noise, kernel.log_noise, rtol=0, atol=1e-9)


def test_it_starts_where_it_says():
    kernel = TableKernel.start(9)
    assert kernel.values().exp().tolist() == pytest.approx([3.0] * 9 + [1.0, 0.3, 0.1, 0.3])
    assert float(kernel.penalty()[0]) == pytest.approx(0)


def test_a_column_that_tells_nothing_gets_a_long_length():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, 3, generator=generator, dtype=FLOAT)
    inputs, pieces = KernelProjector(3, range(3)).fit(x).terms(x)
    lengths = fit_kernel(inputs, pieces, (3 * x[:, 0]).sin()).log_lengths.exp()
    assert lengths[0] < lengths[1:].min() / 2


def test_the_order_of_rows_and_the_unit_of_labels_do_not_matter():
    _, inputs, pieces, labels, _ = problem(n=80)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(1))
    first = fit_kernel(inputs, pieces, labels).values()
    second = fit_kernel(inputs[order], pieces[order], 1e6 * labels[order] + 5).values()
    torch.testing.assert_close(first, second, rtol=0, atol=1e-2)


def test_rows_of_a_group_are_never_related():
    rows = torch.tensor([5, 1, 2, 0, 4])
    groups = torch.tensor([7, 7, 8, 3, 7, 8])
    parts = unrelated_parts(rows, groups)
    assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())
    for part in parts:
        assert len(set(groups[part].tolist())) == len(part)
    assert unrelated_parts(rows, None)[0] is rows


def test_what_only_its_own_group_tells_is_noise():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=FLOAT).repeat_interleave(3, dim=0)  # houses, each seen thrice
    labels = torch.randn(40, generator=generator, dtype=FLOAT).repeat_interleave(3)
    inputs, pieces = KernelProjector(2, range(2)).fit(x).terms(x)
    assert fit_kernel(inputs, pieces, labels).log_noise.exp() < 1e-3
    assert fit_kernel(inputs, pieces, labels, torch.arange(40).repeat_interleave(3)).log_noise.exp() > 0.5


def test_of_many_rows_a_random_subset_is_taken(monkeypatch):
    _, inputs, pieces, labels, _ = problem(n=200)
    sizes = []
    monkeypatch.setattr(
        likelihood_module, "negative_log_likelihood", lambda k, y: sizes.append(len(y)) or (k[0, 0], 0 * k)
    )
    first, again, other = (fit_kernel(inputs, pieces, labels, seed=seed, most=50).values() for seed in (0, 0, 1))
    assert set(sizes) == {50}
    assert torch.equal(first, again)
    assert len(other) == len(first)


def ordinary(matrix, column, noise, labels):
    """Ordinary kriging by the bordered system."""
    n = len(labels)
    bordered = np.block([[matrix + noise * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    return np.linalg.solve(bordered, np.append(column, 1.0))[:n] @ labels


@pytest.mark.parametrize("parts", [[range(14)], [range(9), range(9, 13), [13]]], ids=["one", "three"])
def test_leave_one_out_equals_leaving_one_out(parts):
    _, inputs, pieces, labels, kernel = problem(n=14)
    matrix, noise = covariance(kernel, inputs, pieces), math.exp(kernel.log_noise) + LEAST_NOISE
    squares = []
    for part in map(list, parts):
        for i in part if len(part) > 1 else []:
            rest = [j for j in part if j != i]
            said = ordinary(matrix[np.ix_(rest, rest)], matrix[i, rest], noise, labels[rest].numpy())
            squares.append((said - float(labels[i])) ** 2)
    got = leave_one_out_error(kernel, known(inputs, pieces, labels, [torch.tensor(list(part)) for part in parts]))
    assert got == pytest.approx(np.mean(squares), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_is_changed_only_where_labels_left_out_say_that_it_pays(seed):
    _, inputs, pieces, labels, _ = problem(n=60, seed=seed)
    rows = known(inputs, pieces, labels, [torch.arange(40), torch.arange(40, 60)])
    likely = most_likely_kernel(rows, TableKernel.start(inputs.shape[1]))
    changed = corrected(likely, rows)
    before, after = (leave_one_out_error(one, rows) for one in (likely, changed))
    assert changed is likely or after < (1 - GAIN) * before
    torch.testing.assert_close(changed.log_lengths, likely.log_lengths)
    noisy = replace(likely, log_noise=likely.log_noise + math.log(100.0))
    mended = corrected(noisy, rows)
    assert mended.log_noise < noisy.log_noise
    assert leave_one_out_error(mended, rows) < 0.9 * leave_one_out_error(noisy, rows)


def test_a_kernel_that_cannot_tell_rows_apart_is_no_better_than_another():
    """Of two categories whose lengths ran to nothing, distances round to more than the least noise."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(3, (200, 2), generator=generator).double()
    x = torch.cat([(codes - codes.mean(0)) / codes.std(0), torch.randn(200, 1, generator=generator, dtype=FLOAT)], 1)
    inputs, pieces = KernelProjector(3, [2]).fit(x).terms(x)
    rows = known(inputs, pieces, (codes[:, 0] > 1).double() + 0.3 * x[:, 2].sin(), [torch.arange(200)])
    short = TableKernel.of(torch.tensor([-11, -11, 3, 3, -1.2, -2.3, -8], dtype=FLOAT))
    assert leave_one_out_error(short, rows) == math.inf
    changed = corrected(short, rows)
    assert changed.log_noise > short.log_noise
    assert leave_one_out_error(changed, rows) < 0.01


def test_a_fit_ends_with_the_leave_one_out_error_of_its_own_rows(monkeypatch):
    _, inputs, pieces, labels, _ = problem(n=60)
    groups = torch.arange(30).repeat(2)
    calls = []
    monkeypatch.setattr(likelihood_module, "MOST_LEFT_OUT", 50)
    monkeypatch.setattr(likelihood_module, "corrected", lambda *given: (calls.append(given), given[0])[1])
    fit_kernel(inputs, pieces, labels, groups)
    parts = calls[0][1].parts
    assert sum(map(len, parts)) == 50
    assert all(len(set(groups[part].tolist())) == len(part) for part in parts)


def test_a_row_of_weight_w_has_noise_of_one_wth_in_likelihood_and_error():
    _, inputs, pieces, labels, kernel = problem()
    weights = (torch.arange(30) % 3 + 1.0).double()
    rows = known(inputs, pieces, labels, [torch.arange(30)], weights)
    matrix = torch.from_numpy(covariance(kernel, inputs, pieces))
    matrix += torch.diag((kernel.log_noise.exp() + LEAST_NOISE) / weights)
    want = negative_log_likelihood(matrix.clone(), labels)[0] + kernel.penalty()[0]
    assert objective(kernel, rows)[0] == pytest.approx(float(want))
    errors = []
    for row in range(30):
        others = torch.arange(30) != row
        ones = torch.ones(29, dtype=FLOAT)
        bordered = torch.zeros(30, 30, dtype=FLOAT)
        bordered[:29, :29], bordered[29, :29], bordered[:29, 29] = matrix[others][:, others], ones, ones
        column = torch.cat([matrix[others, row], torch.ones(1, dtype=FLOAT)])
        errors.append(labels[row] - torch.linalg.solve(bordered, column)[:29] @ labels[others])
    wanted = (torch.stack(errors).square() * weights).sum() / weights.sum()
    got = leave_one_out_error(kernel, rows)
    assert got == pytest.approx(float(wanted), rel=1e-6)


def test_other_units_of_weights_give_another_noise_and_else_the_same_kernel():
    _, inputs, pieces, labels, _ = problem()
    weights = torch.arange(30) % 3 + 1.0
    first, second = (fit_kernel(inputs, pieces, labels, weights=unit * weights) for unit in (1, 4))
    torch.testing.assert_close(first.log_lengths, second.log_lengths)
    assert float(second.log_noise - first.log_noise) == pytest.approx(math.log(4))


def test_a_kernel_of_fewer_rows_is_where_more_begin(monkeypatch):
    _, inputs, pieces, labels, _ = problem(n=60)
    weights = 4 * torch.ones(60, dtype=FLOAT)
    monkeypatch.setattr(likelihood_module, "FIRST_ROWS", (20, 40))
    calls = []
    monkeypatch.setattr(
        likelihood_module,
        "most_likely_kernel",
        lambda rows, start, steps: calls.append((len(rows.parts[0]), start)) or calls[0][1],
    )
    monkeypatch.setattr(likelihood_module, "corrected", lambda kernel, *rest: kernel)
    first = TableKernel.start(3)
    calls.append((0, first))
    ended = fit_kernel(inputs, pieces, labels, weights=weights, start=first)
    assert [count for count, _ in calls[1:]] == [60]
    assert float(calls[1][1].log_noise) == pytest.approx(float(first.log_noise) - math.log(4))
    assert float(ended.log_noise) == pytest.approx(float(first.log_noise) + math.log(4))
    fit_kernel(inputs, pieces, labels, weights=weights)
    assert [count for count, _ in calls[2:]] == [20, 40, 60]


def test_more_rows_that_begin_where_fewer_ended_are_learned_as_by_one_fit(monkeypatch):
    _, inputs, pieces, labels, _ = problem(n=60)
    monkeypatch.setattr(likelihood_module, "FIRST_ROWS", (40,))
    learning = inputs, pieces, 5 * labels + 3
    begun = fit_kernel(*learning, start=fit_kernel(*learning, most=40))
    assert torch.equal(begun.values(), fit_kernel(*learning).values())


@pytest.mark.parametrize(("noise", "sizes"), [(0.02, [30, 30]), (0.005, [60])])
def test_rows_of_quiet_labels_are_in_one_block(monkeypatch, noise, sizes):
    _, inputs, pieces, labels, _ = problem(n=60)
    begin, made = replace(TableKernel.start(3), log_noise=torch.tensor(noise, dtype=FLOAT).log()), []
    monkeypatch.setattr(likelihood_module, "BLOCK", 30)
    monkeypatch.setattr(
        likelihood_module, "most_likely_kernel", lambda rows, start, steps: made.extend(map(len, rows.parts)) or start
    )
    fit_kernel(inputs, pieces, labels, start=begin)
    assert made == sizes


def test_more_rows_begin_where_fewer_were_most_likely_not_where_b_was_corrected(monkeypatch):
    _, inputs, pieces, labels, _ = problem(n=60)
    wrong = TableKernel.start(3).values() - 9  # of a far lower likelihood
    monkeypatch.setattr(likelihood_module, "FIRST_ROWS", (40,))
    plain = fit_kernel(inputs, pieces, labels, start=fit_kernel(inputs, pieces, labels, most=40))
    monkeypatch.setattr(likelihood_module, "corrected", lambda kernel, *rest: TableKernel.of(wrong))
    begun = fit_kernel(inputs, pieces, labels, start=fit_kernel(inputs, pieces, labels, most=40))
    torch.testing.assert_close(begun.likely.values(), plain.likely.values(), rtol=0, atol=1e-9)


def test_the_first_step_is_the_last_when_the_time_is_over():
    _, inputs, pieces, labels, _ = problem()
    rows, start = known(inputs, pieces, labels, [torch.arange(30)]), TableKernel.start(inputs.shape[1])
    with ending_in(0):
        stopped = most_likely_kernel(rows, start)
    first = most_likely_kernel(rows, start, steps=1)
    torch.testing.assert_close(stopped.values(), first.values())
    assert not torch.equal(stopped.values(), most_likely_kernel(rows, start).values())
