"""The page of a bank: what it says, what it changes, and whom it refuses."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from vicinal.estimators import NeighborClassifier, NeighborRegressor, load_model
from vicinal.workflows import Explorer
from vicinal.workflows.explore_rows import page_cells, sound_address

PLANTED = "<script>document.title = 'taken over'</script>"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    rng = np.random.default_rng(0)
    words = {"fruit": ["apple", "pear", "plum", "fig"], "tool": ["hammer", "saw", "drill", "file"]}
    kinds = np.repeat(["fruit", "tool"], 30)
    texts = [" ".join(rng.choice(words[kind], 6)) for kind in kinds]
    texts[5] += f" {PLANTED}"
    wrong = kinds.copy()
    wrong[7] = "tool"
    frame = pd.DataFrame({"text": texts, "size": rng.normal(size=60)})
    model = NeighborClassifier(max_epochs=5, members=1, columns={"text": "text"}, encoders={"text": "ngrams"})
    model.fit(frame, wrong, ids=[f"r{i}" for i in range(60)])
    model.notes_ = {"id": "name", "target": "kind"}
    folder = tmp_path_factory.mktemp("explore") / "shop"
    model.save(folder)
    return folder


@pytest.fixture
def folder(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "shop")


@pytest.fixture
def page(folder):
    pytest.importorskip("fastapi", reason="the page is of the extra serve")
    from vicinal.serve import ExplorePage

    page = ExplorePage(Explorer(folder))
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    yield page
    page.close()
    thread.join()


def test_a_wrong_label_is_the_first_suspect(folder):
    first = Explorer(folder).suspects(3)[0]
    assert (first["id"], first["label"], first["said"]) == ("r7", "tool", "fruit")


def test_a_change_lasts_and_undo_takes_it_back(folder):
    explorer = Explorer(folder)
    vector = explorer.model.bank_.vectors[explorer.model.bank_.store.positions(["r9"])].clone()
    before = explorer.row("r9")["prediction"], explorer.model.labels_of(["r7", "r9"])
    explorer.relabel("r7", "fruit")
    with pytest.raises(ValueError, match="label: expected another than row 'r7' has, got 'fruit': nothing changed"):
        explorer.relabel("r7", "fruit")
    explorer.forget("r9")
    added = explorer.add(json.dumps({"name": "=new", "text": "apple fig", "size": 0.1}), "fruit")["id"]
    saved = load_model(folder)
    assert saved.labels_of(["r7", added]) == ["fruit", "fruit"]
    assert not saved.bank_.has(["r9"]).any()
    for _ in range(3):
        explorer.undo()
    saved = load_model(folder)
    assert (explorer.row("r9")["prediction"], saved.labels_of(["r7", "r9"])) == before
    assert (saved.bank_.vectors[saved.bank_.store.positions(["r9"])] == vector).all()
    lines = explorer.changed()["csv"].splitlines()
    assert lines[:2] == ["what,id,before,after", "relabel,r7,tool,fruit"]
    assert lines[3].startswith("add,'=new")
    assert lines[-1] == "undo relabel,r7,fruit,tool"
    with pytest.raises(ValueError, match="undo"):
        explorer.undo()


def test_the_map_is_drawn_again_when_one_row_takes_the_place_of_another(folder):
    explorer, other = Explorer(folder), Explorer(folder)
    before = explorer.map()
    other.forget("r9")
    other.add(json.dumps({"name": "new", "text": "apple fig", "size": 0.1}), "fruit")
    after = explorer.map()
    assert after != before
    assert after | {"undo": 0} == Explorer(folder).map()


def test_a_prediction_without_a_neighbor_is_that_of_a_bank_without_it(folder):
    explorer = Explorer(folder)
    gone = str(explorer.row("r3")["behind"][0]["id"])
    live = explorer.row("r3", [gone])
    explorer.forget(gone)
    after = explorer.row("r3")
    assert live["chance"] == pytest.approx(after["chance"])
    assert [one["id"] for one in live["behind"]] == [one["id"] for one in after["behind"]]


def test_rows_are_compared_column_by_column_and_the_nearest_of_another_label_is_named(folder):
    explorer = Explorer(folder)
    other = explorer.nearest_other("r3")["other"]
    assert other["label"] == "tool"
    both = explorer.compare("r3", str(other["id"]))
    assert set(both["adds"]) == {"text", "size"}
    same = explorer.compare("r3", "r3")
    assert all(abs(share) < 1e-4 for share in same["adds"].values())


def test_rows_are_filtered_by_their_cells(folder):
    explorer = Explorer(folder)
    frame = explorer.model.bank_.store.rows_at(torch.arange(60))
    size, text = frame["size"].to_numpy(), frame["text"].tolist()
    assert explorer.columns() == {"text": [], "size": []}
    assert explorer.filter({}) == list(range(60))
    assert explorer.filter({"size": {"from": 0, "to": 1.0}}) == np.flatnonzero((size >= 0) & (size <= 1)).tolist()
    plums = [place for place, words in enumerate(text) if "plum" in words and size[place] <= 0]
    assert explorer.filter({"text": {"has": "PLUM"}, "size": {"to": 0.0}}) == plums
    assert explorer.filter({"text": {"has": "a.*e"}}) == []
    assert explorer.filter({"text": {"is": text[3]}}) == [3]
    explorer._frame = explorer._frame[0], pd.DataFrame({"size": [1.0, np.nan], "town": ["a", None]})
    assert [explorer.filter(one) for one in ({"size": {"to": 9.0}}, {"size": {"has": ""}})] == [[0], [0]]
    for columns, sentence in [
        ({"siz": {"from": 0}}, "columns: expected one of 'size', 'town', got 'siz'; did you mean 'size'"),
        ({"size": {"above": 0}}, "columns: expected one of 'from', 'to', 'is', 'has', got 'above'"),
        ({"size": {"from": "0"}}, "columns: expected a number, got '0'"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            explorer.filter(columns)


def ask(page, what="map", body=b"{}", **headers):
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}/api/{what}", body, headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as refused:
        return refused.code


@pytest.mark.parametrize(
    ("what", "body", "sentence"),
    [
        ("row", b'{"name": 3}', "^name: expected a valid string, got 3$"),
        ("suspects", b'{"n": "x"}', "^n: expected a valid integer, got 'x'$"),
        ("row", b'{"name": "r3", "without": ["r4", 5]}', "^without.1: expected a valid string, got 5$"),
        ("row", b"{}", "^question: expected one of this page"),
        ("_row_of", b'{"name": "r3"}', "^question: expected one of this page"),
    ],
)
def test_what_a_page_may_not_ask_is_said_by_its_argument(page, what, body, sentence):
    with pytest.raises(ValueError, match=sentence):
        page.answer(what, body)


@pytest.mark.parametrize(("error", "status"), [(StopIteration, 422), (KeyError, 422), (OSError(28, "full"), 503)])
def test_an_error_that_nobody_foresaw_is_answered(page, monkeypatch, error, status):
    monkeypatch.setattr(page, "answer", lambda *_: (_ for _ in ()).throw(error))
    if error is StopIteration:
        monkeypatch.setattr(page, "answer", lambda *_: next(iter(())))
    assert ask(page, **{"X-Token": page.token}) == status


def test_no_other_page_can_ask_or_change(page):
    token = {"X-Token": page.token}
    assert ask(page) == 403
    assert ask(page, **{"X-Token": "guess"}) == 403
    assert ask(page, **token, Origin="http://evil.example") == 403
    assert ask(page, **token, Host="evil.example") == 403
    assert ask(page, "close", **token) == 400
    for body in (b"[", b"[]", b"{}", b'{"name": 3}', b'{"name": "r3", "without": "r4"}', b'{"name": "r3", "k": "1"}'):
        assert ask(page, "row", body, **token) == 400
    assert ask(page, "row", b'{"name": "r3", "without": ["r4"]}', **token) == 200
    assert ask(page, **token) == 200


def test_a_model_of_several_classes_a_row_is_refused(tmp_path):
    x = pd.DataFrame({"x": np.arange(40.0)})
    NeighborClassifier(max_epochs=1, members=1).fit(x, [["a"], ["a", "b"]] * 20).save(tmp_path / "m")
    with pytest.raises(ValueError, match="one class a row"):
        Explorer(tmp_path / "m")


def test_rows_of_a_table_are_queries_until_they_are_added(fitted, folder, tmp_path):
    table = pd.DataFrame(
        {"name": ["r3", *[f"n{i}" for i in range(9)]], "text": ["pear plum fig"] * 10, "size": np.arange(10.0)}
    )
    table.to_csv(tmp_path / "new.csv", index=False)
    explorer = Explorer(folder, table=tmp_path / "new.csv", most=3)
    shown = explorer.map()
    assert [one["title"] for one in shown["queries"]] == ["n0", "n4", "n8"]  # spread evenly; r3 is in the bank
    assert shown["table"] == {"name": "new.csv", "total": 9}
    model = load_model(folder)
    said = model.predict(table[["text", "size"]].iloc[[1, 5, 9]]).tolist()
    assert [one["said"] for one in explorer.queries()] == said
    opened = explorer.query("1")
    gone = str(opened["behind"][0]["id"])
    assert explorer.query("1", [gone])["chance"] != opened["chance"]
    explorer.add_query("1", "fruit")
    assert load_model(folder).labels_of(["n4"]) == ["fruit"]
    assert [one["title"] for one in explorer.queries("1")] == ["n8"]
    with pytest.raises(ValueError, match="not in the bank"):
        explorer.query("1")
    explorer.undo()
    assert [one["title"] for one in explorer.queries()] == ["n0", "n4", "n8"]


def test_rows_without_ids_are_told_by_their_place_and_groups_are_given(tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.normal(size=60)})
    model = NeighborRegressor(metric="kernel").fit(x, x["x"] ** 2, groups=np.arange(60) // 2)
    model.notes_ = {"group": "home"}
    model.save(tmp_path / "m")
    farthest = int(x["x"].abs().argmax())
    new = pd.DataFrame({"x": [x["x"][farthest], 0.2], "home": [farthest // 2, 99]})
    new.to_csv(tmp_path / "new.csv", index=False)
    explorer = Explorer(tmp_path / "m", table=tmp_path / "new.csv")
    expected = model.predict(new[["x"]], groups=new["home"])
    assert abs(expected[0] - model.bank_.labels[farthest]) > 0.1
    assert [one["said"] for one in explorer.queries()] == pytest.approx(expected.tolist())
    assert farthest not in [one["id"] for one in explorer.query("0")["behind"]]
    added = explorer.add_query("0", "0.5")["id"]
    assert [one["title"] for one in explorer.queries()] == ["row 2"]
    new.assign(**{"the target": [4.0, None]}).to_csv(tmp_path / "new.csv", index=False)
    model.notes_ = {"group": "home", "target": "the target"}
    model.save(tmp_path / "named")
    labeled = Explorer(tmp_path / "named", table=tmp_path / "new.csv")
    assert [one["label"] for one in labeled.queries()] == ["4.0", ""]
    assert labeled.query("0")["label"] == "4.0"
    assert explorer.query("1")["label"] == ""
    assert explorer.folder.model.bank_.groups[-1] == farthest // 2
    explorer.forget(str(added))
    assert len(explorer.queries()) == 2


def test_what_a_bank_names_is_opened_only_inside_a_folder_that_the_user_names(tmp_path):
    model = SimpleNamespace(kinds_={"photo": "image", "voice": "audio"}, root=None)
    (tmp_path / "secret.png").write_bytes(png())
    row = {"photo": str(tmp_path / "secret.png"), "voice": "a/b.wav"}
    assert [one["kind"] for one in page_cells(model, row)] == ["text", "text"]
    assert all("--root" in one["text"] for one in page_cells(model, row))
    with pytest.raises(ValueError, match="--root"):
        sound_address(model, row, "voice", "r1")
    model.root = tmp_path / "inside"
    model.root.mkdir()
    assert page_cells(model, row)[1]["kind"] == "text"
    assert page_cells(model, {"photo": png(), "voice": "b.wav"})[0] == {
        "column": "voice",
        "kind": "sound",
        "text": "b.wav",
    }
    with pytest.raises(ValueError, match="inside"):
        sound_address(model, {"voice": "../secret.png"}, "voice", "r1")
    (model.root / "b.wav").write_bytes(b"RIFF\0\0\0\0WAVE....")
    assert sound_address(model, {"voice": "b.wav"}, "voice", "r1").startswith("data:audio/wav;base64,")
    (model.root / "b.wav").write_bytes(png())
    with pytest.raises(ValueError, match="wav"):
        sound_address(model, {"voice": "b.wav"}, "voice", "r1")


def png():
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_a_kill_between_two_corrections_loses_none(folder):
    command = [sys.executable, "-m", "vicinal", "explore", str(folder)]
    names = [f"r{place}" for place in range(20)]
    other = ["fruit" if label == "tool" else "tool" for label in load_model(folder).labels_of(names)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        address = urllib.parse.urlsplit(process.stdout.readline().split()[1])
        for place, (name, label) in enumerate(zip(names, other, strict=True)):
            body = json.dumps({"name": name, "label": label}).encode()
            request = urllib.request.Request(
                f"http://{address.netloc}/api/relabel", body, {"X-Token": address.fragment}
            )
            assert json.load(urllib.request.urlopen(request))["version"] == place + 1
        threading.Thread(target=suppressed, args=(request,), daemon=True).start()  # one is on its way
    finally:
        process.kill()
        process.communicate()
    reopened = Explorer(folder)
    assert reopened.model.labels_of(names) == other
    assert reopened.version()["version"] == 20  # the label of the one on its way is there already
    reopened.relabel("r0", "fruit" if other[0] == "tool" else "tool")


def suppressed(request):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request)


def test_a_row_is_doubted_by_what_all_others_say_of_it(tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.normal(size=80)})
    y = np.sin(2 * x["x"]) + 0.05 * rng.normal(size=80)
    y[17] += 3.0
    NeighborRegressor(metric="kernel").fit(x, y).save(tmp_path / "m")
    explorer = Explorer(tmp_path / "m")
    doubted = explorer.suspects(80)
    assert doubted[0]["id"] == 17
    for one in (doubted[0], doubted[40]):
        assert one["said"] == pytest.approx(explorer.row(str(one["id"]))["prediction"])
    miss = np.array([one["label"] - one["said"] for one in doubted])
    assert [one["score"] for one in doubted] == pytest.approx(np.abs(miss) / np.sqrt((miss**2).mean()))
    assert np.abs(miss[:10]).mean() > 2 * np.abs(miss[10:]).mean()  # by the likelihood ratio, not by the distance alone
    assert doubted[0]["chance"] == max(one["chance"] for one in doubted)


def test_wrong_classes_are_found_where_trees_predict(tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.normal(size=240), "town": rng.choice(["york", "bath"], 240)})
    y = np.where(x["x"] + (x["town"] == "york") > 0.5, "up", "down")
    wrong = rng.choice(240, 12, replace=False)
    y[wrong] = np.where(y[wrong] == "up", "down", "up")
    NeighborClassifier(metric="trees").fit(x, y).save(tmp_path / "m")
    listed = Explorer(tmp_path / "m").suspects(240)
    assert all(one["said"] != one["label"] for one in listed), "what the model predicts is not suspicious"
    doubted = [one for one in listed if one["chance"] >= 0.5]  # of trees alone: none
    assert len({one["id"] for one in doubted} & {*wrong.tolist()}) >= 6


@pytest.fixture
def priced(tmp_path):
    """A model of logarithms, one of whose prices is a tenth of what it should be."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"size": rng.uniform(20, 200, 90)})
    price = 900 * x["size"] ** 1.4 * np.exp(0.1 * rng.normal(size=90))
    cheap = int(np.argsort(price.to_numpy())[20])
    price[cheap] /= 10
    NeighborRegressor(metric="kernel", target_transform="log").fit(x, price).save(tmp_path / "homes")
    return Explorer(tmp_path / "homes", k=90), cheap


def test_numbers_learned_as_logarithms_are_shown_as_they_are_and_doubted_by_their_ratio(priced):
    explorer, cheap = priced
    doubted = explorer.suspects(90)
    assert doubted[0]["id"] == cheap
    label, said = (np.array([one[name] for one in doubted]) for name in ("label", "said"))
    miss = np.log(label / said)
    assert [one["score"] for one in doubted] == pytest.approx(np.abs(miss) / np.sqrt((miss**2).mean()), rel=1e-4)
    shown = explorer.map()
    points = np.array(shown["points"]).reshape(-1, 2)
    assert (points.min(axis=0).tolist(), points.max(axis=0).tolist()) == ([-1, -1], [1, 1]), "it fills the map"
    assert shown["error"][shown["checked"].index(cheap)] == pytest.approx(abs(label[0] - said[0]), rel=1e-6)
    assert "weighted geometric mean" in shown["scale"]
    row = explorer.row(str(cheap))
    assert row["prediction"] == pytest.approx(said[0], rel=1e-4)
    trend, behind = row["trend"], row["behind"]
    rows = sum(one["weight"] * np.log(one["adjusted"]) for one in behind)
    mean = np.exp(rows + trend["weight"] * trend["value"] + row["others"]["adds"])
    assert row["prediction"] == pytest.approx(mean, rel=1e-4)


def test_another_label_is_a_deviation_of_the_logarithms_away(priced):
    explorer, cheap = priced
    labels = explorer.model.bank_.labels.log()
    other = explorer.nearest_other(str(cheap))["other"]
    assert abs(np.log(other["label"]) - float(labels[cheap])) >= float(labels.numpy().std())
    assert abs(other["label"] - explorer.row(str(cheap))["label"]) < float(explorer.model.bank_.labels.std())


def test_plain_numbers_have_no_other_scale(tmp_path):
    x = pd.DataFrame({"x": np.linspace(-1, 1, 40)})
    NeighborRegressor(metric="kernel").fit(x, x["x"] ** 2).save(tmp_path / "m")
    assert Explorer(tmp_path / "m").map()["scale"] == ""
