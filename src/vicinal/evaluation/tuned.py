"""What an expert tries first: ridge, kernel machines, boosting, k-NN, each tuned by cross-validation on training rows.

scikit-learn fits them all. Every setting is tried on folds of the training rows (of whole groups, where there are
groups), and the one with the lowest error is fitted again on all of them. With many settings and more than ``FEW``
rows, all settings are tried on three folds with ``FEW`` rows to learn from, and the best four on all folds with all
rows.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from vicinal.calibration import f1_thresholds
from vicinal.core import check_choice
from vicinal.core.identity import IdsLike, canonical_ids
from vicinal.core.progress import report
from vicinal.evaluation.baselines import (
    ALPHAS,
    SPREADS,
    WEIGHTS,
    Baseline,
    Features,
    has_several,
    neighbor_mean,
    one_hot,
)
from vicinal.evaluation.scores import relative_weights

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]
Setting: TypeAlias = Mapping[str, Any]

TRIED = 2000
"""Rows that settings are tried on, at most, unless more are wanted."""

FITTED = 4000
"""Rows that kernel machines are fitted on, at most."""

FEW = 400
"""Rows to learn from when all settings are tried; the best four are tried with all."""

WORK = 4e9
"""Absolute differences beyond which Manhattan distances are left out: rows times rows times width."""

SCALES: Mapping[str, Sequence[float]] = {"rbf": (0.1, 0.3, 1.0, 3.0), "laplacian": (0.03, 0.1, 0.3, 1.0)}
"""Kernels that are tried, and their gamma in units of one over the median of the distances."""

STAGES: Mapping[tuple[int, int], Sequence[int]] = {
    (3, 5): (50, 100, 200, 300),
    (8, 5): (25, 50, 100, 200),
    (8, 20): (25, 50, 100, 200),
    (31, 20): (25, 50, 100),
}
"""Iterations of boosting that are tried, by the most leaves of a tree and the least rows of a leaf."""

NUMBERS = ("ridge", "kernel ridge", "support vectors", "boosting", "k-NN")
CLASSES = ("logistic regression", "support vectors", "boosting", "k-NN")
SEVERAL = ("logistic regression", "k-NN")
"""What :func:`tuned_baselines` tries, of several classes a row the last."""

FOLDS = 5
"""Of the training rows, on which settings are compared."""

_HUGE = 1e100
"""Size of features beyond which they are cut: squares and sums of these are still finite."""

_BLOCK = 2048
_NEIGHBORS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
_ALONE = 20_000
"""Rows up to which one thread works."""

_TREES = 600
"""Most trees of boosting, of all classes."""


def tuned_baselines(
    features: Features,
    target: ArrayLike,
    queries: Features | None,
    *,
    classes: Sequence[Any] | None = None,
    groups: IdsLike | None = None,
    times: NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    most: int = TRIED,
    seed: int = 0,
) -> list[Baseline]:
    r"""Fit each of ``methods`` with the settings of least error in cross-validation: squared error, or log loss.

    For several classes a row the error is the squared error of their probabilities, logistic regression is one model
    per class, and thresholds are those with the highest F1 in the same cross-validation.

    Kernels are $\exp(-\gamma \lVert x - z \rVert_2^2)$ and, where the work is small, $\exp(-\gamma \lVert x - z
    \rVert_1)$, with $\gamma$ around one over the median distance, on the features as they are. Linear models
    standardize dense features. Numeric labels are standardized. "support vectors" is support vector regression, or
    classification (one class against the rest, calibrated by Platt's sigmoid or by a temperature).

    Args:
        features: of the training rows ``[a, f]``, dense or scipy sparse.
        target: numbers ``[a]``, or if ``classes`` is given class names, or tuples of them.
        queries: features ``[c, f]`` of the rows to predict; None: the training rows, each predicted by a fit without
            its fold.
        classes: class of each column of the probabilities ``[C]``; none in a regression.
        groups: ``[a]``; folds never split a group.
        times: ``[a]``; settings are then tried on later rows than they learn from. It needs ``queries``.
        weights: ``[a]``, > 0, for the errors that settings are chosen by, and for fitting all methods but k-NN and
            one class against the rest. None: 1 each.
        methods: from ``NUMBERS``, with classes from ``CLASSES``, with several a row from
            ``SEVERAL``; None: all of them, except boosting on sparse features.
        most: with more training rows than this, settings are tried on this many, drawn at random, and without
            ``queries`` only these are predicted. Kernel machines are fitted on at most ``FITTED`` or ``most`` rows,
            whichever is more.
        seed: of folds and draws.

    Returns:
        one baseline per method, with the number of rows that it was fitted on.

    Raises:
        ValueError: for a method of another name, or fewer than 10 rows.

    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> wave, = tuned_baselines(x, np.sin(x[:, 0]), np.array([[1.5]]), methods=["kernel ridge"])
    >>> wave.settings["kernel"], bool(abs(wave.prediction[0] - np.sin(1.5)) < 0.01)
    ('rbf', True)
    """
    queries = None if queries is None else _safe(queries)
    named = () if classes is None else classes
    known = NUMBERS if not len(named) else SEVERAL if has_several(target) else CLASSES
    count = features.shape[0]
    if count < 10:
        raise ValueError(f"features: expected at least 10 rows, got {count}")
    if methods is None:
        methods = [name for name in known if name != "boosting" or not scipy.sparse.issparse(features)]
    owners = np.arange(count) if groups is None else np.unique(canonical_ids("groups", groups), return_inverse=True)[1]
    rows = _Rows.of(features, target, named, owners, times, relative_weights(count, weights), most, seed)
    fitted = replace(rows, some=_drawn(count, max(most, FITTED), seed), distances={}) if count > most else rows
    # Threads wait for one another on so few rows: boosting of 320 took 18 s with two of a busy machine, 0.1 s with one.
    with warnings.catch_warnings(), threadpool_limits(limits=1 if count <= _ALONE else None):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the best that so many iterations give is a fair baseline
        baselines = []
        for place, name in enumerate(methods):
            report("baselines", place, len(methods), name)
            baselines.append(_fitted(check_choice("methods", name, known), rows, fitted, queries))
        return baselines


@dataclass(frozen=True, eq=False)
class _Rows:
    """Training rows; ``some`` are those that settings are tried on, in rising order.

    Labels are standardized numbers ``[a]``, which have no ``classes``, codes of classes ``[a]``, or of several classes
    0 and 1 ``[a, C]``.
    """

    features: Features
    labels: Floats
    classes: Sequence[Any]
    center: float
    scale: float
    some: Places
    folds: list[tuple[Places, Places]]
    seed: int
    mass: Floats
    distances: dict[int, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        features: Features,
        target: ArrayLike,
        classes: Sequence[Any],
        groups: Places,
        times: NDArray[Any] | None,
        mass: Floats,
        most: int,
        seed: int,
    ) -> "_Rows":
        features = _safe(features)
        center, scale = 0.0, 1.0
        if not len(classes):
            labels = np.asarray(target, dtype=np.float64)
            center = float(np.average(labels, weights=mass))
            scale = float(np.sqrt(np.average((labels - center) ** 2, weights=mass))) or 1.0
            labels = (labels - center) / scale
        else:
            labels = one_hot(target, classes)
            labels = labels if has_several(target) else labels.argmax(1).astype(np.float64)
        some = _drawn(len(labels), most, seed)
        if times is None:
            folds = _folds(labels[some], groups[some], seed, classes=len(classes) > 0 and labels.ndim == 1)
        else:
            folds = _folds_by_time(np.asarray(times)[some], groups[some])
        cut = [(some[i], some[o]) for i, o in folds]
        return cls(features, labels, classes, center, scale, some, cut, seed, mass)

    @property
    def numbers(self) -> bool:
        """Whether labels are numbers."""
        return not len(self.classes)

    @property
    def several(self) -> bool:
        """Whether rows may have several classes."""
        return self.labels.ndim == 2

    @property
    def manhattan(self) -> bool:
        """Whether Manhattan distances are worth their work."""
        return not scipy.sparse.issparse(self.features) and len(self.some) ** 2 * self.features.shape[1] <= WORK

    def within(self, power: int) -> Floats:
        """Distances between the rows that settings are tried on, squared for ``power`` 2."""
        if power not in self.distances:
            tried = self.features[self.some]
            self.distances[power] = _distances(tried, tried, power)
        return self.distances[power]

    def between(self, power: int, inside: Places, outside: "Places | Features") -> Floats:
        """Distances ``[outside, inside]``; rows outside by their places, or new ones by their features."""
        if isinstance(outside, np.ndarray) and outside.ndim == 1:
            places = np.searchsorted(self.some, outside), np.searchsorted(self.some, inside)
            return self.within(power)[np.ix_(*places)]
        return _distances(outside, self.features[inside], power)

    def take(self, outside: "Places | Features") -> Features:
        """Features of rows by their places, or of new rows as they are."""
        return self.features[outside] if isinstance(outside, np.ndarray) and outside.ndim == 1 else outside

    def weights_of(self, places: Places) -> Floats | None:
        """What scikit-learn is told of how much each of these rows counts: of even weights nothing, which is faster."""
        return None if (self.mass == 1).all() else self.mass[places]

    def error(self, places: Places, guess: Floats) -> float:
        """Sum of squared errors (of several classes their mean), or of negative log probabilities, by weight."""
        if self.several:
            return float((self.mass[places] * np.square(guess - self.labels[places]).mean(1)).sum())
        if self.numbers:
            return float((self.mass[places] * np.square(guess - self.labels[places])).sum())
        eps = np.finfo(np.float64).eps
        chances = guess[np.arange(len(places)), self.labels[places].astype(int)]
        return float((self.mass[places] * -np.log(np.clip(chances, eps, 1))).sum())


def _safe(features: Features) -> Features:
    """Finite float64, sparse or dense, that may be squared."""
    if scipy.sparse.issparse(features):
        rows = features.tocsr().astype(np.float64)
        rows.data.clip(-_HUGE, _HUGE, out=rows.data)
        return rows
    return np.asarray(features, dtype=np.float64).clip(-_HUGE, _HUGE)


def _folds(labels: Floats, groups: Places, seed: int, *, classes: bool) -> list[tuple[Places, Places]]:
    """Places inside and outside of each fold; none cuts a group, and classes have their shares if they can."""
    number = len(np.unique(groups))
    grouped = 1 < number < len(labels)
    count = min(FOLDS, number) if grouped else FOLDS
    classes = classes and int(np.unique(labels, return_counts=True)[1].max()) >= count
    kind = (StratifiedGroupKFold if grouped else StratifiedKFold) if classes else GroupKFold if grouped else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rare classes are missing in some folds; lone groups are not read
        return list(kind(count, shuffle=True, random_state=seed).split(labels, labels, groups))


def _folds_by_time(times: NDArray[Any], groups: Places) -> list[tuple[Places, Places]]:
    """Places inside and outside of each fold: outside is later than inside; groups outside are not inside."""
    parts = np.array_split(np.argsort(times, kind="stable"), FOLDS + 1)
    folds = [(np.sort(np.concatenate(parts[:place])), np.sort(parts[place])) for place in range(1, len(parts))]
    apart = [(inside[~np.isin(groups[inside], groups[outside])], outside) for inside, outside in folds]
    return [fold for fold in apart if len(fold[0])] or folds


def _drawn(count: int, most: int, seed: int) -> Places:
    """Places of at most ``most`` out of ``count`` rows, rising."""
    places = np.arange(count)
    return places if count <= most else np.sort(np.random.default_rng(seed).choice(places, most, replace=False))


def _distances(a: Features, b: Features, power: int) -> Floats:
    """Manhattan distances ``[a, b]``, or for ``power`` 2 squared Euclidean ones."""
    measured = euclidean_distances(a, b, squared=True) if power == 2 else manhattan_distances(a, b)
    return np.asarray(measured, dtype=np.float64)


Guesses: TypeAlias = Iterator[tuple[Setting, Floats]]


def _fitted(name: str, rows: _Rows, all_rows: _Rows, queries: Features | None) -> Baseline:
    """The method with its best setting, fitted on all rows, or on as many as it can."""
    settings, guesses = _METHODS[name]
    best, error, left_out = _best(rows, settings(rows), guesses)
    chosen = None
    if rows.several:
        chosen = f1_thresholds(left_out, rows.labels[rows.some], rows.mass[rows.some])
    if queries is None:
        return Baseline(name, left_out * rows.scale + rows.center, dict(best), error, len(rows.some), chosen)
    inside = all_rows.some if guesses is _kernel_guesses else np.arange(len(rows.labels))
    ((_, guess),) = guesses(all_rows, [best], inside, queries)
    return Baseline(name, guess * rows.scale + rows.center, dict(best), error, len(inside), chosen)


def _best(rows: _Rows, settings: Sequence[Setting], guesses: "Guess") -> tuple[Setting, float, Floats]:
    """The setting of least error in cross-validation, that error, and its predictions of the rows left out."""
    # boosting is not thinned out: most of its settings are stages of a fit that is made in any case
    if len(rows.some) > 1.25 * FEW and len(settings) > 8 and guesses is not _boosting_guesses:
        draw = np.random.default_rng(rows.seed)
        few = [(np.sort(draw.choice(i, min(FEW, len(i)), replace=False)), o) for i, o in rows.folds[:3]]
        order = np.argsort(_errors(rows, settings, guesses, few)[0], kind="stable")
        settings = [settings[place] for place in np.sort(order[:4])]
    errors, predictions = _errors(rows, settings, guesses, rows.folds)
    place = int(np.argmin(errors))
    count = sum(float(rows.mass[outside].sum()) for _, outside in rows.folds)
    return settings[place], float(errors[place]) * rows.scale**2 / count, predictions[place]


def _errors(
    rows: _Rows, settings: Sequence[Setting], guesses: "Guess", folds: Sequence[tuple[Places, Places]]
) -> tuple[Floats, list[Floats]]:
    """Error of each setting, and its predictions in the order of ``rows.some``."""
    errors = np.zeros(len(settings))
    shape = (len(rows.some),) if rows.numbers else (len(rows.some), len(rows.classes))
    predictions = [np.zeros(shape) for _ in settings]
    for inside, outside in folds:
        for number, (_, guess) in enumerate(guesses(rows, settings, inside, outside)):
            errors[number] += rows.error(outside, guess)
            predictions[number][np.searchsorted(rows.some, outside)] = guess
    return errors, predictions


Guess: TypeAlias = Callable[[_Rows, Sequence[Setting], Places, "Places | Features"], Guesses]
"""Predictions of the rows outside by each setting, in their order, fitted on the rows inside."""


def _kernel_guesses(rows: _Rows, settings: Sequence[Setting], inside: Places, outside: "Places | Features") -> Guesses:
    if not rows.numbers:  # probabilities are calibrated by two rows of a class at least
        inside = inside[np.bincount(rows.labels[inside].astype(int))[rows.labels[inside].astype(int)] > 1]
    parts = [outside[start : start + _BLOCK] for start in range(0, outside.shape[0], _BLOCK)]
    for (name, gamma), group in groupby(settings, key=lambda setting: (setting["kernel"], setting["gamma"])):
        power = 2 if name == "rbf" else 1
        fitted = np.exp(-gamma * rows.between(power, inside, inside))
        others = [np.exp(-gamma * rows.between(power, inside, part)) for part in parts]
        for setting in group:
            yield setting, _predicted(rows, _kernel_machine(rows, setting, inside), inside, fitted, others)


def _kernel_machine(rows: _Rows, setting: Setting, inside: Places) -> Any:
    """scikit-learn's machine for a kernel ``[n, n]`` that is known; of classes with calibrated probabilities."""
    if "alpha" in setting:
        return KernelRidge(alpha=setting["alpha"], kernel="precomputed")
    if rows.numbers:
        return SVR(kernel="precomputed", C=setting["C"], epsilon=setting["epsilon"], cache_size=500)
    counts = np.unique(rows.labels[inside], return_counts=True)[1]
    machine: Any = SVC(kernel="precomputed", C=setting["C"])
    machine = machine if len(counts) == 2 else OneVsRestClassifier(machine)
    folds = max(2, int(counts.min(initial=3)))
    return CalibratedClassifierCV(machine, method=setting["calibration"], cv=folds, ensemble=False)


def _predicted(rows: _Rows, model: Any, inside: Places, features: Features, others: Sequence[Features]) -> Floats:
    """What the model says of the blocks ``others`` once it is fitted: numbers, or probabilities of all classes."""
    labels, known = rows.labels[inside], {}
    if model is not None and has_fit_parameter(model, "sample_weight"):
        known = {"sample_weight": rows.weights_of(inside)}
    if rows.numbers:
        model.fit(features, labels, **known)
        return np.concatenate([np.asarray(model.predict(part), dtype=np.float64).ravel() for part in others])
    spread = np.zeros((sum(part.shape[0] for part in others), len(rows.classes)))  # a class without rows keeps 0
    codes = np.unique(labels).astype(int)
    if len(codes) > 1:
        with warnings.catch_warnings():  # of several classes only the calibration knows weights
            warnings.filterwarnings("ignore", "Since OneVsRestClassifier", UserWarning)
            model.fit(features, labels, **known)
        spread[:, codes] = np.concatenate([model.predict_proba(part) for part in others])
    else:
        spread[:, codes] = 1.0
    return spread


def _each_class(rows: _Rows, model: Any, inside: Places, fitted: Features, others: Features) -> Floats:
    """Probabilities of several classes, one model for each: a class that no row inside has, or all, keeps its share."""
    shares = np.repeat(rows.labels[inside].mean(0, keepdims=True), others.shape[0], axis=0)
    weights = rows.weights_of(inside)
    for place in np.flatnonzero((shares[0] > 0) & (shares[0] < 1)).tolist():
        shares[:, place] = model.fit(fitted, rows.labels[inside, place], weights).predict_proba(others)[:, 1]
    return shares


def _kernel_settings(rows: _Rows, **others: Sequence[Any]) -> list[Setting]:
    """Kernels by the others; gamma is a multiple of one over the median of the distances."""
    settings: list[Setting] = []
    for kernel, power in (("rbf", 2), ("laplacian", 1))[: 2 if rows.manhattan else 1]:
        median = float(np.median(rows.within(power)[:: max(1, len(rows.some) // 500)])) or 1.0
        for scale, *values in product(SCALES[kernel], *others.values()):
            settings.append({"kernel": kernel, "gamma": scale / median, **dict(zip(others, values, strict=True))})
    return settings


def _linear_guesses(rows: _Rows, settings: Sequence[Setting], inside: Places, outside: "Places | Features") -> Guesses:
    fitted, others = rows.take(inside), rows.take(outside)
    if not scipy.sparse.issparse(fitted):
        scaler = StandardScaler().fit(fitted)
        fitted, others = scaler.transform(fitted), scaler.transform(others)
    for setting in settings:
        if not rows.numbers:
            model: Any = LogisticRegression(C=setting["C"], max_iter=200, tol=1e-3)
            if rows.several:
                yield setting, _each_class(rows, model, inside, fitted, others)
                continue
        else:
            model = Ridge(alpha=setting["alpha"], solver="sparse_cg" if scipy.sparse.issparse(fitted) else "auto")
        yield setting, _predicted(rows, model, inside, fitted, [others])


def _neighbor_guesses(
    rows: _Rows, settings: Sequence[Setting], inside: Places, outside: "Places | Features"
) -> Guesses:
    labels = rows.labels[inside]
    if not rows.numbers and not rows.several:
        labels = np.eye(len(rows.classes))[labels.astype(int)]
    known: dict[int, tuple[Floats, Places]] = {}
    most = max(setting["n_neighbors"] for setting in settings)
    for setting in settings:
        power, k = setting["p"], setting["n_neighbors"]
        if power not in known:
            search = NearestNeighbors(n_neighbors=min(len(inside), most), p=power)
            known[power] = search.fit(rows.take(inside)).kneighbors(rows.take(outside))
        distances, places = known[power]
        yield setting, neighbor_mean(labels, distances[:, :k], places[:, :k], setting["weights"])


def _boosting_guesses(
    rows: _Rows, settings: Sequence[Setting], inside: Places, outside: "Places | Features"
) -> Guesses:
    for (leaves, least), group in groupby(settings, key=lambda s: (s["max_leaf_nodes"], s["min_samples_leaf"])):
        stages = {setting["max_iter"]: setting for setting in group}
        kind = HistGradientBoostingRegressor if rows.numbers else HistGradientBoostingClassifier
        model = kind(
            learning_rate=0.1,
            max_iter=max(stages),
            max_leaf_nodes=leaves,
            min_samples_leaf=least,
            early_stopping=False,
            random_state=rows.seed,
        )
        labels, others = rows.labels[inside], rows.take(outside)
        codes = np.unique(labels).astype(int)
        if not rows.numbers and len(codes) < 2:
            yield from ((setting, _predicted(rows, None, inside, None, [others])) for setting in stages.values())
            continue
        model.fit(rows.take(inside), labels, rows.weights_of(inside))
        staged = model.staged_predict(others) if rows.numbers else model.staged_predict_proba(others)
        for stage, guess in enumerate(staged, 1):
            if stage in stages and rows.numbers:
                yield stages[stage], guess
            elif stage in stages:
                spread = np.zeros((len(guess), len(rows.classes)))
                spread[:, codes] = guess
                yield stages[stage], spread


def _grid(**values: Sequence[Any]) -> list[Setting]:
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _support_settings(rows: _Rows) -> list[Setting]:
    if not rows.numbers:
        return _kernel_settings(rows, C=(1.0, 10.0), calibration=("sigmoid", "temperature"))
    return _kernel_settings(rows, C=(0.3, 1.0, 3.0, 10.0), epsilon=(0.05, 0.3))


def _boosting_settings(rows: _Rows) -> list[Setting]:
    trees = len(rows.classes) if len(rows.classes) > 2 else 1
    most = max(len(inside) for inside, _ in rows.folds)
    settings: list[Setting] = []
    tried: dict[tuple[int, int], set[int]] = {}
    for (leaves, least), stages in STAGES.items():
        some = [stage for stage in stages if stage * trees <= _TREES] or stages[:1]
        # Leaves of 20 rows are at most 8 of 179 rows, may there be 8 or 31: those are the same trees, tried once.
        known = tried.setdefault((min(leaves, most // least), least), set())
        if known.issuperset(some):
            continue
        known.update(some)
        settings += _grid(max_leaf_nodes=[leaves], min_samples_leaf=[least], max_iter=some)
    return settings


_METHODS: dict[str, tuple[Callable[[_Rows], list[Setting]], Guess]] = {
    "ridge": (lambda rows: _grid(alpha=ALPHAS), _linear_guesses),
    "logistic regression": (lambda rows: _grid(C=tuple(1 / alpha for alpha in SPREADS)), _linear_guesses),
    "kernel ridge": (lambda rows: _kernel_settings(rows, alpha=(1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)), _kernel_guesses),
    "support vectors": (_support_settings, _kernel_guesses),
    "boosting": (_boosting_settings, _boosting_guesses),
    "k-NN": (
        lambda rows: _grid(p=(1, 2) if rows.manhattan else (2,), n_neighbors=_NEIGHBORS, weights=WEIGHTS),
        _neighbor_guesses,
    ),
}
