"""MetricClassifier: name the metric; fit, predict, score as scikit-learn does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from metricfit.core.counts import Counts
from metricfit.estimators import inputs, storage
from metricfit.estimators.calibration import calibrated
from metricfit.estimators.decisions import HeldOut, decided, held_out_of
from metricfit.estimators.labels import choose_positive_class, classes_of, order_of, shares_of
from metricfit.estimators.networks import OwnNetwork
from metricfit.estimators.objectives import stages_for
from metricfit.estimators.parameters import check_parameters
from metricfit.estimators.table import TableEncoder
from metricfit.estimators.training import Rows, Settings, plan, train
from metricfit.estimators.undoing import unchanged_if_it_fails
from metricfit.metrics.average import averaged
from metricfit.metrics.base import Formula, Metric, get_metric
from metricfit.metrics.curves import Requirements, as_requirements

CHUNK = 1024


class MetricClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tables, trained and tuned for the metric it is judged by.

    Args:
        metric: a Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        subject_to: requirements on the threshold, such as ``"recall >= 0.95"``; for two classes.
        network: "mlp", "embedded" (an MLP with piecewise-linear embeddings), "blend" (those two side by side, their
            logits averaged), "tabm", or a function of the numbers of inputs and outputs that gives a module. "auto" is
            the blend, the best on average where they were compared; "embedded" where the recipe trains one network.
        recipe: "mix" (cross-entropy plus half the metric's loss), "bce", "metric", "two_stage" or "constrained"; for
            comparison "focal" and "surrogate".
        members: folds, each held out by one member; no more than the rarest class has rows.
        average: of several classes: "macro", "micro" or "weighted".
        pos_label: the positive class of two. By default 1 of 0/1 and of -1/1, True of booleans, and otherwise the
            class with fewer rows (the later in sorted order if both have equally many), which is logged.
        class_weight: "balanced" or a weight for each class, in training alone: the threshold is tuned, and
            probabilities are calibrated, on the rows as they are.
        epochs: at most so many a stage; by default 2,500 steps' worth, from 40 to 500, or what ``time_budget`` allows.
        patience: epochs without a lower validation loss before a member stops; by default a sixth of the epochs.
        batch_size: rows a step.
        lr: the learning rate.
        time_budget: seconds of training, estimated from a timed step; epochs are lowered to meet it, then members.
            None for no limit. What was lowered is logged. Two members and about 100 steps each, from 2 to 10 epochs,
            are trained in any case; a warning is logged where those may take longer. Timing varies from run to run:
            for results that repeat exactly on another machine give what ``plan`` finds, and ``time_budget=None``.
        device: where to train; by default a GPU if there is one.
        verbose: show a progress bar; what was decided is logged in any case, by the logger "metricfit.estimators".
        random_state: of folds, first weights and batches.

    Attributes:
        classes_: the labels, sorted.
        pos_label_: the positive class of two; None for several classes.
        threshold_: a row is positive where ``predict_proba`` of its positive class is at least this: the exact best on
            the out-of-fold probabilities, under the requirements. None for several classes.
        threshold_interval_: how firmly the rows determine it, a 95 % bootstrap interval.
        offsets_: of several classes, what is added to the log-probabilities before the largest is taken.
        value_: the metric there, out of fold; chosen on the same rows, so on new ones a little less is to be expected.
        value_interval_: its 95 % bootstrap interval, for two classes.
        history_: a row for each member and epoch.

    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = MetricClassifier("f1", network="mlp", members=2, epochs=5, random_state=0).fit(X, X[:, 0] > 1)
    >>> model.predict(X[:3]).dtype, model.predict_proba(X).shape
    (dtype('bool'), (200, 2))
    """

    def __init__(
        self,
        metric: str | Metric | Formula = "f1",
        *,
        subject_to: Requirements | None = None,
        network: str | OwnNetwork = "auto",
        recipe: str = "mix",
        members: int = 8,
        average: str = "macro",
        pos_label: Any = None,
        class_weight: str | Mapping[Any, float] | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int = 1024,
        lr: float = 1e-3,
        time_budget: float | None = 300.0,
        device: str | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.subject_to = subject_to
        self.network = network
        self.recipe = recipe
        self.members = members
        self.average = average
        self.pos_label = pos_label
        self.class_weight = class_weight
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.lr = lr
        self.time_budget = time_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> MetricClassifier:
        """Train the members, calibrate, and choose the threshold.

        ``X`` is an array (NaN is missing), a pandas or polars DataFrame with columns of any kind, or a sparse matrix.
        ``sample_weight`` counts in training, in calibration and in the choice of the threshold. Rows of one group, and
        copies of a row, are held out together. A fit that fails leaves the model as it was.
        """
        with unchanged_if_it_fails(self):
            rows, weight, settings = self._prepared(X, y, sample_weight, groups)
            found = train(rows, settings)
            # In double precision a row's prediction does not depend on the rows beside it.
            self.members_ = [each.double().eval() for each in found.members]
            self.network_, self.history_ = found.network, found.history
            weights = None if weight is None else torch.from_numpy(weight)
            held_out = held_out_of(found.out_of_fold, rows.y, weights, rows.groups)
            self.calibration_ = calibrated(held_out.logits, held_out.y, held_out.weight)
            self.held_out_ = replace(held_out, logits=self.calibration_(held_out.logits))
            self._seed = settings.seed
            self._decide(self.held_out_, torch.zeros(self.held_out_.logits.shape[1], dtype=torch.float64))
        return self

    def plan(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> dict[str, Any]:
        """The network, epochs and members that ``fit`` would take, by a timed step; nothing is trained or changed.

        With these and ``time_budget=None``, training depends no longer on how fast the machine is at the moment, and
        several models can be given the same effort.

        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", network="mlp", members=4, epochs=5, random_state=0)
        >>> model.plan(X, X[:, 0] > 1)
        {'network': 'mlp', 'epochs': 5, 'members': 4}
        """
        rows, _, settings = clone(self)._prepared(X, y, sample_weight, groups)
        network, effort = plan(rows, settings)
        chosen = self.network if network.name == "own" else network.name
        return {"network": chosen, "epochs": effort.epochs, "members": effort.members}

    def rethreshold(self, prevalence: float | Mapping[Any, float] | None = None) -> MetricClassifier:
        """Choose the threshold, and move the probabilities, for another class balance.

        The rows of each class are taken to be as before, only more or fewer of them (prior shift).

        Args:
            prevalence: the share of the positive class, or of each class by its label.
                None goes back to the balance of the training rows.

        Where the requirements cannot be met at that balance, InfeasibleError is raised and the model stays as it was.
        """
        check_is_fitted(self, "decision_")
        if prevalence is None:
            self._decide(self.held_out_, torch.zeros_like(self.shift_))
            return self
        shares = shares_of(prevalence, self.classes_[self._order])
        moved = self.held_out_.balanced_as(torch.from_numpy(shares))
        self._decide(moved, (moved.logits - self.held_out_.logits)[0])
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The members' mean logits, calibrated and moved so that decisions fall at 0.

        Of two classes ``(n,)``, above 0 for the second of ``classes_``; of several ``(n, c)``, the largest decides.
        """
        logits = self._logits(X)
        margins: NDArray[np.float64] = self.decision_.margins(logits).numpy()
        if len(self.classes_) > 2:
            return margins
        return margins if self._order[1] == 1 else -margins

    def predict(self, X: Any) -> NDArray[Any]:
        """The labels."""
        logits = self._logits(X)
        margins = self.decision_.margins(logits)
        number = (margins >= 0).long() if len(self.classes_) == 2 else margins.argmax(1)
        labels: NDArray[Any] = self.classes_[self._order[number.numpy()]]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities, a column for each of ``classes_``."""
        logits = self._logits(X)
        if len(self.classes_) == 2:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        found = np.empty(logits.shape)
        found[:, self._order] = torch.softmax(logits, dim=1).numpy()
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions; its negative where lower is better, so that higher always is."""
        metric = get_metric(self.metric)
        predicted, labels = self.predict(X), inputs.checked_labels(self, y)
        check_consistent_length(predicted, labels)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that were not there in fit: {', '.join(map(str, unknown[:5]))}")
        weight = inputs.checked_weights(sample_weight, labels)
        counts = Counts.from_labels(
            self._numbers_of(predicted),
            self._numbers_of(labels),
            num_classes=None if len(self.classes_) == 2 else len(self.classes_),
            weight=None if weight is None else torch.from_numpy(weight),
        )
        value = float(averaged(metric, counts, self.average))
        return -value if metric.minimize else value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a new folder: JSON and safetensors, nothing pickled."""
        check_is_fitted(self, "decision_")
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **own: Any) -> MetricClassifier:
        """A model from a folder; nothing in it is executed, and one that was changed or cut short is refused.

        A metric or a network that is the user's own function is not in the folder: give it again, as ``metric=`` or
        ``network=``.
        """
        model = cls()
        storage.load(model, path, **own)
        return model

    def _prepared(
        self, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> tuple[Rows, NDArray[np.float64] | None, Settings]:
        """The checked rows as numbers, their own weights, and how to train on them."""
        check_parameters(self)
        metric, requirements = get_metric(self.metric), as_requirements(self.subject_to)
        table = inputs.checked_table(self, X, reset=True)
        labels = inputs.checked_labels(self, y)
        check_consistent_length(table, labels)
        weight, group = inputs.checked_weights(sample_weight, table), inputs.checked_groups(groups, table)
        if weight is not None and not weight.all():  # a row of weight 0 is as good as absent
            there = weight > 0
            table, labels, weight = inputs.rows(table, there), labels[there], weight[there]
            group = None if group is None else group[there]
        self.classes_ = classes_of(labels)
        if len(self.classes_) > 2 and requirements:
            raise ValueError("subject_to is for two classes; of several, fit a network under metricfit.constraints")
        self.pos_label_ = choose_positive_class(labels, self.pos_label)
        self._order = order_of(self.classes_, self.pos_label_)
        number = self._numbers_of(labels)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.encoder_ = TableEncoder()
        rows = Rows(
            torch.from_numpy(self.encoder_.fit(table)),
            number,
            self._training_weights(labels, weight),
            group,
        )
        stages = partial(
            stages_for,
            self.recipe,
            metric,
            classes=len(self.classes_),
            average=self.average,
            lr=self.lr,
            subject_to=requirements,
            prior=float((number == 1).double().mean()),
        )
        settings = Settings(
            network=self.network,
            stages_for_parts=lambda parts: stages(parts=parts),
            members=self.members,
            epochs=self.epochs,
            patience=self.patience,
            batch_size=self.batch_size,
            lr=self.lr,
            time_budget=self.time_budget,
            device=torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu")),
            verbose=self.verbose,
            seed=seed,
        )
        return rows, weight, settings

    def _decide(self, held_out: HeldOut, shift: torch.Tensor) -> None:
        decision = decided(
            held_out,
            get_metric(self.metric),
            subject_to=as_requirements(self.subject_to),
            average=self.average,
            seed=self._seed,
        )
        self.shift_, self.decision_ = shift, decision
        self._show_decision()

    def _show_decision(self) -> None:
        """The attributes for users, from what is kept."""
        decision = self.decision_
        self.value_, self.value_interval_ = decision.value, decision.value_interval
        self.offsets_ = None if decision.offsets is None else decision.offsets.numpy()
        self.threshold_ = None if decision.threshold is None else _probability(decision.threshold)
        ends = decision.interval
        self.threshold_interval_ = None if ends is None else (_probability(ends[0]), _probability(ends[1]))

    @torch.no_grad()
    def _logits(self, X: Any) -> torch.Tensor:
        """Calibrated mean logits, for the class balance in force."""
        check_is_fitted(self, "decision_")
        x = torch.from_numpy(self.encoder_.transform(inputs.checked_table(self, X, reset=False)))
        means = []
        for part in torch.split(x, CHUNK):
            each = [member(part.double()).reshape(len(part), -1) for member in self.members_]
            means.append(torch.stack(each).mean(0))
        return self.calibration_(torch.cat(means)) + self.shift_

    def _numbers_of(self, labels: NDArray[Any]) -> torch.Tensor:
        """Class numbers, of two the positive 1."""
        return torch.from_numpy(np.argsort(self._order)[np.searchsorted(self.classes_, labels)])

    def _training_weights(self, labels: NDArray[Any], weight: NDArray[np.float64] | None) -> torch.Tensor | None:
        """The rows' weights times their classes', so that members also stop by the loss they learn from."""
        if self.class_weight is not None:
            of_classes = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            of_rows = of_classes[np.searchsorted(self.classes_, labels)]
            weight = of_rows if weight is None else of_rows * weight
        return None if weight is None else torch.from_numpy(weight).float()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _probability(logit: float) -> float:
    return float(torch.sigmoid(torch.tensor(logit, dtype=torch.float64)))
