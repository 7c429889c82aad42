"""scikit-learn estimators that predict from neighbors: a number, or a class."""

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin

from vicinal.core import check_choice, listed, short
from vicinal.core.checks import check_between, check_integer
from vicinal.core.seeding import usual_settings
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.calibrating import as_shares
from vicinal.estimators.class_sets import class_sets, class_thresholds, threshold_of_answers
from vicinal.estimators.fitted import Part, once
from vicinal.estimators.forces import RowForces, row_forces
from vicinal.estimators.inputs import Ids, as_series
from vicinal.estimators.intervals import intervals_of
from vicinal.estimators.label_codec import ClassCodec, LabelCodec, NumberCodec
from vicinal.estimators.labels import read_classes
from vicinal.estimators.out_of_fold import ensemble_share
from vicinal.estimators.presets import settings_of
from vicinal.estimators.queries import of_ranked_queries
from vicinal.estimators.several import is_multilabel
from vicinal.estimators.target_transform import TargetTransform
from vicinal.heads.kinds import weighs_locally


def _level(cost: float | tuple[float, float]) -> float:
    """The quantile that costs least where too low and too high have these prices, or this ratio of them."""
    under, over = (cost, 1.0) if isinstance(cost, int | float) else cost
    return check_between("cost", under, 0, np.inf) / (under + check_between("cost", over, 0, np.inf))


class NeighborRegressor(RegressorMixin, BankedEstimator, task="regression"):  # type: ignore[misc]  # scikit-learn has no types
    """Predicts a number as a weighted mean of the numbers of neighbors, with an encoder trained for just that.

    Columns of numbers, categories, text, images, audio files and fixed vectors are each encoded in their own way,
    concatenated, and go through the projector of the NONA paper to embeddings; the head attends to the labelled rows
    that it was trained on (the bank). So a prediction can be explained (:meth:`explain`), rows can be added without
    training (:meth:`add`) and removed exactly (:meth:`forget`).

    Args:
        preset: None, or "nona": the model and the training of the NONA paper (see
            :data:`vicinal.estimators.presets.PRESETS`), which is of numbers; for classes the same by log-loss, which is
            ours. Pretrained encoders are trained, too. A preset gives its values to the parameters that it names and
            that are at their defaults; any other value goes before it. To have one of them at its default, give the
            others in place of the preset: ``**PRESETS["nona"].settings | {"tune": "none"}``. A saved model has the
            values, and no preset.
        head: "nona" (neighbors) or "dense" (a linear layer; no explanations).
        metric: how the similarity is learned. "trees": boosted trees (LightGBM) and a linear model of five folds,
            weighed by what they say of rows left out; rows are near whose columns add alike to what these predict, a
            number or the probabilities of classes, and a row of the fit is embedded by those that have not seen its
            label. Texts, images, sounds and sets enter by their leading components, of encoders as they are. "kernel":
            for numbers, a kernel with a length for each column, a linear and a piecewise-linear part, learned by its
            likelihood; texts, images, sounds, sets and vectors of more than 64 entries are at most 30 components, of
            encoders as they are. For classes, a kernel whose lengths minimize the log-loss (see ``docs/methods.md``).
            "network": an encoder and projector, trained for the prediction. Settings of networks and of their training
            are ignored by the other two. "auto": for numbers "trees", or "kernel" on tables of at most 64 encoded
            numbers (where categories make more, those of a column share a length), whichever has less error on rows
            that are each predicted from the others (of texts or files alone "kernel"), or, of at most 2,000 rows, the
            mean of both, each with a share by its error. For one class a row "kernel"; of at most 32 classes, or 2.5
            million rows times classes, and at least 40 rows log-odds of both where these are better. Where there are
            images, sounds or sets, or texts without trees or of at least 1,000 rows, "network" if its error on the
            held-out rows is lower by more than 5 % and a standard error. "network" for all else, and where a loss,
            folds or attention are asked for.
        similarity: "l2", "l1", "cosine", "dot", "scaled_dot" or "squared_l2".
        mask: "s2" or "s1" (SoftStep), "s2-ranks" or "s1-ranks" (:class:`vicinal.masks.RankStep`), "s2-reject"
            (:class:`vicinal.masks.RejectingStep`), "topk" (keeps ``n_neighbors``), or None.
        mask_parameters: "pointwise" or "global", see :class:`vicinal.masks.SoftStep`.
        mask_extent: "admissible" or "all".
        simplex: "softmax", "sparsemax" or "entmax15"; "auto" is entmax15 for numbers, which gives most rows no weight
            at all, and softmax for classes, which rules no class out.
        readout: how predictions are read out of the metric. "attention": by the head that trained a network. "rows": a
            mean of the labels of few nearest rows, by weights that are not negative and are solved for jointly (see
            :class:`vicinal.heads.Kriging`). "comparables", of a kernel or trees: labels of few rows, each adjusted by
            what a trend by columns says of the difference between it and the query, and the trend itself for what is
            missing to a weight of 1 (:class:`vicinal.heads.Comparables`). "dense": weights of either sign, of up to 256
            rows. "auto": of a kernel or trees comparables of the fewest rows whose error (each row predicted from the
            others) is within 1 % of the least, or "rows" where these have the least; of a kernel "dense" where that is
            better by more than 1 %; of a
            network "attention" or "rows", whichever has the lower error on the held-out rows, and "rows" for more than
            8,192 rows; for classes attention of a network, as few rows would rule most classes out, dense weights of a
            kernel, and comparables of trees.
        max_neighbors: most rows that make a prediction. None: of a kernel or trees 10 or 30, or up to 120 where labels
            are mostly noise; 30 of a network; for dense weights of a kernel all rows of up to 2,048, 256 of more, and
            128 of more than 5,000.
        target_transform: the scale that numbers are learned on: "none"; "log", for positive ones such as prices, where
            a prediction is a weighted geometric mean; "rank", their normal scores (see
            :class:`vicinal.estimators.target_transform.TargetTransform`); or "auto", the default: "log" where labels
            are positive and a kernel has a lower squared error with it (in the labels' own units, each row predicted
            from the others), times a constant that makes these predictions sum to as much as the labels, unless it may
            be 1; "none" where no kernel is fitted. Predictions, intervals and the bank are in the units of the labels;
            contributions of explanations and losses are on the scale. Several targets are all transformed alike.
        loss: what training minimizes and early stopping watches: None (squared error; log-loss for classes), text such
            as "matching:sigmoid(scale=2,shift=0.7)" (see :func:`vicinal.losses.parse`), "crps" (numbers: the whole
            distribution of neighbor labels, see :class:`vicinal.losses.CRPS`), or a module ``loss(prediction, label)``.
            It sees labels in their own units, or on the scale of ``target_transform``; probabilities and one-hot labels
            of classes. Losses and regularizers of the embeddings are added to it: "0.5*supcon(temperature=.1) +
            0.05*energy_confusion" (see :func:`vicinal.losses.spec.read_loss`), or a
            :class:`vicinal.losses.EmbeddingLoss`. They act in training only; early stopping still watches the error of
            predictions. A network trained by the text of a matching loss of one number, without a transform, is
            read out by the mean of labels, that and a constant, or their mean under its link, whichever has
            the least loss on rows held out or out of fold; a link that grows exponentially goes on straight two spreads
            from the median (see :meth:`for_loss`).
        fair: column of X whose groups (sexes, say, or quarters of ages) predictions should treat alike: training and
            early stopping add ``fair_weight`` times :class:`vicinal.training.fairness.FairTerm`. The column itself is a
            feature only if ``columns`` names it. It needs the network, with attention.
        fair_weight: >= 0; None: 0.1 for classes, 1 for numbers. More is fairer but less accurate, see
            ``docs/results/losses.md``.
        fair_rate: for classes, what should be equal: "positive" (how many are predicted the second class),
            "true_positive", "false_positive" or "accuracy".
        n_neighbors: default of :meth:`kneighbors`, and k of the mask "topk".
        index: None: the whole bank is searched for every prediction, a block at a time. A name as
            :func:`vicinal.index.open_index` takes it, such as "faiss:IVF1024,Flat" or "milvus:./bank.db": the readouts
            "rows" and "dense" take the rows that it finds; attention weighs all rows, and has no use for it. ``fit``
            makes it, ``add`` and ``forget`` update it, and it is saved with the model, except a database, which stays
            where it is, in a collection of this model's own.
        columns: kind of a column ("number", "category", "text", "image", "audio", "vector", "set") where it should not
            be detected; for DataFrames.
        form: how columns are written, a :class:`vicinal.data.TableForm`; None: found when the model is fitted, which
            keeps it as ``form_`` and reads all later rows by it.
        encoders: encoder by column or by kind: "ngrams", "cnn", "minilm", "efficientnet-lite0", "ge2e", "hub:NAME",
            "folder:PATH"; of sets "set_transformer:minilm", the encoder of sets and that of their elements (see
            :class:`vicinal.encoders.SetColumnEncoder`). Where no encoder is named, images, sounds, and texts of at
            least four words on average get the pretrained one if its package is installed and its vectors explain more
            of the labels, or of their logarithms, than those of the encoder from scratch (1 % of the variance more
            where over 2,000 rows wait for it), judged by a ridge regression on 200 to 2,000 training rows, each
            predicted from the others (see ``encoder_choices_``). "pair:minilm" reads two columns together
            (:class:`vicinal.encoders.PairEncoder`); it is chosen where the difference of two texts says the label.
        tune: which part of a pretrained encoder is trained: "none", "last-N", "all", or "lora" (matrices of low rank
            beside its linear layers; a model folder is small then); or "auto": whatever a timed probe of a few batches
            finds time for, if that has a lower error on the held-out rows than the encoder as published. The default
            trains nothing, so that the model depends on rows, settings and seed, and not on a clock.
        minutes: how long a fit may take, about. Then trees, kernel and network stop where they are, and what was not
            begun is left out; nor is a pretrained encoder taken that would need longer for all rows. With a limit the
            model depends on a clock. None: no limit, but 10 for ``tune="auto"``.
        plan: a :class:`vicinal.estimators.TuningPlan` or the name of its file, used in place of the probe: ``plan_`` of
            an earlier fit, or ``plan.json`` of a model folder. With the same seed it gives the same model.
        hidden: sizes of the projector's layers; the last is the width of the embeddings.
        members: projectors and heads side by side, each trained on its own error; predictions and neighbor weights are
            averaged over them. 1 is the paper's network.
        final_tanh: whether the projector ends in a tanh, as the paper's does.
        dropout: before each layer of the projector.
        max_epochs: see :class:`vicinal.training.TrainingSettings`, as for the settings up to ``patience``.
        batch_size: rows of a step; a batch is its own bank.
        learning_rate: of everything that starts from random weights.
        encoder_learning_rate: of pretrained encoders that are tuned.
        weight_decay: decoupled.
        patience: epochs without a better validation error before training stops.
        validation_fraction: share of rows held out for early stopping and for calibrating intervals. 0 holds out none:
            the members are folds instead. Each leaves out its share of the rows and stops at the epoch that is best for
            the shares of the others, so every row is learned from, and every row has a prediction by members that never
            saw it (:meth:`out_of_fold_predictions`), which calibrates intervals. That needs several members that share
            nothing that learns from labels: frozen encoders, no losses of embeddings, one process.
        precision: as Lightning names it, "32-true", "64-true", "bf16-mixed", "16-mixed".
        accelerator: as Lightning names it, "cpu", "auto", "gpu"; for training, and for encoders of 64 rows and more,
            which then run on a CUDA GPU if there is one.
        devices: number of processes that train together, see :class:`vicinal.training.TrainingSettings`.
        logger: None, "csv", "tensorboard", "wandb" or "mlflow".
        verbose: 0: a fit says nothing. 1: one line of progress that changes, and a line for each model that was tried.
            None: the line of progress, in a notebook. The logger ``vicinal`` has the lines in any case.
        root: folder that paths in image and audio columns start from and must stay in; None: any path.
        cache_dir: folder in which the vectors of frozen encoders are kept between runs.
        checkpoint_dir: folder for checkpoints, so that a killed fit resumes.
        random_state: seed, or a numpy RandomState.

    Attributes:
        fitted_: what the fit has left, a :class:`vicinal.estimators.fitted.FittedModel`; others are parts of it.
        network_: encoder, projector and head.
        bank_: the rows that predictions are made from: all of them.
        calibration_: the rows that were held out of training; none where members are folds.
        folds_: how many folds the members leave out, or None where rows were held out.
        metric_: "network", "kernel", "trees" or "trees and kernel", whichever was fitted.
        history_: error curves of training; a single point for a kernel.
        plan_: the plan by which encoders were tuned, or None.
        label_range_: lowest and highest label of the training rows; training sees labels scaled by it. Of several
            targets both are tensors ``[T]``.
        targets_: names of several targets, or None.
        target_transform_: the fitted transform; its ``name`` is "none", "log" or "rank", or "link" where that is how
            labels are read out.

    The paper is NONA (see ``docs/methods.md``): ``preset="nona"`` is its model and its training. The measurements
    behind the defaults are in ``docs/results/predict.md`` and ``docs/results/intervals.md``.

    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> model = NeighborRegressor(max_epochs=30, learning_rate=1e-2).fit(x, np.sin(x[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.2)
    True
    >>> round(sum(n.weight for n in model.explain([[1.5]], k=100000)[0].neighbors), 6)
    1.0
    >>> NeighborRegressor(preset="nona", max_epochs=2).fit(x, np.sin(x[:, 0])).network_.head.mask.family
    's2'
    """

    label_range_ = Part[tuple[Any, Any]]("ends", of_codec=True)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        queries: Any = None,
        validation: Any = None,
        times: Any = None,
    ) -> Self:
        """Train on labelled rows.

        Args:
            X: table with columns of any kind, of pandas, polars, Arrow or another library that narwhals reads; a Series
                or Arrow array of one column (texts, say); a Dataset of Hugging Face; or a finite numeric matrix ``[n,
                p]``, also a tensor or a scipy sparse matrix, which is made dense; n >= 10. All other methods take the
                same X, and y, ids and groups may be one such column. Results are numpy arrays whatever X was.
            y: finite numbers ``[n]``, not all equal, also as texts ("$1,077", "53.9 %", "1:02:11") or lengths of time
                (in seconds), all labels in one form, later ones, too; or ``[n, T]`` of several targets, whose names are
                the columns of a table, else y0, y1 and so on. One trained metric serves them all; see
                :meth:`of_target`.
            sample_weight: ``[n]``, >= 0: a row of weight 2 counts as two equal rows of weight 1, neither of which
                predicts the other: in the loss, among the held-out rows, as a neighbor, and in intervals. A row of
                weight 0 is left out. Only ratios matter: weights are divided by their mean. Encoders, and the choice of
                held-out rows, ignore them. Only for losses of predictions.
            ids: ``[n]``, unique; None: 0 to n - 1. Compared by value, whatever their type: 1, 1.0 and "1" are one id
                (see :mod:`vicinal.core.identity`).
            groups: ``[n]``, compared likewise; a row never learns or predicts from a row of its own group.
            queries: ``[n]``, for rows that are to be ranked within a query by their grades y: the groups. The rows of a
                query stay together, in folds and among the rows held out, and are the lists of a loss such as
                "plackett_luce". Queries of one row or one grade have no order and are left out, with a warning. All
                other methods take them as groups.
            validation: positions of the rows to hold out; None: drawn by ``validation_fraction`` and ``random_state``,
                or with times the latest.
            times: ``[n]``, numbers or dates, of rows whose later ones are to be predicted. Models of the earlier half,
                five and six eighths then predict the quarter of the rows that comes next: by these forecasts the metric
                and the scale of the labels are chosen, and intervals are as wide as they needed (see
                :meth:`predict_interval`). It takes two to five times as long.

        Returns:
            self.

        Raises:
            ValueError: naming what was expected and what was found.
        """
        if queries is not None and groups is not None:
            raise ValueError("groups: expected none with queries, which are the groups, got both")
        if queries is not None:
            (X, y, sample_weight, ids, groups), validation = of_ranked_queries(
                X, y, queries, weights=sample_weight, ids=ids, validation=validation
            )
        return self._fit(X, y, ids, groups, validation, sample_weight, times)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: rows may have several numbers."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @usual_settings()
    def forces(self, X: Any, y: Any, k: int = 5, *, ids: Any = None, groups: Any = None) -> list[RowForces]:
        """Which bank rows the training of a network pulls near to each row, and which it pushes away.

        The squared error of a row is a sum of terms of pairs and of triplets (NONA, section 4.1; see
        :func:`vicinal.heads.forces.forces`), and its slope by the score of a bank row says which way that row is moved.

        Args:
            X: rows.
            y: their labels.
            k: bank rows to list for each, those with the strongest pulls of either sign.
            ids: ids of the rows; give them for rows of the bank, which are not their own neighbors.
            groups: groups of the rows.

        Raises:
            ValueError: for another readout than attention, rows with weights, or several targets.

        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> model = NeighborRegressor(preset="nona", max_epochs=2).fit(x, np.sin(x[:, 0]))
        >>> row = model.forces(x[:1], [0.0], ids=[0])[0]
        >>> bool(abs(row.pairs + row.triplets - model.predict(x[:1], ids=[0])[0] ** 2) < 1e-9)
        True
        """
        (queries, identity, _), model = self._queries(X, ids, groups), self.fitted_
        self.check_neighbor_head("forces")
        labels = model.codec.as_predicted(torch.from_numpy(model.codec.take(y, len(queries))))
        return row_forces(model, queries, labels, identity, check_integer("k", k))

    def partial_fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        refit: bool = False,
        epochs: int | None = None,
    ) -> Self:
        """Learn from more rows: the first call is :meth:`fit`, later ones are :meth:`add`, which trains nothing.

        Args:
            X: rows, at least 10 in the first call.
            y: their labels.
            sample_weight: see :meth:`fit` and :meth:`add`.
            ids: likewise.
            groups: likewise.
            refit: then train anew on all rows of the bank, as a new :meth:`fit` would; for columns of numbers,
                categories and texts. Forgotten rows then leave no trace.
            epochs: without ``refit``, then train this many more epochs from the present weights, on all rows of the
                bank: :meth:`train_on`.

        Returns:
            self.

        >>> x = np.linspace(0, 6, 90)[:, None]
        >>> model = NeighborRegressor(metric="kernel").partial_fit(x[:60], np.sin(x[:60, 0]))
        >>> model = model.partial_fit(x[60:], np.sin(x[60:, 0]))
        >>> len(model.bank_), bool(abs(model.predict([[5.0]])[0] - np.sin(5.0)) < 0.1)
        (90, True)
        """
        return self._learn_on(X, y, ids, groups, sample_weight, refit=refit, epochs=epochs)

    @usual_settings()
    def predict(
        self,
        X: Any,
        *,
        link: str | None = None,
        cost: float | tuple[float, float] | None = None,
        quantile: float | None = None,
        cap: float | None = 2.0,
        ids: Any = None,
        groups: Any = None,
    ) -> np.ndarray[Any, Any]:
        """Predicted numbers ``[n]``, of several targets ``[n, T]``.

        Args:
            X: rows.
            link: predict what has the least expected matching loss of this link: see :meth:`for_loss`, also for the
                next three.
            cost: or what costs least where too low and too high have different prices.
            quantile: or this quantile.
            cap: of ``link``.
            ids: their ids, if some of them may be in the bank: a row is never predicted from itself.
            groups: their groups: a row is never predicted from its own group either. A model that was fitted with
                groups warns if they are not given.
        """
        aim: dict[str, Any] = {"link": link, "cost": cost, "quantile": quantile}
        if any(value is not None for value in aim.values()):
            rows, known = self.query_rows(X, ids, groups), {"ids": ids, "groups": groups}
            if self.targets_ is None:
                return self.for_loss(**aim, cap=cap).predict(rows, **known)
            return np.stack(
                [self.of_target(name).predict(rows, **aim, cap=cap, **known) for name in self.targets_], axis=1
            )
        (queries, identity, _), model = self._queries(X, ids, groups), self.fitted_
        return np.asarray(model.in_label_units(model.answer(queries, identity)).numpy())

    def for_loss(
        self,
        *,
        link: str | None = None,
        cost: float | tuple[float, float] | None = None,
        quantile: float | None = None,
        cap: float | None = 2.0,
    ) -> "NeighborRegressor":
        r"""This model with the prediction that belongs to a loss: what it predicts, explains and promises.

        Nothing is trained: from the same weights $w_j$ of the same rows it takes another summary of their labels.
        Under a link h, that of the least expected matching loss (proposition 1 of Selective Matching Losses),

        $$ \hat y = h^{-1}\Big(\sum_j w_j\, h(y_j)\Big) , $$

        where h takes labels less the median of those of the bank, over their spread (half the distance from their 16 %
        to their 84 % quantile). Under a cost, the quantile of the labels by their weights. Of comparables $y_j$ are the
        adjusted labels and weights are divided by their sum; the trend's own share moves all of these labels alike, so
        that their mean stays the prediction of :meth:`predict`. Weights have to be those of labels that may come true:
        of the readouts "rows", "comparables" and "attention".

        Explanations sum to h of the prediction, and intervals lie around the prediction that is asked for. The model
        that is returned shares network and rows with this one; when the rows here change, ask again. Of several targets
        say ``of_target(name).for_loss(...)``.

        Args:
            link: as :func:`vicinal.links.parse` reads it: "exp(1.5)", "sinh", "identity" (the mean of the labels in
                their own units, whatever ``target_transform`` is).
            cost: what a unit too low and a unit too high cost, (under, over), or the first for a second of 1.
            quantile: from 0 to 1.
            cap: how many spreads from the median a link goes on straight that grows exponentially, so that no single
                label rules; None: nowhere.

        Raises:
            ValueError: unless one of link, cost and quantile is given; for a link that does not rise strictly; or for
                weights of either sign, or none.

        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> y = x[:, 0] + np.random.default_rng(0).normal(size=60)
        >>> model = NeighborRegressor(metric="kernel", readout="rows").fit(x, y)
        >>> low, middle, high = (model.predict([[3.0]], quantile=level)[0] for level in (0.1, 0.5, 0.9))
        >>> bool(low < middle < high), bool(model.predict([[3.0]], link="exp")[0] > model.predict([[3.0]])[0])
        (True, True)
        """
        named = [name for name, value in (("link", link), ("cost", cost), ("quantile", quantile)) if value is not None]
        if len(named) != 1:
            raise ValueError(f"link: expected one of link, cost and quantile, got {listed(named) or 'none of them'}")
        if self.targets_ is not None:
            raise ValueError(f"{named[0]}: expected one target, got {listed(self.targets_)}; say of_target first")
        model, head = self.fitted_, self.network_.head
        signed = weighs_locally(head) and not head.convex
        if signed or not head.uses_bank:
            got = "weights of either sign (readout 'dense')" if signed else "a dense head, which has none"
            raise ValueError(
                f"{named[0]}: expected a model whose weights of labels are not negative, got {got}; fit with "
                "readout='comparables' or readout='rows'"
            )
        base = model.codec.transform.base
        if link is not None:
            transform = TargetTransform.of_link(link, cap, model.bank.labels, model.bank.mass, base)
        else:
            level = quantile if cost is None else _level(cost)
            transform = base.model_copy(update={"level": check_between("quantile", level, 0, 1, closed=True)})
        one = copy.copy(self)
        one.fitted_ = model.read_out_by(transform)
        return one

    @usual_settings()
    def out_of_fold_error(self) -> float:
        r"""Mean squared error of the whole model on new rows, as estimated from the rows that it was fitted on.

        Where members are folds, row i has the prediction $\hat y^{f(i)}_i$ of the members that never saw it, an honest
        one, but of few members. The mean $\bar y_i$ of the predictions of all F folds errs less by as much as they
        disagree (the ambiguity decomposition of Krogh and Vedelsby 1994):

        $$ \frac{1}{n} \sum_i \big(\hat y^{f(i)}_i - y_i\big)^2 \Big(1 -
        \frac{\sum_i \frac{1}{F} \sum_f (\hat y^f_i - \bar y_i)^2}{\sum_i (\hat y^{f(i)}_i - y_i)^2}\Big) . $$

        How far members disagree needs no label; each row is left out of the rows that it is predicted from. It is
        measured on at most 4,096 rows. Kriging reads all members side by side, and errs about as their mean. With
        weights the means are weighted; of several targets it is the mean.

        Raises:
            ValueError: if rows were held out in place of folds.

        >>> x = np.linspace(0, 6, 120)[:, None]
        >>> model = NeighborRegressor(metric="network", validation_fraction=0, members=4, max_epochs=30)
        >>> model = model.fit(x, np.sin(x[:, 0]))
        >>> ids, single = model.out_of_fold_predictions()
        >>> bool(0 < model.out_of_fold_error() < np.mean((single - np.sin(x[ids, 0])) ** 2))
        True
        """
        ids, single = self.out_of_fold_predictions()
        at = self.bank_.keys_of(ids)
        error = (single - self.bank_.labels[at].double().numpy()) ** 2
        return float(
            np.average(error, axis=0, weights=self.bank_.mass[at].numpy()).mean() * ensemble_share(self.fitted_)
        )

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, ids: Any = None, groups: Any = None
    ) -> np.ndarray[Any, Any]:
        """Intervals ``[n, 2]`` (low, high) that hold the true number with probability of at least ``coverage``.

        For several targets ``[n, T, 2]``; each interval holds its own number with that probability.

        The central range of the neighbors' labels, widened or narrowed by one margin that is calibrated on the rows
        held out (conformalized quantiles, arXiv:1905.03222); for a kriging readout, the prediction plus and minus a
        calibrated multiple of its kriging deviation times the usual size of errors where prediction and deviation are
        as here (:class:`vicinal.calibration.ErrorSize`). With a ``target_transform`` all this happens on its scale, and
        the ends are mapped back. A range's ends are drawn in by a hundredth of the way to the prediction: where labels
        repeat (ratings, digits), ends that are labels would tie and cover too much. The guarantee is on average over
        rows that are exchangeable with the held-out ones, each of which is predicted from all rows but itself. The
        held-out rows also serve early stopping, stand in the bank, and set the scale and noise of kriging, which is a
        mild reuse. For the dense head the range is the prediction itself. Rows far beyond those of the fit get wider
        intervals, see ``docs/uncertainty.md``.

        Of a model that was fitted with groups every row counts as one of a new group, whether its group is given or
        not: the groups are what is exchangeable, so G groups calibrate, each as one (see
        :func:`vicinal.calibration.group_mass`), and the promise is for a row of a new group. For ``metric="kernel"``
        these are all groups of the bank, each predicted from the others, as a kernel has few numbers that they could
        bend; else those held out, or out of fold. Where ``coverage`` is above G / (G + 1), intervals are infinite, and
        a :class:`vicinal.core.CalibrationWarning` says so.

        Args:
            X: rows.
            coverage: between 0 and 1.
            ids: see :meth:`predict`.
            groups: see :meth:`predict`.

        Raises:
            ValueError: if too few rows were held out for that coverage, of a model that was fitted without groups.
        """
        return self.predict_intervals(X, (coverage,), ids=ids, groups=groups)[coverage]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of variance explained, R², for labels as :meth:`fit` takes them; of several targets the mean."""
        codec = self.fitted_.codec
        return float(super().score(X, codec.read(y) if isinstance(codec, NumberCodec) else y, sample_weight))

    @usual_settings()
    def predict_intervals(
        self, X: Any, coverages: Sequence[float], *, ids: Any = None, groups: Any = None
    ) -> dict[float, np.ndarray[Any, Any]]:
        """The same for several coverages at once, by coverage; a kriging readout solves for its weights only once.

        See :meth:`predict_interval` for the arguments and what is raised.
        """
        for coverage in coverages:
            check_between("coverage", coverage, 0, 1)
        known: dict[str, Any] = {"ids": ids, "groups": groups}
        queries, identity, rows = self._queries(X, ids, groups)
        if self.targets_ is not None:
            each = [self.of_target(name).predict_intervals(rows, coverages, **known) for name in self.targets_]
            return {level: np.stack([one[level] for one in each], axis=1) for level in coverages}
        intervals = intervals_of(self.fitted_, queries, identity, coverages, rows.farthest())
        labels = self.bank_.labels
        if bool(((labels >= 0) & (labels == labels.round())).all()):  # counts; a prediction lies in its interval
            least = np.minimum(self.predict(rows, **known), 0)[:, None]
            intervals = {level: np.maximum(ends, least) for level, ends in intervals.items()}
        return intervals

    @once
    def of_target(self, name: str) -> "NeighborRegressor":
        """This model for one of several targets alone: what it predicts, explains, promises and is measured by.

        It shares network and rows with this one; when the rows here change, it does not follow: ask again then.

        Args:
            name: one of ``targets_``.

        >>> x = np.linspace(0, 6, 60)[:, None]
        >>> model = NeighborRegressor(metric="kernel").fit(x, np.c_[np.sin(x), x**2])
        >>> model.predict(x[:3]).shape, model.of_target("y1").predict_interval(x[:3]).shape
        ((3, 2), (3, 2))
        """
        if self.targets_ is None:
            raise ValueError("of_target: expected a model of several targets, got one of a single target")
        place = list(self.targets_).index(check_choice("name", name, self.targets_))
        model = copy.copy(self)
        model.fitted_ = self.fitted_.of_target(place)
        return model

    def _codec_of(self, y: Any, rows: int) -> tuple[LabelCodec, Ids]:
        codec = NumberCodec.of(y, settings_of(self)["target_transform"])
        if codec.targets is not None and self.loss is not None:
            raise ValueError(f"loss: expected None for several targets, got {short(self.loss)}")
        return codec, codec.take(y, rows)


class NeighborClassifier(ClassifierMixin, BankedEstimator, task="classification"):  # type: ignore[misc]  # scikit-learn has no types
    """Predicts a class, or several, from the classes of neighbors, with an encoder trained for just that.

    With a network, the probability of a class is the weight of the neighbors that have it, and training minimizes the
    log-loss of the probabilities. With a kernel (see ``metric``), that weight is a score ``s_k``, to which rows may
    also contribute negatively, and probabilities are proportional to ``exp(a s_k + b_k)``, with ``a`` and ``b_k``
    calibrated on rows that had no part in their own scores. With trees scores are shares of few rows, moved by a trend
    of the probabilities, and calibrated as ``exp(b_k) (max(s_k, 0) + e)^a``. Contributions of explanations then sum to
    the score, and ``probability`` gives the probability. Parameters, explanations and bank are those of
    :class:`NeighborRegressor`.

    Where rows may have several classes, or none, each class has a probability of its own, and the log-loss is averaged
    over the classes; :meth:`predict` gives a class once its probability reaches the threshold of that class, and
    explanations are about the most probable class. Losses are then those for several classes a row, and ``readout`` is
    attention.

    Attributes:
        classes_: the classes, sorted; those that :meth:`add` brought come after them.
        multilabel_: whether rows may have several.
        target_transform_: the scale of contributions: its ``name`` is "softmax" where a kernel gives scores, and
            "power" where trees do.

    >>> x = np.repeat([[0.0], [5.0]], 20, axis=0) + np.arange(40)[:, None] / 40
    >>> model = NeighborClassifier(max_epochs=20, learning_rate=1e-2).fit(x, ["a"] * 20 + ["b"] * 20)
    >>> model.predict([[0.2], [5.4]]).tolist()
    ['a', 'b']
    >>> tags = [["sea"]] * 10 + [["sea", "sun"]] * 10 + [["sun"]] * 10 + [[]] * 10
    >>> model = NeighborClassifier(max_epochs=20, learning_rate=1e-2).fit(x + np.arange(40)[:, None] // 10, tags)
    >>> model.predict_proba([[0.2], [1.6]]).shape, model.classes_.tolist()
    ((2, 2), ['sea', 'sun'])
    """

    _expected_classes: Any = None  # of the rows that partial_fit may get later

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: rows may have several classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def __dir__(self) -> list[str]:
        """Thresholds only where rows may have several classes."""
        several = hasattr(self, "fitted_") and self.multilabel_
        return [name for name in super().__dir__() if several or name != "thresholds_"]

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        validation: Any = None,
        times: Any = None,
    ) -> Self:
        """Train on labelled rows: see :meth:`NeighborRegressor.fit`; ``y`` holds at least two classes.

        For several classes a row, ``y`` is a list of classes for each row (empty for none), or 0 and 1 ``[n, K]`` as an
        array or a DataFrame, whose column names are the classes.
        """
        return self._fit(X, y, ids, groups, validation, sample_weight, times)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        *,
        sample_weight: Any = None,
        ids: Any = None,
        groups: Any = None,
        refit: bool = False,
        epochs: int | None = None,
    ) -> Self:
        """See :meth:`NeighborRegressor.partial_fit`.

        Args:
            X: rows.
            y: their classes.
            classes: in the first call, all classes that any call may bring; None: those of the first ``y``. Later calls
                may leave it out.
            sample_weight: see :meth:`fit` and :meth:`add`.
            ids: likewise.
            groups: likewise.
            refit: then train anew on all rows.
            epochs: or train this many more epochs, see there.

        >>> x = np.arange(40.0)[:, None]
        >>> first = NeighborClassifier(max_epochs=2).partial_fit(x, ["a"] * 20 + ["b"] * 20, classes=["a", "b", "c"])
        >>> first.partial_fit(x[:9] + 48, ["c"] * 9).predict([[52.0]]).tolist()
        ['c']
        """
        if hasattr(self, "bank_"):
            if classes is not None and sorted(classes) != sorted(self.classes_.tolist()):
                raise ValueError(
                    f"classes: expected those of the first call, {listed(self.classes_.tolist())}, got "
                    f"{listed(sorted(classes))}"
                )
            classes = self.classes_.tolist()
        self._expected_classes = None if classes is None else read_classes(classes)
        try:
            return self._learn_on(X, y, ids, groups, sample_weight, refit=refit, epochs=epochs)
        finally:
            self._expected_classes = None

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose predicted class is that of ``y``, given as :meth:`fit` takes it."""
        known = y if self.multilabel_ else read_classes(y)
        return float(super().score(X, known, sample_weight))

    @usual_settings()
    def predict_proba(self, X: Any, *, ids: Any = None, groups: Any = None) -> np.ndarray[Any, Any]:
        """Probability of each class ``[n, K]``, see :meth:`NeighborRegressor.predict`.

        Rows sum to 1; where a row may have several classes, each probability is in [0, 1] on its own.
        """
        (queries, identity, _), model = self._queries(X, ids, groups), self.fitted_
        shares = model.in_label_units(model.answer(queries, identity))
        return np.asarray(shares.double().clamp(0, 1).numpy() if self.multilabel_ else as_shares(shares))

    @usual_settings()
    def predict_set(
        self, X: Any, coverage: float = 0.9, *, method: str = "lac", ids: Any = None, groups: Any = None
    ) -> np.ndarray[Any, Any]:
        """Sets of classes ``[n, K]``, true for those in it, that hold the true class at least ``coverage`` of the time.

        Calibrated on the rows that folds leave out (see :func:`vicinal.calibration.cross_conformal_sets`), or on the
        held-out rows (:class:`vicinal.calibration.ConformalClasses`). A set may be empty. Of a model that was fitted
        with groups it is groups that calibrate, as in :meth:`NeighborRegressor.predict_interval`; where there are too
        few of them for ``coverage``, sets hold all classes.

        Args:
            X: rows.
            coverage: between 0 and 1.
            method: "lac", "aps" or "raps", see :func:`vicinal.calibration.class_scores`.
            ids: see :meth:`predict_proba`.
            groups: see :meth:`predict_proba`.

        Raises:
            ValueError: if there are too few calibration rows for that coverage, of a model that was fitted without
                groups, or if rows may have several classes.
        """
        check_between("coverage", coverage, 0, 1)
        if self.multilabel_:
            raise ValueError("predict_set: expected a model of one class a row, got one of several; say predict_proba")
        queries, identity, _ = self._queries(X, ids, groups)
        return class_sets(self.fitted_, queries, identity, coverage, method)

    @property
    @usual_settings()
    def thresholds_(self) -> Ids:
        """Where rows may have several classes, the probability at which :meth:`predict` gives each class, ``[K]``.

        See :func:`vicinal.calibration.f1_thresholds`; computed on at most 4,096 held-out or out-of-fold rows, and again
        when rows of the bank change. Without held-out rows they are 0.5.
        """
        if not self.multilabel_:
            raise AttributeError("thresholds_: expected a model of several classes a row, got one of a class each")
        return class_thresholds(self.fitted_)

    @usual_settings()
    def answering_threshold(self, abstain: float) -> float:
        """The probability of its most probable class from which :meth:`predict` answers a row, with ``abstain``.

        See :func:`vicinal.calibration.answering_threshold`, with 90 % confidence; computed on the rows that calibrate
        :meth:`predict_set`, one row of each group where there are groups.

        Raises:
            ValueError: if these rows cannot promise that error rate, naming the lowest that they can, or if rows may
                have several classes.
        """
        check_between("abstain", abstain, 0, 1)
        if self.multilabel_:
            raise ValueError("abstain: expected a model of one class a row, got one of several")
        return threshold_of_answers(self.fitted_, abstain)

    @usual_settings()
    def predict(
        self, X: Any, *, abstain: float | None = None, ids: Any = None, groups: Any = None
    ) -> np.ndarray[Any, Any]:
        """The most probable class of each row ``[n]``; see :meth:`NeighborRegressor.predict`.

        Where rows may have several classes: 0 or 1 for each, ``[n, K]`` in the order of ``classes_``, 1 from
        ``thresholds_`` on.

        Args:
            X: rows.
            abstain: answer only rows from :meth:`answering_threshold` on, so that at most this share of the answers is
                wrong, with 90 % confidence, for rows like those of the fit; others are None. None: answer all.
            ids: see :meth:`NeighborRegressor.predict`.
            groups: likewise; with groups the promise is for rows of new ones.

        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = np.where(x[:, 0] > 0, "right", "left")
        >>> model = NeighborClassifier(metric="kernel", validation_fraction=0.5).fit(x, y)
        >>> model.predict([[-2.0, 0.0], [0.0, 0.0], [2.0, 0.0]], abstain=0.05).tolist()
        ['left', None, 'right']
        """
        least = None if abstain is None else self.answering_threshold(abstain)
        chances = self.predict_proba(X, ids=ids, groups=groups)
        if self.multilabel_:
            return np.asarray(chances >= self.thresholds_, dtype=np.int64)
        named: np.ndarray[Any, Any] = np.asarray(self.classes_)[chances.argmax(axis=1)]
        if least is not None:
            named = named.astype(object)
            named[chances.max(axis=1) < least] = None
        return named

    def _codec_of(self, y: Any, rows: int) -> tuple[LabelCodec, Ids]:
        several = is_multilabel(as_series("y", y))
        if several and self.readout not in ("auto", "attention"):
            raise ValueError(f"readout: expected 'attention' for several classes a row, got {short(self.readout)}")
        if several and self.metric in ("kernel", "trees"):
            raise ValueError(f"metric: expected 'network' for several classes a row, got {self.metric!r}")
        return ClassCodec.of(y, rows, self._expected_classes)
