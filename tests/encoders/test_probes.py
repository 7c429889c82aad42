"""Linear models on frozen embeddings of real data reach about the figures that were measured for these weights."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GroupShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vicinal.encoders import NgramEncoder, build_table_encoder

pytestmark = pytest.mark.slow


def embedded(frame, column, kind, name, root=None):
    encoder = build_table_encoder({column: kind}, encoders={kind: name}).fit(frame)
    return encoder.features(frame, encoder.cache(encoder.prepare(frame, root)))


def ridge(features, target, groups):
    """Mean R2 of ridge over four splits by group."""
    splits = GroupShuffleSplit(4, test_size=0.2, random_state=0).split(features, target, groups)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 6, 13)))
    return np.mean([model.fit(features[a], target[a]).score(features[b], target[b]) for a, b in splits])


def test_efficientnet_tells_prices_of_houses(shared):
    folder = shared / "data" / "houses"
    houses = pd.read_csv(folder / "houses.csv")
    houses["photo"] = [f"{number:03d}.jpg" for number in houses["id"]]
    features = embedded(houses, "photo", "image", "efficientnet-lite0", folder / "frontal256")
    found = ridge(features, np.log(houses["price"].to_numpy()), houses["dup_group"])
    assert found > 0.45  # 0.49 in the notes of the data


def test_ge2e_tells_speakers_and_digits(shared):
    clips = pd.read_parquet(shared / "data" / "audio" / "fsdd.parquet")
    features = embedded(clips, "audio", "audio", "ge2e")
    test = (clips["split"] == "test").to_numpy()
    for target, least in (("speaker", 0.985), ("digit", 0.94)):  # 0.995 and 0.96 in the notes of the data
        truth = clips[target].astype(str).to_numpy()
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        assert model.fit(features[~test], truth[~test]).score(features[test], truth[test]) > least


def test_minilm_tells_valence_of_tweets(shared):
    rated = pd.read_parquet(shared / "data" / "text" / "vader_sentiment.parquet")
    tweets = rated[rated["domain"] == "tweets"].iloc[:2000]
    features = embedded(tweets, "text", "text", "minilm")
    assert ridge(features, tweets["rating"].to_numpy(), tweets["group"]) > 0.65  # 0.68 in the notes of the data


def test_ngrams_of_20_000_texts(shared):
    rated = pd.read_parquet(shared / "data" / "text" / "vader_sentiment.parquet")
    encoder = NgramEncoder("text").fit(rated.iloc[:2000])
    inputs = encoder.prepare(rated)
    assert len(inputs) == len(rated) > 20_000
    assert inputs.sizes().min() > 0
