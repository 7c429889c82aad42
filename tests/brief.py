"""What makes fits brief in ``make test``, by the name of what is replaced; ``make test-all`` has all of it."""

BASELINES = {
    "vicinal.evaluation.tuned.SCALES": {"rbf": (0.3,), "laplacian": ()},
    "vicinal.evaluation.tuned.STAGES": {(8, 5): (5, 10)},
    "vicinal.evaluation.tuned.FOLDS": 2,
}
"""Few settings, on few folds."""

READOUTS = {"vicinal.estimators.readout.SCALES": (0.5, 2.0), "vicinal.estimators.readout.NOISES": (0.03, 0.3)}
"""Four pairs of a scale and a noise of kriging."""

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
