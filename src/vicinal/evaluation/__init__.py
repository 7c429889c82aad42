"""Honest figures: scores, baselines, tests, and the resumable comparison of methods over seeded splits."""

from vicinal.evaluation.baselines import Baseline, knn_grid, mean_baseline, ridge_baseline
from vicinal.evaluation.comparison import Significance, Summary, significance, summarize
from vicinal.evaluation.protocol import SplitLike, run_protocol, split_digest
from vicinal.evaluation.scores import HIGHER_IS_BETTER, PRIMARY, classification_scores, regression_scores
from vicinal.evaluation.statistics import (
    Outcome,
    average_ranks,
    bootstrap_interval,
    critical_difference,
    friedman,
    nemenyi,
    paired_t,
    relative_change,
    wilcoxon,
)
from vicinal.evaluation.store import Run, RunStore

__all__ = [
    "HIGHER_IS_BETTER",
    "PRIMARY",
    "Baseline",
    "Outcome",
    "Run",
    "RunStore",
    "Significance",
    "SplitLike",
    "Summary",
    "average_ranks",
    "bootstrap_interval",
    "classification_scores",
    "critical_difference",
    "friedman",
    "knn_grid",
    "mean_baseline",
    "nemenyi",
    "paired_t",
    "regression_scores",
    "relative_change",
    "ridge_baseline",
    "run_protocol",
    "significance",
    "split_digest",
    "summarize",
    "wilcoxon",
]
