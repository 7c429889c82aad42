"""Masks ``mask(scores, queries, weight) -> log_mask [b, N]`` and simplex maps ``map(scores) -> weights [b, N]``."""

from vicinal.exports import export_imported as _export_imported
from vicinal.masks.budgets import MutualChoice as MutualChoice
from vicinal.masks.budgets import feature_choice as feature_choice
from vicinal.masks.budgets import mutual_choice as mutual_choice
from vicinal.masks.budgets import zipf_budgets as zipf_budgets
from vicinal.masks.perturbed import hard_topk as hard_topk
from vicinal.masks.perturbed import perturbed_topk as perturbed_topk
from vicinal.masks.simplex import entmax15 as entmax15
from vicinal.masks.simplex import k_sparsemax as k_sparsemax
from vicinal.masks.simplex import resolve_simplex as resolve_simplex
from vicinal.masks.simplex import softmax as softmax
from vicinal.masks.simplex import sparsemax as sparsemax
from vicinal.masks.soft_topk import log_soft_topk as log_soft_topk
from vicinal.masks.soft_topk import soft_topk as soft_topk
from vicinal.masks.softstep import RankStep as RankStep
from vicinal.masks.softstep import RejectingStep as RejectingStep
from vicinal.masks.softstep import SoftStep as SoftStep
from vicinal.masks.softstep import log_s1 as log_s1
from vicinal.masks.softstep import log_s2 as log_s2
from vicinal.masks.topk import TopK as TopK
from vicinal.masks.unit import unit_scores as unit_scores

_export_imported(__name__)
