"""Listed losses that ``fit`` and ``learn`` cannot train by: what they are of, and where they are used."""

from vicinal.core import entries

TAUGHT = ("kl_top", "ranknet", "sinkhorn_distillation")
"""Teacher losses of the similarities of rows, for ``vicinal distill``."""

_WEIGHTS = ("of weights of a network, not of its embeddings", "examples/tidy_weights.py")
_FAIR = ("of groups", "fit --fair")
ELSEWHERE: dict[str, tuple[str, str]] = {
    **{name: ("of a teacher's scores", "distill") for name in TAUGHT},
    "ar2": ("of a ranker's scores, with the related column first", "Python"),
    "member_diversity": ("of members that are trained one after the other", "examples/several_members.py"),
    "mixed_labels": (
        "of earlier scores; distill --share mixes a teacher's into labels",
        "examples/ways_to_step.py",
    ),
    "cauchy_schwarz": _WEIGHTS,
    "group_orthogonality": _WEIGHTS,
    "rationale_invariance": _WEIGHTS,
    "distance_covariance": _FAIR,
    "equal_rates": _FAIR,
    "joint_distance_covariance": ("of groups of several columns", "Python"),
    "block_contrast": ("of rows joined by a graph", "examples/hidden_links.py"),
    "temperature_penalty": ("of learned temperatures, which amcl penalizes", "Python"),
    "best_of_k": ("of several guesses a row", "Python"),
    "ms_ssim": ("of images", "Python"),
    "potential": ("of a convex potential that is made in Python", "Python"),
    "preference": ("of log ratios of chosen and of rejected answers", "Python"),
    "smooth_adversarial": ("of scores of moved inputs", "Python"),
}
"""Losses that ``fit`` and ``learn`` cannot train by: what they are of, and where they are used."""


def _is_of_scores(name: str) -> bool:
    return any(one.name == name for kind in ("loss", "class_loss") for one in entries(kind))


def refusal(name: str) -> str:
    """Why a listed loss is refused, and what would do.

    >>> refusal("kl_top")
    "loss: expected one of labels and embeddings, got kl_top, which is of a teacher's scores; use distill --loss kl_top"
    """
    about, where = ELSEWHERE[name]
    would = {"distill": f"use distill --loss {name}", "fit --fair": "use fit --fair COLUMN"}.get(where)
    if would is None:
        listed = "--kind predictions" if _is_of_scores(name) else "--kind regularizers"
        place = "call it in a training loop of your own" if where == "Python" else f"see {where}"
        would = f"{place}; 'vicinal losses {listed}' says which train"
    return f"loss: expected one of labels and embeddings, got {name}, which is {about}; {would}"
