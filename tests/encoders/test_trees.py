"""What columns add to boosted trees: against a walk through the trees, and texts that were edited."""

import copy
import pickle
import re

import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.encoders import build_table_encoder
from vicinal.encoders.tree_columns import TreeColumns
from vicinal.encoders.tree_projector import TreeProjector
from vicinal.encoders.tree_sums import TreeSums
from vicinal.encoders.tree_text import Tree, read_trees, written

KINDS = {"size": "number", "age": "number", "city": "category"}


def table(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=rows), "age": rng.uniform(0, 9, rows)})
    frame["city"] = rng.choice([f"c{place}" for place in range(9)], rows)
    frame.loc[::7, "age"] = np.nan
    label = frame["size"] + frame["city"].str[1:].astype(int) % 3 + frame["age"].fillna(20) / 9
    return frame, label.to_numpy()


@pytest.fixture(scope="module")
def fitted():
    """An encoder, the columns of a table, and LightGBM's models of two folds."""
    frame, label = table()
    encoder = build_table_encoder(KINDS).fit(frame)
    reader = TreeColumns(encoder)
    columns = reader(encoder, reader.prepare(encoder, frame).select(torch.arange(len(frame)))).numpy()
    settings = {"num_leaves": 6, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}
    models = []
    for fold in range(2):
        at = np.arange(len(frame)) % 2 != fold
        data = lightgbm.Dataset(columns[at], label[at], categorical_feature=reader.categories)
        models.append(lightgbm.train(settings, data, 12))
    return encoder, reader, columns, models


@pytest.fixture(scope="module")
def projector(fitted):
    _, reader, _, models = fitted
    return TreeProjector([[model.model_to_string()] for model in models], reader)


def walk(node, row, added):
    """Adds to each column what the way of a row adds, in plain Python; gives the leaf's value."""
    if "leaf_value" in node:
        return node["leaf_value"]
    value = row[node["split_feature"]]
    if node["decision_type"] == "==":
        left = not np.isnan(value) and str(int(value)) in node["threshold"].split("||")
    elif np.isnan(value):
        left = node["default_left"]
    else:
        left = value <= node["threshold"]
    child = node["left_child" if left else "right_child"]
    below = child.get("internal_value", child.get("leaf_value"))
    added[node["split_feature"]] += below - node["internal_value"]
    return walk(child, row, added)


def test_each_column_adds_what_its_splits_add_on_the_way(fitted, projector):
    _, _, columns, models = fitted
    trees = models[0].dump_model()["tree_info"]
    said = projector(torch.from_numpy(columns[:40]), torch.zeros(40, dtype=torch.int64))
    for row, got in zip(columns[:40], said.numpy(), strict=True):
        added = np.zeros(3)
        for tree in trees:
            walk(tree["tree_structure"], row, added)
        np.testing.assert_allclose(got[1:], added, atol=1e-6)  # LightGBM writes six digits of values inside
        assert got[0] == pytest.approx(got[1:].sum())


def test_the_sum_is_what_the_model_predicts(fitted, projector):
    _, _, columns, models = fitted
    for fold, model in enumerate(models):
        said = projector(torch.from_numpy(columns), torch.full((300,), fold))
        start = sum(tree.start for tree in read_trees(projector.texts[fold][0], 3))
        np.testing.assert_allclose(said[:, 0] + start, model.predict(columns), atol=1e-9)


def test_a_row_of_no_fold_has_the_mean_of_all(fitted, projector):
    columns = torch.from_numpy(fitted[2][:9])
    both = torch.stack([projector(columns, torch.full((9,), fold)) for fold in range(2)])
    torch.testing.assert_close(projector(columns), both.mean(dim=0))
    folds = torch.tensor([0, 1, -1] * 3)
    mixed = projector(columns, folds)
    for row, fold in enumerate(folds.tolist()):
        torch.testing.assert_close(mixed[row], both[:, row].mean(dim=0) if fold < 0 else both[fold, row])


def test_gaps_and_unknown_categories_are_gaps(fitted):
    encoder, reader, _, _ = fitted
    frame = pd.DataFrame({"size": [0.5, None], "age": [None, 3.0], "city": ["c1", "never seen"]})
    columns = reader(encoder, reader.prepare(encoder, frame).select(torch.arange(2)))
    assert columns.isnan().tolist() == [[False, True, False], [False, False, True]]  # no row lacked its size
    assert reader.names == ["size", "age", "city"]
    assert reader.categories == [2]


def test_it_is_copied_and_pickled_whole(fitted, projector):
    columns = torch.from_numpy(fitted[2][:5])
    before = projector(columns)
    for one in (copy.deepcopy(projector), pickle.loads(pickle.dumps(projector))):
        assert torch.equal(one(columns), before)


def test_a_text_holds_nothing_of_single_rows(fitted):
    text = fitted[3][0].model_to_string()
    plain = written(read_trees(text, 3), 3)
    assert re.search(r"feature_infos=(.*)", text)[1] != "none none none"
    assert re.search(r"feature_infos=(.*)", plain)[1] == "none none none"
    assert "parameters" not in plain


WRONG = {
    "another text": lambda text: "lines of something",
    "cut": lambda text: text[: len(text) // 2],
    "more columns": lambda text: text.replace("max_feature_idx=2", "max_feature_idx=9"),
    "no such column": lambda text: re.sub(r"split_feature=\d", "split_feature=7", text, count=1),
    "a child above": lambda text: re.sub(r"left_child=\d+", "left_child=0", text, count=1),
    "a leaf that is not there": lambda text: re.sub(r"right_child=(.*?) -\d+", r"right_child=\1 -99", text, count=1),
    "a leaf of two splits": lambda text: re.sub(
        r"right_child=(.*?)(-\d+) (.*?)-\d+", r"right_child=\1\2 \3\2", text, count=1
    ),
    "fewer leaves": lambda text: re.sub(r"leaf_value=\S+ ", "leaf_value=", text, count=1),
    "no number": lambda text: re.sub(r"leaf_value=\S+", "leaf_value=nan", text, count=1),
    "linear leaves": lambda text: text.replace("is_linear=0", "is_linear=1", 1),
    "categories that are not there": lambda text: re.sub(r"num_cat=\d+", "num_cat=3", text, count=1),
    "an unknown decision": lambda text: re.sub(r"decision_type=\d+", "decision_type=64", text, count=1),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_edited_text_is_refused(fitted, name):
    text = fitted[3][0].model_to_string()
    text = written(read_trees(text, 3), 3)
    edited = WRONG[name](text)
    assert edited != text
    with pytest.raises(ValueError, match=r"^trees: expected "):
        read_trees(edited, 3)


@given(st.data())
def test_no_edit_of_a_number_leads_out_of_a_tree(fitted, data):
    text = fitted[3][0].model_to_string()
    text = text[: text.index("end of trees")] + "end of trees\n"
    places = [m.span() for m in re.finditer(r"(?<=[= ])-?\d+(?= |$)", text, re.MULTILINE)]
    start, end = data.draw(st.sampled_from(places))
    edited = text[:start] + str(data.draw(st.integers(-300, 300))) + text[end:]
    try:
        trees = read_trees(edited, 3)
    except ValueError:
        return
    sums, rows = TreeSums([trees], 3), fitted[2][:20]
    said = sums.sums(0, sums.places(rows)).sum(axis=1) + sum(tree.start for tree in trees)
    np.testing.assert_allclose(said, lightgbm.Booster(model_str=written(trees, 3)).predict(rows), atol=1e-9)


NUMBERS = st.sampled_from(
    [-np.inf, -2.0, -1.0, -0.5, -1e-40, -0.0, 1e-36, 0.3, 1.0, 2.0, 31.0, 33.7, 1e9, np.inf, np.nan]
)


def drawn_tree(draw):
    """A tree of three columns: splits by numbers, gaps of all kinds going either way, and sets of categories."""
    splits = draw(st.integers(0, 9))
    ends, left, right = [], [], []  # of each leaf so far, the split above it and the side
    for split in range(splits):
        left.append(-1), right.append(-1)
        if ends:
            parent, side = ends.pop(draw(st.integers(0, len(ends) - 1)))
            side[parent] = split
        ends += [(split, left), (split, right)]
    for leaf, (parent, side) in enumerate(ends):
        side[parent] = -1 - leaf
    decisions = [draw(st.sampled_from([0, 2, 4, 6, 8, 10, 1])) for _ in range(splits)]
    sets = [draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2)) for way in decisions if way == 1]
    places = iter(range(len(sets)))
    thresholds = [next(places) if way == 1 else draw(NUMBERS.filter(lambda n: not np.isnan(n))) for way in decisions]
    whole = {"dtype": np.int64}
    return Tree(
        np.arange(splits + 1.0),
        np.arange(splits) / 7,
        np.array([draw(st.integers(0, 2)) for _ in range(splits)], **whole),
        np.array(thresholds, dtype=float),
        np.array(decisions, **whole),
        np.array([left, right], **whole).T.reshape(-1, 2),
        np.cumsum([0, *map(len, sets)], **whole),
        np.array([word for words in sets for word in words], **whole),
    )


@given(st.data())
def test_leaves_are_those_of_lightgbm_for_any_number_gap_and_category(data):
    models = [[drawn_tree(data.draw) for _ in range(data.draw(st.integers(1, 3)))] for _ in range(2)]
    rows = np.array(data.draw(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9)))
    rows = np.tile(rows, (data.draw(st.sampled_from([1, 60])), 1))  # few rows, and many, which are summed otherwise
    sums = TreeSums(models, 3)
    places = sums.places(rows)
    for number, trees in enumerate(models):
        leaves = lightgbm.Booster(model_str=written(trees, 3)).predict(rows, pred_leaf=True).reshape(len(rows), -1)
        each = TreeSums([[tree] for tree in trees], 3)
        for one, tree in enumerate(trees):  # whose values are the numbers of its leaves
            leaf = each.sums(one, each.places(rows)).sum(axis=1) + tree.start
            np.testing.assert_allclose(leaf, leaves[:, one], rtol=0, atol=1e-9)
        said = sums.sums(number, places)
        np.testing.assert_allclose(said.sum(axis=1) + sum(tree.start for tree in trees), leaves.sum(axis=1), atol=1e-9)
        np.testing.assert_array_equal(sums.sums(number, places.of(np.array([0])))[0], said[0])


def test_what_columns_add_does_not_depend_on_how_many_rows_are_asked(fitted, projector):
    columns = torch.from_numpy(np.tile(fitted[2], (30, 1)))  # more than are looked up together
    said = projector(columns)
    assert torch.equal(said, projector(columns[:300]).repeat(30, 1))
    assert torch.equal(said[:9], torch.cat([projector(columns[i : i + 1]) for i in range(9)]))
