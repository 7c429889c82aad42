"""What tells pairs that match from those that do not: gradient boosting, and which labelled pairs a pair resembles."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from vicinal.core.threads import pieces
from vicinal.core.untrusted import read_tensors, tensor_header
from vicinal.linkage.columns import Floats, Ids

ROUNDS, DEPTH, RATE = 300, 4, 0.05
"""Trees, splits from root to leaf at most, and the share of each tree that is added."""

_LARGEST = 1 << 20
"""Nodes of a saved scorer, at most."""

_BLOCK = 1 << 14
"""Pairs that are scored at a time, so that their numbers stay in a cache."""


def boosting_settings(seed: int, **others: Any) -> dict[str, Any]:
    """Settings of LightGBM for trees of pairs, all of whose cells are numbers."""
    shared = {"max_depth": DEPTH, "max_bin": 63, "lambda_l2": 1.0, "use_missing": False, "seed": seed}
    return {**shared, "deterministic": True, "num_threads": 1, "verbosity": -1, **others}


class BoostedPairs:
    """Gradient boosting of shallow trees (LightGBM), kept as arrays: a saved scorer holds numbers only.

    Two pairs are as alike as the share of trees that put them in one leaf.
    """

    trees: dict[str, Tensor]

    @classmethod
    def fit(cls, features: Floats, matches: Ids, seed: int) -> "BoostedPairs":
        """Learn from pairs ``[n, F]`` and 0/1 ``[n]``, each tree from half of them and each split from few features."""
        import lightgbm  # slow to import

        settings = boosting_settings(
            seed,
            objective="binary",
            num_leaves=1 << DEPTH,
            learning_rate=RATE,
            bagging_fraction=0.5,
            bagging_freq=1,
            feature_fraction_bynode=features.shape[1] ** -0.5,
            min_data_in_leaf=max(1, min(5, len(matches) // 20)),
            min_sum_hessian_in_leaf=0.1,
        )
        return cls.of_lightgbm(lightgbm.train(settings, lightgbm.Dataset(features, matches), ROUNDS))

    def leaves(self, features: Floats) -> Ids:
        """The leaf of each pair in each tree, ``[n, trees]``."""
        at = np.empty((len(self.trees["roots"]), len(features)), dtype=np.int64)
        for tree, leaves in enumerate(self._by_tree(features, range(self.trees["value"].numel()))):
            at[tree] = leaves
        return at.T

    def _by_tree(self, features: Floats, values: Sequence[float]) -> Iterator[Any]:
        """For one tree after the other what ``values`` has for the leaf of each pair: ``[n]``, or one for all."""
        columns = np.ascontiguousarray(features.T, dtype=np.float32)  # as the trees were grown
        left, right, feature = (self.trees[name].tolist() for name in ("left", "right", "feature"))
        exact = self.trees["threshold"].numpy()
        near = exact.astype(np.float32)  # at most a threshold is at most the float32 below it: no conversion of columns
        threshold = np.where(near > exact, np.nextafter(near, np.float32(-np.inf)), near).tolist()

        def reached(node: int, splits: int) -> Any:
            # All splits of a tree for all pairs: contiguous comparisons are faster than a walk down for each pair.
            if splits == 0 or left[node] < 0:
                return values[node]
            low = columns[feature[node]] <= threshold[node]
            return np.where(low, reached(left[node], splits - 1), reached(right[node], splits - 1))

        return (reached(root, DEPTH) for root in self.trees["roots"].tolist())

    @classmethod
    def of_lightgbm(cls, booster: Any) -> "BoostedPairs":
        """The trees of a LightGBM model of at most :data:`DEPTH` splits from root to leaf, without missing values."""
        nodes: list[tuple[int, int, int, float, float]] = []  # left, right, feature, threshold, value

        def add(node: dict[str, Any]) -> int:
            at = len(nodes)
            nodes.append((-1, -1, 0, 0.0, float(node.get("leaf_value", 0.0))))
            if "split_feature" in node:
                left, right = add(node["left_child"]), add(node["right_child"])
                nodes[at] = (left, right, int(node["split_feature"]), float(node["threshold"]), 0.0)
            return at

        roots = [add(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
        columns = dict(zip(("left", "right", "feature", "threshold", "value"), zip(*nodes, strict=True), strict=True))
        scorer = cls()
        scorer.trees = {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}
        scorer.trees["roots"] = torch.tensor(roots)
        return scorer

    def log_odds(self, features: Floats) -> Floats:
        """Log odds ``[n]`` that each pair matches."""
        values = self.trees["value"].tolist()
        parts = (features[part] for part in pieces(len(features), _BLOCK))
        odds = [sum(self._by_tree(part, values), np.zeros(len(part))) for part in parts]
        return np.concatenate([np.zeros(0), *odds])

    def chances(self, features: Floats) -> Floats:
        """Probability ``[n]`` that each pair matches."""
        return np.asarray(1 / (1 + np.exp(-self.log_odds(features))))

    def likeness(self, features: Floats, known: Floats) -> Floats:
        """How alike pairs ``[n, F]`` are to labelled ones ``[m, F]`` in the eyes of the scorer: ``[n, m]``."""
        theirs = self.leaves(known)
        return np.stack([(theirs == leaves).mean(axis=1) for leaves in self.leaves(features)])

    def save(self, path: Path) -> None:
        """Write the trees to a file."""
        save_file({name: part.contiguous() for name, part in self.trees.items()}, path)

    @classmethod
    def load(cls, path: Path, features: int) -> "BoostedPairs":
        """The scorer saved at ``path``, of pairs of so many features.

        Raises:
            ValueError: for trees that are none.
        """
        shapes = {name: shape for name, (shape, *_) in tensor_header(path).items()}
        count, nodes = ((shapes.get(name) or (0,))[0] for name in ("roots", "left"))
        if not 0 < count <= nodes <= _LARGEST:
            raise ValueError(f"{path.name}: expected trees of at most {_LARGEST} nodes, got others")
        whole = {name: torch.int64 for name in ("roots", "left", "right", "feature")}
        template = {
            name: torch.zeros(count if name == "roots" else nodes, dtype=dtype, device="meta")
            for name, dtype in (whole | dict.fromkeys(("threshold", "value"), torch.float64)).items()
        }
        scorer = cls()
        scorer.trees = read_tensors(path, template)
        left, right, feature = (scorer.trees[name] for name in ("left", "right", "feature"))
        leaf = (left == -1) & (right == -1)
        inside = (left >= 0) & (left < nodes) & (right >= 0) & (right < nodes)
        roots = scorer.trees["roots"]
        if not bool((leaf | inside).all() and (feature >= 0).all() and (feature < features).all()) or not bool(
            ((roots >= 0) & (roots < nodes)).all()
        ):
            raise ValueError(f"{path.name}: expected trees over {features} features, got others")
        return scorer
