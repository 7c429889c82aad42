"""The model card: parsed as what it claims to be."""

import ast
import dataclasses
import re

import pytest

from vicinal.report.card import card_text

HOSTILE = '"x": [y]\n---\n# <script>alert(1)</script> | `a` [b](http://c.d) {% x %} \u2028 \\ $z$ ```'


def header(text):
    yaml = pytest.importorskip("yaml")
    _, head, _ = text.split("---\n", 2)
    return yaml.safe_load(head)


def test_header_says_the_results(words):
    (model,) = header(card_text(words))["model-index"]
    assert model["name"] == "Valence of words"
    (result,) = model["results"]
    assert result["task"]["type"] == "tabular-regression"
    assert {m["type"]: m["value"] for m in result["metrics"]} == pytest.approx(
        {"mse": 0.9817, "mae": 0.7521, "r2": 0.6603}
    )


def test_examples_are_code_for_the_task(words, digits):
    text = card_text(words)
    (python,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    ast.parse(python)
    assert "NeighborRegressor.load('MODEL')" in python
    assert "vicinal predict MODEL new.csv --explain 5 --interval 0.9" in text
    assert "NeighborClassifier" in card_text(digits)
    assert "--interval" not in card_text(digits)
    dense = card_text(dataclasses.replace(words, settings={"head": "dense"}))
    assert "explain" not in dense
    assert "forget" not in dense


def test_examples_name_what_has_to_be_named_again(words):
    settings = {"head": "nona", "index": "milvus:./my bank.db", "encoders": {"word": "folder:./my bert", "x": "ngrams"}}
    text = card_text(dataclasses.replace(words, settings=settings))
    (python,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    ast.parse(python)
    assert "index='milvus:./my bank.db', encoders={'word': 'folder:./my bert'})" in python
    assert "--index 'milvus:./my bank.db' --encoder 'word=folder:./my bert'" in text


def test_card_names_data_results_settings_and_limits(words):
    text = card_text(words)
    for part in (
        "## Results",
        "## Use",
        "## Data",
        "## Settings",
        "## Limits",
        "k-NN (learned embeddings)",
        "| word | text |",
    ):
        assert part in text
    assert "3 rows dropped: no target" in text
    assert "the trained encoder has still seen it" in text


def test_hostile_names_stay_text(words):
    record = dataclasses.replace(
        words,
        name=HOSTILE,
        target_name=HOSTILE,
        columns=[(HOSTILE, "text", HOSTILE, HOSTILE)],
        settings={HOSTILE: HOSTILE},
        scores={"model": {HOSTILE: 1.0, "mse": 2.0}, HOSTILE: {"mse": 1.0}},
        dropped={HOSTILE: 2},
        notes=[HOSTILE],
        duplicates=HOSTILE,
        versions={HOSTILE: HOSTILE},
        split_sizes={HOSTILE: 2},
    )
    text = card_text(record)
    assert "<script" not in text, "not in code and not in the header either, as not every reader knows them"
    assert "[b](" not in text
    (model,) = header(text)["model-index"]
    assert model["name"].startswith('"x": [y] --- # <script>')
    body = text.split("---\n", 2)[2]
    prose = re.sub(r"```.*?\n```|`[^`\n]*`", "", body, flags=re.DOTALL)
    assert "<script" not in prose
    assert "[b](" not in prose
    assert text.count("\n# ") == 1
    for table in re.findall(r"(?:^\|.*\n)+", body, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
