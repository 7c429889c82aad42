"""refit_model: settings on all rows that there are, compared on rows that neither model was trained on."""

import json

import numpy as np
import pandas as pd
import pytest

from vicinal import NeighborClassifier, NeighborRegressor
from vicinal.cli import run
from vicinal.data import TableForm
from vicinal.estimators import ModelFolder, load_model
from vicinal.workflows import add_table, refit, refit_model
from vicinal.workflows.bank import forget_rows, relabel_table

NETWORK = {"max_epochs": 2, "members": 2, "hidden": (8, 4), "metric": "network", "readout": "attention"}


def rows(count, name, seed, *, low=-3.0, high=3.0):
    """Rows named ``name0``, ``name1``, ... whose price follows the sine of a."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": [f"{name}{i}" for i in range(count)], "a": random.uniform(low, high, count)})
    return frame.assign(b=random.choice(["x", "y"], count), price=np.sin(frame["a"]) + random.normal(0, 0.02, count))


def saved(model, table, folder, *, target="price", **further):
    """A model of ``table`` in ``folder``, as vicinal fit notes its columns."""
    model.fit(table[["a", "b"]], table[target], ids=table["id"], **further)
    model.notes_ = {"target": target, "id": "id", "name": "rows"} | ({"group": "group"} if further else {})
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A kernel of eighty rows, of which twenty-four are held out."""
    table = rows(80, "a", 0)
    model = NeighborRegressor(metric="kernel", readout="dense", validation_fraction=0.3)
    return saved(model, table, tmp_path_factory.mktemp("refit") / "model"), table


@pytest.fixture
def folder(first, tmp_path):
    load_model(first[0]).save(tmp_path / "model")
    (tmp_path / "model" / "theirs.txt").write_text("mine")
    return tmp_path / "model"


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_rows_that_were_held_out_compare_both_and_go_on_calibrating(folder):
    before, outcome = load_model(folder), refit_model(folder)
    after = load_model(folder)
    assert outcome.replaced
    assert outcome.change == pytest.approx(0, abs=1e-9)  # nothing had changed, and the training rows are the same
    assert outcome.rows == {"compared": 12, "trained": 56, "held out": 12, "bank": 80}
    assert "favors" in outcome.basis
    assert set(after.bank_.ids) == set(before.bank_.ids)
    assert set(after.calibration_.ids) == set(before.calibration_.ids)
    assert (folder / "theirs.txt").read_text() == "mine"
    assert (folder / "report.html").is_file()
    assert list(after.notes_["scores"])[:2] == ["model", "the model before"]


def test_rows_that_were_added_are_learned_and_corrections_keep_their_history(folder):
    relabel_table(folder, pd.DataFrame({"id": ["a1"], "price": [0.25]}), who="ann")
    add_table(folder, rows(60, "m", 1, low=4, high=9))
    watching = ModelFolder(folder)
    outcome = refit_model(folder)
    model = load_model(folder)
    assert outcome.replaced
    assert "On 28 rows that neither model was trained on" in outcome.basis  # a fifth of 140
    assert outcome.scores["new"]["mse"] < outcome.scores["old"]["mse"]
    assert outcome.change == pytest.approx(outcome.scores["new"]["mse"] - outcome.scores["old"]["mse"])
    assert len(model.bank_) == 140
    change, old, new = model.changes_.relabels("a1")[0]
    assert (change.who, new) == ("ann", 0.25)
    assert model.labels_of(["a1"]) == [0.25]
    assert old != 0.25
    assert watching.refresh()
    watching.add(rows(1, "n", 2)[["a", "b"]], [0.1], ids=["n0"])
    assert load_model(folder).changes_.sequence == 3
    assert len(load_model(folder).bank_) == 141


def test_a_worse_model_leaves_every_byte_unless_it_is_wanted(folder, first):
    spoilt, fresh = first[1].assign(price=np.random.default_rng(3).normal(size=80)), rows(30, "m", 1)
    table, before = pd.concat([spoilt, fresh], ignore_index=True), content(folder)
    outcome = refit_model(folder, table)
    assert not outcome.replaced
    assert outcome.change > outcome.doubt > 0
    assert content(folder) == before
    assert list(folder.parent.iterdir()) == [folder]
    outcome = refit_model(folder, table, even_if_worse=True)
    assert outcome.replaced
    assert len(load_model(folder).bank_) == 110


def test_a_table_brings_back_neither_forgotten_rows_nor_corrected_labels(folder, first):
    relabel_table(folder, pd.DataFrame({"id": ["a1", "a2"], "price": [0.25, 0.5]}))
    forget_rows(folder, ["a3"])
    add_table(folder, rows(2, "n", 4))
    table = pd.concat([first[1], rows(20, "m", 1)], ignore_index=True)
    table.loc[2, "price"] = 0.75  # neither the label of before nor that of the correction
    outcome, model = refit_model(folder, table, even_if_worse=True), load_model(folder)
    assert outcome.notes == [
        "1 rows of the table were forgotten before and stay out.",
        "1 labels of the table were corrected before; the corrections stay.",
        "2 rows of the old bank are not in the table, nor in the new model.",
    ]
    assert model.labels_of(["a1", "a2"]) == [0.25, 0.75]
    assert set(model.bank_.ids) == {*first[1]["id"], *(f"m{i}" for i in range(20))} - {"a3"}
    assert outcome.rows["compared"] == 20


@pytest.mark.slow
def test_what_others_change_meanwhile_is_taken_over(folder, monkeypatch):
    fit = refit.fit_split

    def interrupted(*arguments):
        fit(*arguments)
        relabel_table(folder, pd.DataFrame({"id": ["a1"], "price": [0.25]}))
        forget_rows(folder, ["a3"])
        add_table(folder, rows(2, "n", 4))

    monkeypatch.setattr(refit, "fit_split", interrupted)
    assert refit_model(folder, even_if_worse=True).replaced
    model = load_model(folder)
    assert model.labels_of(["a1"]) == [0.25]
    assert model.bank_.has(["a3", "n0", "n1"]).tolist() == [False, True, True]
    assert not model.calibration_.has(["a3"])[0]
    assert model.changes_.sequence == 3
    assert len(model.bank_) == 81


def test_another_model_that_was_put_there_meanwhile_stays(folder, first, monkeypatch):
    fit = refit.fit_split

    def interrupted(*arguments):
        fit(*arguments)
        saved(NeighborRegressor(metric="kernel"), first[1].iloc[:50], folder)

    monkeypatch.setattr(refit, "fit_split", interrupted)
    with pytest.raises(ValueError, match="to stay while it is fitted anew, got another model"):
        refit_model(folder)
    assert len(load_model(folder).bank_) == 50


@pytest.mark.slow
def test_members_that_are_folds_are_compared_out_of_fold(tmp_path):
    model = NeighborRegressor(**NETWORK, validation_fraction=0)
    folder = saved(model, rows(40, "a", 0), tmp_path / "model")
    ids, before = model.out_of_fold_predictions()
    truth = rows(40, "a", 0).set_index("id")["price"][ids].to_numpy()
    outcome = refit_model(folder, even_if_worse=True)
    assert outcome.basis.startswith("Out of fold")
    assert outcome.rows["compared"] == 40
    assert outcome.scores["old"]["mse"] == pytest.approx(np.mean((before - truth) ** 2))
    new, page = load_model(folder), (folder / "report.html").read_text()
    assert new.folds_ == 2
    assert f"{new.out_of_fold_error():.4g}" in page
    share = model.out_of_fold_error() / np.mean((before - truth) ** 2)
    assert f"{outcome.scores['old']['mse'] * share:.4g}" in page


def test_classes_are_compared_by_log_loss_and_a_new_class_is_learned_in_whole_groups(tmp_path):
    table = rows(60, "a", 0).assign(kind=lambda t: np.where(t["price"] > 0.3, "up", "down"), group=np.arange(60) // 2)
    folder = saved(NeighborClassifier(**NETWORK), table, tmp_path / "model", target="kind", groups=table["group"])
    fresh = rows(20, "m", 1).assign(kind=["up", "down", "new", "new"] * 5, group=100 + np.arange(20) // 2)
    outcome = refit_model(folder, pd.concat([table, fresh], ignore_index=True), even_if_worse=True)
    model = load_model(folder)
    assert outcome.error == "log_loss"
    assert outcome.change == pytest.approx(outcome.scores["new"]["log_loss"] - outcome.scores["old"]["log_loss"])
    assert list(model.classes_) == ["down", "new", "up"]
    assert outcome.rows["compared"] % 2 == 0
    assert len(model.bank_) == 80


def test_the_doubt_of_groups_is_that_of_their_sums():
    differences, groups = np.array([1.0, 3.0, -1.0, 1.0]), np.array([0, 0, 1, 1])
    mean, doubt = refit._difference(differences, None)
    assert (mean, doubt) == (1.0, pytest.approx(differences.std(ddof=1) / 2))
    assert refit._difference(differences, groups)[1] == pytest.approx(np.sqrt(2 * (4 + 4)) / 4)


@pytest.mark.parametrize(
    ("notes", "kinds", "words"),
    [
        ({"distilled_from": "teacher"}, {}, "got one distilled from teacher; say vicinal distill again"),
        ({}, {"b": "image"}, "has no whole cells of 'b' .kind image., got none; say vicinal refit MODEL TABLE"),
        ({"target": None}, {}, "expected one of `vicinal fit`, which knows its target"),
    ],
)
def test_a_model_that_cannot_be_fitted_again_is_refused(folder, monkeypatch, notes, kinds, words):
    model = load_model(folder)
    model.notes_, model.kinds_ = model.notes_ | notes, model.kinds_ | kinds
    monkeypatch.setattr(refit, "load_predictor", lambda *_, **__: model)
    with pytest.raises(ValueError, match=words):
        refit_model(folder)


def test_too_few_rows_to_compare_are_one_sentence(tmp_path):
    folder = saved(NeighborRegressor(metric="kernel"), rows(40, "a", 0), tmp_path / "model")
    with pytest.raises(ValueError, match="at least 10 rows that are new to the model, or 20 that it held out"):
        refit_model(folder)


def test_the_command_says_both_errors_and_what_became_of_the_folder(folder, first, tmp_path, capsys):
    assert run(["refit", str(folder), "-q"]) == 0
    said = capsys.readouterr().out
    assert "is the new model, with 80 rows in its bank" in said
    assert "new" in said
    assert "old" in said
    worse = pd.concat([first[1].assign(price=-first[1]["price"]), rows(30, "m", 1)])
    worse.to_csv(tmp_path / "worse.csv", index=False)
    assert run(["refit", str(folder), str(tmp_path / "worse.csv"), "-q", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["replaced"] is False
    assert said["change"] > said["doubt"]
    assert run(["refit", str(folder), str(tmp_path / "worse.csv"), "-q"]) == 0
    assert "stays as it was; --even-if-worse replaces it" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_was_stopped_is_taken_up_for_the_same_rows_only(folder, monkeypatch):
    fit, lines = refit.fit_split, []

    def stopped(model, *_):
        (model.checkpoint_dir / "last.ckpt").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(refit, "fit_split", stopped)
    before = content(folder)
    with pytest.raises(KeyboardInterrupt):
        refit_model(folder)
    assert content(folder) == before
    with pytest.raises(KeyboardInterrupt):
        refit_model(folder, log=lines.append)
    assert "taking up the run that was interrupted" in lines
    relabel_table(folder, pd.DataFrame({"id": ["a1"], "price": [0.25]}))
    monkeypatch.setattr(refit, "fit_split", fit)
    lines.clear()
    assert refit_model(folder, log=lines.append).replaced
    assert "taking up the run that was interrupted" not in lines
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


TARGETS = ["price", "size"]


def two(count, name, seed):
    """Rows with a second number, which is large."""
    return rows(count, name, seed).assign(size=lambda frame: 1000 * np.cos(frame["a"]))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("folds", [False, True])
def test_a_refit_of_several_targets_compares_both_by_all_of_them(tmp_path, folds):
    table = two(80, "a", 0)
    settings = {**NETWORK, "validation_fraction": 0} if folds else {"metric": "kernel", "validation_fraction": 0.3}
    model = NeighborRegressor(**settings).fit(table[["a", "b"]], table[TARGETS], ids=table["id"])
    model.notes_ = {"target": "price", "id": "id", "name": "rows"}
    model.save(tmp_path / "m")
    relabel_table(tmp_path / "m", pd.DataFrame({"id": ["a1"], "price": [0.25], "size": [7.0]}))
    if not folds:
        add_table(tmp_path / "m", two(12, "m", 1))
    outcome = refit_model(tmp_path / "m", even_if_worse=True)
    after = load_model(tmp_path / "m")
    assert outcome.replaced
    assert outcome.notes[-1].startswith("Errors are means over price, size, each on the range")
    assert max(scores["mse"] for scores in outcome.scores.values()) < 1, "the large number does not rule"
    assert after.targets_ == TARGETS
    assert after.labels_of(["a1"]) == [[0.25, 7.0]]
    assert len(after.bank_) == (80 if folds else 92)
    assert len(after.changes_.relabels("a1")) == 1
    for place, name in enumerate(("report.html", "report-2.html")):
        assert "the model before" in (tmp_path / "m" / name).read_text(), TARGETS[place]
    if not folds:
        held = after.calibration_
        at = after.bank_.store.positions(held.ids)
        np.testing.assert_array_equal(held.labels, after.bank_.labels[at])


def test_a_table_of_several_targets_keeps_corrections_and_leaves_out_rows_without_one(tmp_path):
    table = two(80, "a", 0)
    model = NeighborRegressor(metric="kernel", readout="dense", validation_fraction=0.3)
    model.fit(table[["a", "b"]], table[TARGETS], ids=table["id"])
    model.notes_ = {"target": "price", "id": "id", "name": "rows"}
    model.save(tmp_path / "m")
    relabel_table(tmp_path / "m", pd.DataFrame({"id": ["a1"], "price": [0.25], "size": [7.0]}))
    more = pd.concat([table, two(20, "m", 1)], ignore_index=True)
    more.loc[85, "size"] = np.nan
    outcome = refit_model(tmp_path / "m", more, even_if_worse=True)
    after = load_model(tmp_path / "m")
    assert "1 labels of the table were corrected before; the corrections stay." in outcome.notes
    assert after.labels_of(["a1", "a2"]) == [[0.25, 7.0], table[TARGETS].iloc[2].tolist()]
    assert not after.bank_.has(["m5"])[0]
    assert len(after.bank_) == 99


def test_cells_are_read_as_the_fit_read_them(tmp_path):
    """Lengths of time are of their unit again, and texts stay texts, though all that are left look like lists."""
    random = np.random.default_rng(4)
    frame = pd.DataFrame({"a": random.uniform(-3, 3, 90), "b": random.choice(['["x"]', '["x", "y"]'], 90)})
    table = frame.assign(ends=[f"{2 + np.sin(a):.0f}:{i % 60:02d}:00" for i, a in enumerate(frame["a"])])
    model = NeighborRegressor(metric="kernel", readout="dense", validation_fraction=0.3, columns={"b": "text"})
    assert TableForm.of(table).columns["b"].kind == "list"  # by themselves these cells are sets
    seconds = pd.to_timedelta(table["ends"]).dt.total_seconds()
    model.fit(frame, seconds)
    model.form_ = TableForm(columns={**model.form_.columns, "ends": TableForm.of(table).columns["ends"]})
    model.notes_ = {"target": "ends", "name": "t"}
    model.save(tmp_path / "model")
    assert refit_model(tmp_path / "model", even_if_worse=True).replaced
    after = load_model(tmp_path / "model")
    assert after.kinds_ == {"a": "number", "b": "text"}
    assert after.labels_of([0])[0] == pytest.approx(seconds[0])
