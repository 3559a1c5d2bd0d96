"""MetricClassifier: name the metric; fit, predict, score as scikit-learn does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from metricfit.core.counts import Counts
from metricfit.core.types import ScalarAverage
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.decisions import HeldOut, choose_decision, collect_held_out, to_probability
from metricfit.errors import InvalidValueError
from metricfit.metrics.average import averaged
from metricfit.metrics.curves import Requirements, as_requirements
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.metrics.metric import Formula, Metric, get_metric
from metricfit.metrics.requirements import Requirement
from metricfit.tabular import inputs, storage
from metricfit.tabular.encoding.encoder import TableEncoder
from metricfit.tabular.member_training import Rows, Settings, plan, train
from metricfit.tabular.networks import OwnNetwork
from metricfit.tabular.objectives import RecipeName
from metricfit.tabular.parameters import check_parameters, training_settings
from metricfit.tabular.positive_class import choose_positive_class, classes_of, order_of, shares_of, training_weights
from metricfit.tabular.report_layer import ModelReport
from metricfit.tabular.rollback import unchanged_if_it_fails

CHUNK = 1024


class MetricClassifier(ModelReport, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tables, trained and tuned for the metric it is judged by.

    Args:
        metric: a Metric, its name such as ``"fbeta(beta=2)"``, or a function of Counts.
        subject_to: requirements on the threshold, such as ``"recall >= 0.95"``; for two classes. If no threshold meets
            them, the trained model is kept, decisions are at the threshold with the smallest violation, and an
            InfeasibleWarning says what is reachable; ``rethreshold(subject_to=...)`` chooses again.
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
        verbose: show a progress bar; what was decided is logged in any case, by the logger "metricfit.tabular".
        random_state: of folds, first weights and batches.

    Attributes:
        classes_: the labels, sorted.
        pos_label_: the positive class of two; None for several classes.
        threshold_: a row is positive where ``predict_proba`` of its positive class is at least this: the exact best on
            the out-of-fold probabilities, under the requirements. None for several classes.
        threshold_interval_: how firmly the rows determine it, a 95 % bootstrap interval.
        requirements_: for each requirement, as text, its value out of fold, whether that meets the bound, and the best
            value that any threshold gives.
        requirements_met_: whether all requirements are met out of fold; True if there are none.
        offsets_: of several classes, what is added to the log-probabilities before the largest is taken.
        value_: the metric there, out of fold; the decision was chosen on the same rows, so the value on new rows is
            usually slightly worse.
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
        recipe: RecipeName = "mix",
        members: int = 8,
        average: ScalarAverage = "macro",
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
            held_out = collect_held_out(found.out_of_fold, rows.y, weights, rows.groups)
            self.calibration_ = fit_calibration(held_out.logits, held_out.y, held_out.weight)
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

    def rethreshold(
        self, prevalence: float | Mapping[Any, float] | None = None, *, subject_to: Requirements | None = "unchanged"
    ) -> MetricClassifier:
        """Choose the threshold again, for another class balance or other requirements; nothing is trained.

        For another balance the probabilities move as well: the rows of each class are taken to be as before, only more
        or fewer of them (prior shift).

        Args:
            prevalence: The share of the positive class, or of each class by its label. None means the balance of the
                training rows.
            subject_to: Requirements that replace the model's ``subject_to``; None removes them. By default they stay.

        Returns:
            The model itself.

        Where no threshold meets the requirements, an InfeasibleWarning says what is reachable, and decisions are at
        the threshold with the smallest violation, as in ``fit``.

        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("precision", network="mlp", members=2, epochs=5, random_state=0)
        >>> model.fit(X, X[:, 0] > 1).rethreshold(subject_to="recall >= 0.9").requirements_met_
        True
        """
        check_is_fitted(self, "decision_")
        with unchanged_if_it_fails(self):
            if subject_to != "unchanged":
                requirements = as_requirements(subject_to)
                self._check_requirements(requirements)
                self.subject_to = subject_to
            held_out, shift = self.held_out_, torch.zeros_like(self.shift_)
            if prevalence is not None:
                shares = shares_of(prevalence, self.classes_[self._order])
                held_out = self.held_out_.with_class_shares(torch.from_numpy(shares))
                shift = (held_out.logits - self.held_out_.logits)[0]
            self._decide(held_out, shift)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The members' mean logits, calibrated and moved so that decisions fall at 0.

        Of two classes ``(n,)``, above 0 for the second of ``classes_``; of several ``(n, c)``, with the
        offsets added, the largest decides.
        """
        logits = self._logits(X)
        margins: NDArray[np.float64] = self.decision_.margins(logits).numpy()
        if len(self.classes_) > 2:
            return margins
        return margins if self._order[1] == 1 else -margins

    def predict(self, X: Any) -> NDArray[Any]:
        """The labels: of two classes by the threshold; of several, where log-probability plus offset is largest."""
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
            raise InvalidValueError(f"y has labels that were not there in fit: {', '.join(map(str, unknown[:5]))}")
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
        self._check_requirements(requirements)
        self.pos_label_ = choose_positive_class(labels, self.pos_label)
        self._order = order_of(self.classes_, self.pos_label_)
        number = self._numbers_of(labels)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.encoder_ = TableEncoder()
        rows = Rows(
            torch.from_numpy(self.encoder_.fit(table)),
            number,
            training_weights(labels, self.classes_, self.class_weight, weight),
            group,
        )
        prior = float((number == 1).double().mean())
        settings = training_settings(self, metric, requirements, classes=len(self.classes_), prior=prior, seed=seed)
        return rows, weight, settings

    def _check_requirements(self, requirements: list[Requirement]) -> None:
        if len(self.classes_) > 2 and requirements:
            raise InvalidValueError(
                "subject_to is for two classes; of several, fit a network under metricfit.constraints"
            )

    def _decide(self, held_out: HeldOut, shift: torch.Tensor) -> None:
        decision = choose_decision(
            held_out,
            get_metric(self.metric),
            subject_to=as_requirements(self.subject_to),
            average=self.average,
            seed=self._seed,
        )
        self.shift_, self.decision_ = shift, decision
        self._show_decision()
        if decision.not_reachable is not None:
            warnings.warn(
                f"{decision.not_reachable}. The model is kept and decides there; rethreshold(subject_to=...) chooses "
                "again without training",
                InfeasibleWarning,
                stacklevel=3,
            )

    def _show_decision(self) -> None:
        """The attributes for users, from what is kept."""
        decision = self.decision_
        self.value_, self.value_interval_ = decision.value, decision.value_interval
        self.requirements_ = dict(decision.requirements)
        self.requirements_met_ = all(result.met for result in decision.requirements.values())
        self.offsets_ = None if decision.offsets is None else decision.offsets.numpy()
        self.threshold_ = None if decision.threshold is None else to_probability(decision.threshold)
        ends = decision.interval
        self.threshold_interval_ = None if ends is None else (to_probability(ends[0]), to_probability(ends[1]))

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
