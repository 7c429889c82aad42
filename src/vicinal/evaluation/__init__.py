"""Honest figures: scores, baselines, tests, and the resumable comparison of methods over seeded splits."""

from vicinal.evaluation.audit import Drift as Drift
from vicinal.evaluation.audit import average_precision as average_precision
from vicinal.evaluation.audit import left_out_predictions as left_out_predictions
from vicinal.evaluation.audit import suspicion as suspicion
from vicinal.evaluation.baselines import knn_baseline as knn_baseline
from vicinal.evaluation.baselines import knn_grid as knn_grid
from vicinal.evaluation.comparison import Significance as Significance
from vicinal.evaluation.comparison import Summary as Summary
from vicinal.evaluation.comparison import answers as answers
from vicinal.evaluation.comparison import significance as significance
from vicinal.evaluation.comparison import summarize as summarize
from vicinal.evaluation.fairness import group_gap as group_gap
from vicinal.evaluation.ranking import query_ndcg as query_ndcg
from vicinal.evaluation.ranking import ranking_scores as ranking_scores
from vicinal.evaluation.representers import l1_representers as l1_representers
from vicinal.evaluation.representers import nuclear_representers as nuclear_representers
from vicinal.evaluation.scores import classification_scores as classification_scores
from vicinal.evaluation.scores import regression_scores as regression_scores
from vicinal.evaluation.scores import scores_by_class as scores_by_class
from vicinal.evaluation.scores import several_scores as several_scores
from vicinal.evaluation.statistics import critical_difference as critical_difference
from vicinal.evaluation.statistics import friedman as friedman
from vicinal.evaluation.statistics import paired_t as paired_t
from vicinal.evaluation.statistics import wilcoxon as wilcoxon
from vicinal.evaluation.store import Run as Run
from vicinal.evaluation.tuned import tuned_baselines as tuned_baselines
from vicinal.evaluation.wrong_labels import WrongLabels as WrongLabels
from vicinal.evaluation.wrong_labels import wrong_classes as wrong_classes
from vicinal.evaluation.wrong_labels import wrong_labels as wrong_labels
from vicinal.exports import export_imported as _export_imported

_export_imported(__name__)
