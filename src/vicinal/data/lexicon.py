"""Human valence ratings of words and emoticons: the real data of the demo, from a PyPI wheel.

Hutto and Gilbert (2014), VADER: ten people rated each word, emoticon or slang term from -4 (extremely negative) to 4.
"""

import hashlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pandas as pd

PACKAGE = "vaderSentiment"
VERSION = "3.3.2"
SHA256 = "1ec9c6e9ee19aade328f8beb393a6afa71a5bb3acf7d3cc22d4ef568df374bf5"


def lexicon_table() -> pd.DataFrame:
    """The ratings: columns ``word``, ``valence`` (mean of the raters, -4 to 4) and ``rating_sd``, about 7,500 rows.

    A few words were rated twice, by ten people each; such a word is one row with the mean of both, so that no word is
    on both sides of a split. The package is located but not imported.

    Raises:
        ValueError: if the package is not installed (the error says how to), or its file is not the expected one.
    """
    text = _lexicon_file().read_bytes()
    if hashlib.sha256(text).hexdigest() != SHA256:
        raise ValueError(
            f"lexicon: expected the file of {PACKAGE}=={VERSION}, got one with another checksum; "
            "install it again with pip install --force-reinstall 'vicinal[demo]'"
        )
    ratings: dict[str, list[int]] = {}
    for line in text.decode("utf-8").splitlines():
        word, _, _, scores = line.split("\t")
        ratings.setdefault(word.strip(), []).extend(json.loads(scores))
    table = pd.DataFrame(
        {
            "word": list(ratings),
            "valence": [float(np.mean(scores)) for scores in ratings.values()],
            "rating_sd": [float(np.std(scores)) for scores in ratings.values()],
        }
    )
    table.index = pd.RangeIndex(1, len(table) + 1)
    return table


def _lexicon_file() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "vader_lexicon.txt"
        if path.is_file():
            return path
    raise ValueError(
        f"lexicon: expected the package {PACKAGE}=={VERSION}, whose ratings the demo learns, got none; "
        "install it with pip install 'vicinal[demo]'"
    )
