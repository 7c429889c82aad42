"""What makes fits brief in ``make test``, by the name of what is replaced; ``make test-all`` has all of it."""

FEWER = {
    "vicinal.evaluation.tuned.SCALES": {"rbf": (0.3,), "laplacian": ()},
    "vicinal.evaluation.tuned.STAGES": {(8, 5): (5, 10)},
    "vicinal.evaluation.tuned.FOLDS": 2,
    "vicinal.estimators.pair_scorers.ROUNDS": 75,
    "vicinal.estimators.pair_scorers.RATE": 0.2,
    "lightning.pytorch.trainer.connectors.callback_connector._load_external_callbacks": lambda group: [],
}
"""Baselines of few settings, tuned on few folds; a quarter of the trees that score pairs, at four times their rate; no
search of all installed packages for callbacks, at each fit of a network."""

READOUTS = {"vicinal.estimators.readout.SCALES": (0.5, 2.0), "vicinal.estimators.readout.NOISES": (0.1,)}
"""Two scales of kriging, at one noise."""

TREES = {
    "vicinal.training.trees.ROUNDS": 60,
    "vicinal.training.trees.LEAVES": (8,),
    "vicinal.training.trees.CLASS_LEAVES": (4,),
    "vicinal.training.linear.STRENGTHS": (1.0,),
    "vicinal.estimators.comparables.MOST": 40,
    "vicinal.estimators.comparables.MOST_OF_CLASSES": 40,
    "vicinal.estimators.comparables.MANY": (),
    "vicinal.estimators.comparables.SCALES": (1.0,),
    "vicinal.estimators.comparables.NOISES": (0.1, 1.0),
    "vicinal.estimators.comparables.START": [(0, 0), (0, 1)],
}
"""Few trees, and two readouts with a trend, compared on few rows."""
