"""Honest figures: scores, baselines, tests, and the resumable comparison of methods over seeded splits."""

from vicinal.evaluation.audit import Drift, average_precision, left_out_predictions, suspicion
from vicinal.evaluation.baselines import knn_baseline, knn_grid
from vicinal.evaluation.comparison import Significance, Summary, answers, significance, summarize
from vicinal.evaluation.fairness import group_gap
from vicinal.evaluation.ranking import query_ndcg, ranking_scores
from vicinal.evaluation.representers import l1_representers, nuclear_representers
from vicinal.evaluation.scores import classification_scores, regression_scores, scores_by_class, several_scores
from vicinal.evaluation.statistics import critical_difference, friedman, paired_t, wilcoxon
from vicinal.evaluation.store import Run
from vicinal.evaluation.tuned import tuned_baselines
from vicinal.evaluation.wrong_labels import WrongLabels, wrong_classes, wrong_labels

__all__ = [
    "Drift",
    "Run",
    "Significance",
    "Summary",
    "WrongLabels",
    "answers",
    "average_precision",
    "classification_scores",
    "critical_difference",
    "friedman",
    "group_gap",
    "knn_baseline",
    "knn_grid",
    "l1_representers",
    "left_out_predictions",
    "nuclear_representers",
    "paired_t",
    "query_ndcg",
    "ranking_scores",
    "regression_scores",
    "scores_by_class",
    "several_scores",
    "significance",
    "summarize",
    "suspicion",
    "tuned_baselines",
    "wilcoxon",
    "wrong_classes",
    "wrong_labels",
]
